//! A server of patterns and its clients, over the loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use yonder::sched::{Handler, SchedConfig, SchedStats, serve};
use yonder::{Config, FarMemory};
use yonder_load::{Rate, RequestSource};
use yonder_serve::{
    LoadError, LoadReport, LoadSettings, PIECE_BYTES, Protocol, REQUEST_BYTES_MAX, Served, Shutdown, UdpServer, hello,
    load,
};

const ABOUT: &str = "patterns";
/// What the handler refuses to make.
const UNLUCKY: u32 = 13;
const TIMEOUT: Duration = Duration::from_secs(20);

/// So many bytes that follow from their number.
fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 253) as u8 ^ bytes as u8).collect()
}

/// Asks for a pattern by its length.
struct Patterns;

impl Protocol for Patterns {
    type Request = u32;
    type Answer = Vec<u8>;

    fn put_request(bytes: &u32, to: &mut Vec<u8>) {
        to.extend_from_slice(&bytes.to_le_bytes());
    }

    fn request(bytes: &[u8]) -> Result<u32, String> {
        let bytes = bytes.try_into().map_err(|_| format!("{} bytes are no number", bytes.len()))?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn put_answer(answer: &Vec<u8>, to: &mut Vec<u8>) {
        to.extend_from_slice(answer);
    }

    fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

struct Maker;

impl Handler for Maker {
    type Request = u32;
    type Reply = Result<Vec<u8>, String>;

    fn handle(&self, bytes: u32) -> Self::Reply {
        if bytes == UNLUCKY { Err("no pattern of 13 bytes".to_owned()) } else { Ok(pattern(bytes)) }
    }
}

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    thread: JoinHandle<()>,
}

impl Server {
    /// `None`, and a line that says so, where userfaultfd is missing.
    fn start() -> Option<Self> {
        if let Err(why) = yonder::abilities().userfaultfd {
            println!("SKIP: no userfaultfd: {why}");
            return None;
        }
        let server = UdpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, shutdown) = (server.address(), server.shutdown());
        let thread = std::thread::spawn(move || {
            let far = FarMemory::open("emu://?size=64MiB", Config::with_local(16 << 20)).unwrap();
            let handler = Arc::new(Served::<Patterns, _>::new(Maker));
            let mut frontend = server.into_frontend::<Patterns>(ABOUT.to_owned());
            serve(&SchedConfig::with_workers(2), &far, &handler, &mut frontend, &SchedStats::default()).unwrap();
        });
        Some(Self { address, shutdown, thread })
    }

    fn end(self) {
        self.shutdown.request();
        self.thread.join().unwrap();
    }
}

/// Lengths in turn.
struct Lengths {
    next: usize,
    of: &'static [u32],
    /// What is taken for right.
    trusts: bool,
}

impl RequestSource for Lengths {
    type Request = u32;
    type Answer = Vec<u8>;
    const KINDS: &'static [&'static str] = &["short", "long"];

    fn next_request(&mut self) -> u32 {
        self.next += 1;
        self.of[self.next % self.of.len()]
    }

    fn verify(&self, answer: &Vec<u8>) -> Option<usize> {
        let is_right = self.trusts && *answer == pattern(answer.len() as u32);
        is_right.then_some(usize::from(answer.len() > PIECE_BYTES))
    }
}

fn settings(server: SocketAddr) -> LoadSettings {
    LoadSettings {
        target: server.to_string(),
        rate: Rate::Max,
        duration: Duration::from_millis(300),
        threads: 2,
        window: 6,
        patience: TIMEOUT,
    }
}

fn ask(settings: &LoadSettings, of: &'static [u32], trusts: bool) -> Result<LoadReport, LoadError> {
    let server = settings.target.parse().unwrap();
    load::<Patterns, _>("patterns", settings, server, |next| Lengths { next, of, trusts }, &mut |_| ())
}

