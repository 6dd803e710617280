//! The memory node: keeps memory for compute nodes, in address spaces that outlive connections.
//!
//! [`Node::start`] serves a [`yonder_board::NodeCore`] over any number of [`Listen`] addresses until [`Node::stop`].
//! The fast path is a few data threads for datagrams and a few for streams, each with a part of the board of its own; a
//! batch of requests costs one receive and one send. The slow path is one thread that makes address spaces and
//! allocates; data threads forward to it. A control thread accepts connections and deals them out. Nothing is kept
//! about clients.
//!
//! An address space ends when its owner says so, or when its lease is over; then its memory is free.
//!
//! Clients on the same host that connect to a `shm://` address get the whole memory of the node as a descriptor. They
//! are trusted: only the owner of the node's process may connect to the socket.
//!
//! A thread that panics ends the process (`crash`).
//!
//! Files: `config` is what is set of a node, `bound` a node before it serves, and `sandbox` what it may do then;
//! `memory` has the bytes, `quiet` says when freed ones may be used again; `datagram` and `event_loop` with
//! `connection` are data threads, which `serve` by the same code, on CPUs of their own if `cpus` says so; `slow` is the
//! slow path's thread and `extend` the one that runs offloads, `forward` the way to them, which `turns` keeps fair, and
//! back; `rounds` is how all queues are kept fair, `backlog` that of datagrams, `owned_message` is what waits there,
//! and `crowd` says when turns are to be short; `control` and `listen` are where clients come in, and `connections` and
//! `source` say how many of whom, `gate` who they are, by sessions that `sessions` makes and `revoked` ends. With a
//! controller, which places regions of address spaces on several nodes: `controller` joins it, `agent` does what it
//! says, by errands to the slow path (`errand`), and `carrier` moves a region to another node.
//!
//! Neighbours: `core/board` decides, `core/wire` is the protocol; `runtime/fabric` has the clients and the lanes
//! between nodes, `runtime/controller` the link to the controller.

#![forbid(unsafe_code)]

mod agent;
mod atomic;
mod backlog;
mod bound;
mod carrier;
mod closed;
mod config;
mod connection;
mod connections;
mod control;
mod controller;
mod cpus;
mod crash;
mod crowd;
mod datagram;
mod errand;
mod error;
mod event_loop;
mod extend;
#[cfg(test)]
mod flooded;
mod forward;
mod gate;
#[cfg(test)]
mod held;
mod listen;
mod memory;
mod owned_message;
mod polling;
mod quiescence;
mod revoked;
mod rounds;
mod sandbox;
mod serve;
mod sessions;
mod slow;
mod source;
mod stats;
mod turns;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use rand::TryRngCore;
use rand::rngs::OsRng;
use yonder_board::{NodeCore, NodeKey, SlowPath, Source};
use yonder_controller::{LinkCondition, NodeLink};
use yonder_identity::Places;
use yonder_mapping::{Inherited, LockedBox};
use yonder_session::NodeSecret;
use yonder_units::{Nanos, Narrow};
use yonder_wire::Welcome;

use config::SILENT_DIVISOR;
use connections::Connections;
use cpus::Cpus;
use errand::Errands;
use event_loop::{EventLoop, Inbox, Poll};
use extend::Extension;
use forward::SlowPathQueue;
use gate::{Doors, Gate};
use listen::{Listener, bind_datagrams};
use memory::Memory;
use quiescence::QuiescentState;
use serve::Server;
use stats::Counters;
use turns::Party;

pub use bound::BoundNode;
pub use config::NodeConfig;
pub use controller::ControllerConfig;
pub use cpus::{CpuList, NoCpuList};
pub use error::NodeError;
pub use listen::{Listen, ListenError, parse_listen};
pub use polling::Polling;
pub use stats::NodeStats;
pub use yonder_board::{TenantLimits, TenantUse};

/// Executed operations that a data thread remembers: for a second or so, at full speed.
const RECENT_MAX: usize = 1 << 18;

/// What all threads of a node share.
#[derive(Debug)]
struct Shared {
    board: Arc<NodeCore>,
    memory: Memory,
    quiet: QuiescentState,
    counters: Counters,
    slow: SlowPathQueue,
    errands: Errands,
    extend: Extension,
    /// Bytes that the node needs for itself, whatever its clients do.
    own_bytes: u64,
    incarnation: u64,
    connections: Connections,
    doors: Arc<Doors>,
    sessions: Arc<Places<Source>>,
    silent_max: usize,
    stop: AtomicBool,
}

