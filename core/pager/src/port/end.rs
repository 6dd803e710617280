//! The end of a port's use by one thread, and its beginning by another.
//!
//! The thread of a worker ends; its port stays, with queue pairs that took connections to make, and what its fetches
//! have counted. Invariant: a port that is given back has no fetch, no read of a guide and no order with a helper, so
//! that no page waits for a thread that is gone.

use yonder_units::Narrow;

use super::{Phase, Port, PortInner};
use crate::delegation::Installs;
use crate::error::PagingCause;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::waiters::Waiters;

impl<M: Machine> Port<M> {
    /// The port is another thread's from now on, which has `tokens` waiters.
    pub(crate) fn begin(&self, tokens: usize) {
        let mut inner = self.lock();
        assert!(inner.in_flight() + inner.ahead.in_use() == 0, "a port was given back with fetches in flight");
        inner.waiters = Waiters::new(tokens);
    }

    /// Gives up everything that is under way here: the port's thread ends, and nothing waits on it.
    pub(crate) fn end(&self, pager: &Pager<M>) {
        let mut inner = self.lock();
        while inner.window.out() > 0 {
            inner.process_delegated(self.turn(pager, M::now()), Installs::Own);
            drop(inner);
            // A helper is in the middle of an install.
            M::yield_now();
            inner = self.lock();
        }
        inner.end_fetches(pager);
        self.publish(&inner);
    }
}

impl<M: Machine> PortInner<M> {
    /// Ends every fetch: what has not been installed is on the node as before.
    fn end_fetches(&mut self, pager: &Pager<M>) {
        self.cancel_guide_reads(pager, |_, _| true);
        let now = M::now();
        for slot in 0..self.fetches.len().narrow_u16() {
            match self.fetches[usize::from(slot)].phase {
                Phase::Free => continue,
                Phase::Posted => self.cancel(slot),
                Phase::Backoff(_) | Phase::Arrived | Phase::Ready => {}
                Phase::HandedOver => unreachable!("nothing is handed over any more"),
            }
            self.abandon(slot, pager);
            self.end(slot, Err(PagingCause::TimedOut), now);
        }
        self.deferred.clear();
        self.ahead.wanted.clear();
    }
}
