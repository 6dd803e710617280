//! [`SpaceLease`]: one program's hold on an address space of a node; [`Space`]: the one that a fabric keeps its memory
//! in.
//!
//! A space lease has a lane of its own for what is not on the fault path: allocation, release, rights. The node keeps
//! an address space for as long as its lease is renewed, which a thread does here, so that the memory of a program that
//! was killed comes back to the node. Who has made an address space ends it; a guest leaves it as it is.
//!
//! `yonder::clib` holds its address spaces by such leases too. Invariant: once the node has refused the right to the
//! address space, the node is lost for all who share the session.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_client::Operation;
use yonder_units::{Nanos, Narrow};
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Permission, Translation};

use crate::lane::{Answer, CallError, Lane, NodeAddress, NodeSession, call};
use crate::lease::{self, Lease};
use crate::url::{node_url, settings_of, shm_path};
use crate::{FabricError, RemoteAddress, spread};

/// How long the node keeps the memory of a fabric's program that it no longer hears of.
pub(crate) const LEASE: Duration = Duration::from_secs(60);
/// How often a lease is renewed while it lasts: several times may fail.
const RENEWALS_PER_LEASE: u32 = 4;
/// Time after which a renewal that failed is tried again: nothing is read or written once the lease is over.
const RENEWAL_RETRY: Duration = Duration::from_millis(250);

/// Which address space, and the right to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Number of the address space.
    pub pid: u32,
    /// Proof of the right.
    pub capability: u128,
}

/// Why there is no space lease.
#[derive(Debug, thiserror::Error)]
pub enum SpaceLeaseError {
    /// The node has not done what it was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The thread that renews the lease was not started.
    #[error("no thread can be started to renew the lease: {0}")]
    Renewer(io::Error),
}

/// What becomes of the address space at the end of a space lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ownership {
    /// It ends with the lease that made it.
    Owner,
    /// It stays.
    Guest,
}

/// A hold on an address space. It ends when it is told to, or dropped.
pub struct SpaceLease {
    shared: Arc<Shared>,
    renewer: Mutex<Option<JoinHandle<()>>>,
    ownership: Ownership,
}

struct Shared {
    credentials: Credentials,
    session: Arc<NodeSession>,
    lease: Arc<Lease>,
    lane: Mutex<Lane>,
    ended: Mutex<bool>,
    ending: Condvar,
}

impl SpaceLease {
    /// Makes an address space over `lane`, which is used for nothing else from then on. The node keeps it for `lease`
    /// after the last sign of life; zero is as long as the node allows.
    pub fn create(mut lane: Lane, lease: Duration) -> Result<Self, SpaceLeaseError> {
        let lease_ms = lease.as_millis().min(u128::from(u32::MAX)).narrow_u64();
        let nobody = Credentials { pid: 0, capability: 0 };
        let asked = lease::now();
        let made = call(&mut lane, &operation(Kind::CreateSpace, nobody, 0, lease_ms, &[]), &[])?.header;
        let credentials = Credentials { pid: made.pid, capability: made.capability };
        let granted = if lease.is_zero() { Duration::from_millis(made.length.into()) } else { lease };
        Self::begin(lane, credentials, (granted, asked), Ownership::Owner)
    }

    /// Uses an address space that somebody else has made. Fails if `credentials` are not, or no longer, good.
    pub fn open(mut lane: Lane, credentials: Credentials, lease: Duration) -> Result<Self, SpaceLeaseError> {
        let asked = lease::now();
        call(&mut lane, &operation(Kind::Ping, credentials, 0, 0, &[]), &[])?;
        Self::begin(lane, credentials, (lease, asked), Ownership::Guest)
    }

    /// The address space is there, with a lease of this length, which was asked for at this time.
    fn begin(
        lane: Lane,
        credentials: Credentials,
        (lease, asked): (Duration, Nanos),
        ownership: Ownership,
    ) -> Result<Self, SpaceLeaseError> {
        let (session, lane) = (Arc::clone(lane.session()), Mutex::new(lane));
        let (ended, ending) = (Mutex::new(false), Condvar::new());
        let granted = Arc::new(Lease::new(lease, asked));
        let shared = Arc::new(Shared { credentials, session, lease: granted, lane, ended, ending });
        let space_lease = Self { shared, renewer: Mutex::default(), ownership };
        if !lease.is_zero() {
            let renewed = Arc::clone(&space_lease.shared);
            let work = move || renewed.keep_lease(lease / RENEWALS_PER_LEASE);
            let spawned = std::thread::Builder::new().name("yonder-lease".to_owned()).spawn(work);
            let renewer = spawned.map_err(SpaceLeaseError::Renewer)?;
            *space_lease.renewer.lock().unwrap_or_else(PoisonError::into_inner) = Some(renewer);
        }
        Ok(space_lease)
    }

    /// Number of the address space and the right to it.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.shared.credentials
    }

    /// What all who use the node's memory know of the node.
    #[must_use]
    pub fn session(&self) -> &Arc<NodeSession> {
        &self.shared.session
    }

    /// Until when the address space is there for certain.
    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.shared.lease
    }

    /// Asks the node for something in the address space, and waits for the answer.
    pub fn call(&self, kind: Kind, address: u64, length: u64, body: &[u8]) -> Result<Answer, CallError> {
        self.shared.call(kind, address, length, body)
    }

    /// Ends the lease, and with its maker's the address space. Ended again, it is as it was.
    pub fn end(&self) {
        let was_ended = std::mem::replace(&mut *self.shared.ended(), true);
        self.shared.ending.notify_all();
        if let Some(renewer) = self.renewer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It has nothing to report.
            let _ = renewer.join();
        }
        if self.ownership == Ownership::Owner && !was_ended && !self.shared.session.is_lost() {
            // If the node cannot be reached it ends the address space when the lease is over.
            let _ = self.shared.call(Kind::DestroySpace, 0, 0, &[]);
        }
    }
}

