//! [`Threads`]: a pager's own threads, as those see them that wake or end them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::machine::Machine;

/// See the head of this file. Each thread is set once, by itself; anyone may wake it.
pub(crate) struct Threads<M: Machine> {
    reclaimer: OnceLock<M::Thread>,
    discarder: OnceLock<M::Thread>,
    /// Held by the thread that confirms discards while it has a region.
    discarding: Mutex<()>,
    /// Set once, by who ends the pager.
    stopping: AtomicBool,
}

impl<M: Machine> Default for Threads<M> {
    fn default() -> Self {
        Self {
            reclaimer: OnceLock::new(),
            discarder: OnceLock::new(),
            discarding: Mutex::new(()),
            stopping: AtomicBool::new(false),
        }
    }
}

impl<M: Machine> Threads<M> {
    pub(crate) fn set_reclaimer(&self, thread: M::Thread) {
        assert!(self.reclaimer.set(thread).is_ok(), "a pager has one reclaimer");
    }

    pub(crate) fn unpark_reclaimer(&self) {
        self.reclaimer.get().into_iter().for_each(M::unpark);
    }

    pub(crate) fn set_discarder(&self, thread: M::Thread) {
        assert!(self.discarder.set(thread).is_ok(), "a pager has one discarder");
    }

    pub(crate) fn unpark_discarder(&self) {
        self.discarder.get().into_iter().for_each(M::unpark);
    }

    /// What the discarder has while it has a region.
    pub(crate) fn lock_discarding(&self) -> MutexGuard<'_, ()> {
        M::lock(&self.discarding)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
