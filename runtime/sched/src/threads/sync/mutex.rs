//! [`Mutex`]: a lock that is handed from holder to waiter.
//!
//! ```text
//!   FREE <--- lock, unlock: one exchange each ---> HELD          nobody waits
//!     ^                                              | another thread queues
//!     |                                              v
//!     +--------- unlock with an empty queue ------ CONTENDED ---+
//!                                                    ^          | unlock: the first waiter holds it now
//!                                                    +----------+
//! ```
//!
//! The word becomes `CONTENDED` under the lock of the queue, and its holder's exchange fails then: so it comes to the
//! queue's lock, and finds the waiter. The value is in a mutex of the standard library, which is free whenever the word
//! is held by somebody new: it is tried, and never waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;
use std::sync::atomic::{AtomicU32, Ordering};

use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::Wait;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and there may be waiters.
const CONTENDED: u32 = 2;

/// A mutual exclusion lock whose waiters park, first come, first served.
#[derive(Default)]
pub struct Mutex<T> {
    word: AtomicU32,
    waiters: Guarded<WaitQueue>,
    value: std::sync::Mutex<T>,
}

/// Holds a [`Mutex`] until it is dropped. It may be held across accesses to far memory and other waits.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    /// First, because the value is free before the lock is.
    value: std::sync::MutexGuard<'a, T>,
    held: Held<'a, T>,
}

/// Hands the lock on when it is dropped.
struct Held<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            waiters: Guarded::new(WaitQueue::new()),
            value: std::sync::Mutex::new(value),
        }
    }

    /// Takes the lock, and waits for it if it is held. A holder that panicked has released it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.try_hold() {
            self.hold_slowly();
        }
        self.guard()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.try_hold().then(|| self.guard())
    }

    /// The value, of which there is no other borrow.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    #[inline]
    fn try_hold(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
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

    /// The guard of the caller, who holds the lock.
    #[inline]
    fn guard(&self) -> MutexGuard<'_, T> {
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => panic!("a mutex has two holders"),
        };
        MutexGuard { value, held: Held(self) }
    }

    #[inline]
    fn release(&self) {
        if self.word.compare_exchange(HELD, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
            self.hand_over();
        }
    }

    #[cold]
    fn hand_over(&self) {
        let next = self.waiters.with(|waiters| {
            let next = waiters.pop();
            let word = match (&next, waiters.is_empty()) {
                (None, _) => FREE,
                (Some(_), true) => HELD,
                (Some(_), false) => CONTENDED,
            };
            self.word.store(word, Ordering::Release);
            next
        });
        if let Some(next) = next {
            assert!(next.grant(), "who waits for a lock waits until it has it");
        }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// The mutex that is held.
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.held.0
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.release();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(value) => text.field("value", &*value),
            None => text.field("value", &format_args!("<locked>")),
        };
        text.finish()
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn ordinary_threads_exclude_each_other() {
        let mutex = Mutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|_| *mutex.lock() += 1));
            }
        });
        assert_eq!(mutex.word.load(Ordering::Relaxed), FREE);
        assert_eq!(mutex.into_inner(), 80_000);
    }

    #[test]
    fn a_held_lock_is_not_taken_again() {
        let mutex = Mutex::new(1);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert_eq!(format!("{mutex:?}"), "Mutex { value: <locked> }");
        drop(guard);
        assert_eq!(mutex.try_lock().as_deref(), Some(&1));
    }

    #[test]
    fn a_panicking_holder_releases_the_lock() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 1);
    }
}