impl Drop for SpaceLease {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn call(&self, kind: Kind, address: u64, length: u64, body: &[u8]) -> Result<Answer, CallError> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        let called = call(&mut lane, &operation(kind, self.credentials, address, length, body), &[]);
        if called == Err(CallError::Refused(ErrorCode::BadCapability)) {
            // The node does not know the address space any more: it was restarted, or the lease has run out.
            self.session.lose();
            return Err(CallError::Lost);
        }
        called
    }

    fn keep_lease(&self, pause: Duration) {
        let mut ended = self.ended();
        let mut failed = false;
        while !*ended {
            let pause = if failed { pause.min(RENEWAL_RETRY) } else { pause };
            let (guard, waited) = self.ending.wait_timeout(ended, pause).unwrap_or_else(PoisonError::into_inner);
            ended = guard;
            if waited.timed_out() && !*ended && !self.session.is_lost() {
                drop(ended);
                let asked = lease::now();
                // A renewal that fails is tried again; if the lease is over, the call has given the node up.
                failed = self.call(Kind::Ping, 0, 0, &[]).is_err();
                if !failed {
                    self.lease.renew(asked);
                }
                ended = self.ended();
            }
        }
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the address space that a program has made on the node at `url`, which is no more: nobody waits for its lease
/// then.
pub fn end_space(url: &str, credentials: Credentials) -> Result<(), FabricError> {
    if node_url(url).starts_with(spread::SCHEME) {
        return spread::end_space(node_url(url), credentials);
    }
    let (url, settings) = settings_of(node_url(url))?;
    let unreachable = |cause: String| FabricError::Unreachable { url: url.to_owned(), cause };
    let addresses = match url.split_once("://") {
        Some(("shm", _)) => vec![NodeAddress::Unix(shm_path(url)?.to_owned())],
        _ => NodeAddress::resolve(url)?,
    };
    let mut refused = String::new();
    for address in addresses {
        match Lane::open(&address, 1, &Arc::new(settings.session())) {
            Ok(mut opened) => {
                let ended = call(&mut opened.lane, &operation(Kind::DestroySpace, credentials, 0, 0, &[]), &[]);
                return ended.map(drop).map_err(|error| unreachable(error.to_string()));
            }
            Err(error) => refused = error.to_string(),
        }
    }
    Err(unreachable(refused))
}

fn operation(kind: Kind, credentials: Credentials, address: u64, length: u64, body: &[u8]) -> Operation<'_> {
    let Credentials { pid, capability } = credentials;
    Operation { kind, pid, capability, address, length, body, deadline: Nanos::MAX, token: 0 }
}

/// The address space of a fabric.
pub(crate) struct Space {
    url: String,
    space_lease: SpaceLease,
}

impl Space {
    /// Makes an address space over `lane`, which is used for nothing else from then on.
    pub(crate) fn create(url: &str, lane: Lane, lease: Duration) -> Result<Self, FabricError> {
        match SpaceLease::create(lane, lease) {
            Ok(space_lease) => Ok(Self { url: url.to_owned(), space_lease }),
            Err(SpaceLeaseError::Call(error)) => {
                Err(FabricError::Unreachable { url: url.to_owned(), cause: error.to_string() })
            }
            Err(error) => Err(FabricError::System { url: url.to_owned(), cause: error.to_string() }),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn session(&self) -> &Arc<NodeSession> {
        self.space_lease.session()
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.space_lease.lease()
    }

    /// Number of the address space and the right to it.
    pub(crate) fn credentials(&self) -> Credentials {
        self.space_lease.credentials()
    }

    /// As [`crate::Fabric::allocate`]: the memory is there at once, so that no write-back lacks it.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let request =
            AllocateRequest { bytes, permission: Permission::ReadWrite, backing: Backing::Now, from: 0, to: 0 };
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        match self.space_lease.call(Kind::Allocate, 0, 0, &body) {
            Ok(answer) => Ok(RemoteAddress(answer.header.address)),
            Err(CallError::Refused(ErrorCode::OutOfMemory)) => {
                Err(FabricError::OutOfMemory { url: self.url.clone(), bytes })
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    /// As [`crate::Fabric::release`].
    pub(crate) fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.done(self.space_lease.call(Kind::Free, start.0, 0, &[]))
    }

    /// As [`crate::Fabric::discard`].
    pub(crate) fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.done(self.space_lease.call(Kind::Discard, start.0, bytes, &[]))
    }

    /// Where in the node's exported memory the page at `address` lies.
    pub(crate) fn translate(&self, address: u64) -> Result<Translation, FabricError> {
        let answer = self.space_lease.call(Kind::Translate, address, 1, &[]).map_err(|error| self.failed(error))?;
        Translation::from_bytes(&answer.payload).map_err(|error| self.system(&error.to_string()))
    }

    fn done(&self, called: Result<Answer, CallError>) -> Result<(), FabricError> {
        called.map(drop).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: CallError) -> FabricError {
        match error {
            CallError::Refused(code) => self.system(&code.to_string()),
            CallError::TimedOut | CallError::Lost => {
                FabricError::Unreachable { url: self.url.clone(), cause: error.to_string() }
            }
        }
    }

    fn system(&self, cause: &str) -> FabricError {
        FabricError::System { url: self.url.clone(), cause: cause.to_owned() }
    }
}
