//! The TCP fabric against a node that misbehaves: the test is the node, message by message.
//!
//! A thread accepts and greets; the test then answers requests itself, so it decides about order, damage and silence.
//! Nothing sleeps: the test polls the queue pair until what it waits for has happened.

mod messages;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use yonder_fabric::{Completion, Fabric, Module, QueuePair, ReadInto, RemoteAddress, Status, TcpFabric, WorkId};
use yonder_mapping::Mapping;
use yonder_units::{FrameIndex, PAGE_BYTES};
use yonder_wire::{ErrorCode, Greeting, HEADER_BYTES, Header, Incarnation, Kind, Welcome};

use messages::{Messages, sealed};

const PATIENCE: Duration = Duration::from_secs(20);
const FRAMES: u32 = 8;

/// A greeted connection, on the node's side.
struct Peer {
    messages: Messages,
    greeting: Greeting,
}

impl Peer {
    fn greet(stream: TcpStream, incarnation: Incarnation) -> Option<Self> {
        let mut messages = Messages::new(stream, PATIENCE);
        let (hello, payload) = messages.receive()?;
        assert_eq!(hello.kind, Kind::Hello);
        let greeting = Greeting::from_bytes(&payload).unwrap();
        let welcome = Welcome { incarnation, address_space_bytes: 1 << 30 }.to_bytes();
        messages.send(&Header { length: Welcome::BYTES as u64, ..hello.answer(Kind::HelloAck) }, &welcome);
        Some(Self { messages, greeting })
    }
}

/// A client whose node is the test.
struct Scene {
    fabric: TcpFabric,
    queue_pair: Box<dyn QueuePair>,
    frames: Arc<Mapping>,
    /// Connections in the order in which the client made them.
    peers: Receiver<Peer>,
    peer: Peer,
    _control: Peer,
}

impl Scene {
    /// Every connection is welcomed by the incarnation that `incarnation` gives for its number.
    fn new(incarnation: fn(usize) -> u8) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("tcp://{}", listener.local_addr().unwrap());
        let (send, peers) = channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let greeted = Peer::greet(stream.unwrap(), Incarnation([incarnation(number); 16]));
                // A client that gives up, or a test that is over, is no concern of this thread.
                if greeted.is_some_and(|peer| send.send(peer).is_err()) {
                    return;
                }
            }
        });
        let fabric = TcpFabric::connect(&url).unwrap();
        let frames = Arc::new(Mapping::anonymous(FRAMES as usize * PAGE_BYTES).unwrap());
        let queue_pair = fabric.queue_pair(Module::Fault, Arc::clone(&frames)).unwrap();
        let (control, peer) = (peers.recv_timeout(PATIENCE).unwrap(), peers.recv_timeout(PATIENCE).unwrap());
        assert_eq!(control.greeting.queue_pair, 0);
        assert_ne!(peer.greeting.queue_pair, 0);
        (0..FRAMES).for_each(|frame| frames.write(FrameIndex(frame).offset(), &[0xee; PAGE_BYTES]));
        Self { fabric, queue_pair, frames, peers, peer, _control: control }
    }

    fn steady() -> Self {
        Self::new(|_| 1)
    }

    /// Posts a read of page `id` into frame `id`.
    fn read(&mut self, id: u32) {
        let from = RemoteAddress(u64::from(id) * PAGE_BYTES as u64);
        let into = ReadInto::Frame(FrameIndex(id % FRAMES));
        self.queue_pair.post_read(WorkId(id.into()), from, into, yonder_now()).unwrap();
    }

    /// Posts a read and returns the request that the node sees.
    fn asked(&mut self, id: u32) -> Header {
        self.read(id);
        assert_eq!(self.poll(), []);
        self.peer.messages.receive().expect("the request arrives").0
    }

    fn poll(&mut self) -> Vec<Completion> {
        let mut completions = Vec::with_capacity(64);
        self.queue_pair.poll(yonder_now(), &mut completions);
        completions
    }

    /// Polls until something completes.
    fn completes(&mut self) -> Vec<Completion> {
        self.until(|completions| !completions.is_empty())
    }

    fn until(&mut self, enough: impl Fn(&[Completion]) -> bool) -> Vec<Completion> {
        let (start, mut all) = (Instant::now(), Vec::new());
        while !enough(&all) {
            assert!(start.elapsed() < PATIENCE, "waited in vain, had {all:?}");
            all.extend(self.poll());
            thread::yield_now();
        }
        all
    }

    /// Polls until the client has made a new connection, which the scene goes on with.
    fn reconnects(&mut self) {
        let start = Instant::now();
        loop {
            assert_eq!(self.poll(), []);
            if let Ok(peer) = self.peers.try_recv() {
                let older = std::mem::replace(&mut self.peer, peer);
                assert_eq!(self.peer.greeting.queue_pair, older.greeting.queue_pair);
                assert!(self.peer.greeting.epoch > older.greeting.epoch);
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no new connection");
            thread::yield_now();
        }
    }

    /// The byte that all of the frame consists of.
    fn frame(&self, frame: u32) -> u8 {
        let mut bytes = [0; PAGE_BYTES];
        self.frames.read(FrameIndex(frame).offset(), &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "frame {frame} is torn");
        bytes[0]
    }
}

