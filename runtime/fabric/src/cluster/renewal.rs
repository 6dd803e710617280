//! [`Renewal`]: renews the lease of an address space at its controller for as long as a program has it.
//!
//! Its thread asks by a client of its own, so that it waits for no other thread's question, and for no longer than the
//! lease allows. A controller that is away ends nothing meanwhile. A program that stood still for longer than its lease
//! is told so by the nodes, as by any node that has forgotten an address space.
//!
//! A child that the program forks has no such thread, and renews nothing: its parent does.

mod schedule;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yonder_controller::{ClientError, ControllerClient};
use yonder_placement::{Key, Pid};
use yonder_units::Nanos;

use schedule::Schedule;

/// Renews a lease until it is dropped.
pub(super) struct Renewal(Arc<Shared>);

struct Shared {
    pid: Pid,
    /// The owner's.
    key: Key,
    stopped: Mutex<bool>,
    stopping: Condvar,
}

impl Renewal {
    /// Renews a lease with the owner's key, by this client. There is none if the controller knows no leases yet. It was
    /// asked for at `asked`, by the clock that goes on while the machine sleeps.
    pub(super) fn start(
        controller: ControllerClient,
        pid: Pid,
        key: Key,
        lease: Option<Duration>,
        asked: Nanos,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { pid, key, stopped: Mutex::default(), stopping: Condvar::new() });
        let renewed = Arc::clone(&shared);
        let work = move || renewed.keep(controller, Schedule::new(lease, asked));
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
    fn keep(&self, mut controller: ControllerClient, mut schedule: Schedule) {
        let mut stopped = self.stopped();
        let mut is_warned = false;
        while !*stopped {
            let asked = yonder_clock::boottime();
            if let Some(wait) = schedule.wait(asked) {
                if schedule.is_far_off(asked) {
                    controller.hang_up();
                }
                stopped = self.stopping.wait_timeout(stopped, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(stopped);
            let renewed = controller.renew(self.pid, self.key, schedule.attempt_max());
            schedule.learn(asked, yonder_clock::boottime(), &renewed);
            stopped = self.stopped();
            match renewed {
                Ok(_) => is_warned = false,
                // Controllers that are away come again.
                Err(ClientError::Unreachable { .. }) => {}
                Err(error) if !*stopped && !is_warned => {
                    tracing::warn!(%error, "the lease of an address space was not renewed");
                    is_warned = true;
                }
                Err(_) => {}
            }
        }
    }

    fn stopped(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let (lease, asked) = (Some(Duration::from_secs(4)), yonder_clock::boottime());
        let renewal = Renewal::start(controller, PID, Key(7), lease, asked).unwrap();
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
