//! A server of patterns and its clients, over the loopback.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder::sched::{Activity, Done, Frontend, Handler, SchedConfig, SchedStats, serve};
use yonder::units::Nanos;
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
/// Bytes before the body of a request and of a reply, and what the former ends with.
const REQUEST_HEAD: usize = 24;
const REPLY_HEAD: usize = 16;
const MARK: &[u8] = b"yonder:2";
/// In the head of a reply: a refusal, and that the request needs the token that follows.
const REFUSED: u8 = 1;
const PROVE: u8 = 3;
/// How long the token of an address is good, at most.
const TOKEN_AGE_MAX: Nanos = 128_000_000_000;

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

/// What a server and a test have in common.
struct Shared {
    /// Patterns that were asked for.
    asked: AtomicU64,
    /// How far the server's clock is ahead of the machine's.
    ahead: AtomicU64,
    /// For how many requests tokens last.
    tokens_last: u64,
}

struct Maker(Arc<Shared>);

impl Handler for Maker {
    type Request = u32;
    type Reply = Result<Vec<u8>, String>;

    fn handle(&self, bytes: u32) -> Self::Reply {
        if (self.0.asked.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.0.tokens_last) {
            self.0.ahead.fetch_add(TOKEN_AGE_MAX, Ordering::Relaxed);
        }
        if bytes == UNLUCKY { Err("no pattern of 13 bytes".to_owned()) } else { Ok(pattern(bytes)) }
    }
}

/// A front end whose clock is ahead.
struct Ahead<F>(F, Arc<Shared>);

impl<F: Frontend> Frontend for Ahead<F> {
    type Request = F::Request;
    type Reply = F::Reply;

    fn poll(&mut self, now: Nanos, room: usize, admit: &mut dyn FnMut(F::Request)) -> Activity {
        self.0.poll(now + self.1.ahead.load(Ordering::Relaxed), room, admit)
    }

    fn complete(&mut self, now: Nanos, done: Done<F::Reply>) {
        self.0.complete(now, done);
    }

    fn wait(&mut self, timeout: Duration) {
        self.0.wait(timeout);
    }

    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        self.0.waker()
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

/// A server on a thread of its own.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    shutdown: Shutdown,
    thread: JoinHandle<()>,
}

impl Server {
    /// `None`, and a line that says so, where userfaultfd is missing.
    fn start() -> Option<Self> {
        Self::with_tokens_that_last(u64::MAX)
    }

    /// One whose tokens are too old whenever so many requests were executed.
    fn with_tokens_that_last(tokens_last: u64) -> Option<Self> {
        if let Err(why) = yonder::abilities().userfaultfd {
            println!("SKIP: no userfaultfd: {why}");
            return None;
        }
        let server = UdpServer::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, shutdown) = (server.address(), server.shutdown());
        let shared = Arc::new(Shared { asked: AtomicU64::new(0), ahead: AtomicU64::new(0), tokens_last });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let far = FarMemory::open("emu://?size=64MiB", Config::with_local(16 << 20)).unwrap();
                let handler = Arc::new(Served::<Patterns, _>::new(Maker(Arc::clone(&shared))));
                let mut frontend = Ahead(server.into_frontend::<Patterns>(ABOUT.to_owned()), shared);
                serve(&SchedConfig::with_workers(2), &far, &handler, &mut frontend, &SchedStats::default()).unwrap();
            })
        };
        Some(Self { address, shared, shutdown, thread })
    }

    fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.shutdown.request();
        self.thread.join().unwrap();
    }
}

/// A client that knows what datagrams consist of, and counts their bytes.
struct RawClient {
    socket: UdpSocket,
    sent: usize,
    received: usize,
}

impl RawClient {
    fn of(server: &Server) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.address).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { socket, sent: 0, received: 0 }
    }

    fn send(&mut self, datagram: &[u8]) {
        self.sent += self.socket.send(datagram).unwrap();
    }

    /// The status and the part of the body in the next datagram, of a reply to `id`.
    fn receive(&mut self, id: u64) -> (u8, Vec<u8>) {
        let mut reply = [0; 2000];
        let bytes = self.socket.recv(&mut reply).unwrap();
        self.received += bytes;
        assert_eq!(reply[..8], id.to_le_bytes());
        (reply[12], reply[REPLY_HEAD..bytes].to_vec())
    }

    fn ask(&mut self, id: u64, token: u64, body: &[u8]) -> (u8, Vec<u8>) {
        self.send(&request(id, token, body));
        self.receive(id)
    }

    /// The token that the server wants to a request with `token`.
    fn refused(&mut self, token: u64, body: &[u8]) -> u64 {
        let (status, wanted) = self.ask(7, token, body);
        assert_eq!(status, PROVE, "{wanted:?}");
        u64::from_le_bytes(wanted.try_into().unwrap())
    }

    /// Counts what has come of a server that has ended, to the last byte.
    fn received_in_all(mut self) -> usize {
        self.socket.set_nonblocking(true).unwrap();
        let mut datagram = [0; 2000];
        while let Ok(bytes) = self.socket.recv(&mut datagram) {
            self.received += bytes;
        }
        self.received
    }
}

fn request(id: u64, token: u64, body: &[u8]) -> Vec<u8> {
    [&id.to_le_bytes()[..], &token.to_le_bytes(), MARK, body].concat()
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
    let mut client = RawClient::of(&server);
    // Too short to be anything, and another protocol's: no reply.
    client.send(b"1234567");
    client.send(&[9; 200]);
    let token = client.refused(0, b"");
    for (id, body, status, text) in [
        (1, &b"12345"[..], REFUSED, "5 bytes are no number"),
        (2, &[1; REQUEST_BYTES_MAX + 1], REFUSED, "a request is longer than 1400 bytes"),
        (3, b"\x02\0\0\0", 0, std::str::from_utf8(&pattern(2)).unwrap()),
    ] {
        assert_eq!(client.ask(id, token, body), (status, text.as_bytes().to_vec()));
    }
    server.end();
}

