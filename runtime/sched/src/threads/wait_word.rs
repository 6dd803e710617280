//! [`WaitWord`]: the one atomic word that says how far a wait is, and why it ended.
//!
//! ```text
//!                 begin               park
//!   ended or new -------> waiting --------------> parked
//!                            |                      |
//!                            | end                  | end: the caller delivers the wake-up
//!                            v                      v
//!                      granted, closed or timed out, once
//! ```
//!
//! A word serves many waits, one after the other, and each has a ticket that no other wait of the word ever has. So who
//! comes late, with the ticket of a wait that is over, finds that it is and wakes nothing: a waiter is woken at most
//! once for one wait, whatever notifiers and clocks do. Only a waiter that has parked is delivered a wake-up; one that
//! is still on its way sees the end when it tries to park.
//!
//! Neighbours: `parker` says who waits and how a wake-up reaches it.

use crate::atomic::{AtomicU64, Ordering};

/// Bits of the word that hold the phase; the others hold the ticket.
const PHASE_BITS: u32 = 3;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
/// The wait has begun: others may end it, and the waiter has not parked.
const WAITING: u64 = 1;
/// The waiter has parked, or is about to and will not look again.
const PARKED: u64 = 2;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The waiter has got what it waits for.
    Granted = 3,
    /// It will never get it.
    Closed = 4,
    /// Its time is up.
    TimedOut = 5,
}

impl Signal {
    /// The signal in a word, if the wait is over.
    fn of(word: u64) -> Option<Self> {
        [Self::Granted, Self::Closed, Self::TimedOut].into_iter().find(|signal| *signal as u64 == word & PHASE_MASK)
    }
}

/// The number of a wait among those of its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(u64);

impl Ticket {
    fn at(self, phase: u64) -> u64 {
        self.0 << PHASE_BITS | phase
    }
}

/// What [`WaitWord::end`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// Nothing: the wait was over.
    Stale,
    /// It ended the wait before the waiter had parked.
    Early,
    /// It ended the wait of a waiter that has parked, whom the caller now wakes.
    OfParked,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct WaitWord(AtomicU64);

impl WaitWord {
    /// Begins the next wait. Called by the waiter.
    pub(super) fn begin(&self) -> Ticket {
        // Nobody else changes the word: the wait before is over, or nobody was told of it.
        let ticket = Ticket((self.0.load(Ordering::Relaxed) >> PHASE_BITS) + 1);
        self.0.store(ticket.at(WAITING), Ordering::Relaxed);
        ticket
    }

    /// Says that the waiter parks now. Returns whether it may; else the wait is over. Called by the waiter.
    pub(super) fn park(&self, ticket: Ticket) -> bool {
        let (from, to) = (ticket.at(WAITING), ticket.at(PARKED));
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Why the wait ended, if it did. Called by the waiter, before its next wait.
    pub(super) fn signal(&self, ticket: Ticket) -> Option<Signal> {
        let word = self.0.load(Ordering::Acquire);
        assert_eq!(word >> PHASE_BITS, ticket.0, "a waiter has one wait at a time");
        Signal::of(word)
    }

    /// Ends a wait, if it is not over. Called by anybody.
    pub(super) fn end(&self, ticket: Ticket, signal: Signal) -> End {
        for (phase, end) in [(WAITING, End::Early), (PARKED, End::OfParked)] {
            // A failure to find it waiting may mean that it has parked meanwhile, never the other way round.
            let (from, to) = (ticket.at(phase), ticket.at(signal as u64));
            if self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return end;
            }
        }
        End::Stale
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_once() {
        let word = WaitWord::default();
        let ticket = word.begin();
        assert!(word.park(ticket));
        assert_eq!(word.signal(ticket), None);
        assert_eq!(word.end(ticket, Signal::Granted), End::OfParked);
        assert_eq!(word.end(ticket, Signal::TimedOut), End::Stale);
        assert_eq!(word.signal(ticket), Some(Signal::Granted));
    }

    #[test]
    fn a_waiter_whose_wait_is_over_does_not_park() {
        let word = WaitWord::default();
        let ticket = word.begin();
        assert_eq!(word.end(ticket, Signal::Closed), End::Early);
        assert!(!word.park(ticket));
        assert_eq!(word.signal(ticket), Some(Signal::Closed));
    }

    #[test]
    fn the_ticket_of_an_earlier_wait_ends_nothing() {
        let word = WaitWord::default();
        let late = word.begin();
        assert_eq!(word.end(late, Signal::TimedOut), End::Early);
        let ticket = word.begin();
        assert!(word.park(ticket));
        assert_eq!(word.end(late, Signal::Granted), End::Stale);
        assert_eq!(word.signal(ticket), None);
    }
}
