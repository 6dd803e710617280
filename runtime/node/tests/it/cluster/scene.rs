//! A controller, and nodes that serve it.

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
use yonder_node::{ControllerConfig, Listen, Node, NodeConfig, NodeError};
use yonder_placement::{Config, NodeId};

/// How long a test waits for something before it fails.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a page.
pub(crate) const PAGE: u64 = 64 << 10;
/// Bytes of a region.
pub(crate) const REGION: u64 = 1 << 20;

/// Any free port.
const ANY: &str = "127.0.0.1:0";

/// A controller.
pub(crate) struct Scene {
    server: ControllerServer,
}

impl Scene {
    /// A controller that starts at most `moves_max` moves at a time.
    pub(crate) fn new(moves_max: usize) -> Self {
        let config = Config { region_bytes: REGION, lease: 1_500_000_000, moves_max, ..Config::default() };
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        Self { server: ControllerServer::start(listen, config, Box::new(MemoryStore::default())).unwrap() }
    }

    pub(crate) fn address(&self) -> String {
        self.server.address().to_string()
    }

    pub(crate) fn client(&self) -> ControllerClient {
        ControllerClient::new(&self.address(), TIMEOUT)
    }

    /// A node with `pages` pages, at both networks.
    pub(crate) fn node(&self, pages: u64) -> Node {
        self.try_node(pages, PAGE).unwrap()
    }

    /// A node with `pages` pages that other nodes reach by datagrams only.
    pub(crate) fn datagram_node(&self, pages: u64) -> Node {
        self.start(vec![Listen::Udp(ANY.to_owned())], pages, PAGE).unwrap()
    }

    /// Ends a node and starts another one where it was.
    pub(crate) fn restarted(&self, node: Node, pages: u64) -> Node {
        let listen: Vec<Listen> = node.addresses().to_vec();
        drop(node);
        self.start(listen, pages, PAGE).unwrap()
    }

    pub(crate) fn try_node(&self, pages: u64, page_bytes: u64) -> Result<Node, NodeError> {
        self.start(vec![Listen::Udp(ANY.to_owned()), Listen::Tcp(ANY.to_owned())], pages, page_bytes)
    }

    fn start(&self, listen: Vec<Listen>, pages: u64, page_bytes: u64) -> Result<Node, NodeError> {
        start_at(self.address(), listen, pages, page_bytes)
    }
}

/// A node with `pages` pages that others reach by streams, with its controller at an address.
pub(crate) fn stream_node_at(controller: String, pages: u64) -> Node {
    start_at(controller, vec![Listen::Tcp(ANY.to_owned())], pages, PAGE).unwrap()
}

fn start_at(controller: String, listen: Vec<Listen>, pages: u64, page_bytes: u64) -> Result<Node, NodeError> {
    Node::start(NodeConfig {
        page_bytes: Some(page_bytes),
        data_threads: NonZeroUsize::new(1),
        controller: Some(ControllerConfig::new(controller, REGION)),
        ..NodeConfig::new(listen, pages * page_bytes)
    })
}

/// What the controller calls `node`.
pub(crate) fn id_of(node: &Node, client: &mut ControllerClient) -> NodeId {
    let url = url_of(node);
    let nodes = client.nodes().unwrap();
    nodes.iter().find(|view| view.urls.contains(&url)).expect("it is registered").node
}

/// The first URL of `node`.
pub(crate) fn url_of(node: &Node) -> String {
    node.addresses()[0].to_string()
}

/// Tries until there is a result.
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(start.elapsed() < TIMEOUT, "waited in vain until {what}");
        thread::yield_now();
    }
}
