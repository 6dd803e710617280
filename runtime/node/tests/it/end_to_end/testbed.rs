//! Nodes on free ports, and a client that posts, polls and remembers.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use yonder_fabric::{
    Completion, Fabric, FabricError, Module, QueuePair, ReadInto, RemoteAddress, Status, WorkId, open,
};
use yonder_mapping::Mapping;
use yonder_node::{Listen, Node, NodeConfig};
use yonder_units::{FrameIndex, PAGE_BYTES};

/// How long a test waits for something before it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a page, as addresses count them.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// The transports over which requests are messages.
pub(crate) const NETWORKS: [Network; 2] = [Network::Tcp, Network::Udp];

/// A transport over which requests are messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    Tcp,
    Udp,
}

impl Network {
    pub(crate) fn listen(self, address: &str) -> Listen {
        match self {
            Self::Tcp => Listen::Tcp(address.to_owned()),
            Self::Udp => Listen::Udp(address.to_owned()),
        }
    }
}

/// A node of `pages` on a free port.
pub(crate) fn node(network: Network, pages: u64) -> Node {
    node_at(vec![network.listen("127.0.0.1:0")], pages)
}

/// A node of `pages` on a free port for streams.
pub(crate) fn tcp_node(pages: u64) -> Node {
    node(Network::Tcp, pages)
}

/// A node of `pages` with a socket in `folder`.
pub(crate) fn shm_node(folder: &Path, pages: u64) -> Node {
    node_at(vec![Listen::Shm(folder.join("node.sock"))], pages)
}

/// A node at these addresses, with small pages, and as many data threads as there may be races for.
pub(crate) fn node_at(listen: Vec<Listen>, pages: u64) -> Node {
    let mut config = NodeConfig::new(listen, pages * PAGE);
    config.page_bytes = Some(PAGE);
    config.data_threads = NonZeroUsize::new(2);
    // A port that a test has just freed may need a moment.
    wait_for(|| Node::start(config.clone()).ok())
}

/// The first address of `node`, without its scheme.
pub(crate) fn address(node: &Node) -> String {
    match &node.addresses()[0] {
        Listen::Tcp(address) | Listen::Udp(address) => address.clone(),
        Listen::Shm(path) => path.display().to_string(),
    }
}

/// Tries until there is a result.
pub(crate) fn wait_for<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(start.elapsed() < TIMEOUT, "waited in vain");
        thread::yield_now();
    }
}

/// The same numbers in every run.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// A fabric with one queue pair and some frames.
pub(crate) struct Client {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) queue_pair: Box<dyn QueuePair>,
    pub(crate) frames: Arc<Mapping>,
    next_id: u64,
    /// What completed while there was no room to post.
    early: Vec<Completion>,
}

impl Client {
    pub(crate) fn new(url: &str, frames: usize) -> Self {
        let fabric = open(url).unwrap();
        let frames = Arc::new(Mapping::anonymous(frames * PAGE_BYTES).unwrap());
        let queue_pair = fabric.queue_pair(Module::Fault, Arc::clone(&frames)).unwrap();
        Self { fabric, queue_pair, frames, next_id: 0, early: Vec::new() }
    }

    pub(crate) fn of(node: &Node, frames: usize) -> Self {
        Self::new(&node.addresses()[0].to_string(), frames)
    }

    pub(crate) fn id(&mut self) -> WorkId {
        self.next_id += 1;
        WorkId(self.next_id)
    }

    pub(crate) fn read(&mut self, from: RemoteAddress, frame: u32) -> WorkId {
        let id = self.id();
        self.queue_pair.post_read(id, from, ReadInto::Frame(FrameIndex(frame)), yonder_clock::now()).unwrap();
        id
    }

    /// Posts a write, as soon as there is room for it: a page may be on its way from one tier to the other.
    pub(crate) fn write(&mut self, to: RemoteAddress, frame: u32) -> WorkId {
        let id = self.id();
        wait_for(|| {
            let posted = self.queue_pair.post_write(id, to, FrameIndex(frame), yonder_clock::now());
            if posted.is_err() {
                let completions = self.poll_now();
                self.early.extend(completions);
            }
            posted.ok()
        });
        id
    }

    pub(crate) fn poll(&mut self) -> Vec<Completion> {
        if !self.early.is_empty() {
            return std::mem::take(&mut self.early);
        }
        self.poll_now()
    }

    fn poll_now(&mut self) -> Vec<Completion> {
        let mut completions = Vec::with_capacity(16);
        self.queue_pair.poll(yonder_clock::now(), &mut completions);
        assert!(completions.capacity() == 16, "more completions than there was room for");
        completions
    }

    /// Polls until `count` operations have completed.
    pub(crate) fn finish(&mut self, count: usize) -> HashMap<WorkId, Status> {
        let mut done = HashMap::new();
        wait_for(|| {
            for completion in self.poll() {
                let twice = done.insert(completion.id, completion.status);
                assert_eq!(twice, None, "{completion:?} came twice");
            }
            (done.len() >= count).then_some(())
        });
        assert_eq!(done.len(), count);
        done
    }

    pub(crate) fn fill(&self, frame: u32, byte: u8) {
        self.frames.write(FrameIndex(frame).offset(), &[byte; PAGE_BYTES]);
    }

    /// The byte that the whole frame consists of.
    pub(crate) fn content(&self, frame: u32) -> u8 {
        let mut bytes = [0; PAGE_BYTES];
        self.frames.read(FrameIndex(frame).offset(), &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "frame {frame} is torn");
        bytes[0]
    }

    /// Writes a page of `byte` through frame 0 and waits.
    pub(crate) fn store(&mut self, to: RemoteAddress, byte: u8) -> Status {
        self.fill(0, byte);
        let id = self.write(to, 0);
        self.finish(1)[&id]
    }

    /// Reads a page into frame 0 and waits.
    pub(crate) fn load(&mut self, from: RemoteAddress) -> (Status, u8) {
        self.fill(0, 0xee);
        let id = self.read(from, 0);
        (self.finish(1)[&id], self.content(0))
    }

    /// Reads until the connection is back, and returns the page's byte.
    pub(crate) fn load_again(&mut self, from: RemoteAddress) -> u8 {
        wait_for(|| match self.load(from) {
            (Status::Done, byte) => Some(byte),
            (Status::Disconnected, _) => None,
            (Status::Failed | Status::Lost, _) => panic!("the node refused the read"),
        })
    }

    pub(crate) fn allocate(&self, pages: u64) -> RemoteAddress {
        self.fabric.allocate(pages * PAGE).unwrap()
    }
}

/// Page `page` after `start`.
pub(crate) fn page(start: RemoteAddress, page: u64) -> RemoteAddress {
    RemoteAddress(start.0 + page * PAGE)
}

/// The cause of an [`FabricError::Unreachable`].
pub(crate) fn unreachable_cause<T>(result: Result<T, FabricError>) -> String {
    match result.err() {
        Some(FabricError::Unreachable { cause, .. }) => cause,
        other => panic!("not unreachable but {other:?}"),
    }
}