impl Shared {
    /// What was begun at `began` for a party, from `source`, was that one's work, and so were `bytes` of an answer.
    fn charge_work(&self, queue: &SlowPathQueue, party: Party, source: Source, began: Nanos, bytes: usize) {
        let now = yonder_clock::now();
        let took = Duration::from_nanos(now.saturating_sub(began));
        queue.charge(party, took);
        let accounts = self.board.accounts();
        let account = accounts.get(accounts.number_of(source));
        account.charge_work(took, now);
        account.charge(0, bytes as u64, now);
    }

    /// See [`Node::tenants`].
    fn tenants(&self) -> Vec<(String, TenantUse)> {
        let (names, accounts) = (self.doors.tenants(), self.board.accounts());
        let named = accounts.of_tenants().filter_map(|(number, usage)| Some((names.get(&number)?.clone(), usage)));
        let others = accounts.of_others().map(|(source, usage)| (source::called(source), usage));
        let mut all: Vec<_> = named.chain(others).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// What a client is told that data thread `home` serves.
    fn welcome(&self, home: u32) -> Welcome {
        let page_bytes = self.board.config().page_size.bytes();
        Welcome { home, page_bytes, memory_bytes: self.memory.bytes(), incarnation: self.incarnation }
    }
}

/// A running memory node. Dropping it stops it.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    datagram_sockets: Vec<Arc<std::net::UdpSocket>>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<Listen>,
    /// Sockets in the file system, removed when the node stops.
    socket_paths: Vec<PathBuf>,
    /// The link to the controller, if there is one.
    link: Option<NodeLink>,
}

/// The sockets of a node, before its threads run.
#[derive(Debug)]
struct Sockets {
    listeners: Vec<Listener>,
    datagrams: Vec<Arc<std::net::UdpSocket>>,
}

impl Node {
    /// Listens, reserves the memory and starts serving.
    pub fn start(config: NodeConfig) -> Result<Self, NodeError> {
        Self::bind(config)?.serve()
    }

    /// Listens and reserves the memory. No thread is made yet, and nothing is answered.
    pub fn bind(config: NodeConfig) -> Result<BoundNode, NodeError> {
        if config.listen.is_empty() {
            return Err(NodeError::NoAddress);
        }
        if config.memory_bytes == 0 {
            return Err(NodeError::NoMemory);
        }
        let is_shared = |listen: &&Listen| matches!(listen, Listen::Shm(_));
        if let (Some(_), Some(shared)) = (&config.credential, config.listen.iter().find(is_shared))
            && !config.listen.iter().all(|listen| is_shared(&listen))
        {
            return Err(NodeError::SharedWithMembers { shared: shared.to_string() });
        }
        let cpus = config.data_cpus.as_ref().map(Cpus::of).transpose()?;
        let (mut addresses, mut socket_paths) = (Vec::new(), Vec::new());
        let sockets = bind(&config, &mut addresses, &mut socket_paths)?;
        let has_streams = sockets.listeners.iter().any(Listener::serves);
        let stream_threads = if has_streams { config.data_threads() } else { 0 };
        let (shared, slow) = share(&config, sockets.datagrams.len() + stream_threads)?;
        let node = Self {
            shared,
            inboxes: Vec::new(),
            datagram_sockets: sockets.datagrams.clone(),
            threads: Vec::new(),
            addresses,
            socket_paths,
            link: None,
        };
        Ok(BoundNode { node, config, sockets, stream_threads, cpus, slow })
    }

