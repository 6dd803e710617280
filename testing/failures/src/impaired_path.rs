//! [`ImpairedPath`]: the way to a node that is asked by datagrams, some of which are lost, and all of which are late,
//! when that is wanted ([`Impairment`]).
//!
//! The node registers at its controller through the path, which puts its own address in place of the node's; so all
//! others reach the node through it. A thread takes what is sent to the node; one for each client takes the answers.
//!
//! Invariant: in each direction datagrams go on in the order in which they came.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Largest datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// Most datagrams that wait in one direction; the next one is lost, as in a router whose queue is full.
const HELD_MAX: usize = 1 << 14;
/// What a URL of a node that is asked by datagrams begins with.
const SCHEME: &str = "udp://";

/// What a path does to datagrams, in each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Impairment {
    /// How many of a thousand it loses.
    pub(crate) lost_of_1000: u32,
    /// How long it holds each of the others, at least.
    pub(crate) delay: Duration,
    /// How much longer it holds one, at most.
    pub(crate) jitter: Duration,
}

impl Impairment {
    pub(crate) const NONE: Self = Self { lost_of_1000: 0, delay: Duration::ZERO, jitter: Duration::ZERO };
}

/// The way to one node. It is there until the process ends.
pub(crate) struct ImpairedPath {
    /// Where the node finds its controller.
    pub(crate) controller: String,
    impairment: Arc<Mutex<Impairment>>,
}

impl ImpairedPath {
    /// A path, on which nothing is lost or late yet, to the node that will register through it at `controller`.
    pub(crate) fn new(controller: String) -> std::io::Result<Self> {
        let (registrations, front) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let url = format!("{SCHEME}{}", front.local_addr()?);
        let (node, impairment) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(Impairment::NONE)));
        let path = Self { controller: registrations.local_addr()?.to_string(), impairment: Arc::clone(&impairment) };
        let found = Arc::clone(&node);
        thread::spawn(move || {
            for stream in registrations.incoming().map_while(Result::ok) {
                // A node asks again when its controller, or what it said, was not there.
                if let Ok(own) = register(&stream, &controller, &url) {
                    found.get_or_init(|| own);
                }
            }
        });
        thread::spawn(move || carry(&front, &node, &impairment));
        Ok(path)
    }

    /// Does this to datagrams from now on.
    pub(crate) fn impair(&self, impairment: Impairment) {
        *self.impairment.lock().unwrap_or_else(PoisonError::into_inner) = impairment;
    }
}

/// Passes a registration on with the path's URL, and everything after it as it is. Returns where the node listens.
fn register(node: &TcpStream, controller: &str, public: &str) -> std::io::Result<SocketAddr> {
    let mut controller = TcpStream::connect(controller)?;
    let (mut lines, mut line) = (BufReader::new(node.try_clone()?), String::new());
    lines.read_line(&mut line)?;
    let no_url = || std::io::Error::from(ErrorKind::InvalidData);
    let from = line.find(SCHEME).ok_or_else(no_url)?;
    let to = from + line[from..].find('"').ok_or_else(no_url)?;
    let own = line[from + SCHEME.len()..to].parse().map_err(|_| no_url())?;
    line.replace_range(from..to, public);
    controller.write_all(line.as_bytes())?;
    let (mut to_node, mut from_controller) = (node.try_clone()?, controller.try_clone()?);
    thread::spawn(move || pass(&mut lines, &mut controller));
    thread::spawn(move || pass(&mut from_controller, &mut to_node));
    Ok(own)
}

/// Copies until an end is closed, and closes the other.
fn pass(from: &mut impl Read, to: &mut TcpStream) {
    // An end of either side is the end of both.
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(Shutdown::Both);
}

/// Carries datagrams to the node, and for each client those of the node to it.
fn carry(front: &UdpSocket, node: &OnceLock<SocketAddr>, impairment: &Arc<Mutex<Impairment>>) {
    let mut there = Direction::new(front, impairment, 1);
    let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    while let Some((client, datagram)) = there.next() {
        let Some(node) = node.get() else { continue };
        let seed = 2 + backs.len() as u64;
        let back = backs.entry(client).or_insert_with(|| {
            let way = || {
                let back = UdpSocket::bind("127.0.0.1:0")?;
                back.connect(node)?;
                answer(back.try_clone()?, front.try_clone()?, client, Arc::clone(impairment), seed);
                std::io::Result::Ok(back)
            };
            way().expect("this machine has ports for a few clients")
        });
        // What a socket does not take is lost, as on any road.
        let _ = back.send(&datagram);
    }
}

/// Carries the node's datagrams to one client, on a thread of its own.
fn answer(back: UdpSocket, front: UdpSocket, client: SocketAddr, impairment: Arc<Mutex<Impairment>>, seed: u64) {
    thread::spawn(move || {
        let mut back = Direction::new(&back, &impairment, seed);
        while let Some((_, datagram)) = back.next() {
            let _ = front.send_to(&datagram, client);
        }
    });
}

