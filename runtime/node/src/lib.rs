//! The memory node: keeps pages for compute nodes.
//!
//! [`Node::start`] serves the address space of one process over any number of [`Listen`] addresses until
//! [`Node::stop`]. The slow path is one control thread: it accepts, runs the handshake, serves control connections
//! (queue pair 0) and takes back the memory of clients that have gone. The fast path is a few data threads, each with
//! an epoll of its own over the queue pairs it was given; a batch of requests costs one receive and one send.
//!
//! Memory belongs to a client, not to a connection. When the last connection of a client is gone for
//! [`NodeConfig::grace`], its memory is released; a client that returns later is welcomed with a new incarnation, so it
//! knows that its pages are lost.
//!
//! Clients on the same host that connect to a `shm://` address get the whole memory of the node as a descriptor. They
//! are trusted: only the owner of the node's process may connect to the socket.
//!
//! Neighbours: `core/wire` is the protocol; `runtime/fabric` has the clients.

#![forbid(unsafe_code)]

mod connection;
mod control;
mod event_loop;
mod execute;
mod extents;
mod listen;
mod memory;
mod session;
mod stats;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use yonder_mapping::MapError;

use event_loop::{EventLoop, Inbox};
use listen::Listener;
use memory::Memory;
use session::Clients;
use stats::Counters;

pub use listen::{Listen, ListenError, parse_listen};
pub use stats::NodeStats;

/// Most connections at a time; the limit of open files may lower it.
const CONNECTIONS_MAX: usize = 1024;
/// Most data threads that a node chooses by itself.
const DATA_THREADS_DEFAULT_MAX: usize = 8;
/// Grace of [`NodeConfig::new`].
const GRACE_DEFAULT: Duration = Duration::from_secs(60);

/// What a node serves, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeConfig {
    /// Where clients connect; at least one address.
    pub listen: Vec<Listen>,
    /// Most bytes that are allocated at a time, rounded up to whole pages.
    pub memory_bytes: u64,
    /// How long the memory of a client outlives its last connection.
    pub grace: Duration,
    /// Data threads; `None` takes half of the CPUs, at least one and at most eight.
    pub data_threads: Option<NonZeroUsize>,
}

impl NodeConfig {
    /// A node of `memory_bytes` at `listen`, with a grace of 60 seconds and as many data threads as fit the machine.
    #[must_use]
    pub fn new(listen: Vec<Listen>, memory_bytes: u64) -> Self {
        Self { listen, memory_bytes, grace: GRACE_DEFAULT, data_threads: None }
    }

    fn data_threads(&self) -> usize {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.data_threads.map_or((cpus / 2).clamp(1, DATA_THREADS_DEFAULT_MAX), NonZeroUsize::get)
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is nothing to listen on.
    #[error("no address to listen on: type --listen tcp://127.0.0.1:7000")]
    NoAddress,
    /// The node would have no memory.
    #[error("a node of 0 bytes keeps nothing: type --memory 4GiB")]
    NoMemory,
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {cause}; choose another address with --listen")]
    Listen {
        /// The address as a URL.
        address: String,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The machine does not give the address space.
    #[error("cannot reserve the node's memory: {0}; type a smaller --memory")]
    Memory(#[from] MapError),
    /// The machine refused a thread, a descriptor or the memory file.
    #[error("the operating system refused the node {what}: {cause}")]
    System {
        /// What was refused.
        what: &'static str,
        /// What the operating system said.
        cause: io::Error,
    },
}

/// What all threads of a node share.
#[derive(Debug)]
struct Shared {
    memory: Memory,
    clients: Clients,
    counters: Counters,
    connections_max: usize,
    stop: AtomicBool,
    /// Wakes the control thread, for deadlines that have changed.
    control: Arc<Inbox>,
}

/// A running memory node. Dropping it stops it.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<Listen>,
    /// Sockets in the file system, removed when the node stops.
    socket_paths: Vec<PathBuf>,
}

impl Node {
    /// Reserves the memory, listens and starts serving.
    pub fn start(config: NodeConfig) -> Result<Self, NodeError> {
        if config.listen.is_empty() {
            return Err(NodeError::NoAddress);
        }
        if config.memory_bytes == 0 {
            return Err(NodeError::NoMemory);
        }
        let memory = Memory::new(config.memory_bytes)?;
        let inbox = || Inbox::new().map(Arc::new).map_err(|cause| NodeError::System { what: "an event", cause });
        let (control, data) =
            (inbox()?, (0..config.data_threads()).map(|_| inbox()).collect::<Result<Vec<_>, NodeError>>()?);
        let shared = Arc::new(Shared {
            memory,
            clients: Clients::new(config.grace),
            counters: Counters::default(),
            connections_max: connections_max(),
            stop: AtomicBool::new(false),
            control: Arc::clone(&control),
        });
        let mut node =
            Self { shared, inboxes: Vec::new(), threads: Vec::new(), addresses: Vec::new(), socket_paths: Vec::new() };
        let listeners = node.listen(&config.listen)?;
        for inbox in &data {
            node.spawn("yonder-data", Arc::clone(inbox), |events| events.serve())?;
        }
        node.spawn("yonder-control", control, move |events| control::serve(events, listeners, data))?;
        Ok(node)
    }

    /// Where the node listens, with the ports that the operating system chose for port 0.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Counters since the start, and the memory in use.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.shared.counters.snapshot(&self.shared.memory)
    }

    /// Closes every connection and waits for the threads. The memory and what it held are gone afterwards.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn listen(&mut self, addresses: &[Listen]) -> Result<Vec<Listener>, NodeError> {
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            let listener =
                Listener::bind(address).map_err(|cause| NodeError::Listen { address: address.to_string(), cause })?;
            if let Listen::Shm(path) = address {
                self.socket_paths.push(path.clone());
            }
            self.addresses.push(listener.address().clone());
            listeners.push(listener);
        }
        Ok(listeners)
    }

    fn spawn(
        &mut self,
        name: &str,
        inbox: Arc<Inbox>,
        body: impl FnOnce(EventLoop) + Send + 'static,
    ) -> Result<(), NodeError> {
        let refused = |cause| NodeError::System { what: "a thread", cause };
        let events = EventLoop::new(Arc::clone(&self.shared), Arc::clone(&inbox)).map_err(refused)?;
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(move || body(events)).map_err(refused)?);
        self.inboxes.push(inbox);
        Ok(())
    }

    fn shut_down(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for inbox in &self.inboxes {
            inbox.wake();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the memory node had panicked");
            }
        }
        for path in self.socket_paths.drain(..) {
            // Somebody may have removed the socket already, which is what is wanted.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// As many connections as the limit of open files allows beside what the process itself needs.
fn connections_max() -> usize {
    const OWN_FILES: u64 = 64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    limit.saturating_sub(OWN_FILES).clamp(1, CONNECTIONS_MAX as u64) as usize
}
