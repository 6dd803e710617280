//! [`Renewal`]: renews the lease of an address space at its controller for as long as a program has it.
//!
//! Its thread asks by a client of its own, so that it waits for no other thread's question, and for no longer than the
//! lease allows. A controller that is away ends nothing meanwhile. A program that stood still for longer than its lease
//! is told so by the nodes, as by any node that has forgotten an address space.
//!
//! A child that the program forks has no such thread, and renews nothing: its parent does.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yonder_controller::{ClientError, ControllerClient};
use yonder_placement::{Key, Pid, SPACE_LEASE_MS_MAX};

/// How often a lease is renewed while it lasts, as at a node: several times may fail.
const RENEWALS_PER_LEASE: u32 = 4;
/// Time after which a renewal that no controller has answered is tried again.
const RENEWAL_RETRY: Duration = Duration::from_millis(250);
/// Longest attempt, however long the lease: one that hangs is worth another connection.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// Renews a lease until it is dropped.
pub(super) struct Renewal(Arc<Shared>);

struct Shared {
    pid: Pid,
    /// The owner's.
    key: Key,
    stopped: Mutex<bool>,
    stopping: Condvar,
}

/// The lease that an address space gets which was made at a controller of an earlier release, once a later one serves.
const LEASE_OF_OLD: Duration = Duration::from_millis(SPACE_LEASE_MS_MAX as u64);

impl Renewal {
    /// Renews a lease of this length, which begins now, with the owner's key; `None` if the controller knows none yet.
    pub(super) fn start(controller: ControllerClient, pid: Pid, key: Key, lease: Option<Duration>) -> io::Result<Self> {
        let shared = Arc::new(Shared { pid, key, stopped: Mutex::default(), stopping: Condvar::new() });
        let renewed = Arc::clone(&shared);
        let work = move || renewed.keep(controller, lease);
        std::thread::Builder::new().name("yonder-lease".to_owned()).spawn(work)?;
        Ok(Self(shared))
    }
}

impl Drop for Renewal {
    /// The thread ends by itself. It is not waited for: an attempt under way may take longer than a program should at
    /// its end, and comes to nothing when the address space has ended; and a forked child has no such thread.
    fn drop(&mut self) {
        *self.0.stopped() = true;
        self.0.stopping.notify_all();
    }
}

impl Shared {
    fn keep(&self, mut controller: ControllerClient, mut lease: Option<Duration>) {
        let mut stopped = self.stopped();
        let mut wait = pause_of(lease);
        let mut is_warned = false;
        while !*stopped {
            let (guard, waited) = self.stopping.wait_timeout(stopped, wait).unwrap_or_else(PoisonError::into_inner);
            stopped = guard;
            if !waited.timed_out() || *stopped {
                continue;
            }
            drop(stopped);
            // Begins the lease anew. An attempt leaves time for another one.
            let renewed = controller.renew(self.pid, self.key, pause_of(lease).min(ATTEMPT_MAX));
            stopped = self.stopped();
            if *stopped {
                return;
            }
            wait = match renewed {
                Ok(renewed) => {
                    (lease, is_warned) = (renewed, false);
                    pause_of(lease)
                }
                Err(ClientError::Unreachable { .. }) => pause_of(lease).min(RENEWAL_RETRY),
                // Another attempt soon would end alike. A later one need not: what has said this may be a controller
                // that another one has taken over from.
                Err(error) => {
                    if !std::mem::replace(&mut is_warned, true) {
                        tracing::warn!(%error, "the lease of an address space was not renewed");
                    }
                    pause_of(lease)
                }
            };
        }
    }

    fn stopped(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pause_of(lease: Option<Duration>) -> Duration {
    lease.unwrap_or(LEASE_OF_OLD) / RENEWALS_PER_LEASE
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use yonder_controller::{FromController, ToController};
    use yonder_placement::{Answer, Refusal, Request};
    use yonder_wire::Rights;

    use super::*;

    /// As by a controller that another one has taken over from, and does not know what that one has made.
    #[test]
    fn a_refusal_does_not_end_renewal() {
        const PID: Pid = Pid::FIRST;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let controller = ControllerClient::new(&listener.local_addr().unwrap().to_string(), Duration::from_secs(20));
        let renewal = Renewal::start(controller, PID, Key(7), Some(Duration::from_secs(4))).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let refused = Answer::Refused(Refusal::BadKey { pid: PID });
        let opened = Answer::Opened { rights: Rights::Owner, region_bytes: 1 << 20, lease_ms: 4000 };
        for answer in [opened.clone(), refused.clone(), refused, opened] {
            let asked = serde_json::from_str(&lines.next().unwrap().expect("it is asked again")).unwrap();
            let ToController::Ask { id, request } = asked else { panic!("{asked:?}") };
            assert_eq!(request, Request::Open { pid: PID, key: Key(7) });
            let said = serde_json::to_string(&FromController::Answer { id, answer }).unwrap();
            writeln!(stream, "{said}").unwrap();
        }
        drop(renewal);
    }
}
