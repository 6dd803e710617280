//! [`Process`]: an address space, on one node or spread over those of a controller, and the threads that use it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_client::Operation;
use yonder_fabric::FabricError;
use yonder_fabric::lane::{CallError, Lane, NodeAddress, Standing, call};
use yonder_units::Nanos;
use yonder_wire::{ErrorCode, Kind, Rights};

use super::cluster::Cluster;
use super::flows::open;
use super::ticket::Proof;
use super::{Buffer, ClibError, Thread, Ticket};

/// Operations of the lane for leases and tickets: one at a time, and those that were given up.
const CONTROL_OPERATIONS_MAX: usize = 8;
/// The scheme of a controller's URL.
const CONTROLLER: &str = "controller://";

/// How a process uses its address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessConfig {
    /// How long a node keeps the address space after the last sign of life of its owner; zero keeps it until it is
    /// destroyed, whatever happens to the program. A controller keeps address spaces until they are destroyed.
    pub lease: Duration,
    /// From the call of an operation until it has timed out.
    pub deadline: Duration,
    /// Most asynchronous operations of a thread.
    pub pending_max: usize,
    /// How long a thread that waits asks again and again before it sleeps: shorter latency, for a CPU of its own.
    pub spin: Duration,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            deadline: Duration::from_secs(5),
            pending_max: 256,
            spin: Duration::ZERO,
        }
    }
}

/// A user of an address space. It may be shared by threads.
pub struct Process {
    shared: Arc<Shared>,
    renewer: Option<JoinHandle<()>>,
}

/// What a process and its threads share.
pub(super) struct Shared {
    pub(super) url: String,
    pub(super) config: ProcessConfig,
    pub(super) place: Place,
    ended: Mutex<bool>,
    ending: Condvar,
}

/// Where the address space is.
pub(super) enum Place {
    Node(Box<NodePlace>),
    Cluster(Box<Cluster>),
}

/// An address space of one node.
pub(super) struct NodePlace {
    pub(super) address: NodeAddress,
    pub(super) ticket: Ticket,
    pub(super) standing: Arc<Standing>,
    control: Mutex<Lane>,
    ownership: Ownership,
}

/// What becomes of the address space when the process is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ownership {
    /// It ends with the process that made it.
    Owner,
    /// It stays.
    Guest,
}

impl Process {
    /// Makes an address space on the node at `url` (`udp://host:port`, `tcp://host:port` or `shm:///path`), or on the nodes
    /// of a controller (`controller://host:port`, or several with commas). It ends with the process.
    pub fn create(url: &str) -> Result<Self, ClibError> {
        Self::create_with(url, ProcessConfig::default())
    }

    /// As [`Process::create`].
    pub fn create_with(url: &str, config: ProcessConfig) -> Result<Self, ClibError> {
        if let Some(addresses) = url.strip_prefix(CONTROLLER) {
            return Self::start(url, Place::Cluster(Box::new(Cluster::create(addresses, config.deadline)?)), config);
        }
        let (address, mut lane) = connect(url)?;
        let lease_ms = config.lease.as_millis().min(u128::from(u32::MAX)) as u64;
        let request = operation(Kind::CreateSpace, 0, 0, lease_ms);
        let header = call(&mut lane, &request, &[])?.header;
        let ticket = Ticket::new(header.pid, header.capability);
        Self::start(url, Place::Node(Box::new(NodePlace::new(address, lane, ticket, Ownership::Owner))), config)
    }

    /// Uses the address space of another process at `url`, which has handed out `ticket`.
    pub fn open(url: &str, ticket: Ticket) -> Result<Self, ClibError> {
        Self::open_with(url, ticket, ProcessConfig::default())
    }

    /// As [`Process::open`].
    pub fn open_with(url: &str, ticket: Ticket, config: ProcessConfig) -> Result<Self, ClibError> {
        match (url.strip_prefix(CONTROLLER), ticket.proof()) {
            (Some(addresses), Proof::Key(key)) => {
                let cluster = Cluster::open(addresses, config.deadline, ticket.pid(), key)?;
                Self::start(url, Place::Cluster(Box::new(cluster)), config)
            }
            (None, Proof::Capability(capability)) => {
                let (address, mut lane) = connect(url)?;
                // A ticket that is not right is refused now and not at the first use.
                call(&mut lane, &operation(Kind::Ping, ticket.pid(), capability, 0), &[])?;
                Self::start(url, Place::Node(Box::new(NodePlace::new(address, lane, ticket, Ownership::Guest))), config)
            }
            // A ticket of a node at a controller, or of a controller at a node.
            _ => Err(ClibError::Lost),
        }
    }

