//! [`Process`]: an address space, on one node or spread over those of a controller, and the threads that use it.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use yonder_fabric::cluster::Cluster;
use yonder_fabric::lane::{Lane, NodeAddress, NodeSession};
use yonder_fabric::{AdaptiveSpin, Credentials, FabricError, SpaceLease, SpaceLeaseError};
use yonder_mapping::{ForkMark, MapError};
use yonder_wire::{ErrorCode, Kind, LEASE_MS_MAX, Rights};

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
    /// How long a node or a controller keeps the address space after the last sign of life of its owner: a day at most,
    /// and a day for zero. At a controller it is five seconds at least, and only those with an owner's ticket keep it
    /// alive.
    pub lease: Duration,
    /// From the call of an operation until it has timed out.
    pub deadline: Duration,
    /// Most asynchronous operations of a thread.
    pub pending_max: usize,
    /// How long a thread that waits asks again before it sleeps, at most; see [`AdaptiveSpin`]. Zero always sleeps.
    pub spin: Duration,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(60),
            deadline: Duration::from_secs(5),
            pending_max: 256,
            spin: AdaptiveSpin::LONGEST_DEFAULT,
        }
    }
}

/// A user of an address space. It may be shared by threads. A child that is forked has a copy that is of no use: the
/// address space is its parent's, and goes on when the child drops it.
pub struct Process {
    shared: Arc<Shared>,
    /// Not in a child.
    here: ForkMark,
}

/// What a process and its threads share.
pub(super) struct Shared {
    pub(super) url: String,
    pub(super) config: ProcessConfig,
    pub(super) place: Backend,
}

/// Where the address space is.
pub(super) enum Backend {
    Node(Box<NodePlace>),
    Cluster(Box<Cluster>),
}

/// An address space of one node.
pub(super) struct NodePlace {
    pub(super) address: NodeAddress,
    pub(super) ticket: Ticket,
    pub(super) space_lease: SpaceLease,
}

impl Process {
    /// Makes an address space on the node at `url` (`udp://host:port`, `tcp://host:port` or `shm:///path`, perhaps with
    /// `?name=NODE` behind it, for which no other is taken), or on the nodes of a controller (`controller://host:port`,
    /// or several with commas). It ends with the process.
    pub fn create(url: &str) -> Result<Self, ClibError> {
        Self::create_with(url, ProcessConfig::default())
    }

    /// As [`Process::create`].
    pub fn create_with(url: &str, config: ProcessConfig) -> Result<Self, ClibError> {
        if let Some(addresses) = url.strip_prefix(CONTROLLER) {
            let cluster = Cluster::create(addresses, config.deadline, lease_of(&config))?;
            return Self::new(url, Backend::Cluster(Box::new(cluster)), config);
        }
        let (address, lane) = connect(url)?;
        let space_lease = SpaceLease::create(lane, lease_of(&config)).map_err(|error| failed(url, error))?;
        let Credentials { pid, capability } = space_lease.credentials();
        let ticket = Ticket::new(pid, capability);
        Self::new(url, Backend::Node(Box::new(NodePlace { address, ticket, space_lease })), config)
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
                Self::new(url, Backend::Cluster(Box::new(cluster)), config)
            }
            (None, Proof::Capability(capability)) => {
                let (address, lane) = connect(url)?;
                // A ticket that is not right is refused now and not at the first use.
                let credentials = Credentials { pid: ticket.pid(), capability };
                let space_lease =
                    SpaceLease::open(lane, credentials, lease_of(&config)).map_err(|error| failed(url, error))?;
                Self::new(url, Backend::Node(Box::new(NodePlace { address, ticket, space_lease })), config)
            }
            // A ticket of a node at a controller, or of a controller at a node.
            _ => Err(ClibError::Lost),
        }
    }

    fn new(url: &str, place: Backend, config: ProcessConfig) -> Result<Self, ClibError> {
        let shared = Arc::new(Shared { url: url.to_owned(), config, place });
        let failed = |error: MapError| FabricError::System { url: url.to_owned(), cause: error.to_string() };
        let here = ForkMark::new().map_err(failed)?;
        Ok(Self { shared, here })
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
            Backend::Node(node) => {
                let granted = node.space_lease.call(Kind::Grant, 0, rights as u64, &[])?.header;
                Ok(Ticket::new(node.ticket.pid(), granted.capability))
            }
            Backend::Cluster(cluster) => {
                let key = cluster.key_for(rights).ok_or(ClibError::NotAllowed(ErrorCode::NotAllowed))?;
                Ok(Ticket::of_controller(cluster.pid(), key.0))
            }
        }
    }

    /// As [`Process::ticket`], but one that opens nothing from `time` on, to a minute or two: to lend what is asked
    /// back. A minute at least, four years at most, and of a node's address space alone.
    ///
    /// # Errors
    /// [`ClibError::Refused`] for one of a controller, which has no tickets that end.
    pub fn ticket_for(&self, rights: Rights, time: Duration) -> Result<Ticket, ClibError> {
        match &self.shared.place {
            Backend::Node(node) => {
                let minutes = u64::try_from(time.as_millis().div_ceil(60_000).max(1)).unwrap_or(u64::MAX);
                let granted = node.space_lease.call(Kind::Grant, minutes, rights as u64, &[])?.header;
                Ok(Ticket::new(node.ticket.pid(), granted.capability))
            }
            Backend::Cluster(_) => Err(ClibError::Refused(ErrorCode::Unsupported)),
        }
    }

    /// Makes all tickets void that there are of the address space, those of this process and its threads among them,
    /// and returns a new one, with all rights: [`Process::open`] goes on with it. What is in the memory stays, for as
    /// long as the lease does, also when the one who goes on ends. Only an owner whose ticket has no end can, and only
    /// at a node. If its answer does not come ([`ClibError::TimedOut`]), no one has a ticket any more perhaps.
    ///
    /// # Errors
    /// [`ClibError::Refused`] for an address space of a controller.
    pub fn revoke_tickets(&self) -> Result<Ticket, ClibError> {
        match &self.shared.place {
            Backend::Node(node) => {
                let revoked = node.space_lease.call(Kind::Revoke, 0, 0, &[])?.header;
                node.space_lease.session().lose();
                Ok(Ticket::new(node.ticket.pid(), revoked.capability))
            }
            Backend::Cluster(_) => Err(ClibError::Refused(ErrorCode::Unsupported)),
        }
    }

    /// The ticket that this process has.
    #[must_use]
    pub fn own_ticket(&self) -> Ticket {
        match &self.shared.place {
            Backend::Node(node) => node.ticket,
            Backend::Cluster(cluster) => Ticket::of_controller(cluster.pid(), cluster.key().0),
        }
    }
}

