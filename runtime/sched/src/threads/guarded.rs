//! [`Guarded`]: state of several threads that is looked at for a moment.
//!
//! A light thread must not be suspended while it has an ordinary lock: its worker, or another, would block on it. It
//! takes the lock for queue manipulation alone, in a no-yield section: if a value that it moves lies in far memory, the
//! page fault is waited for inline.

use std::sync::{Mutex, PoisonError};

use yonder_unithread::no_yield;

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Guarded<T>(Mutex<T>);

impl<T> Guarded<T> {
    pub(super) const fn new(state: T) -> Self {
        Self(Mutex::new(state))
    }

    /// Looks at the state. `look` runs no code of users, whose values are dropped elsewhere.
    #[inline]
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        no_yield(|| look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
