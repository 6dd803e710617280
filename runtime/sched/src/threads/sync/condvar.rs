//! [`Condvar`]: waiting for a condition on what a [`Mutex`] guards.
//!
//! A waiter queues before it releases the mutex, so a notification that follows a change under the mutex finds it.
//! Where its time comes while it is being notified, its wait ends one way or the other, and both sides know which: a
//! notifier that comes too late wakes the next, so no notification is lost to a waiter that had stopped waiting.

use std::fmt;
use std::time::Duration;

use yonder_units::{Nanos, saturating_nanos};

use super::lock::Lock;
use super::mutex::MutexGuard;
use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::Wait;
use crate::threads::wait_word::Signal;

/// A condition variable whose waiters park, and are notified in the order in which they came.
#[derive(Default)]
pub struct Condvar {
    waiters: Guarded<WaitQueue>,
}

/// Whether a wait ended because its time was up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitTimeout {
    /// It was notified in time.
    Notified,
    /// It was not.
    TimedOut,
}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: Guarded::new(WaitQueue::new()) }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again. Between the two others may have had it,
    /// so the condition is checked in a loop.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// The same, for this long at most.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, span: Duration) -> (MutexGuard<'a, T>, WaitTimeout) {
        self.wait_until(guard, Some(yonder_clock::now().saturating_add(saturating_nanos(span))))
    }

    fn wait_until<'a, T>(&self, guard: MutexGuard<'a, T>, deadline: Option<Nanos>) -> (MutexGuard<'a, T>, WaitTimeout) {
        let mutex = guard.mutex();
        let ended = self.wait_released(|| drop(guard), deadline);
        (mutex.lock(), ended)
    }

    /// The same as [`wait_timeout`](Self::wait_timeout), for a [`Lock`] that the caller holds, and without end if no
    /// time is given.
    ///
    /// # Panics
    /// If nobody holds the lock.
    pub fn wait_holding(&self, lock: &Lock, span: Option<Duration>) -> WaitTimeout {
        assert!(lock.is_held(), "who waits for a condition holds the lock");
        let deadline = span.map(|span| yonder_clock::now().saturating_add(saturating_nanos(span)));
        let release = || assert!(lock.release(), "who waits for a condition holds the lock");
        let ended = self.wait_released(release, deadline);
        lock.hold();
        ended
    }

    fn wait_released(&self, release: impl FnOnce(), deadline: Option<Nanos>) -> WaitTimeout {
        let wait = Wait::begin();
        self.waiters.with(|waiters| waiters.push(&wait));
        release();
        match wait.park_until(deadline) {
            Signal::TimedOut => {
                self.waiters.with(|waiters| waiters.remove(&wait));
                WaitTimeout::TimedOut
            }
            Signal::Granted | Signal::Closed => WaitTimeout::Notified,
        }
    }

    /// Ends the wait of the one that has waited longest, if any waits.
    pub fn notify_one(&self) {
        while let Some(waiter) = self.waiters.with(WaitQueue::pop) {
            if waiter.grant() {
                return;
            }
        }
    }

    /// Ends the wait of all that wait now.
    pub fn notify_all(&self) {
        let waiters = self.waiters.with(std::mem::take);
        waiters.grant_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;
    use crate::threads::sync::Mutex;

    #[test]
    fn waiters_see_what_the_notifier_did() {
        let (mutex, condvar) = (Mutex::new(0), Condvar::new());
        let take_turns = |parity: u32| {
            for turn in 0..2_000 {
                let mut value = mutex.lock();
                while *value != 2 * turn + parity {
                    value = condvar.wait(value);
                }
                *value += 1;
                condvar.notify_one();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| take_turns(1));
            take_turns(0);
        });
        assert_eq!(*mutex.lock(), 4_000);
    }

    #[test]
    fn a_wait_without_a_notification_ends_at_its_time() {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let span = Duration::from_millis(5);
        let start = yonder_clock::now();
        let (guard, ended) = condvar.wait_timeout(mutex.lock(), span);
        assert_eq!(ended, WaitTimeout::TimedOut);
        assert!(yonder_clock::now() - start >= saturating_nanos(span));
        drop(guard);
        assert!(condvar.waiters.with(|waiters| waiters.is_empty()), "who waits no more has left the queue");
    }

    #[test]
    fn a_notification_passes_by_a_waiter_that_is_gone() {
        let (mutex, condvar) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            // Its time is up, and it has not left the queue yet.
            let gone = Wait::begin();
            condvar.waiters.with(|waiters| waiters.push(&gone));
            gone.waiter().time_out();
            let waits = scope.spawn(|| {
                let mut is_set = mutex.lock();
                while !*is_set {
                    is_set = condvar.wait(is_set);
                }
            });
            let is_queued = || condvar.waiters.with(|waiters| waiters.len() == 2);
            while !is_queued() && !waits.is_finished() {
                std::thread::yield_now();
            }
            *mutex.lock() = true;
            condvar.notify_one();
        });
    }
}