impl Shared {
    /// Gives a node up for good that has refused the right to the address space: it has forgotten it.
    pub(super) fn lose(&self) {
        if let Backend::Node(node) = &self.place {
            node.space_lease.session().lose();
        }
    }
}

impl Drop for Process {
    /// Its threads may still be there: they are told from now on that the address space has ended, if it has.
    fn drop(&mut self) {
        if !self.here.is_here() {
            // Nor is what it shares dropped here: connections are its parent's, and threads are not there.
            mem::forget(Arc::clone(&self.shared));
            return;
        }
        match &self.shared.place {
            Backend::Node(node) => node.space_lease.end(),
            Backend::Cluster(cluster) => cluster.destroy(),
        }
    }
}

fn connect(url: &str) -> Result<(NodeAddress, Lane), ClibError> {
    let mut refused = None;
    for address in NodeAddress::resolve(NodeSession::of_url(url)?.0)? {
        let session = Arc::new(NodeSession::of_url(url)?.1);
        match open(url, std::slice::from_ref(&address), CONTROL_OPERATIONS_MAX, &session) {
            Ok(lane) => return Ok((address, lane)),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.expect("a URL that resolves has an address"))
}

/// The lease that is asked for.
fn lease_of(config: &ProcessConfig) -> Duration {
    let longest = Duration::from_millis(LEASE_MS_MAX.into());
    if config.lease.is_zero() { longest } else { config.lease.min(longest) }
}

fn failed(url: &str, error: SpaceLeaseError) -> ClibError {
    match error {
        SpaceLeaseError::Call(error) => error.into(),
        SpaceLeaseError::Renewer(_) => FabricError::System { url: url.to_owned(), cause: error.to_string() }.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use yonder_controller::{ControllerClient, ControllerServer, MemoryStore};
    use yonder_placement::Config;

    use super::*;

    /// A child that ended in order once ended the address space of its parent, over the parent's own connection.
    #[test]
    fn what_a_child_drops_is_still_its_parents() {
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let server = ControllerServer::start(listen, Config::default(), Box::new(MemoryStore::default())).unwrap();
        let mut client = ControllerClient::new(&server.address().to_string(), Duration::from_secs(20));
        let mut spaces = || client.spaces().unwrap().len();
        let url = format!("controller://{}", server.address());
        let [parents, childs] = [(); 2].map(|()| Process::create(&url).unwrap());
        // As it is in a child.
        childs.here.erase();
        drop(childs);
        assert_eq!(spaces(), 2);
        drop(parents);
        assert_eq!(spaces(), 1);
    }
}