/// Nanoseconds since the first call.
fn yonder_now() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn reply(request: &Header, byte: u8) -> Vec<u8> {
    sealed(&request.answer(Kind::ReadReply), &[byte; PAGE_BYTES])
}

fn ended(id: u64, status: Status) -> Completion {
    Completion { id: WorkId(id), status }
}

#[test]
fn replies_in_any_order_and_in_single_bytes_find_their_operations() {
    let mut scene = Scene::steady();
    let requests: Vec<Header> = (0..FRAMES).map(|id| scene.asked(id)).collect();
    for (id, request) in requests.iter().enumerate().rev() {
        let bytes = reply(request, id as u8);
        scene.peer.messages.stream.set_nodelay(true).unwrap();
        for piece in bytes[..100].chunks(1).chain(bytes[100..].chunks(977)) {
            assert_eq!(scene.poll(), []);
            scene.peer.messages.stream.write_all(piece).unwrap();
        }
        assert_eq!(scene.completes(), [ended(id as u64, Status::Done)]);
        assert_eq!(scene.frame(id as u32), id as u8);
    }
}

#[test]
fn a_corrupt_page_fails_and_does_not_reach_the_frame() {
    let mut scene = Scene::steady();
    for bit in [HEADER_BYTES * 8, HEADER_BYTES * 8 + 20_001, 57 * 8, 20 * 8] {
        let (first, second) = (scene.asked(1), scene.asked(2));
        let mut bytes = reply(&first, 7);
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes.extend(reply(&second, 9));
        scene.peer.messages.stream.write_all(&bytes).unwrap();
        let done = scene.until(|done| done.iter().any(|completion| completion.id == WorkId(2)));
        assert_eq!(done.last(), Some(&ended(2, Status::Done)));
        assert_eq!((scene.frame(1), scene.frame(2)), (0xee, 9));
        // Damage to the request id leaves the operation without an answer; its deadline is the poster's.
        if done.len() == 1 {
            assert_eq!(bit, 20 * 8);
            scene.queue_pair.cancel(WorkId(1));
        } else {
            assert_eq!(done[0], ended(1, Status::Failed));
        }
    }
    assert_eq!(scene.queue_pair.outstanding(), 0);
}

#[test]
fn answers_to_another_question_fail() {
    let mut scene = Scene::steady();
    let wrong: [fn(&Header) -> Vec<u8>; 5] = [
        |request| sealed(&Header { address: request.address + 4096, ..request.answer(Kind::ReadReply) }, &[7; 4096]),
        |request| sealed(&Header { length: 100, ..request.answer(Kind::ReadReply) }, &[7; 100]),
        |request| sealed(&request.answer(Kind::WriteAck), &[]),
        |request| sealed(&request.answer(Kind::PingAck), &[]),
        |request| sealed(&request.refusal(ErrorCode::BadAddress), &[]),
    ];
    for answer in wrong {
        let request = scene.asked(1);
        scene.peer.messages.stream.write_all(&answer(&request)).unwrap();
        assert_eq!(scene.completes(), [ended(1, Status::Failed)]);
        assert_eq!(scene.frame(1), 0xee);
    }
}

#[test]
fn a_late_reply_never_touches_a_frame() {
    let mut scene = Scene::steady();
    let late = scene.asked(1);
    scene.queue_pair.cancel(WorkId(1));
    assert_eq!(scene.queue_pair.outstanding(), 0);
    // The new operation takes the same slot and the same frame.
    let next = scene.asked(1 + FRAMES);
    assert_ne!(next.request_id, late.request_id);
    scene.peer.messages.stream.write_all(&reply(&late, 7)).unwrap();
    let other = scene.asked(2);
    scene.peer.messages.stream.write_all(&reply(&other, 8)).unwrap();
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
    assert_eq!(scene.frame(1), 0xee);
    scene.peer.messages.stream.write_all(&[reply(&next, 9), reply(&next, 10)].concat()).unwrap();
    assert_eq!(scene.completes(), [ended((1 + FRAMES).into(), Status::Done)]);
    let last = scene.asked(3);
    scene.peer.messages.stream.write_all(&reply(&last, 11)).unwrap();
    assert_eq!(scene.completes(), [ended(3, Status::Done)]);
    assert_eq!(scene.frame(1), 9, "the second copy of a reply must not count");
}

