//! A server whose clock a test sets: [`Driven`] is the front end and the handler on the thread of the test.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use yonder::sched::{Done, Frontend, Handler, Outcome, Timing};
use yonder_kv::{KvConfig, KvFrontend, KvHandler, KvServer};

use crate::harness::connect;
use crate::memory::FlatMemory;

const ROOM: usize = 4;
/// Ends a test in which something never happens.
const PATIENCE: Duration = Duration::from_secs(30);
/// A second of its clock.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A server at a moment of its own clock.
pub(crate) struct Driven {
    frontend: KvFrontend,
    handler: KvHandler<FlatMemory>,
    tcp: SocketAddr,
    /// Nanoseconds since it began.
    pub(crate) now: u64,
}

impl Driven {
    pub(crate) fn start(adjust: impl FnOnce(&mut KvConfig)) -> Self {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = KvConfig::new(any_port);
        adjust(&mut config);
        let server = KvServer::bind(config, FlatMemory::new(16 << 20)).expect("loopback has free ports");
        let tcp = server.tcp_address().expect("it listens over TCP");
        let (frontend, handler) = server.into_parts();
        Self { frontend, handler, tcp, now: 1 }
    }

    /// One turn, with all that it hands out executed.
    pub(crate) fn turn(&mut self) {
        let mut requests = Vec::new();
        self.frontend.poll(self.now, ROOM, &mut |request| requests.push(request));
        for request in requests {
            let done = Done { outcome: Outcome::Reply(self.handler.handle(request)), timing: Timing::default() };
            self.frontend.complete(self.now, done);
        }
    }

    /// A client that the server knows of, unless it has no place for it.
    pub(crate) fn connect(&mut self) -> TcpStream {
        let client = connect(self.tcp);
        client.set_nonblocking(true).expect("a socket option");
        self.turn();
        client
    }

    /// Takes turns until `attempt` gives a result.
    pub(crate) fn until<T>(&mut self, mut attempt: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "it never happens");
            self.turn();
            if let Some(result) = attempt() {
                return result;
            }
            std::thread::yield_now();
        }
    }
}
