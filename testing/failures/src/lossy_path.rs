//! [`LossyPath`]: the way to a node that is asked by datagrams, some of which are lost when that is wanted.
//!
//! The node registers at its controller through the path, which puts its own address in place of the node's; so all
//! others reach the node through it. A thread takes what is sent to the node; one for each client takes the answers.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Largest datagram.
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// What a URL of a node that is asked by datagrams begins with.
const SCHEME: &str = "udp://";

/// The way to one node. It is there until the process ends.
pub(crate) struct LossyPath {
    /// Where the node finds its controller.
    pub(crate) controller: String,
    lost: Arc<AtomicU32>,
}

impl LossyPath {
    /// A path, on which nothing is lost yet, to the node that will register through it at `controller`.
    pub(crate) fn new(controller: String) -> std::io::Result<Self> {
        let (registrations, front) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let url = format!("{SCHEME}{}", front.local_addr()?);
        let (node, lost) = (Arc::new(OnceLock::new()), Arc::new(AtomicU32::new(0)));
        let path = Self { controller: registrations.local_addr()?.to_string(), lost: Arc::clone(&lost) };
        let found = Arc::clone(&node);
        thread::spawn(move || {
            for stream in registrations.incoming().map_while(Result::ok) {
                // A node asks again when its controller, or what it said, was not there.
                if let Ok(own) = register(&stream, &controller, &url) {
                    found.get_or_init(|| own);
                }
            }
        });
        thread::spawn(move || carry(&front, &node, &lost));
        Ok(path)
    }

    /// Loses so many of a thousand datagrams, in each direction.
    pub(crate) fn lose(&self, of_a_thousand: u32) {
        self.lost.store(of_a_thousand, Ordering::Relaxed);
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
fn carry(front: &UdpSocket, node: &OnceLock<SocketAddr>, lost: &Arc<AtomicU32>) {
    let (mut buffer, mut dice) = (vec![0; DATAGRAM_BYTES_MAX], SmallRng::seed_from_u64(1));
    let mut backs: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    while let Some((bytes, client)) = received(|| front.recv_from(&mut buffer)) {
        let Some(node) = node.get() else { continue };
        if is_lost(lost, &mut dice) {
            continue;
        }
        let seed = 2 + backs.len() as u64;
        let back = backs.entry(client).or_insert_with(|| {
            let way = || {
                let back = UdpSocket::bind("127.0.0.1:0")?;
                back.connect(node)?;
                answer(back.try_clone()?, front.try_clone()?, client, Arc::clone(lost), seed);
                std::io::Result::Ok(back)
            };
            way().expect("this machine has ports for a few clients")
        });
        // What a socket does not take is lost, as on any road.
        let _ = back.send(&buffer[..bytes]);
    }
}

/// Carries the node's datagrams to one client, on a thread of its own.
fn answer(back: UdpSocket, front: UdpSocket, client: SocketAddr, lost: Arc<AtomicU32>, seed: u64) {
    thread::spawn(move || {
        let (mut buffer, mut dice) = (vec![0; DATAGRAM_BYTES_MAX], SmallRng::seed_from_u64(seed));
        while let Some(bytes) = received(|| back.recv(&mut buffer)) {
            if !is_lost(&lost, &mut dice) {
                let _ = front.send_to(&buffer[..bytes], client);
            }
        }
    });
}

fn is_lost(lost: &AtomicU32, dice: &mut SmallRng) -> bool {
    dice.random_range(0..1000) < lost.load(Ordering::Relaxed)
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
        let path = LossyPath::new(controller.local_addr().unwrap().to_string()).unwrap();
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
        path.lose(1000);
        client.send(b"lost").unwrap();
        assert!(node.recv_from(&mut buffer).is_err() || &buffer[..3] == b"ask");
    }
}
