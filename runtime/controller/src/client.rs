//! [`ControllerClient`]: asks a controller, blocking, and connects again when the connection is lost.
//!
//! A request is repeated until it is answered or the deadline is over, so each must be harmless when it is executed
//! twice: a space is made with keys that the client draws, and a place that nobody allocates in is soon free again.
//!
//! A controller closes connections on which nothing is asked for minutes. What is asked next goes over another one.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use yonder_identity::{Credential, IdentityError, Stream};
use yonder_placement::{
    Answer, Key, Keys, NodeView, Pid, Placement, PlacesWanted, Refusal, Request, SpaceView, TenantView,
};
use yonder_units::Narrow;
use yonder_wire::Rights;

use crate::addresses::{Addresses, LOOK_EVERY, is_refusal};
use crate::door::{DialError, dial};
use crate::lines::{LineReader, is_timeout, send_line};
use crate::messages::{FromController, ToController};

/// How long to wait between attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Shortest time for one attempt.
const ATTEMPT_MIN: Duration = Duration::from_millis(10);

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No controller has answered in time. What was asked may have been done.
    #[error("no controller at {addresses} answered: {cause}; start one with `yonder controller --listen {addresses}`")]
    Unreachable {
        /// Where they should be.
        addresses: String,
        /// What happened at the last attempt.
        cause: String,
    },
    /// The controller is there, and does not let this client in, or the client does not trust it; or it answers what
    /// only a later release knows, and may have done what was asked.
    #[error("controller {address}: {cause}")]
    TurnedAway {
        /// Where it is.
        address: String,
        /// Why.
        cause: String,
    },
    /// The client's own credential cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The controller says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A drain has not ended in time. It goes on.
    #[error("{regions_left} regions are still on {node}: wait, or start another node if none has room")]
    StillDraining {
        /// The node.
        node: String,
        /// How many regions are left.
        regions_left: u64,
    },
}

/// A new address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Its number.
    pub pid: Pid,
    /// Its keys.
    pub keys: Keys,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// How long it is there after [`ControllerClient::renew`]; `None` if a controller of an earlier release keeps it
    /// until it is ended.
    pub lease: Option<Duration>,
}

/// An address space that somebody else has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenedSpace {
    /// What the key allows.
    pub rights: Rights,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// As [`Space::lease`]. Only requests with the owner's key renew it.
    pub lease: Option<Duration>,
}

/// Places for the pages of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedGroup {
    /// The group's name in its address space: to be said where more places of it are asked for.
    pub group: u32,
    /// Where the regions are, each on another node.
    pub places: Vec<Placement>,
}

/// What a controller answers.
enum Reply {
    Answer(Answer),
    /// What only a later release knows, by its name.
    Unknown(String),
}

/// A client of one controller, or of several of which one leads.
#[derive(Debug)]
pub struct ControllerClient {
    addresses: Addresses,
    timeout: Duration,
    credential: Option<Arc<Credential>>,
    connection: Option<Connection>,
    connections: u64,
    next_id: u64,
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    lines: LineReader,
}

impl ControllerClient {
    /// A client of the controllers at these addresses (`host:port`, separated by commas), which waits so long for each
    /// answer. It connects when it asks.
    #[must_use]
    pub fn new(addresses: &str, timeout: Duration) -> Self {
        let addresses = Addresses::parse(addresses);
        Self { addresses, timeout, credential: None, connection: None, connections: 0, next_id: 0 }
    }

    /// The same client, which shows what the process shows ([`Credential::of_process`]), if it does.
    pub fn with_credential_of_process(self) -> Result<Self, ClientError> {
        Ok(self.with_credential(Credential::of_process()?))
    }

    /// The same client, which shows this credential, if the controllers ask for one.
    #[must_use]
    pub fn with_credential(mut self, credential: Option<Arc<Credential>>) -> Self {
        (self.credential, self.connection) = (credential, None);
        self
    }

