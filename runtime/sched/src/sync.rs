//! Locks that may be held across far-memory accesses.
//!
//! A unithread that holds a lock can be parked by a page fault. Whoever wants the lock meanwhile must not block the
//! worker, or the worker could never resume the holder; it yields to the scheduler and looks again. On an ordinary
//! thread the lock lets other threads run instead.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{MutexGuard, TryLockError};

use crate::worker::yield_now;

/// A mutex whose waiters yield to the worker's scheduler.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    inner: std::sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A new, unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value) }
    }

    /// Takes the lock. A holder that panicked has released it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            yield_now();
        }
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition variable whose waiters yield to the worker's scheduler.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Notifications so far.
    notified: AtomicU64,
}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { notified: AtomicU64::new(0) }
    }

    /// Releases `guard`, which is of `mutex`, until the next notification, and takes it again. May return early, so the
    /// condition is checked in a loop.
    pub fn wait<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let before = self.notified.load(Ordering::Acquire);
        drop(guard);
        while self.notified.load(Ordering::Acquire) == before {
            yield_now();
        }
        mutex.lock()
    }

    /// Ends every wait.
    pub fn notify_all(&self) {
        self.notified.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_see_what_the_notifier_did() {
        let (mutex, condvar) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0..100 {
                    let mut value = mutex.lock();
                    while *value != 2 * turn + 1 {
                        value = condvar.wait(&mutex, value);
                    }
                    *value += 1;
                    condvar.notify_all();
                }
            });
            for turn in 0..100 {
                let mut value = mutex.lock();
                while *value != 2 * turn {
                    value = condvar.wait(&mutex, value);
                }
                *value += 1;
                condvar.notify_all();
            }
        });
        assert_eq!(*mutex.lock(), 200);
    }

    #[test]
    fn a_panicking_holder_releases_the_lock() {
        let mutex = Mutex::new(1);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("on purpose");
        }));
        assert_eq!(*mutex.lock(), 1);
    }
}
