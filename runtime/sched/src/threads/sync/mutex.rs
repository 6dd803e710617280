//! [`Mutex`]: a [`Lock`] and the value that it guards.
//!
//! The value is in a mutex of the standard library, which is free whenever the lock is held by somebody new: it is
//! tried, and never waited for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::TryLockError;

use super::lock::Lock;

/// A mutual exclusion lock whose waiters park, first come, first served.
#[derive(Default)]
pub struct Mutex<T> {
    lock: Lock,
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
        Self { lock: Lock::new(), value: std::sync::Mutex::new(value) }
    }

    /// Takes the lock, and waits for it if it is held. A holder that panicked has released it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock.hold();
        self.guard()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.lock.try_hold().then(|| self.guard())
    }

    /// The value, of which there is no other borrow.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
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
        assert!(self.0.lock.release(), "who has the guard holds the lock");
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
        assert!(mutex.try_lock().is_some());
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
