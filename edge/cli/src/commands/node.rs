//! `yonder node`: a memory node, until it is told to end.

use std::process::ExitCode;
use std::sync::{Arc, mpsc};

use yonder::units::format_bytes;
use yonder_metrics::{Extra, ExtraKind, Sample};
use yonder_node::{Node, NodeConfig, NodeStats};

use crate::args::NodeArgs;

pub(crate) fn run(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let (stop, stopped) = mpsc::channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let node = Arc::new(Node::start(NodeConfig::new(args.listen.0.clone(), args.memory))?);
    let addresses: Vec<String> = node.addresses().iter().map(ToString::to_string).collect();
    eprintln!("yonder node: lending {} on {}; Ctrl-C ends it", format_bytes(args.memory), addresses.join(", "));
    let for_metrics = Arc::clone(&node);
    let sample = move || Sample { extra: metrics(&for_metrics.stats()), ..Sample::default() };
    let server = args.metrics.as_deref().map(|address| yonder_metrics::serve(address, Arc::new(sample))).transpose()?;
    if let Some(server) = &server {
        eprintln!("yonder node: metrics on {}", server.address());
    }
    stopped.recv()?;
    let stats = node.stats();
    eprintln!("yonder node: {} reads and {} writes served", stats.reads, stats.writes);
    Ok(ExitCode::SUCCESS)
}

fn metrics(stats: &NodeStats) -> Vec<Extra> {
    let metric = |name, kind, value, help| Extra { name, help, kind, value };
    vec![
        metric("yonder_node_reads_total", ExtraKind::Counter, stats.reads, "Reads answered."),
        metric("yonder_node_writes_total", ExtraKind::Counter, stats.writes, "Writes applied."),
        metric("yonder_node_read_bytes_total", ExtraKind::Counter, stats.read_bytes, "Bytes sent."),
        metric("yonder_node_written_bytes_total", ExtraKind::Counter, stats.written_bytes, "Bytes received."),
        metric("yonder_node_errors_total", ExtraKind::Counter, stats.errors, "Requests refused."),
        metric("yonder_node_connections", ExtraKind::Gauge, stats.connections, "Connections open now."),
        metric("yonder_node_allocated_bytes", ExtraKind::Gauge, stats.allocated_bytes, "Bytes lent now."),
        metric("yonder_node_backed_bytes", ExtraKind::Gauge, stats.backed_bytes, "Bytes of machine memory in use now."),
        metric("yonder_node_limit_bytes", ExtraKind::Gauge, stats.limit_bytes, "Bytes that may be lent."),
    ]
}
