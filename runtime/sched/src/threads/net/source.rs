//! [`Source`]: a socket that threads wait for.
//!
//! The kernel tells a change once, and it may do so between a thread's question and its wait: so each side of a socket
//! counts its changes. A thread reads the count before it asks, and waits only if there was no change since. Each
//! compares for itself, because one change may stand for several, such as two connections: for the same reason all who
//! wait for a side are woken by one.
//!
//! Every worker whose light threads wait for a socket is told of its changes, so none depends on another's turns.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use yonder_units::{Nanos, saturating_nanos};

use crate::threads::guarded::Guarded;
use crate::threads::local::WorkerShared;
use crate::threads::parker::Wait;
use crate::threads::sync::queue::WaitQueue;
use crate::threads::wait_word::Signal;

/// What a thread wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// To read, or to accept.
    In,
    /// To write, or to be connected.
    Out,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct Source {
    incoming: Side,
    outgoing: Side,
    /// The workers that are told of changes, and its number there.
    registered: Guarded<Vec<(Arc<WorkerShared>, u64)>>,
}

#[derive(Default)]
struct Side {
    /// Counted under the lock of those who wait.
    changes: AtomicU64,
    waiters: Guarded<WaitQueue>,
}

impl Side {
    /// Changes so far: what is asked from now on is answered after all of them.
    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Queues a wait, unless there was a change after these. Returns whether it did.
    fn queue(&self, wait: &Wait, changes: u64) -> bool {
        self.waiters.with(|waiters| {
            let is_as_seen = self.changes.load(Ordering::Relaxed) == changes;
            if is_as_seen {
                waiters.push(wait);
            }
            is_as_seen
        })
    }

    /// There is a change: wakes all who wait.
    fn changed(&self) {
        let woken = self.waiters.with(|waiters| {
            self.changes.fetch_add(1, Ordering::Release);
            std::mem::take(waiters)
        });
        woken.grant_all();
    }
}

impl Source {
    fn side(&self, direction: Direction) -> &Side {
        match direction {
            Direction::In => &self.incoming,
            Direction::Out => &self.outgoing,
        }
    }

    /// Waits until the socket, which would block after so many changes, should be asked again, or until the deadline,
    /// which is an error.
    fn wait(
        self: &Arc<Self>,
        socket: BorrowedFd<'_>,
        direction: Direction,
        changes: u64,
        deadline: Option<Nanos>,
    ) -> io::Result<()> {
        let wait = Wait::begin();
        let Some(worker) = wait.worker() else {
            let flags = match direction {
                Direction::In => PollFlags::IN,
                Direction::Out => PollFlags::OUT,
            };
            let left = deadline.map(|deadline| timespec(deadline.saturating_sub(yonder_clock::now())));
            return match poll(&mut [PollFd::from_borrowed_fd(socket, flags)], left.as_ref()) {
                Ok(0) => Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(Errno::INTR) => Ok(()),
                Err(error) => Err(error.into()),
            };
        };
        // A socket that is ready already is a change for who registers it.
        self.registered.with(|registered| {
            if !registered.iter().any(|(known, _)| Arc::ptr_eq(known, worker)) {
                let number = worker.reactor_or_make()?.add(socket, self)?;
                registered.push((Arc::clone(worker), number));
            }
            io::Result::Ok(())
        })?;
        let side = self.side(direction);
        if side.queue(&wait, changes) && wait.park_until(deadline) == Signal::TimedOut {
            side.waiters.with(|waiters| waiters.remove(&wait));
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// A worker ends, and all its light threads have.
    pub(super) fn unregister(&self, worker: &Arc<WorkerShared>) {
        self.registered.with(|registered| registered.retain(|(known, _)| !Arc::ptr_eq(known, worker)));
    }

    /// The kernel tells a change.
    pub(super) fn changed(&self, flags: EventFlags) {
        let for_both = EventFlags::HUP | EventFlags::ERR;
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | for_both) {
            self.incoming.changed();
        }
        if flags.intersects(EventFlags::OUT | for_both) {
            self.outgoing.changed();
        }
    }
}

/// A socket that does not block, and who waits for it.
pub(super) struct Io<S: AsFd> {
    socket: S,
    source: Arc<Source>,
    /// Nanoseconds that a wait takes at most.
    timeout: AtomicU64,
}

impl<S: AsFd> Io<S> {
    /// A socket that has been set not to block.
    pub(super) fn new(socket: S) -> Self {
        Self { socket, source: Arc::default(), timeout: AtomicU64::new(Nanos::MAX) }
    }

    /// From now on nothing is waited for longer than this; without a time, without end.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.store(timeout.map_or(Nanos::MAX, saturating_nanos), Ordering::Relaxed);
    }

    pub(super) fn socket(&self) -> &S {
        &self.socket
    }

    fn deadline(&self) -> Option<Nanos> {
        let timeout = self.timeout.load(Ordering::Relaxed);
        (timeout != Nanos::MAX).then(|| yonder_clock::now().saturating_add(timeout))
    }

    /// Does what may block, and waits while it would.
    pub(super) fn attempt<T>(&self, direction: Direction, mut act: impl FnMut(&S) -> io::Result<T>) -> io::Result<T> {
        let mut deadline = None;
        loop {
            let changes = self.source.side(direction).changes();
            match act(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let end = *deadline.get_or_insert_with(|| self.deadline());
                    self.source.wait(self.socket.as_fd(), direction, changes, end)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl<S: AsFd> Drop for Io<S> {
    fn drop(&mut self) {
        for (worker, number) in self.source.registered.with(std::mem::take) {
            if let Some(reactor) = worker.reactor() {
                reactor.remove(self.socket.as_fd(), number);
            }
        }
    }
}

/// A span as the kernel takes it.
pub(super) fn timespec(nanos: Nanos) -> Timespec {
    let span = Duration::from_nanos(nanos);
    Timespec { tv_sec: span.as_secs().cast_signed(), tv_nsec: span.subsec_nanos().into() }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    /// Both were told that there is nothing, and then two connections came, of which the kernel has told once.
    #[test]
    fn a_change_is_seen_by_all_who_asked_before_it() {
        let source = Source::default();
        let asked = [source.incoming.changes(), source.incoming.changes()];
        source.changed(EventFlags::IN);
        for changes in asked {
            assert!(!source.incoming.queue(&Wait::begin(), changes), "it asks again");
        }
        assert!(source.incoming.queue(&Wait::begin(), source.incoming.changes()));
        assert!(source.outgoing.queue(&Wait::begin(), 0), "the other side has not changed");
    }

    #[test]
    fn a_socket_that_is_gone_wakes_both_sides() {
        let source = Source::default();
        source.changed(EventFlags::HUP);
        assert_eq!((source.incoming.changes(), source.outgoing.changes()), (1, 1));
    }
}
