//! Memory nodes inside the test's process, so that benchmarks can be tested without others.

use std::path::Path;
use std::process::Command;

use yonder_node::{Listen, Node, NodeConfig};

use crate::children::Launch;
use crate::scale_clients::ClientTask;
use crate::target::NodeTask;

/// Starts nothing: for tests that have a node.
pub(crate) struct NoLaunch;

impl Launch for NoLaunch {
    fn node(&self, _: &NodeTask) -> Command {
        unreachable!("the test has a node")
    }

    fn client(&self, _: &ClientTask) -> Command {
        unreachable!("the test has no client processes")
    }

    fn guarded(&self, program: &Path) -> Command {
        Command::new(program)
    }
}

/// A node with `memory` bytes, and its URL for datagrams.
pub(crate) fn node(memory: u64, page_bytes: Option<u64>) -> (Node, String) {
    let listen = vec![Listen::Udp("127.0.0.1:0".to_owned())];
    let node = Node::start(NodeConfig { page_bytes, ..NodeConfig::new(listen, memory) }).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}
