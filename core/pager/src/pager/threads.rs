//! [`Threads`]: a pager's own threads, as those see them that wake or end them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use crate::machine::Machine;

/// See the head of this file. Each thread is set once, by itself; anyone may wake it.
pub(crate) struct Threads<M: Machine> {
    reclaimer: OnceLock<M::Thread>,
    settler: OnceLock<M::Thread>,
    /// Held by the thread that settles discards while it has a region.
    settling: Mutex<()>,
    /// Set once, by who ends the pager.
    stopping: AtomicBool,
}

impl<M: Machine> Default for Threads<M> {
    fn default() -> Self {
        Self {
            reclaimer: OnceLock::new(),
            settler: OnceLock::new(),
            settling: Mutex::new(()),
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

    pub(crate) fn set_settler(&self, thread: M::Thread) {
        assert!(self.settler.set(thread).is_ok(), "a pager has one settler");
    }

    pub(crate) fn unpark_settler(&self) {
        self.settler.get().into_iter().for_each(M::unpark);
    }

    /// What the settler has while it has a region.
    pub(crate) fn lock_settling(&self) -> MutexGuard<'_, ()> {
        M::lock(&self.settling)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