    /// Ends the connection; the next request makes another. For one who has nothing to ask for long, and keeps a place
    /// of others.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Another client of the same controllers, with the same credential. It has no connection yet, and begins with the
    /// controller that has answered this one last.
    #[must_use]
    pub fn another(&self) -> Self {
        let (addresses, timeout, credential) = (self.addresses.clone(), self.timeout, self.credential.clone());
        Self { addresses, timeout, credential, connection: None, connections: 0, next_id: 0 }
    }

    /// As [`ControllerClient::another`], of the controller at this address alone.
    #[must_use]
    pub fn only_at(&self, address: &str) -> Self {
        Self { addresses: Addresses::parse(address), ..self.another() }
    }

    /// How many connections it has made: with one more, the controller may be another one, or started anew.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// Makes an address space, without memory, with the longest lease that there is: a day.
    pub fn create_space(&mut self) -> Result<Space, ClientError> {
        self.create_space_for(Duration::ZERO)
    }

    /// Makes an address space, without memory, which ends `lease` after the last request with its owner's key: a day at
    /// most, five seconds at least, and a day for zero. Whole milliseconds count.
    pub fn create_space_for(&mut self, lease: Duration) -> Result<Space, ClientError> {
        let lease_ms = u32::try_from(lease.as_millis()).unwrap_or(u32::MAX);
        let lease_ms = if lease.is_zero() { 0 } else { lease_ms.max(1) };
        let mut random = StdRng::from_os_rng();
        let [owner, read_write, read] = std::array::from_fn(|_| Key(random.random()));
        let keys = Keys { owner, read_write, read };
        match self.ask(&Request::CreateSpace { keys, lease_ms })? {
            Answer::SpaceCreated { pid, region_bytes, lease_ms } => {
                Ok(Space { pid, keys, region_bytes, lease: lease_of(lease_ms) })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins the lease of an address space anew, with the owner's key, and returns how long it is; `None` as in
    /// [`Space::lease`]. It is asked for as long as `timeout`, however long other requests are.
    pub fn renew(&mut self, pid: Pid, key: Key, timeout: Duration) -> Result<Option<Duration>, ClientError> {
        match self.ask_for(&Request::Open { pid, key }, timeout)? {
            Answer::Opened { lease_ms, .. } => Ok(lease_of(lease_ms)),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What `key` allows.
    pub fn open(&mut self, pid: Pid, key: Key) -> Result<OpenedSpace, ClientError> {
        match self.ask(&Request::Open { pid, key })? {
            Answer::Opened { rights, region_bytes, lease_ms } => {
                Ok(OpenedSpace { rights, region_bytes, lease: lease_of(lease_ms) })
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Regions to allocate `bytes` in, other than those in `avoid`, with the owner's key: one, which may have other
    /// allocations; or, for more than a region, whole ones with consecutive addresses.
    pub fn place(&mut self, pid: Pid, key: Key, bytes: u64, avoid: &[u32]) -> Result<Vec<Placement>, ClientError> {
        match self.ask(&Request::PlaceRegion { pid, key, bytes, avoid: avoid.to_vec() })? {
            Answer::Placed { regions } => Ok(regions),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Places for the pages of a group, with the owner's key: regions for it alone, each on another node.
    pub fn place_group(&mut self, pid: Pid, key: Key, wanted: &PlacesWanted) -> Result<PlacedGroup, ClientError> {
        match self.ask(&Request::PlaceGroup { pid, key, wanted: wanted.clone() })? {
            Answer::Group { group, places } => Ok(PlacedGroup { group, places }),
            other => Err(self.unexpected(&other)),
        }
    }

    /// A region is not used any more, wherever it is: nodes free what they have of it. Well also if it was given up
    /// before.
    pub fn give_up(&mut self, pid: Pid, key: Key, region: u32) -> Result<(), ClientError> {
        match self.ask(&Request::GiveUp { pid, key, region })? {
            Answer::GivenUp => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// So many pages are at fewer places than was asked for, with the owner's key.
    pub fn note_protection(&mut self, pid: Pid, key: Key, pages_below: u64) -> Result<(), ClientError> {
        match self.ask(&Request::NoteProtection { pid, key, pages_below })? {
            Answer::Noted => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Where a region is, with a capability of the key's rights.
    pub fn locate(&mut self, pid: Pid, key: Key, region: u32) -> Result<Placement, ClientError> {
        match self.ask(&Request::Locate { pid, key, region })? {
            Answer::Located(placement) => Ok(placement),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Ends an address space, with the owner's key.
    pub fn destroy_space(&mut self, pid: Pid, key: Key) -> Result<(), ClientError> {
        let connected = self.connection.is_some();
        let asked_before = self.next_id;
        match self.ask(&Request::DestroySpace { pid, key }) {
            Ok(Answer::Destroyed) => Ok(()),
            Ok(other) => Err(self.unexpected(&other)),
            // An earlier attempt has ended it, and its answer was lost.
            Err(ClientError::Refused(Refusal::BadKey { .. })) if connected && self.next_id > asked_before + 1 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// All nodes.
    pub fn nodes(&mut self) -> Result<Vec<NodeView>, ClientError> {
        match self.ask(&Request::Nodes)? {
            Answer::Nodes(nodes) => Ok(nodes),
            other => Err(self.unexpected(&other)),
        }
    }

    /// All address spaces, as they were while it asked.
    pub fn spaces(&mut self) -> Result<Vec<SpaceView>, ClientError> {
        let (mut all, mut from) = (Vec::new(), Some(Pid::FIRST));
        while let Some(first) = from {
            match self.ask(&Request::Spaces { from: first })? {
                Answer::Spaces { spaces, next } => {
                    all.extend(spaces);
                    // An answer that leads nowhere would be asked for without end.
                    from = next.filter(|next| *next > first);
                }
                other => return Err(self.unexpected(&other)),
            }
        }
        Ok(all)
    }

    /// What each tenant has and does, those with most memory first.
    pub fn tenants(&mut self) -> Result<Vec<TenantView>, ClientError> {
        match self.ask(&Request::Tenants)? {
            Answer::Tenants(tenants) => Ok(tenants),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Begins to move all regions off a node, named by number or URL; says how many are left.
    pub fn start_drain(&mut self, node: &str) -> Result<u64, ClientError> {
        match self.ask(&Request::Drain { node: node.to_owned() })? {
            Answer::Draining { regions_left } => Ok(regions_left),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Moves all regions off a node, and waits until none is left.
    pub fn drain(&mut self, node: &str, timeout: Duration) -> Result<(), ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.start_drain(node)? {
                0 => return Ok(()),
                regions_left if Instant::now() >= deadline => {
                    return Err(ClientError::StillDraining { node: node.to_owned(), regions_left });
                }
                _ => thread::sleep(PAUSE),
            }
        }
    }

    /// Lets a node have regions again.
    pub fn undrain(&mut self, node: &str) -> Result<(), ClientError> {
        match self.ask(&Request::Undrain { node: node.to_owned() })? {
            Answer::Undrained => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Asks until there is an answer, or time is up.
    fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        self.ask_for(request, self.timeout)
    }

    /// As [`ControllerClient::ask`], for this long.
    fn ask_for(&mut self, request: &Request, timeout: Duration) -> Result<Answer, ClientError> {
        let deadline = Instant::now() + timeout;
        let mut refusals = 0;
        self.addresses.begin();
        loop {
            // One that is there and says nothing leaves time for those that were not tried yet.
            let others = self.addresses.left_in_round().narrow_u32();
            let left = deadline.saturating_duration_since(Instant::now()) / others;
            let was_kept = self.connection.is_some();
            match self.ask_once(request, left.max(ATTEMPT_MIN)) {
                Ok(Reply::Unknown(name)) => {
                    // No other one is asked: it may be done.
                    self.addresses.answered();
                    let (address, cause) = (self.addresses.first().to_owned(), unknown(&name));
                    return Err(ClientError::TurnedAway { address, cause });
                }
                Ok(Reply::Answer(answer)) => {
                    self.addresses.answered();
                    return if let Answer::Refused(refusal) = answer { Err(refusal.into()) } else { Ok(answer) };
                }
                Err(DialError::Refused(cause)) => {
                    self.connection = None;
                    refusals += 1;
                    if refusals >= self.addresses.count() {
                        let address = self.addresses.first().to_owned();
                        return Err(ClientError::TurnedAway { address, cause });
                    }
                    self.addresses.pass();
                }
                Err(DialError::Lost(error)) => {
                    self.connection = None;
                    if was_kept && !is_timeout(&error) && Instant::now() < deadline {
                        // It may have been closed because it was idle.
                        continue;
                    }
                    if is_refusal(&error) {
                        self.addresses.answered();
                    }
                    // Perhaps another one leads now: also for who asks next.
                    self.addresses.pass();
                    if Instant::now() + PAUSE >= deadline {
                        return Err(self.unreachable(&error.to_string()));
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    fn ask_once(&mut self, request: &Request, timeout: Duration) -> Result<Reply, DialError> {
        let deadline = Instant::now() + timeout;
        self.next_id += 1;
        let id = self.next_id;
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let timeout = self.addresses.connect_time(timeout);
                let stream = dial(self.addresses.first(), timeout, self.credential.as_ref())?;
                let lines = LineReader::new(stream.clone());
                self.connections += 1;
                self.connection.insert(Connection { stream, lines })
            }
        };
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now()).max(ATTEMPT_MIN);
        connection.stream.socket().set_write_timeout(Some(left(deadline)))?;
        send_line(&connection.stream, &ToController::Ask { id, request: request.clone() })?;
        let mut look_at = Instant::now() + LOOK_EVERY;
        loop {
            let until = if self.addresses.count() > 1 { look_at.min(deadline) } else { deadline };
            connection.stream.socket().set_read_timeout(Some(left(until)))?;
            match connection.lines.next() {
                Ok(Some(FromController::Answer { id: answered, answer })) if answered == id => {
                    return Ok(Reply::Answer(answer));
                }
                Ok(Some(FromController::Unknown { answer_to: Some(answered), name })) if answered == id => {
                    return Ok(Reply::Unknown(name));
                }
                // To a request that was given up, or not for this release.
                Ok(Some(FromController::Answer { .. } | FromController::Unknown { .. })) => {}
                Ok(Some(FromController::TurnedAway { cause })) => return Err(DialError::Refused(cause)),
                Ok(Some(other)) => return Err(io::Error::other(format!("{other:?} is not for clients")).into()),
                Ok(None) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error.into()),
            }
            let now = Instant::now();
            if now >= deadline || (now >= look_at && self.addresses.another_listens()) {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            if now >= look_at {
                look_at = Instant::now() + LOOK_EVERY;
            }
        }
    }

    fn unexpected(&mut self, answer: &Answer) -> ClientError {
        self.connection = None;
        self.unreachable(&format!("{answer:?} does not answer the question: use the same release on both sides"))
    }

    fn unreachable(&self, cause: &str) -> ClientError {
        ClientError::Unreachable { addresses: self.addresses.text(), cause: cause.to_owned() }
    }
}

fn unknown(name: &str) -> String {
    format!("it answers '{name}', which only a later release knows, and may have done it: upgrade this program")
}

/// What a controller says of a lease; those of releases that knew none say nothing.
fn lease_of(lease_ms: u32) -> Option<Duration> {
    (lease_ms > 0).then(|| Duration::from_millis(lease_ms.into()))
}
