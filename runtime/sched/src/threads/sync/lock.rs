//! [`Lock`]: mutual exclusion that is handed from holder to waiter; how, is in `lock_word`.

use std::fmt;
use std::sync::atomic::AtomicU32;

use super::lock_word::{LockWord, Next};
use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::Wait;

/// A lock that guards nothing by itself, whose waiters park, first come, first served: what a
/// [`Mutex`](super::Mutex) has inside, for callers whose language has no guards.
pub struct Lock {
    word: LockWord<AtomicU32>,
    waiters: Guarded<WaitQueue>,
}

impl Lock {
    /// A free lock.
    #[must_use]
    pub const fn new() -> Self {
        Self { word: LockWord::new(), waiters: Guarded::new(WaitQueue::new()) }
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
        self.word.try_hold()
    }

    /// Whether somebody holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.word.is_held()
    }

    #[cold]
    fn hold_slowly(&self) {
        let wait = Wait::begin();
        let is_queued = self.waiters.with(|waiters| {
            let is_queued = !self.word.hold_or_contend();
            if is_queued {
                waiters.push(&wait);
            }
            is_queued
        });
        if is_queued {
            wait.park();
        }
    }

    /// Hands the lock on to the first waiter, or frees it: its memory is not touched any more once another could hold
    /// it. Returns false, and does nothing, if it was free.
    #[inline]
    pub fn release(&self) -> bool {
        self.word.try_release() || self.release_slowly()
    }

    #[cold]
    fn release_slowly(&self) -> bool {
        match self.word.release(|| self.waiters.with(|waiters| self.word.next(waiters))) {
            Next::Waiter(next) => assert!(next.grant(), "who waits for a lock waits until it has it"),
            Next::Nobody => {}
            Next::WasFree => return false,
        }
        true
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
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
        assert!(!lock.is_held());
    }
}
