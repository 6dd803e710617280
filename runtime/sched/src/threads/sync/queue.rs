//! [`WaitQueue`]: those who wait for one thing, in the order in which they came.

use std::collections::VecDeque;

use crate::threads::parker::{Wait, Waiter};

/// See the head of this file.
pub(in crate::threads) struct WaitQueue<W = Waiter>(pub(super) VecDeque<W>);

impl<W> WaitQueue<W> {
    pub(in crate::threads) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Takes the first out, to be woken when the queue's lock has been released.
    pub(in crate::threads) fn pop(&mut self) -> Option<W> {
        self.0.pop_front()
    }

    pub(in crate::threads) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// Queues a wait of the calling thread.
    pub(in crate::threads) fn push(&mut self, wait: &Wait) {
        self.0.push_back(wait.waiter());
    }

    /// Takes a wait out that ended by itself, if it is there still.
    pub(in crate::threads) fn remove(&mut self, wait: &Wait) {
        if let Some(index) = self.0.iter().position(|waiter| waiter.is(wait)) {
            self.0.remove(index);
        }
    }

    /// Takes the first out, at most so many.
    pub(in crate::threads) fn take(&mut self, most: usize) -> Self {
        Self(self.0.drain(..most.min(self.0.len())).collect())
    }

    /// Wakes all of them, each of whom waits until this.
    pub(in crate::threads) fn grant_each(self) {
        for waiter in self.0 {
            assert!(waiter.grant(), "who waits here waits until it is served");
        }
    }

    /// Wakes all of them.
    pub(in crate::threads) fn grant_all(self) {
        for waiter in self.0 {
            // One whose wait is over needs no waking.
            let _ = waiter.grant();
        }
    }

    /// Ends the waits of all, who will never get what they wait for.
    pub(in crate::threads) fn close_all(self) {
        self.0.iter().for_each(Waiter::close);
    }

    pub(in crate::threads) fn len(&self) -> usize {
        self.0.len()
    }
}