/// What comes at a socket, until it is to go on.
struct Direction<'a> {
    from: &'a UdpSocket,
    impairment: &'a Mutex<Impairment>,
    dice: SmallRng,
    buffer: Vec<u8>,
    /// What is held, by when it goes on.
    held: VecDeque<(Instant, Datagram)>,
}

/// Who sent it, and what.
type Datagram = (SocketAddr, Vec<u8>);

impl<'a> Direction<'a> {
    fn new(from: &'a UdpSocket, impairment: &'a Mutex<Impairment>, seed: u64) -> Self {
        let (dice, buffer) = (SmallRng::seed_from_u64(seed), vec![0; DATAGRAM_BYTES_MAX]);
        Self { from, impairment, dice, buffer, held: VecDeque::new() }
    }

    /// Waits for the next datagram that is to go on now; none if there will be no more.
    fn next(&mut self) -> Option<Datagram> {
        loop {
            let due = self.held.front().map(|(due, _)| *due);
            if due.is_some_and(|due| due <= Instant::now()) {
                return self.held.pop_front().map(|(_, datagram)| datagram);
            }
            if due.is_none_or(|due| arrives_by(self.from, due)) {
                let (bytes, sender) = received(|| self.from.recv_from(&mut self.buffer))?;
                self.hold((sender, self.buffer[..bytes].to_vec()));
            }
        }
    }

    /// Keeps a datagram until it is to go on, if it is not lost.
    fn hold(&mut self, datagram: Datagram) {
        let impairment = *self.impairment.lock().unwrap_or_else(PoisonError::into_inner);
        if self.dice.random_range(0..1000) < impairment.lost_of_1000 || self.held.len() == HELD_MAX {
            return;
        }
        let due = Instant::now() + impairment.delay + impairment.jitter.mul_f64(self.dice.random());
        let due = self.held.back().map_or(due, |(last, _)| due.max(*last));
        self.held.push_back((due, datagram));
    }
}

/// Waits for a datagram until `due`: whether there is one.
fn arrives_by(socket: &UdpSocket, due: Instant) -> bool {
    let left = due.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left));
    ready.is_ok_and(|ready| ready > 0)
}

/// The next datagram. That a peer was not there a moment ago is no concern of the path.
fn received<T>(mut receive: impl FnMut() -> std::io::Result<T>) -> Option<T> {
    loop {
        match receive() {
            Ok(received) => return Some(received),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::Interrupted) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node behind a path: its registration arrives with the path's address, and datagrams come and go.
    #[test]
    fn a_node_is_reached_through_its_path_and_only_there_anything_is_lost() {
        let controller = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = ImpairedPath::new(controller.local_addr().unwrap().to_string()).unwrap();
        let node = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut registers = TcpStream::connect(&path.controller).unwrap();
        writeln!(registers, "{{\"urls\":[\"udp://{}\"]}}", node.local_addr().unwrap()).unwrap();
        let (registered, _) = controller.accept().unwrap();
        let mut line = String::new();
        BufReader::new(registered).read_line(&mut line).unwrap();
        let front = line.split(['"', '/']).find(|word| word.starts_with("127.")).unwrap();
        assert_ne!(front, node.local_addr().unwrap().to_string(), "{line}");

        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(front).unwrap();
        let mut buffer = [0; 8];
        // The path may hear of the node a moment after its controller.
        node.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let (_, from) = loop {
            client.send(b"ask").unwrap();
            if let Ok(received) = node.recv_from(&mut buffer) {
                break received;
            }
        };
        assert_eq!(&buffer[..3], b"ask");
        node.send_to(b"answer", from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
        path.impair(Impairment { lost_of_1000: 1000, ..Impairment::NONE });
        client.send(b"lost").unwrap();
        assert!(node.recv_from(&mut buffer).is_err() || &buffer[..3] == b"ask");
    }
    /// Tens of datagrams on a path that holds each for 20 to 40 ms, so that a later one may be due earlier.
    #[test]
    fn what_is_late_arrives_in_order_and_not_before_its_time() {
        const DELAY: Duration = Duration::from_millis(20);
        let [socket, client] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let impairment = Mutex::new(Impairment { lost_of_1000: 0, delay: DELAY, jitter: DELAY });
        let mut direction = Direction::new(&socket, &impairment, 1);
        let to = socket.local_addr().unwrap();
        for number in 0..100 {
            let sent = Instant::now();
            client.send_to(&[number], to).unwrap();
            if number % 10 == 9 {
                let arrived: Vec<u8> = (0..10).map(|_| direction.next().unwrap().1[0]).collect();
                assert_eq!(arrived, (number - 9..=number).collect::<Vec<_>>());
                assert!(sent.elapsed() >= DELAY);
            }
        }
        // What is not late any more still waits for what came before it.
        client.send_to(&[100], to).unwrap();
        assert!(direction.held.is_empty());
        direction.hold((to, vec![99]));
        *impairment.lock().unwrap() = Impairment::NONE;
        assert_eq!([(); 2].map(|()| direction.next().unwrap().1[0]), [99, 100]);
    }
}