#[test]
fn an_operation_that_is_cancelled_before_it_was_sent_is_never_sent() {
    let mut scene = Scene::steady();
    scene.frames.write(FrameIndex(3).offset(), &[0x33; PAGE_BYTES]);
    scene.queue_pair.post_write(WorkId(1), RemoteAddress(0), FrameIndex(3), yonder_now()).unwrap();
    scene.queue_pair.post_write(WorkId(2), RemoteAddress(4096), FrameIndex(3), yonder_now()).unwrap();
    scene.queue_pair.cancel(WorkId(1));
    scene.queue_pair.cancel(WorkId(77));
    assert_eq!(scene.queue_pair.outstanding(), 1);
    scene.poll();
    let (write, payload) = scene.peer.messages.receive().unwrap();
    assert_eq!((write.kind, write.address, payload), (Kind::Write, 4096, vec![0x33; PAGE_BYTES]));
    scene.peer.messages.send(&write.answer(Kind::WriteAck), &[]);
    assert_eq!(scene.completes(), [ended(2, Status::Done)]);
}

#[test]
fn bytes_that_are_no_messages_end_the_connection_and_the_next_one_works() {
    let mut scene = Scene::steady();
    let mut huge = Header::request(Kind::ReadReply, 1, 0, 0).seal(&[]).to_vec();
    huge[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
    let cut_short = |request: &Header| reply(request, 7)[..3000].to_vec();
    for turn in 0..3 {
        scene.read(1);
        let request = scene.asked(2);
        let bytes = match turn {
            0 => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\nServer: x\r\n\r\n".to_vec(),
            1 => huge.clone(),
            _ => cut_short(&request),
        };
        scene.peer.messages.stream.write_all(&bytes).unwrap();
        if turn == 2 {
            scene.peer.messages.stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
        let mut done = scene.until(|done| done.len() == 2);
        done.sort_by_key(|completion| completion.id.0);
        assert_eq!(done, [ended(1, Status::Disconnected), ended(2, Status::Disconnected)]);
        assert_eq!((scene.frame(1), scene.frame(2)), (0xee, 0xee));
        scene.reconnects();
    }
    // What the client asks while the session opens ends as disconnected; soon it is open.
    let start = Instant::now();
    let answered = loop {
        assert!(start.elapsed() < PATIENCE);
        scene.read(5);
        let done = scene.poll();
        if done.is_empty() {
            break scene.peer.messages.receive().unwrap().0;
        }
        assert_eq!(done, [ended(5, Status::Disconnected)]);
    };
    scene.peer.messages.stream.write_all(&reply(&answered, 5)).unwrap();
    assert_eq!(scene.completes(), [ended(5, Status::Done)]);
    assert_eq!(scene.frame(5), 5);
}

#[test]
fn a_node_with_another_incarnation_is_never_used() {
    let mut scene = Scene::new(|number| if number < 2 { 1 } else { 2 });
    scene.read(1);
    scene.peer.messages.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(scene.completes(), [ended(1, Status::Disconnected)]);
    scene.reconnects();
    // The client closes the connection when it has seen the welcome of a stranger.
    let start = Instant::now();
    scene.peer.messages.stream.set_nonblocking(true).unwrap();
    while !matches!(scene.peer.messages.stream.read(&mut [0; 1]), Ok(0)) {
        assert!(start.elapsed() < PATIENCE, "the client goes on with a stranger");
        scene.read(2);
        assert_eq!(scene.completes(), [ended(2, Status::Disconnected)]);
    }
    let error = scene.fabric.allocate(4096).unwrap_err().to_string();
    assert!(error.contains("far memory is lost"), "{error}");
    assert!(scene.peers.try_recv().is_err(), "no further connection is made");
}

#[test]
fn completions_wait_for_room() {
    let mut scene = Scene::steady();
    let requests: Vec<Header> = (0..FRAMES).map(|id| scene.asked(id)).collect();
    let bytes: Vec<u8> = requests.iter().flat_map(|request| reply(request, 1)).collect();
    scene.peer.messages.stream.write_all(&bytes).unwrap();
    let (start, mut seen) = (Instant::now(), 0);
    while seen < FRAMES {
        assert!(start.elapsed() < PATIENCE);
        let mut completions = Vec::with_capacity(1);
        scene.queue_pair.poll(yonder_now(), &mut completions);
        assert!(completions.len() <= 1 && completions.capacity() == 1);
        seen += completions.len() as u32;
        assert_eq!(scene.queue_pair.outstanding() as u32, FRAMES - seen);
    }
}
