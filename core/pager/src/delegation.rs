//! [`Delegation`]: installs that a port lets another thread do.
//!
//! An install is a system call of more than a microsecond, or the copy of a page into a frame where it stays, and
//! nothing says that the thread which posted the read must make it: the unithread that waits is parked, so its worker
//! can run others meanwhile. A thread with time to spare, such as a dispatcher between two turns, makes it instead
//! ([`Pager::install_for`](crate::Pager::install_for)). This goes beyond Adios, whose dispatcher takes only the
//! completions of replies from the workers (section 3.4).
//!
//! Who touches what: the port's thread pushes orders and pops what is done; the helper does the reverse; either may pop
//! an order, and whoever pops it makes the install. Both queues hold [`HANDED_OVER_MAX`], so pushes never fail.
//! [`DelegationWindow`] decides how many installs are out: none to a helper that does not answer.
//!
//! Invariant: the entry of a page that is handed over stays `Fetching`, and its fetch keeps its slot, until the port's
//! thread has seen the end of the install.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crossbeam_queue::ArrayQueue;
use yonder_units::{Nanos, PageIndex};

use crate::install::InstallSource;
use crate::machine::Machine;
use crate::port::FetchReservation;
use crate::region::RegionCore;

/// Installs of one port that are handed over at a time, at most. In a prototype 8 gained most, more than 4 and than 32.
pub(crate) const HANDED_OVER_MAX: usize = 8;
/// Time without any answer after which the port's thread makes the installs itself.
const TIMEOUT: Nanos = 15_000;
/// First and longest pause after a helper has not answered. The first is short because a helper that reclaims answers
/// again within 100 us; the longest keeps a helper that never has time from costing anything.
const PAUSE_MIN: Nanos = 20_000;
const PAUSE_MAX: Nanos = 10_000_000;

/// Whether a poll of a port may hand installs over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Installs {
    /// The thread has nothing better to do: it makes them, and takes back what it has handed over.
    Own,
    /// Other unithreads could run meanwhile.
    Delegated,
}

/// An install to make.
pub(crate) struct Order<M: Machine> {
    pub(crate) slot: u16,
    pub(crate) page: PageIndex,
    pub(crate) source: InstallSource,
    pub(crate) reservation: FetchReservation,
    /// Lent by the port, and given back with the answer, so that no reference is counted.
    pub(crate) region: Arc<RegionCore<M>>,
}

/// An install that was made, or could not be made now.
pub(crate) struct Answer<M: Machine> {
    pub(crate) order: Order<M>,
    pub(crate) is_installed: bool,
    pub(crate) at: Nanos,
}

/// The two queues between a port and its helper.
pub(crate) struct Delegation<M: Machine> {
    orders: ArrayQueue<Order<M>>,
    answers: ArrayQueue<Answer<M>>,
    /// Helpers there are.
    pub(crate) helpers: AtomicU32,
}

impl<M: Machine> Delegation<M> {
    pub(crate) fn new() -> Self {
        Self {
            orders: ArrayQueue::new(HANDED_OVER_MAX),
            answers: ArrayQueue::new(HANDED_OVER_MAX),
            helpers: AtomicU32::new(0),
        }
    }

    pub(crate) fn has_delegate(&self) -> bool {
        self.helpers.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn delegate(&self, order: Order<M>) {
        assert!(self.orders.push(order).is_ok(), "more installs are handed over than the window allows");
    }

    /// An order that nobody has begun.
    pub(crate) fn take_back(&self) -> Option<Order<M>> {
        self.orders.pop()
    }

    /// Whether there is an order that nobody has begun.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        !self.orders.is_empty()
    }

    pub(crate) fn give_answer(&self, answer: Answer<M>) {
        assert!(self.answers.push(answer).is_ok(), "more answers than orders");
    }

    pub(crate) fn answer(&self) -> Option<Answer<M>> {
        self.answers.pop()
    }
}

/// How many installs may be out, by how the helper answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DelegationWindow {
    size: usize,
    out: usize,
    /// When the helper answered last, or was given its first order since.
    waits_since: Nanos,
    closed_until: Nanos,
    pause: Nanos,
}

impl DelegationWindow {
    pub(crate) fn new() -> Self {
        Self { size: 1, out: 0, waits_since: 0, closed_until: 0, pause: PAUSE_MIN }
    }

    #[inline]
    pub(crate) fn has_room(&self, now: Nanos) -> bool {
        self.out < self.size && now >= self.closed_until
    }

    #[inline]
    pub(crate) fn out(&self) -> usize {
        self.out
    }

    #[inline]
    pub(crate) fn delegated(&mut self, now: Nanos) {
        if self.out == 0 {
            self.waits_since = now;
        }
        self.out += 1;
    }

    #[inline]
    pub(crate) fn answered(&mut self, now: Nanos) {
        self.out -= 1;
        self.waits_since = now;
        self.size = (self.size + 1).min(HANDED_OVER_MAX);
        (self.closed_until, self.pause) = (0, PAUSE_MIN);
    }

    #[inline]
    pub(crate) fn taken_back(&mut self) {
        self.out -= 1;
    }

    #[inline]
    pub(crate) fn is_late(&self, now: Nanos) -> bool {
        self.out > 0 && now.saturating_sub(self.waits_since) > TIMEOUT
    }

    /// The helper was late: it gets one order after a pause, which grows while it stays late.
    pub(crate) fn close(&mut self, now: Nanos) {
        self.size = 1;
        self.waits_since = now;
        self.closed_until = now + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MAX);
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_window_opens_with_each_answer_up_to_its_maximum() {
        let mut window = DelegationWindow::new();
        for answers in 0..3 * HANDED_OVER_MAX {
            let mut handed = 0;
            while window.has_room(100) {
                window.delegated(100);
                handed += 1;
            }
            assert_eq!(handed, if answers == 0 { 1 } else { 2.min(HANDED_OVER_MAX - window.out() + handed) });
            window.answered(100);
        }
        assert_eq!(window.out(), HANDED_OVER_MAX - 1);
    }

    #[test]
    fn a_helper_that_is_late_gets_less_and_less() {
        let mut window = DelegationWindow::new();
        let (mut now, mut orders) = (0, 0);
        while now < 1_000_000_000 {
            if window.has_room(now) {
                window.delegated(now);
                orders += 1;
            }
            if window.is_late(now) {
                window.taken_back();
                window.close(now);
            }
            now += 1_000;
        }
        assert!((100..130).contains(&orders), "{orders} orders in a second to a helper that never answers");
        window.delegated(now);
        window.answered(now);
        assert!(window.has_room(now) && window.pause == PAUSE_MIN);
    }

    #[test]
    fn lateness_counts_from_the_last_answer() {
        let mut window = DelegationWindow::new();
        window.delegated(0);
        window.answered(0);
        window.delegated(0);
        window.delegated(10_000);
        window.answered(12_000);
        assert!(!window.is_late(TIMEOUT + 1) && window.is_late(12_001 + TIMEOUT));
    }
}