#[test]
fn an_address_that_is_not_proven_gets_no_more_than_it_sends_and_nothing_is_executed_for_it() {
    let Some(server) = Server::start() else { return };
    let long = &1_000_000_u32.to_le_bytes();
    // Two clients with tokens of their own, of which one will be too old.
    let (mut honest, mut late) = (RawClient::of(&server), RawClient::of(&server));
    let (stolen, old) = (honest.refused(0, b""), late.refused(0, b""));
    server.shared.ahead.fetch_add(TOKEN_AGE_MAX, Ordering::Relaxed);
    // The turn of the server that takes this may have begun before.
    honest.refused(0, b"");
    let token = honest.refused(stolen, b"");
    let mut forging = RawClient::of(&server);
    for body in [&long[..], b"", b"no pattern", &[1; REQUEST_BYTES_MAX + 1]] {
        for guess in [0, u64::MAX, token ^ 1, token ^ 2, stolen, token] {
            assert_ne!(forging.refused(guess, body), token, "another port has another token");
        }
        assert_ne!(late.refused(old, body), old);
    }
    (0..REQUEST_HEAD).for_each(|bytes| forging.send(&request(7, token, long)[..bytes]));
    // As before there were tokens.
    forging.send(&[&[7; 8][..], long].concat());
    assert_eq!(server.asked(), 0);
    // The same with the right token.
    let (status, first) = honest.ask(8, token, long);
    assert_eq!((status, &first[..]), (0, &pattern(1_000_000)[..PIECE_BYTES]));
    assert_eq!(server.asked(), 1);
    server.end();
    for attacker in [forging, late] {
        let sent = attacker.sent;
        let received = attacker.received_in_all();
        assert!(received <= sent, "{received} bytes for {sent}");
    }
    assert!(honest.received_in_all() > 10 * PIECE_BYTES, "the socket has room for a part of the answer");
}

/// Lengths, and how many were asked for.
struct Counted {
    lengths: Lengths,
    asked: Arc<AtomicU64>,
}

impl RequestSource for Counted {
    type Request = u32;
    type Answer = Vec<u8>;
    const KINDS: &'static [&'static str] = Lengths::KINDS;

    fn next_request(&mut self) -> u32 {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.lengths.next_request()
    }

    fn verify(&self, answer: &Vec<u8>) -> Option<usize> {
        self.lengths.verify(answer)
    }
}

#[test]
fn a_load_renews_its_tokens_and_every_request_is_executed_once() {
    for (rate, window) in [(Rate::Max, 6), (Rate::PerSecond(2000.0), 1000)] {
        let Some(server) = Server::with_tokens_that_last(10) else { return };
        let settings = LoadSettings { rate, window, ..settings(server.address) };
        let asked = Arc::<AtomicU64>::default();
        let source =
            |next| Counted { lengths: Lengths { next, of: &[1, 1400, 2800], trusts: true }, asked: Arc::clone(&asked) };
        let report = load::<Patterns, _>("patterns", &settings, server.address, source, &mut |_| ()).unwrap();
        assert_eq!((report.lost, report.failed, report.dropped), (0, 0, 0), "{report:?}");
        assert_eq!(asked.load(Ordering::Relaxed), server.asked());
        let renewed = server.shared.ahead.load(Ordering::Relaxed) / TOKEN_AGE_MAX;
        assert!(renewed >= 2, "tokens were renewed {renewed} times");
        server.end();
    }
}

#[test]
fn the_time_of_a_request_goes_on_while_a_token_is_waited_for_and_a_token_that_comes_twice_asks_once() {
    const HELD: Duration = Duration::from_millis(20);
    // Says twice which token it wants, each time after a while, and it is another for each request.
    let slow = UdpSocket::bind("127.0.0.1:0").unwrap();
    slow.set_read_timeout(Some(TIMEOUT)).unwrap();
    let address = slow.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut times = HashMap::<u64, u32>::new();
        let mut datagram = [0; 2000];
        loop {
            let (bytes, client) = slow.recv_from(&mut datagram).unwrap();
            if bytes < REQUEST_HEAD {
                return times;
            }
            let number = |at| u64::from_le_bytes(datagram[at..at + 8].try_into().unwrap());
            let (id, token) = (number(0), number(8));
            *times.entry(id).or_default() += 1;
            let reply = |status, body: &[u8]| {
                let reply = [&id.to_le_bytes()[..], &[0, 0, 1, 0, status, 0, 0, 0], body].concat();
                slow.send_to(&reply, client).unwrap();
            };
            if token == id {
                reply(0, &pattern(5));
            } else {
                std::thread::sleep(HELD); // tidy: sleep: it is the delay that has to be seen
                (0..2).for_each(|_| reply(PROVE, &id.to_le_bytes()));
            }
        }
    });
    let settings = LoadSettings {
        rate: Rate::PerSecond(20.0),
        window: 100,
        duration: Duration::from_millis(600),
        ..settings(address)
    };
    let report = ask(&settings, &[5], true).unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"end", address).unwrap();
    let times = server.join().unwrap();
    assert!(times.len() > 5 && times.values().all(|times| *times == 2), "{times:?}");
    assert_eq!((report.lost, report.failed, report.dropped), (0, 0, 0), "{report:?}");
    assert!(report.kinds["short"].count > 3 && report.p50_us >= 19_000.0, "{report:?}");
}
