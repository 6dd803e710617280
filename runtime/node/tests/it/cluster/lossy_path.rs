//! [`LossyPath`]: the way to one node, on which the word that a source has closed a region, or its answer, is lost.
//!
//! The node registers through the path, which puts its own address in place of the node's; so clients and other nodes
//! reach the node through it too. A connection on which the word comes is broken, each time; everything else passes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use yonder_wire::{AdoptRequest, AdoptStage, Kind, MESSAGE_BYTES_MAX, MessageBuffer};

use crate::cluster::scene::Scene;

/// What is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// The node never hears the word.
    Word,
    /// The node hears it, and the source does not hear that.
    Answer,
}

/// The way to a node, for as long as the test runs.
pub(crate) struct LossyPath {
    /// Where the node finds its controller.
    pub(crate) controller: String,
    /// Where others find the node.
    pub(crate) url: String,
    lost: Arc<AtomicUsize>,
}

impl LossyPath {
    pub(crate) fn new(scene: &Scene, what: Lost) -> Self {
        let requests = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", requests.local_addr().unwrap());
        let lost = Arc::new(AtomicUsize::new(0));
        let (controller, node) = pass_registrations(scene, url.clone());
        let losses = Arc::clone(&lost);
        thread::spawn(move || {
            for stream in requests.incoming().map_while(Result::ok) {
                let node: SocketAddr = node.lock().unwrap().expect("a node has registered before others reach it");
                if let Ok(node) = TcpStream::connect(node) {
                    carry(&stream, &node, what, &losses);
                }
            }
        });
        Self { controller, url, lost }
    }

    /// How often something was lost.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::Acquire)
    }
}

/// Passes registrations on, with `public` as the node's URL. Where the node finds its controller so, and where the node
/// is once it has registered.
pub(super) fn pass_registrations(scene: &Scene, public: String) -> (String, Arc<Mutex<Option<SocketAddr>>>) {
    let registrations = TcpListener::bind("127.0.0.1:0").unwrap();
    let controller = registrations.local_addr().unwrap().to_string();
    let (real, node) = (scene.address(), Arc::new(Mutex::new(None)));
    let found = Arc::clone(&node);
    thread::spawn(move || {
        for stream in registrations.incoming().map_while(Result::ok) {
            let Ok(controller) = TcpStream::connect(&real) else { return };
            *found.lock().unwrap() = Some(register(&stream, controller, &public));
        }
    });
    (controller, node)
}

/// Passes a registration on with the path's URL, and everything after it as it is. Returns where the node listens.
fn register(node: &TcpStream, mut controller: TcpStream, public: &str) -> SocketAddr {
    let mut lines = BufReader::new(node.try_clone().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let from = line.find("tcp://").expect("a node names where it listens");
    let to = from + line[from..].find('"').expect("a URL ends");
    let own = line[from + "tcp://".len()..to].parse().unwrap();
    line.replace_range(from..to, public);
    controller.write_all(line.as_bytes()).unwrap();
    let (mut to_node, mut from_controller) = (node.try_clone().unwrap(), controller.try_clone().unwrap());
    thread::spawn(move || pass(&mut lines, &mut controller));
    thread::spawn(move || pass(&mut from_controller, &mut to_node));
    own
}

/// Copies until an end is closed, and closes the other.
pub(super) fn pass(from: &mut impl Read, to: &mut TcpStream) {
    // An end of either side is the end of both.
    let _ = std::io::copy(from, to);
    let _ = to.shutdown(Shutdown::Both);
}

/// Passes requests and answers on until the word comes.
fn carry(client: &TcpStream, node: &TcpStream, what: Lost, lost: &Arc<AtomicUsize>) {
    let is_over = Arc::new(AtomicBool::new(false));
    let clone = |stream: &TcpStream| stream.try_clone().unwrap();
    let (mut asks, mut is_asked, over, losses) = (clone(client), clone(node), Arc::clone(&is_over), Arc::clone(lost));
    thread::spawn(move || {
        let mut received = MessageBuffer::new(2 * MESSAGE_BYTES_MAX);
        'connection: loop {
            while let Ok(Some(message)) = received.message() {
                if message.header.kind == Kind::Adopt
                    && AdoptRequest::from_bytes(message.payload)
                        .is_ok_and(|request| request.stage == AdoptStage::Finish)
                {
                    over.store(true, Ordering::Release);
                    if what == Lost::Word {
                        losses.fetch_add(1, Ordering::AcqRel);
                        break 'connection;
                    }
                }
                let bytes = [&message.header.seal(message.payload)[..], message.payload].concat();
                let length = message.bytes();
                if is_asked.write_all(&bytes).is_err() {
                    break 'connection;
                }
                received.consume(length);
            }
            match asks.read(received.room()) {
                Ok(bytes @ 1..) => received.received(bytes),
                _ => break,
            }
        }
        if !over.load(Ordering::Acquire) || what == Lost::Word {
            // Both ends may have gone already.
            let _ = (asks.shutdown(Shutdown::Both), is_asked.shutdown(Shutdown::Both));
        }
    });
    let (mut asks, mut is_asked, losses) = (clone(client), clone(node), Arc::clone(lost));
    thread::spawn(move || {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        while let Ok(length @ 1..) = is_asked.read(&mut bytes) {
            if is_over.load(Ordering::Acquire) {
                losses.fetch_add(usize::from(what == Lost::Answer), Ordering::AcqRel);
                break;
            }
            if asks.write_all(&bytes[..length]).is_err() {
                break;
            }
        }
        let _ = (asks.shutdown(Shutdown::Both), is_asked.shutdown(Shutdown::Both));
    });
}