    /// Starts the threads. Data threads have numbers from 0; those for datagrams come first.
    fn run(
        &mut self,
        config: &NodeConfig,
        sockets: Sockets,
        stream_threads: usize,
        cpus: Option<Cpus>,
        slow: SlowPath,
    ) -> Result<(), NodeError> {
        let (shared, polling) = (Arc::clone(&self.shared), config.polling);
        // Each thread that answers has a number of its own.
        let extend = sockets.datagrams.len() + stream_threads;
        let (slow_number, control_number) = (extend + 1, extend + 2);
        let gate = Gate::new(&shared.doors, slow_number)?;
        self.spawn("yonder-slow", move || slow::serve(&shared, slow, gate))?;
        let shared = Arc::clone(&self.shared);
        let (ready, is_ready) = sync_channel(1);
        let own = (extend, Gate::new(&shared.doors, extend)?);
        let offloads = yonder_offload::shipped(u64::from_le_bytes(random()?));
        self.spawn("yonder-extend", move || extend::serve(shared, own, offloads, &ready))?;
        // Clients find the node as it will be. A thread that has ended instead will be seen to have.
        let _ = is_ready.recv();
        let first_stream = sockets.datagrams.len();
        for (number, socket) in sockets.datagrams.into_iter().enumerate() {
            let server = Server::new(Arc::clone(&self.shared), number)?;
            self.spawn("yonder-datagram", Cpus::for_data(cpus, move || datagram::serve(server, &socket, polling)))?;
        }
        let mut homes = Vec::with_capacity(stream_threads);
        for number in first_stream..first_stream + stream_threads {
            let poll = self.poll()?;
            homes.push((number.narrow_u32(), Arc::clone(&poll.inbox)));
            let server = Server::new(Arc::clone(&self.shared), number)?;
            self.spawn("yonder-stream", Cpus::for_data(cpus, move || EventLoop::new(server, poll).serve(polling)))?;
        }
        if !sockets.listeners.is_empty() {
            let (shared, poll, listeners) = (Arc::clone(&self.shared), self.poll()?, sockets.listeners);
            self.spawn("yonder-control", move || control::serve(shared, poll, listeners, homes, control_number))?;
        }
        Ok(())
    }

    /// Where the node listens, with the ports that the operating system chose for port 0.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Counters since the start, and the memory in use.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        NodeStats {
            backed_bytes: self.shared.memory.backed_bytes(),
            limit_bytes: self.shared.memory.bytes(),
            own_bytes: self.shared.own_bytes,
            ..self.shared.counters.snapshot()
        }
    }

    /// What each tenant has and has done, by name; without names, each host and user of the machine. Those that have
    /// done nothing are left out.
    #[must_use]
    pub fn tenants(&self) -> Vec<(String, TenantUse)> {
        self.shared.tenants()
    }

    /// How the link to the controller is; `None` for a node without one.
    #[must_use]
    pub fn controller(&self) -> Option<LinkCondition> {
        self.link.as_ref().map(NodeLink::condition)
    }

    /// Closes every connection and waits for the threads. The memory and what it held are gone afterwards.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn poll(&mut self) -> Result<Poll, NodeError> {
        let refused = |cause| NodeError::System { what: "an event", cause };
        let inbox = Arc::new(Inbox::new().map_err(refused)?);
        self.inboxes.push(Arc::clone(&inbox));
        Poll::new(inbox).map_err(refused)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(crash::crashing(body));
        self.threads.push(spawned.map_err(|cause| NodeError::System { what: "a thread", cause })?);
        Ok(())
    }

    fn shut_down(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.slow.wake();
        self.shared.extend.queue.wake();
        // With it end the moves that are under way.
        drop(self.link.take());
        for inbox in &self.inboxes {
            inbox.wake();
        }
        // The sockets stay until all threads have ended: if one left the group earlier, the kernel would give its
        // clients to threads that do not know what was executed.
        for socket in &self.datagram_sockets {
            // Wakes the thread that waits for datagrams; the kernel also says that the socket is not connected.
            let _ = rustix::net::shutdown(&**socket, rustix::net::Shutdown::Read);
        }
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread that panics ends the process");
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

/// Binds the addresses of a node. What they turned out to be goes into `addresses`, sockets in the file system into
/// `paths`.
fn bind(config: &NodeConfig, addresses: &mut Vec<Listen>, paths: &mut Vec<PathBuf>) -> Result<Sockets, NodeError> {
    let mut sockets = Sockets { listeners: Vec::new(), datagrams: Vec::new() };
    for address in &config.listen {
        let refused = |cause| NodeError::Listen { address: address.to_string(), cause };
        if let Listen::Udp(wanted) = address {
            let bind = || bind_datagrams(wanted, sockets.datagrams.len(), config.data_threads());
            let (group, bound) = if config.credential.is_some() && is_any_port(wanted) {
                let (group, bound, sessions) = listen::with_sessions_on_a_free_port(bind).map_err(refused)?;
                sockets.listeners.push(sessions);
                (group, bound)
            } else {
                bind().map_err(refused)?
            };
            sockets.datagrams.extend(group.into_iter().map(Arc::new));
            addresses.push(bound);
            continue;
        }
        let listener = Listener::bind(address).map_err(refused)?;
        if let Listen::Shm(path) = address {
            paths.push(path.clone());
        }
        addresses.push(listener.address().clone());
        sockets.listeners.push(listener);
    }
    if config.credential.is_some() {
        // Sessions for datagrams are made over a stream to the same port.
        for address in &*addresses {
            let is_bound =
                |at: &String| sockets.listeners.iter().any(|listener| *listener.address() == Listen::Tcp(at.clone()));
            if let Listen::Udp(at) = address
                && !is_bound(at)
            {
                let refused = |cause| NodeError::Listen { address: format!("tcp://{at}, for sessions"), cause };
                sockets.listeners.push(Listener::for_sessions(at).map_err(refused)?);
            }
        }
    }
    Ok(sockets)
}

/// Whether the kernel is to choose the port.
fn is_any_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0u16))
}

