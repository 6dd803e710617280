//! [`Target`]: the memory node that a benchmark measures, one that is there or one that is started for it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::clib::{Process, ProcessConfig};
use yonder_node::Polling;

use crate::BenchError;
use crate::children::{Launch, NodeChild, folder, own_cpu_time};
use crate::flags::duration;
use tempfile::TempDir;

/// Which node: one that is there, or one in a process of its own, started for the benchmark.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
#[command(next_help_heading = "Memory node")]
pub struct NodeChoice {
    /// Memory node to measure: udp://host:port, tcp://host:port or shm:///path.sock; one is started if not given
    #[arg(long, value_name = "URL")]
    node: Option<String>,
    /// How a node that is started is reached
    #[arg(long, value_name = "KIND", default_value = "udp", conflicts_with = "node")]
    transport: Transport,
    /// How long idle threads of a node that is started ask for more before they sleep, at most
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = duration)]
    node_spin: Duration,
    /// Threads of a node that is started never sleep: the shortest latency, for a CPU each
    #[arg(long, conflicts_with_all = ["node", "node_spin"])]
    node_busy_poll: bool,
}

impl NodeChoice {
    /// The one at this URL.
    #[cfg(test)]
    pub(crate) fn at(url: String) -> Self {
        Self { node: Some(url), transport: Transport::Udp, node_spin: Duration::ZERO, node_busy_poll: false }
    }

    /// One that is started in any case: a node that is there is not ours to fill.
    pub(crate) fn started(&self) -> Self {
        Self { node: None, ..self.clone() }
    }

    /// What the threads of a node that is started do while there is nothing to do.
    fn polling(&self) -> Polling {
        if self.node_busy_poll { Polling::Busy } else { Polling::Adaptive(self.node_spin) }
    }
}

/// How a node that is started is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Transport {
    /// Datagrams over loopback
    Udp,
    /// A connection over loopback
    Tcp,
    /// A socket in the file system
    Shm,
}

/// A node to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeTask {
    /// Where it listens.
    pub listen: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of a page; `None` leaves it to the node.
    pub page_bytes: Option<u64>,
    /// What its threads do while there is nothing to do.
    pub polling: Polling,
}

/// A node, and the folder with its socket. One that was started ends when it is dropped.
#[derive(Debug)]
pub struct Target {
    url: String,
    pub(crate) node: Option<NodeChild>,
    // Behind the node, which removes its socket as it ends.
    _folder: Option<TempDir>,
}

/// CPU time used until some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTimes {
    client: Duration,
    /// None for a node that was there.
    server: Option<Duration>,
}

impl Target {
    /// A node with `memory` bytes in pages of `page_bytes`. One that is there has what it has.
    pub fn new(
        choice: &NodeChoice,
        launch: &dyn Launch,
        memory: u64,
        page_bytes: Option<u64>,
    ) -> Result<Self, BenchError> {
        if let Some(url) = &choice.node {
            return Ok(Self { url: url.clone(), node: None, _folder: None });
        }
        let mut own = None;
        let listen = match choice.transport {
            Transport::Udp => "udp://127.0.0.1:0".to_owned(),
            Transport::Tcp => "tcp://127.0.0.1:0".to_owned(),
            Transport::Shm => {
                format!("shm://{}", own.insert(folder("bench")?).path().join("node.sock").display())
            }
        };
        let node = NodeChild::start(launch, &NodeTask { listen, memory, page_bytes, polling: choice.polling() })?;
        Ok(Self { url: node.url.clone(), node: Some(node), _folder: own })
    }

    /// The node's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// An address space on the node, for threads with at most `pending_max` operations that spin for `spin`.
    pub(crate) fn process(&self, pending_max: usize, spin: Duration) -> Result<Process, BenchError> {
        Ok(Process::create_with(&self.url, ProcessConfig { pending_max, spin, ..ProcessConfig::default() })?)
    }

    /// CPU time that this process and the node have used until now.
    pub(crate) fn cpu_times(&self) -> Result<CpuTimes, BenchError> {
        let server = self.node.as_ref().map(|node| node.child.cpu_time()).transpose()?;
        Ok(CpuTimes { client: own_cpu_time(), server })
    }
}

impl CpuTimes {
    /// Those of a client and a server.
    pub(crate) fn new(client: Duration, server: Duration) -> Self {
        Self { client, server: Some(server) }
    }

    /// Microseconds that each of `ops` operations took of client and server since `before`.
    pub(crate) fn per_op(self, before: Self, ops: u64) -> (f64, Option<f64>) {
        let share =
            |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() * 1e6 / ops.max(1) as f64;
        let server = self.server.zip(before.server).map(|(after, before)| share(after, before));
        (share(self.client, before.client), server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_shared_among_operations() {
        let times = |client, server| CpuTimes::new(Duration::from_millis(client), Duration::from_millis(server));
        assert_eq!(times(30, 15).per_op(times(10, 5), 1000), (20.0, Some(10.0)));
        let unknown = CpuTimes { client: Duration::from_millis(30), server: None };
        assert_eq!(unknown.per_op(CpuTimes { client: Duration::ZERO, server: None }, 0), (30_000.0, None));
    }
}
