//! A running server for tests: [`Running`] drives the front end and a few workers as the scheduler would.

use std::io::{Read, Write};
use std::net::{Shutdown as Half, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use yonder::sched::{Activity, Done, Frontend, Handler, Outcome, Timing};
use yonder_kv::{ItemMemory, KvConfig, KvFrontend, KvHandler, KvServer, Shutdown};

const WORKERS: usize = 2;
const ROOM: usize = 4;
/// Ends a test that would hang.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server on loopback addresses. Dropping it ends it.
pub(crate) struct Running {
    pub(crate) tcp: SocketAddr,
    pub(crate) udp: Option<SocketAddr>,
    pub(crate) shutdown: Shutdown,
    dispatcher: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(memory: impl ItemMemory, adjust: impl FnOnce(&mut KvConfig)) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = KvConfig { udp: Some(any_port), ..KvConfig::new(any_port) };
        adjust(&mut config);
        let server = KvServer::bind(config, memory).expect("loopback has free ports");
        let (tcp, udp, shutdown) = (server.tcp_address().unwrap_or(any_port), server.udp_address(), server.shutdown());
        let (mut frontend, handler) = server.into_parts();
        frontend.extra_stats(Box::new(|stats| stats.push(("major_faults".to_owned(), "7".to_owned()))));
        let dispatcher = std::thread::spawn(move || dispatch(frontend, &handler));
        Self { tcp, udp, shutdown, dispatcher: Some(dispatcher) }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.tcp)
    }

    /// Sends all input, ends the sending side, and returns everything that comes back.
    pub(crate) fn converse(&self, input: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        let mut sender = client.try_clone().expect("the socket is open");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A server that has ended the connection may refuse the rest.
                let _ = sender.write_all(input);
                let _ = sender.shutdown(Half::Write);
            });
            let mut output = Vec::new();
            client.read_to_end(&mut output).expect("the server answers");
            output
        })
    }

    /// Ends the server as an operator would.
    pub(crate) fn stop(mut self) {
        self.shutdown.request();
        self.dispatcher.take().expect("it runs").join().expect("the dispatcher does not panic");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// A client of a server that listens.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the server listens");
    client.set_read_timeout(Some(TIMEOUT)).expect("a valid timeout");
    client.set_write_timeout(Some(TIMEOUT)).expect("a valid timeout");
    client
}

/// Reads until the reply ends with `end`.
pub(crate) fn read_until(client: &mut impl Read, end: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    let mut piece = [0; 4096];
    while !output.ends_with(end) {
        let read = client.read(&mut piece).expect("the server answers");
        assert!(read > 0, "the server closed after {}", output.escape_ascii());
        output.extend_from_slice(&piece[..read]);
    }
    output
}

/// One command on an open connection, whose reply ends with `end`.
pub(crate) fn ask(client: &mut TcpStream, input: &[u8], end: &[u8]) -> Vec<u8> {
    client.write_all(input).expect("the server listens");
    read_until(client, end)
}

/// One number from the answer to `stats`.
pub(crate) fn stat(client: &mut TcpStream, name: &str) -> u64 {
    let stats = ask(client, b"stats\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("statistics are text");
    let line =
        stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} "))).expect("the statistic exists");
    line.parse().expect("a number")
}

fn dispatch<M: ItemMemory>(mut frontend: KvFrontend, handler: &KvHandler<M>) {
    let (requests, work) = mpsc::channel();
    let (done, replies) = mpsc::channel();
    let work = Arc::new(Mutex::new(work));
    let started = Instant::now();
    let now = || started.elapsed().as_nanos() as u64 + 1;
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            let (work, done, wake) = (Arc::clone(&work), done.clone(), frontend.waker());
            scope.spawn(move || {
                loop {
                    let request = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(request) = request else { break };
                    let timing = Timing::default();
                    done.send(Done { outcome: Outcome::Reply(handler.handle(request)), timing })
                        .expect("the dispatcher lives");
                    wake();
                }
            });
        }
        let mut outstanding = 0;
        while !(frontend.is_finished() && outstanding == 0) {
            let mut admitted = 0;
            let mut activity = frontend.poll(now(), ROOM - outstanding, &mut |request| {
                admitted += 1;
                requests.send(request).expect("workers live");
            });
            outstanding += admitted;
            assert!(outstanding <= ROOM, "no more than there is room for");
            while let Ok(done) = replies.try_recv() {
                outstanding -= 1;
                frontend.complete(now(), done);
                activity = Activity::Busy;
            }
            if activity == Activity::Idle {
                frontend.wait(Duration::from_secs(1));
            }
        }
        drop(requests);
    });
}
