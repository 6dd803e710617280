//! A proxy for datagrams that loses, repeats and delays some, and so changes their order, as a seeded dice says.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::end_to_end::testbed::Dice;

/// Longest delay of a datagram, in microseconds: longer than the first retry takes.
const DELAY_MAX_US: u64 = 6000;

/// How many of a thousand datagrams find that their port was forgotten.
const FORGOTTEN: u64 = 300;

/// How many of a thousand datagrams suffer what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) late: u64,
}

impl Faults {
    pub(crate) const USUAL: Self = Self { lost: 50, repeated: 50, late: 100 };
}

/// What has happened so far.
#[derive(Default)]
struct Tally {
    lost: AtomicU64,
    repeated: AtomicU64,
    late: AtomicU64,
}

/// A proxy. Dropping it ends it.
pub(crate) struct LossyProxy {
    address: SocketAddr,
    tally: Arc<Tally>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LossyProxy {
    /// Forwards between clients and the node at `node`. Each client has a socket of its own towards the node.
    pub(crate) fn to(node: &str, faults: Faults, seed: u64) -> Self {
        Self::begin(node, faults, seed, false)
    }

    /// Loses little, and forgets again and again which port a client has, as a translator of addresses does.
    pub(crate) fn forgetful(node: &str) -> Self {
        Self::begin(node, Faults { lost: 0, repeated: 0, late: 0 }, 1, true)
    }

    fn begin(node: &str, faults: Faults, seed: u64, is_forgetful: bool) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        front.set_nonblocking(true).unwrap();
        let address = front.local_addr().unwrap();
        let (tally, is_over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let mut road = Road {
            node: node.parse().unwrap(),
            front,
            backs: HashMap::new(),
            late: Vec::new(),
            faults,
            is_forgetful,
            dice: Dice(0x9e37_79b9_7f4a_7c15 ^ seed),
            tally: Arc::clone(&tally),
        };
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                road.step();
            }
        });
        Self { address, tally, is_over, thread: Some(thread) }
    }

    /// Where clients send to.
    pub(crate) fn url(&self) -> String {
        format!("udp://{}", self.address)
    }

    /// How many datagrams were lost, repeated and delayed.
    pub(crate) fn faults(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.tally.lost), get(&self.tally.repeated), get(&self.tally.late))
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic there has failed the test already by what did not arrive.
            let _ = thread.join();
        }
    }
}

/// Which way a datagram goes, of the client with this address.
#[derive(Clone, Copy)]
enum Way {
    ToNode(SocketAddr),
    ToClient(SocketAddr),
}

/// The proxy's thread.
struct Road {
    node: SocketAddr,
    front: UdpSocket,
    /// The sockets towards the node, by their clients.
    backs: HashMap<SocketAddr, UdpSocket>,
    late: Vec<(Instant, Way, Vec<u8>)>,
    faults: Faults,
    is_forgetful: bool,
    dice: Dice,
    tally: Arc<Tally>,
}

impl Road {
    fn step(&mut self) {
        self.wait();
        let mut buffer = vec![0; 1 << 16];
        while let Some((bytes, client)) = received(self.front.recv_from(&mut buffer)) {
            let is_forgotten = self.is_forgetful && self.happens(FORGOTTEN);
            if is_forgotten || !self.backs.contains_key(&client) {
                let back = UdpSocket::bind("127.0.0.1:0").unwrap();
                back.connect(self.node).unwrap();
                back.set_nonblocking(true).unwrap();
                self.backs.insert(client, back);
            }
            self.take(Way::ToNode(client), &buffer[..bytes]);
        }
        let clients: Vec<SocketAddr> = self.backs.keys().copied().collect();
        for client in clients {
            while let Some(bytes) = received(self.backs[&client].recv(&mut buffer)) {
                self.take(Way::ToClient(client), &buffer[..bytes]);
            }
        }
        let now = Instant::now();
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|(due, ..)| *due <= now);
        self.late = late;
        let due: Vec<(Instant, Way, Vec<u8>)> = due;
        due.iter().for_each(|(_, way, bytes)| self.send(*way, bytes));
    }

    /// Waits for a datagram, or for what is late.
    fn wait(&self) {
        let sockets = std::iter::once(&self.front).chain(self.backs.values());
        let mut interest: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let longest = Duration::from_millis(5);
        let due = self.late.iter().map(|(due, ..)| due.saturating_duration_since(Instant::now())).min();
        let pause = due.unwrap_or(longest).min(longest);
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        rustix::event::poll(&mut interest, Some(&pause)).unwrap();
    }

    fn take(&mut self, way: Way, bytes: &[u8]) {
        if self.happens(self.faults.lost) {
            self.tally.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let copies = if self.happens(self.faults.repeated) { 2 } else { 1 };
        self.tally.repeated.fetch_add(copies - 1, Ordering::Relaxed);
        for _ in 0..copies {
            if self.happens(self.faults.late) {
                self.tally.late.fetch_add(1, Ordering::Relaxed);
                let due = Instant::now() + Duration::from_micros(self.dice.below(DELAY_MAX_US));
                self.late.push((due, way, bytes.to_vec()));
            } else {
                self.send(way, bytes);
            }
        }
    }

    fn happens(&mut self, of_a_thousand: u64) -> bool {
        self.dice.below(1000) < of_a_thousand
    }

    /// Sends on. What a socket does not take is lost, as on any road.
    fn send(&self, way: Way, bytes: &[u8]) {
        let _ = match way {
            Way::ToNode(client) => self.backs[&client].send(bytes),
            Way::ToClient(client) => self.front.send_to(bytes, client),
        };
    }
}

/// What was received, if anything; the end of a peer is no concern of the road.
fn received<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Ok(received) => Some(received),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => None,
        Err(error) => panic!("{error}"),
    }
}