#[test]
fn answers_of_any_length_come_back_whole() {
    let Some(server) = Server::start() else { return };
    let lengths = &[0, 1, 1399, 1400, 1401, 2800, 9999];
    let report = ask(&settings(server.address), lengths, true).unwrap();
    assert_eq!((report.lost, report.failed, report.dropped), (0, 0, 0), "{report:?}");
    assert!(report.kinds["short"].count > 100 && report.kinds["long"].count > 50, "{report:?}");
    let open = LoadSettings { rate: Rate::PerSecond(2000.0), window: 1000, ..settings(server.address) };
    let report = ask(&open, lengths, true).unwrap();
    let all = report.kinds["short"].count + report.kinds["long"].count;
    assert_eq!((report.lost, report.failed, report.dropped), (0, 0, 0), "{report:?}");
    assert!((400..800).contains(&all), "{all} requests of 600");
    server.end();
}

#[test]
fn a_request_that_cannot_be_answered_says_why() {
    let Some(server) = Server::start() else { return };
    let report = ask(&settings(server.address), &[UNLUCKY, 5], true).unwrap();
    assert_eq!(report.first_failure.as_deref(), Some("no pattern of 13 bytes"));
    assert!(report.failed > 50 && report.kinds["short"].count > 50 && report.lost == 0, "{report:?}");
    server.end();
}

#[test]
fn answers_that_are_not_right_fail_a_load() {
    let Some(server) = Server::start() else { return };
    let wrong = ask(&settings(server.address), &[5], false).unwrap_err();
    assert!(wrong.to_string().ends_with(" wrong answers came back"), "{wrong}");
    server.end();
}

#[test]
fn too_many_requests_on_their_way_are_dropped_and_those_without_an_answer_lost() {
    // Somebody who listens and says nothing.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (target, patience) = (silent.local_addr().unwrap(), Duration::from_millis(200));
    let settings = LoadSettings { patience, ..settings(target) };
    let LoadError::ServerGone { lost, .. } = ask(&settings, &[5], true).unwrap_err() else { panic!("an answer") };
    // Six at the start, which are not measured, and six whenever those are given up.
    assert!((6..=18).contains(&lost), "{lost} lost");
    let gone = ask(&settings, &[5], true).unwrap_err().to_string();
    assert!(gone.starts_with(&format!("the server at udp {target} has answered none of ")), "{gone}");
}

#[test]
fn a_server_says_who_it_is_and_nobody_is_one_line_that_says_what_to_type() {
    let Some(server) = Server::start() else { return };
    let target = server.address.to_string();
    assert_eq!(hello(&target, "patterns", TIMEOUT).unwrap(), (server.address, ABOUT.to_owned()));
    server.end();
    let nobody = hello(&target, "patterns", Duration::from_millis(150)).unwrap_err().to_string();
    assert_eq!(
        nobody,
        format!("nothing answers at udp {target}: start `yonder serve patterns --listen {target} ...` first")
    );
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let Err(refused) = UdpServer::bind(taken.local_addr().unwrap()) else { panic!("two servers at one address") };
    assert!(refused.to_string().contains("type --listen with a free address"), "{refused}");
    assert!(hello("no address", "patterns", TIMEOUT).unwrap_err().to_string().contains("type --target HOST:PORT"));
}

#[test]
fn what_is_no_request_is_refused_and_the_server_goes_on() {
    let Some(server) = Server::start() else { return };
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut reply = [0; 2000];
    let send = |body: &[u8]| client.send_to(body, server.address).unwrap();
    // Too short to be anything: no reply.
    send(b"1234567");
    let request = |id: u64, body: &[u8]| [&id.to_le_bytes()[..], body].concat();
    for (id, body, status, text) in [
        (1, &b"12345"[..], 1, "5 bytes are no number"),
        (2, &[1; REQUEST_BYTES_MAX + 1], 1, "a request is longer than 1400 bytes"),
        (3, b"\x02\0\0\0", 0, std::str::from_utf8(&pattern(2)).unwrap()),
    ] {
        send(&request(id, body));
        let (bytes, from) = client.recv_from(&mut reply).unwrap();
        assert_eq!(from, server.address);
        assert_eq!(reply[..8], id.to_le_bytes());
        assert_eq!((reply[12], &reply[16..bytes]), (status, text.as_bytes()));
    }
    server.end();
}