    fn start(url: &str, place: Place, config: ProcessConfig) -> Result<Self, ClibError> {
        let has_lease = matches!(place, Place::Node(_)) && !config.lease.is_zero();
        let (ended, ending) = (Mutex::new(false), Condvar::new());
        let shared = Arc::new(Shared { url: url.to_owned(), config, place, ended, ending });
        if !has_lease {
            return Ok(Self { shared, renewer: None });
        }
        let renewed = Arc::clone(&shared);
        let spawned = std::thread::Builder::new().name("yonder-lease".to_owned()).spawn(move || renewed.keep_lease());
        let renewer = spawned.map_err(|error| FabricError::System { url: url.to_owned(), cause: error.to_string() })?;
        Ok(Self { shared, renewer: Some(renewer) })
    }

    /// A thread's way to the address space, for asynchronous operations with buffers of type `B`.
    pub fn thread_with<B: Buffer>(&self) -> Result<Thread<B>, ClibError> {
        Thread::new(&self.shared)
    }

    /// A thread's way to the address space.
    pub fn thread(&self) -> Result<Thread, ClibError> {
        self.thread_with()
    }

    /// A ticket with `rights`, for others. Only an owner can hand out rights; at a controller, only who has made the
    /// address space.
    pub fn ticket(&self, rights: Rights) -> Result<Ticket, ClibError> {
        match &self.shared.place {
            Place::Node(node) => Ok(Ticket::new(node.ticket.pid(), node.call(Kind::Grant, rights as u64)?)),
            Place::Cluster(cluster) => cluster.ticket(Some(rights)),
        }
    }

    /// The ticket that this process has.
    #[must_use]
    pub fn own_ticket(&self) -> Ticket {
        match &self.shared.place {
            Place::Node(node) => node.ticket,
            Place::Cluster(cluster) => cluster.ticket(None).expect("what a process has needs no right"),
        }
    }
}

impl NodePlace {
    fn new(address: NodeAddress, lane: Lane, ticket: Ticket, ownership: Ownership) -> Self {
        Self { address, ticket, standing: Arc::clone(lane.standing()), control: Mutex::new(lane), ownership }
    }

    /// A request for the whole address space; the capability in the answer.
    fn call(&self, kind: Kind, length: u64) -> Result<u64, ClibError> {
        let Proof::Capability(capability) = self.ticket.proof() else {
            unreachable!("a node's address space has a capability");
        };
        let mut lane = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let called = call(&mut lane, &operation(kind, self.ticket.pid(), capability, length), &[]);
        if called == Err(CallError::Refused(ErrorCode::BadCapability)) {
            self.standing.lose();
        }
        Ok(called?.header.capability)
    }
}

impl Shared {
    /// Gives a node up for good that has refused the right to the address space: it has forgotten it.
    pub(super) fn lose(&self) {
        if let Place::Node(node) = &self.place {
            node.standing.lose();
        }
    }

    fn keep_lease(&self) {
        let Place::Node(node) = &self.place else { return };
        let mut ended = self.ended();
        while !*ended {
            let waited = self.ending.wait_timeout(ended, self.config.lease / 4).unwrap_or_else(PoisonError::into_inner);
            ended = waited.0;
            if waited.1.timed_out() && !*ended && !node.standing.is_lost() {
                drop(ended);
                // A renewal that fails is tried again; if the lease is over, the call has given the node up.
                let _ = node.call(Kind::Ping, 0);
                ended = self.ended();
            }
        }
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        *self.shared.ended() = true;
        self.shared.ending.notify_all();
        if let Some(renewer) = self.renewer.take() {
            // It has nothing to report.
            let _ = renewer.join();
        }
        match &self.shared.place {
            Place::Node(node) if node.ownership == Ownership::Owner && !node.standing.is_lost() => {
                // If the node cannot be reached it ends the address space when the lease is over.
                let _ = node.call(Kind::DestroySpace, 0);
            }
            Place::Node(_) => {}
            Place::Cluster(cluster) => cluster.destroy(),
        }
    }
}

fn connect(url: &str) -> Result<(NodeAddress, Lane), ClibError> {
    let mut refused = None;
    for address in NodeAddress::resolve(url)? {
        let standing = Arc::new(Standing::default());
        match open(url, std::slice::from_ref(&address), CONTROL_OPERATIONS_MAX, &standing) {
            Ok(lane) => return Ok((address, lane)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.expect("a URL that resolves has an address"))
}

fn operation(kind: Kind, pid: u32, capability: u64, length: u64) -> Operation<'static> {
    Operation { kind, pid, capability, address: 0, length, body: &[], deadline: Nanos::MAX, token: 0 }
}
