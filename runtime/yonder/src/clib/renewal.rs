//! [`Renewal`]: renews the lease of an address space at its controller for as long as a program has it.
//!
//! Its thread asks by the client that all threads of the program share, so a program needs no second connection. A
//! controller that is away ends nothing meanwhile. A program that stood still for longer than its lease is told so by
//! the nodes, as by any node that has forgotten an address space.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use yonder_controller::{ClientError, ControllerClient};
use yonder_placement::{Key, Pid};

/// How often a lease is renewed while it lasts, as at a node: several times may fail.
const RENEWALS_PER_LEASE: u32 = 4;
/// Time after which a renewal that no controller has answered is tried again.
const RENEWAL_RETRY: Duration = Duration::from_millis(250);

/// Renews a lease until it is stopped, or dropped.
pub(super) struct Renewal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    controller: Arc<Mutex<ControllerClient>>,
    pid: Pid,
    /// The owner's.
    key: Key,
    stopped: Mutex<bool>,
    stopping: Condvar,
}

/// What a renewal was answered.
enum Renewed {
    /// The lease has begun anew.
    Yes,
    /// Nothing, or the controller did not let the program in.
    No {
        /// When it is worth another attempt.
        retry: Duration,
    },
    /// The address space is not there any more.
    Ended,
}

impl Renewal {
    /// Renews a lease of this length, which begins now, with the owner's key.
    pub(super) fn start(
        controller: &Arc<Mutex<ControllerClient>>,
        pid: Pid,
        key: Key,
        lease: Duration,
    ) -> io::Result<Self> {
        let (controller, stopped, stopping) = (Arc::clone(controller), Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { controller, pid, key, stopped, stopping });
        let renewed = Arc::clone(&shared);
        let work = move || renewed.keep(lease / RENEWALS_PER_LEASE);
        let thread = std::thread::Builder::new().name("yonder-lease".to_owned()).spawn(work)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        *self.shared.stopped() = true;
        self.shared.stopping.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn keep(&self, pause: Duration) {
        let mut stopped = self.stopped();
        let mut wait = pause;
        while !*stopped {
            let (guard, waited) = self.stopping.wait_timeout(stopped, wait).unwrap_or_else(PoisonError::into_inner);
            stopped = guard;
            if !waited.timed_out() || *stopped {
                continue;
            }
            drop(stopped);
            wait = match self.renew(pause) {
                Renewed::Yes => pause,
                Renewed::No { retry } => retry,
                Renewed::Ended => return,
            };
            stopped = self.stopped();
        }
    }

    fn renew(&self, pause: Duration) -> Renewed {
        let renewed = self.controller.lock().unwrap_or_else(PoisonError::into_inner).renew(self.pid, self.key);
        match renewed {
            Ok(()) => Renewed::Yes,
            Err(error @ ClientError::Refused(_)) => {
                tracing::warn!(%error, "an address space has ended before its program");
                Renewed::Ended
            }
            Err(ClientError::Unreachable { .. }) => Renewed::No { retry: pause.min(RENEWAL_RETRY) },
            // Another attempt soon would end alike.
            Err(error) => {
                tracing::warn!(%error, "the lease of an address space was not renewed");
                Renewed::No { retry: pause }
            }
        }
    }

    fn stopped(&self) -> std::sync::MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
