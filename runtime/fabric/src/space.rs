//! [`Space`]: this program's address space on one node, for as long as the fabric lives.
//!
//! It has a lane of its own for what is not on the fault path: allocation, release, discard. The node keeps an address
//! space for as long as its lease is renewed, which a thread does here, so that the memory of a program that was killed
//! comes back to the node.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_client::Operation;
use yonder_units::Nanos;
use yonder_wire::{AllocateRequest, Backing, Body, ErrorCode, Kind, Permission, Translation};

use crate::lane::{Answer, CallError, Lane, Standing, call};
use crate::{FabricError, RemoteAddress};

/// How long the node keeps the memory of a program that it no longer hears of.
const LEASE: Duration = Duration::from_secs(60);
/// How often the lease is renewed: several times may fail.
const RENEWAL: Duration = Duration::from_secs(10);

/// An address space and its lease.
pub(crate) struct Space {
    shared: Arc<Shared>,
    renewer: Option<JoinHandle<()>>,
}

struct Shared {
    url: String,
    pid: u32,
    capability: u64,
    standing: Arc<Standing>,
    lane: Mutex<Lane>,
    ended: Mutex<bool>,
    ending: Condvar,
}

impl Space {
    /// Makes an address space over `lane`, which is used for nothing else from then on.
    pub(crate) fn create(url: &str, mut lane: Lane) -> Result<Self, FabricError> {
        let standing = Arc::clone(lane.standing());
        let request = operation(Kind::CreateSpace, 0, 0, 0, LEASE.as_millis() as u64, &[]);
        let answer = call(&mut lane, &request, &[])
            .map_err(|error| FabricError::Unreachable { url: url.to_owned(), cause: error.to_string() })?;
        let shared = Arc::new(Shared {
            url: url.to_owned(),
            pid: answer.header.pid,
            capability: answer.header.capability,
            standing,
            lane: Mutex::new(lane),
            ended: Mutex::new(false),
            ending: Condvar::new(),
        });
        let renewed = Arc::clone(&shared);
        let renewer = std::thread::Builder::new().name("yonder-lease".to_owned()).spawn(move || renewed.keep_lease());
        let renewer = renewer.map_err(|error| shared.system(&error.to_string()))?;
        Ok(Self { shared, renewer: Some(renewer) })
    }

    pub(crate) fn url(&self) -> &str {
        &self.shared.url
    }

    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.shared.standing
    }

    /// Number of the address space and the right to it.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials { pid: self.shared.pid, capability: self.shared.capability }
    }

    /// As [`crate::Fabric::allocate`]: the memory is there at once, so that no write-back lacks it.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        let request =
            AllocateRequest { bytes, permission: Permission::ReadWrite, backing: Backing::Now, from: 0, to: 0 };
        let mut body = [0; AllocateRequest::BYTES];
        request.write_to(&mut body);
        match self.shared.call(Kind::Allocate, 0, 0, &body) {
            Ok(answer) => Ok(RemoteAddress(answer.header.address)),
            Err(CallError::Refused(ErrorCode::OutOfMemory)) => {
                Err(FabricError::OutOfMemory { url: self.shared.url.clone(), bytes })
            }
            Err(error) => Err(self.shared.failed(error)),
        }
    }

    /// As [`crate::Fabric::release`].
    pub(crate) fn release(&self, start: RemoteAddress) -> Result<(), FabricError> {
        self.done(self.shared.call(Kind::Free, start.0, 0, &[]))
    }

    /// As [`crate::Fabric::discard`].
    pub(crate) fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.done(self.shared.call(Kind::Discard, start.0, bytes, &[]))
    }

    /// Where in the node's exported memory the page at `address` lies.
    pub(crate) fn translate(&self, address: u64) -> Result<Translation, FabricError> {
        let answer = self.shared.call(Kind::Translate, address, 1, &[]).map_err(|error| self.shared.failed(error))?;
        Translation::from_bytes(&answer.payload).map_err(|error| self.shared.system(&error.to_string()))
    }

    fn done(&self, called: Result<Answer, CallError>) -> Result<(), FabricError> {
        called.map(drop).map_err(|error| self.shared.failed(error))
    }
}

/// Which address space, and the right to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Credentials {
    pub(crate) pid: u32,
    pub(crate) capability: u64,
}

impl Shared {
    fn call(&self, kind: Kind, address: u64, length: u64, body: &[u8]) -> Result<Answer, CallError> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        let request = operation(kind, self.pid, self.capability, address, length, body);
        let called = call(&mut lane, &request, &[]);
        if called == Err(CallError::Refused(ErrorCode::BadCapability)) {
            // The node does not know the address space any more: it was restarted, or the lease has run out.
            self.standing.lose();
            return Err(CallError::Lost);
        }
        called
    }

    fn keep_lease(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let (guard, waited) = self.ending.wait_timeout(ended, RENEWAL).unwrap_or_else(PoisonError::into_inner);
            ended = guard;
            if waited.timed_out() && !*ended && !self.standing.is_lost() {
                drop(ended);
                // A renewal that fails is tried again; if the lease is over, the call has given the node up.
                let _ = self.call(Kind::Ping, 0, 0, &[]);
                ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
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

impl Drop for Space {
    fn drop(&mut self) {
        *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.ending.notify_all();
        if let Some(renewer) = self.renewer.take() {
            // It has nothing to report.
            let _ = renewer.join();
        }
        if !self.shared.standing.is_lost() {
            // If the node cannot be reached it takes the memory back when the lease is over.
            let _ = self.shared.call(Kind::DestroySpace, 0, 0, &[]);
        }
    }
}

fn operation(kind: Kind, pid: u32, capability: u64, address: u64, length: u64, body: &[u8]) -> Operation<'_> {
    Operation { kind, pid, capability, address, length, body, deadline: Nanos::MAX, token: 0 }
}
