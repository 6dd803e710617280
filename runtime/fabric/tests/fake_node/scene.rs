//! [`Scene`]: a client whose node is the test.

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use yonder_fabric::{Completion, Fabric, Module, QueuePair, ReadInto, RemoteAddress, RemoteFabric, Status, WorkId};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, PAGE_BYTES};
use yonder_wire::{Body, ErrorCode, Greeting, Header, Kind, Welcome};

use crate::messages::{Messages, sealed};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const FRAMES: u32 = 8;
/// The node's clock, which stands still.
pub(crate) const NODE_TIME: u64 = 1;
/// The thread of the node that serves every connection.
const HOME: u32 = 5;

/// A greeted connection, on the node's side.
pub(crate) struct Peer {
    pub(crate) messages: Messages,
    pub(crate) greeting: Greeting,
}

impl Peer {
    pub(crate) fn greet(stream: TcpStream, incarnation: u64) -> Option<Self> {
        stream.set_nodelay(true).unwrap();
        let mut messages = Messages::new(stream, TIMEOUT);
        let (hello, payload) = messages.receive()?;
        assert_eq!(hello.kind, Kind::Hello);
        let greeting = Greeting::from_bytes(&payload).unwrap();
        let mut welcome = [0; Welcome::BYTES];
        Welcome { home: HOME, page_bytes: 4096, memory_bytes: 1 << 30, incarnation }.write_to(&mut welcome);
        messages.send(&hello.answer(NODE_TIME, Welcome::BYTES as u32), &welcome);
        Some(Self { messages, greeting })
    }

    /// Answers what is asked about the address space, as if there were one, until `has_forgotten` is set.
    pub(crate) fn control(mut self, has_forgotten: &AtomicBool) {
        while let Some((request, _)) = self.messages.receive() {
            let answer = if request.kind != Kind::CreateSpace && has_forgotten.load(Ordering::SeqCst) {
                request.refusal(NODE_TIME, ErrorCode::BadCapability)
            } else {
                Header { pid: 7, capability: 9, ..request.answer(NODE_TIME, 0) }
            };
            self.messages.send(&answer, &[]);
        }
    }
}

/// A client whose node is the test.
pub(crate) struct Scene {
    pub(crate) fabric: RemoteFabric,
    pub(crate) queue_pair: Box<dyn QueuePair>,
    pub(crate) frames: Arc<Mapping>,
    /// Connections in the order in which the client made them.
    pub(crate) peers: Receiver<Peer>,
    pub(crate) peer: Peer,
    /// Makes the node say that it does not know the address space.
    pub(crate) has_forgotten: Arc<AtomicBool>,
}

