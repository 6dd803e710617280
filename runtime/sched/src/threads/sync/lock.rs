//! [`Lock`]: mutual exclusion that is handed from holder to waiter.
//!
//! ```text
//!   FREE <--- hold, release: one exchange each ---> HELD         nobody waits
//!     ^                                              | another thread queues
//!     |                                              v
//!     +--------- release with an empty queue ---- CONTENDED ---+
//!                                                    ^          | release: the first waiter holds it now
//!                                                    +----------+
//! ```
//!
//! The word becomes `CONTENDED` under the lock of the queue, and its holder's exchange fails then: so it comes to the
//! queue's lock, and finds the waiter.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::Wait;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and there may be waiters.
const CONTENDED: u32 = 2;

/// A lock that guards nothing by itself, whose waiters park, first come, first served: what a
/// [`Mutex`](super::Mutex) has inside, for callers whose language has no guards.
#[derive(Default)]
pub struct Lock {
    word: AtomicU32,
    waiters: Guarded<WaitQueue>,
}

impl Lock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: AtomicU32::new(FREE), waiters: Guarded::new(WaitQueue::new()) }
    }

    /// Takes the lock, and waits for it if it is held.
    #[inline]
    pub fn hold(&self) {
        if !self.try_hold() {
            self.hold_slowly();
        }
    }

    /// Takes the lock if it is free. Returns whether it was.
    #[inline]
    #[must_use = "a lock that was not free was not taken"]
    pub fn try_hold(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether somebody holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }

    #[cold]
    fn hold_slowly(&self) {
        let wait = Wait::begin();
        let is_queued = self.waiters.with(|waiters| {
            let is_queued = self.word.swap(CONTENDED, Ordering::Acquire) != FREE;
            if is_queued {
                waiters.push(&wait);
            }
            is_queued
        });
        if is_queued {
            wait.park();
        }
    }

    /// Hands the lock on to the first waiter, or frees it. Returns false, and does nothing, if it was free.
    #[inline]
    pub fn release(&self) -> bool {
        self.word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_ok() || self.hand_over()
    }

    #[cold]
    fn hand_over(&self) -> bool {
        let next = self.waiters.with(|waiters| {
            if !self.is_held() {
                return None;
            }
            let next = waiters.pop();
            let word = match (&next, waiters.is_empty()) {
                (None, _) => FREE,
                (Some(_), true) => HELD,
                (Some(_), false) => CONTENDED,
            };
            self.word.store(word, Ordering::Release);
            Some(next)
        });
        let Some(next) = next else { return false };
        if let Some(next) = next {
            assert!(next.grant(), "who waits for a lock waits until it has it");
        }
        true
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_free_is_not_released() {
        let lock = Lock::new();
        assert!(!lock.release() && !lock.is_held());
        lock.hold();
        assert!(!lock.try_hold());
        assert!(lock.release() && !lock.release());
        assert!(lock.try_hold());
    }

    #[test]
    fn a_contended_lock_is_free_in_the_end() {
        let lock = Lock::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        lock.hold();
                        assert!(lock.release());
                    }
                });
            }
        });
        assert_eq!(lock.word.load(Ordering::Relaxed), FREE);
    }
}
