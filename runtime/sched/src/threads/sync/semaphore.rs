//! [`Semaphore`]: so many at a time.
//!
//! Invariant: where somebody waits, there is no free permit, for what is released goes to the first waiter without
//! having been free.

use std::fmt;

use super::queue::WaitQueue;
use crate::threads::guarded::Guarded;
use crate::threads::parker::Wait;

/// A number of permits, whose waiters park, first come, first served.
pub struct Semaphore {
    state: Guarded<State>,
}

struct State {
    free: usize,
    waiters: WaitQueue,
}

/// One permit of a [`Semaphore`], given back when it is dropped.
#[must_use = "the permit is given back when it is dropped"]
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
}

impl Semaphore {
    /// A semaphore with so many permits.
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        Self { state: Guarded::new(State { free: permits, waiters: WaitQueue::new() }) }
    }

    /// Takes a permit, and waits for one if none is free.
    pub fn acquire(&self) -> Permit<'_> {
        if !self.take_free() {
            let wait = Wait::begin();
            let is_queued = self.state.with(|state| {
                let is_queued = !state.take_free();
                if is_queued {
                    state.waiters.push(&wait);
                }
                is_queued
            });
            if is_queued {
                wait.park();
            }
        }
        Permit { semaphore: self }
    }

    /// Takes a permit if one is free.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<'_>> {
        // Made only if it was taken: a permit that is dropped is given back.
        self.take_free().then(|| Permit { semaphore: self })
    }

    /// Adds so many permits. The first waiters get them. There are [`usize::MAX`] at most.
    pub fn add_permits(&self, permits: usize) {
        let served = self.state.with(|state| {
            let served = state.waiters.take(permits);
            assert!(served.is_empty() || state.free == 0, "no permit is free while somebody waits");
            state.free = state.free.saturating_add(permits - served.len());
            served
        });
        served.grant_each();
    }

    /// Permits that are free now.
    #[must_use]
    pub fn free(&self) -> usize {
        self.state.with(|state| state.free)
    }

    fn take_free(&self) -> bool {
        self.state.with(State::take_free)
    }
}

impl State {
    fn take_free(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }
}

impl Permit<'_> {
    /// Drops the permit without giving it back: the semaphore has one less.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(1);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("free", &self.free()).finish()
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn never_more_than_its_permits() {
        let (semaphore, inside) = (Semaphore::new(2), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let permit = semaphore.acquire();
                        assert!(inside.fetch_add(1, Ordering::Relaxed) < 2);
                        inside.fetch_sub(1, Ordering::Relaxed);
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!(semaphore.free(), 2);
    }

    #[test]
    fn permits_are_added_and_forgotten() {
        let semaphore = Semaphore::new(1);
        semaphore.acquire().forget();
        assert!(semaphore.try_acquire().is_none());
        semaphore.add_permits(2);
        let both = (semaphore.try_acquire(), semaphore.try_acquire());
        assert!(both.0.is_some() && both.1.is_some());
        assert_eq!(semaphore.free(), 0);
        semaphore.add_permits(usize::MAX);
        semaphore.add_permits(usize::MAX);
        assert_eq!(semaphore.free(), usize::MAX);
    }
}
