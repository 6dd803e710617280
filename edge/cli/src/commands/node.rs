//! `yonder node`: a memory node, until it is told to end.

use std::process::ExitCode;
use std::sync::mpsc;

use yonder::units::format_bytes;
use yonder_node::{Node, NodeConfig};

use crate::args::NodeArgs;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let node = Node::start(NodeConfig::new(args.listen.0.clone(), args.memory))?;
    let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
    eprintln!("yonder node: lending {} on {}; Ctrl-C ends it", format_bytes(args.memory), addresses.join(", "));
    stopped.recv()?;
    let stats = node.stats();
    node.stop();
    eprintln!("yonder node: {} reads and {} writes served", stats.reads, stats.writes);
    Ok(ExitCode::SUCCESS)
}
