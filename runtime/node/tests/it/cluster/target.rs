//! [`Target`]: a node made by the test. It registers at the controller, and takes regions over when the test says so.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use yonder_controller::{MoveEnd, NodeAgent, NodeLink};
use yonder_placement::{Capabilities, Capability, Domains, MoveId, MoveOrder, NodeId, NodeReport, Pid, Registration};
use yonder_wire::{AdoptRequest, AdoptStage, Body, ErrorCode, Header, Kind, MESSAGE_BYTES_MAX, MessageBuffer, Welcome};

use crate::cluster::scene::{PAGE, REGION, Scene, TIMEOUT};

const INCARNATION: u64 = 77;
const MEMORY_BYTES: u64 = 64 << 20;

/// What the node that sends a region wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Begin,
    Fill,
    Prepare,
    Finish,
    Abandon,
}

/// A stage that waits for its answer, and the region's first address.
pub(crate) struct Asked {
    pub(crate) stage: Stage,
    pub(crate) from: u64,
    reply: Sender<Result<(), ErrorCode>>,
}

impl Asked {
    /// Answers it. Dropped, the connection breaks.
    pub(crate) fn answer(self, result: Result<(), ErrorCode>) {
        self.reply.send(result).unwrap();
    }
}

pub(crate) struct Target {
    asked: Option<Receiver<Asked>>,
    pub(crate) dropped: Arc<Mutex<Vec<u32>>>,
    link: Option<NodeLink>,
    address: std::net::SocketAddr,
    server: Option<JoinHandle<()>>,
}

struct Agent {
    dropped: Arc<Mutex<Vec<u32>>>,
}

impl Target {
    pub(crate) fn new(scene: &Scene) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dropped = Arc::new(Mutex::new(Vec::new()));
        let facts = Registration {
            node: NodeId(INCARNATION),
            name: None,
            urls: vec![format!("tcp://{address}")],
            memory_bytes: MEMORY_BYTES,
            page_bytes: PAGE,
            region_bytes: REGION,
            domains: Domains::default(),
        };
        let agent = Box::new(Agent { dropped: Arc::clone(&dropped) });
        let link = NodeLink::start(&scene.address(), facts, agent).unwrap();
        let (sender, asked) = channel();
        let server = thread::spawn(move || {
            // A connection at a time; the first one that brings nothing is the order to end.
            while let Ok((stream, _)) = listener.accept() {
                if !serve(stream, &sender) {
                    return;
                }
            }
        });
        Self { asked: Some(asked), dropped, link: Some(link), address, server: Some(server) }
    }

    /// The next stage that a node asks for.
    pub(crate) fn next(&self) -> Asked {
        self.asked.as_ref().expect("it is there until the end").recv_timeout(TIMEOUT).expect("a node sends a region")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Who asks again meanwhile has the connection broken, and is not waited for.
        drop(self.asked.take());
        drop(self.link.take());
        drop(TcpStream::connect(self.address));
        let ended = self.server.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()), "the target has panicked");
    }
}

impl NodeAgent for Agent {
    fn report(&mut self) -> NodeReport {
        NodeReport { free_bytes: MEMORY_BYTES, ..NodeReport::default() }
    }

    fn spaces(&mut self) -> Vec<Pid> {
        Vec::new()
    }

    fn create_space(&mut self, _pid: Pid, _tenant: Option<&str>) -> Result<Capabilities, String> {
        let [owner, read_write, read] = [1, 2, 3].map(Capability);
        Ok(Capabilities { owner, read_write, read })
    }

    fn destroy_space(&mut self, _pid: Pid) {}

    fn open_region(&mut self, _pid: Pid, _region: u32, _id: MoveId) -> Result<(), String> {
        Ok(())
    }

    fn drop_region(&mut self, _pid: Pid, region: u32, _before: MoveId) -> Result<(), String> {
        self.dropped.lock().unwrap().push(region);
        Ok(())
    }

    fn give_up_region(&mut self, pid: Pid, region: u32, before: MoveId) -> Result<(), String> {
        self.drop_region(pid, region, before)
    }

    fn start_move(&mut self, _order: MoveOrder, end: MoveEnd) {
        end.failed("it is only a target");
    }
}

/// Serves a connection until it ends. False if it has brought nothing.
fn serve(mut stream: TcpStream, asked: &Sender<Asked>) -> bool {
    let mut received = MessageBuffer::new(2 * MESSAGE_BYTES_MAX);
    let mut has_brought = false;
    loop {
        while let Some(message) = received.message().unwrap() {
            message.verify().unwrap();
            let (header, bytes) = (message.header, message.bytes());
            let Some(answer) = answer(&header, message.payload, asked) else { return true };
            if stream.write_all(&answer).is_err() {
                return true;
            }
            received.consume(bytes);
            has_brought = true;
        }
        match stream.read(received.room()) {
            Ok(bytes @ 1..) => received.received(bytes),
            _ => return has_brought,
        }
    }
}

/// The answer to a message; `None` if the connection is to break.
fn answer(header: &Header, payload: &[u8], asked: &Sender<Asked>) -> Option<Vec<u8>> {
    let time = yonder_clock::now() + 1;
    let result = match header.kind {
        Kind::Hello => {
            let mut body = [0; Welcome::BYTES];
            let welcome = Welcome { home: 0, page_bytes: PAGE, memory_bytes: MEMORY_BYTES, incarnation: INCARNATION };
            welcome.write_to(&mut body);
            let answer = header.answer(time, body.len() as u32).seal(&body);
            return Some([&answer[..], &body[..]].concat());
        }
        Kind::Adopt => {
            let request = AdoptRequest::from_bytes(payload).unwrap();
            let stage = match request.stage {
                AdoptStage::Begin(_) => Stage::Begin,
                AdoptStage::Fill(_) => Stage::Fill,
                AdoptStage::Prepare => Stage::Prepare,
                AdoptStage::Finish => Stage::Finish,
                AdoptStage::Abandon => Stage::Abandon,
            };
            let (reply, result) = channel();
            asked.send(Asked { stage, from: request.from, reply }).ok()?;
            result.recv().ok()?
        }
        _ => Ok(()),
    };
    Some(match result {
        Ok(()) => header.answer(time, 0).seal(&[]).to_vec(),
        Err(code) => header.refusal(time, code).seal(&[]).to_vec(),
    })
}