impl Scene {
    /// Every connection is welcomed by the incarnation that `incarnation` gives for its number. The first one is the
    /// one for allocation.
    pub(crate) fn new(incarnation: fn(usize) -> u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let has_forgotten = Arc::new(AtomicBool::new(false));
        let (send, peers) = channel();
        let forgotten = Arc::clone(&has_forgotten);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                // A client that gives up, or a test that is over, is no concern of this thread.
                let Some(peer) = Peer::greet(stream.unwrap(), incarnation(number)) else { continue };
                if number == 0 {
                    let forgotten = Arc::clone(&forgotten);
                    thread::spawn(move || peer.control(&forgotten));
                } else if send.send(peer).is_err() {
                    return;
                }
            }
        });
        let fabric = RemoteFabric::connect(&url).unwrap();
        let frames = Arc::new(Mapping::anonymous(FRAMES as usize * PAGE_BYTES).unwrap());
        let queue_pair = fabric.queue_pair(Module::Fault, Arc::clone(&frames)).unwrap();
        let peer = peers.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(peer.greeting.home, None);
        (0..FRAMES).for_each(|frame| frames.write(FrameIndex(frame).offset(), &[0xee; PAGE_BYTES]));
        Self { fabric, queue_pair, frames, peers, peer, has_forgotten }
    }

    pub(crate) fn steady() -> Self {
        Self::new(|_| 1)
    }

    /// Posts a read of page `id` into frame `id`.
    pub(crate) fn read(&mut self, id: u32) {
        let from = RemoteAddress(u64::from(id) * PAGE_BYTES as u64);
        let into = ReadInto::Frame(FrameIndex(id % FRAMES));
        self.queue_pair.post_read(WorkId(id.into()), from, into, yonder_clock::now()).unwrap();
    }

    /// Posts a write of frame `frame`, which is filled with `byte`, to page `page`.
    pub(crate) fn write(&mut self, id: u64, page: u64, frame: u32, byte: u8) {
        self.frames.write(FrameIndex(frame).offset(), &[byte; PAGE_BYTES]);
        let to = RemoteAddress(page * PAGE_BYTES as u64);
        self.queue_pair.post_write(WorkId(id), to, FrameIndex(frame), yonder_clock::now()).unwrap();
    }

    /// Posts a read and returns the request that the node sees.
    pub(crate) fn asked(&mut self, id: u32) -> Header {
        self.read(id);
        self.request().0
    }

    /// Polls until the next request about pages arrives; questions for the node's clock are answered. Nothing completes
    /// meanwhile.
    pub(crate) fn request(&mut self) -> (Header, Vec<u8>) {
        let start = Instant::now();
        loop {
            assert_eq!(self.poll(), []);
            match self.arrived() {
                Some((ping, _)) if ping.kind == Kind::Ping => {
                    self.peer.messages.send(&ping.answer(NODE_TIME, 0), &[]);
                }
                Some(request) => return request,
                None => assert!(start.elapsed() < TIMEOUT, "no request"),
            }
        }
    }

    /// What has arrived at the node, without waiting for it.
    pub(crate) fn arrived(&mut self) -> Option<(Header, Vec<u8>)> {
        let messages = &mut self.peer.messages;
        messages.take().or_else(|| {
            messages.stream.set_nonblocking(true).unwrap();
            let filled = messages.fill();
            messages.stream.set_nonblocking(false).unwrap();
            match filled {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                filled => {
                    assert_ne!(filled.unwrap(), 0, "the client has closed the connection");
                    messages.take()
                }
            }
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.peer.messages.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn poll(&mut self) -> Vec<Completion> {
        let mut completions = Vec::with_capacity(64);
        self.queue_pair.poll(yonder_clock::now(), &mut completions);
        completions
    }

    /// Polls until something completes.
    pub(crate) fn completes(&mut self) -> Vec<Completion> {
        self.until(|completions| !completions.is_empty())
    }

    pub(crate) fn until(&mut self, enough: impl Fn(&[Completion]) -> bool) -> Vec<Completion> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while !enough(&all) {
            assert!(start.elapsed() < TIMEOUT, "waited in vain, had {all:?}");
            all.extend(self.poll());
            thread::yield_now();
        }
        all
    }

    /// Polls until the client has made a new connection, which the scene goes on with.
    pub(crate) fn reconnects(&mut self) {
        let start = Instant::now();
        loop {
            assert_eq!(self.poll(), []);
            if let Ok(peer) = self.peers.try_recv() {
                self.peer = peer;
                assert_eq!(self.peer.greeting.home, Some(HOME), "the thread that remembers is asked for");
                return;
            }
            assert!(start.elapsed() < TIMEOUT, "no new connection");
            thread::yield_now();
        }
    }

    /// The byte that all of the frame consists of.
    pub(crate) fn frame(&self, frame: u32) -> u8 {
        let mut bytes = [0; PAGE_BYTES];
        self.frames.read(FrameIndex(frame).offset(), &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "frame {frame} is torn");
        bytes[0]
    }
}

pub(crate) fn reply(request: &Header, byte: u8) -> Vec<u8> {
    sealed(&request.answer(NODE_TIME, PAGE_BYTES as u32), &[byte; PAGE_BYTES])
}

/// The answer to a write.
pub(crate) fn done(request: &Header) -> Vec<u8> {
    sealed(&request.answer(NODE_TIME, request.length), &[])
}

pub(crate) fn refusal(request: &Header, code: ErrorCode) -> Vec<u8> {
    sealed(&request.refusal(NODE_TIME, code), &[])
}

pub(crate) fn ended(id: u64, status: Status) -> Completion {
    Completion { id: WorkId(id), status }
}