/// Makes the board and the memory for a node with `data_threads` data threads.
fn share(config: &NodeConfig, data_threads: usize) -> Result<(Arc<Shared>, SlowPath), NodeError> {
    let page_size = config.page_size()?;
    let pages = config.memory_bytes.div_ceil(page_size.bytes());
    let pages = u32::try_from(pages).ok().filter(|pages| *pages < 1 << 30).ok_or(NodeError::TooManyPages(pages))?;
    let (seed, incarnation) = (random()?, random()?);
    let settings = yonder_board::Config {
        pages,
        page_size,
        seed: u64::from_le_bytes(seed),
        key: key()?,
        recent_max: RECENT_MAX,
        spaces: config.space_limits(),
        piece_pages_max: yonder_board::PIECE_PAGES_MAX,
        lease_step_max: yonder_board::LEASE_STEP_MAX,
        tenants: config.tenant_limits,
    };
    let (board, slow) = match &config.controller {
        Some(controller) => {
            controller.check(page_size)?;
            NodeCore::with_regions(&settings, controller.region_bytes)
        }
        None => NodeCore::new(&settings),
    };
    let own_bytes = board.bytes() + data_threads as u64 * board.fast_path().bytes();
    // The extend path's thread visits the page table too.
    let users = data_threads + 1;
    let shared = Arc::new(Shared {
        board,
        memory: Memory::new(pages, page_size, users)?,
        quiet: QuiescentState::new(users),
        counters: Counters::default(),
        slow: SlowPathQueue::new(),
        errands: Errands::default(),
        extend: Extension::new(),
        own_bytes,
        incarnation: u64::from_le_bytes(incarnation),
        connections: Connections::new(config.connections_max()),
        doors: Arc::new(Doors::new(
            locked(NodeSecret::new(random()?))?,
            config.credential.clone(),
            yonder_clock::now(),
        )),
        sessions: Places::new(sessions::PLACES_MAX),
        silent_max: config.connections_max().div_ceil(SILENT_DIVISOR),
        stop: AtomicBool::new(false),
    });
    Ok((shared, slow))
}

/// The key of capabilities.
fn key() -> Result<NodeKey, NodeError> {
    let mut key = locked([0; 16])?;
    fill(&mut *key)?;
    Ok(NodeKey::kept(key))
}

/// A secret in memory that is neither swapped out nor dumped, and that no child has.
fn locked<T>(secret: T) -> Result<LockedBox<T>, NodeError> {
    let locked = LockedBox::new(secret, Inherited::Missing)?;
    if !locked.is_locked() {
        tracing::warn!("a key of the node may be swapped out: the limit of locked memory (ulimit -l) is reached");
    }
    Ok(locked)
}

/// Random bytes of the operating system.
fn random<const BYTES: usize>() -> Result<[u8; BYTES], NodeError> {
    let mut bytes = [0; BYTES];
    fill(&mut bytes)?;
    Ok(bytes)
}

fn fill(bytes: &mut [u8]) -> Result<(), NodeError> {
    let filled = OsRng.try_fill_bytes(bytes);
    filled.map_err(|error| NodeError::System { what: "random numbers", cause: io::Error::other(error) })
}
