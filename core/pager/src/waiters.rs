//! [`Waiters`]: who waits for the fetches of one port.
//!
//! Who waits is a *token*: the number of a unithread in its worker's pool, or one of those that guests share. The
//! waiters of a fetch are a list threaded through their tokens, so that joining one allocates nothing. A waiter that
//! spins looks at its outcome; one that is parked is put on the ready list. Touched only under the port's lock.

use yonder_units::{Nanos, PageId};

use crate::error::PagingCause;

/// Outcome of a wait that goes on.
const PENDING: u32 = u32::MAX;
/// Outcome of a wait whose page has been mapped.
const MAPPED: u32 = 0;

/// The waiters of one fetch: the first of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Queue(u32);

impl Queue {
    /// Nobody.
    pub(crate) const EMPTY: Self = Self(u32::MAX);
}

/// Faults of one unithread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FaultCounts {
    /// Faults that needed a fetch.
    pub major: u32,
    /// Faults that needed none of their own.
    pub minor: u32,
    /// The page of the last major fault, or of the last minor one if there was no major one.
    pub page_id: Option<PageId>,
}

pub(crate) struct Waiters {
    tokens: Box<[Waiting]>,
    /// Parked unithreads whose wait is over.
    pub(crate) ready: Vec<u32>,
    /// Parked unithreads that look again at every turn of their scheduler.
    pub(crate) retry: Vec<u32>,
}

/// One token's wait.
#[derive(Clone, Copy)]
struct Waiting {
    next: Queue,
    outcome: u32,
    parked: bool,
    ended_at: Nanos,
    faults: FaultCounts,
}

impl Waiters {
    /// Nobody waits, of `tokens` that may.
    pub(crate) fn new(tokens: usize) -> Self {
        let idle =
            Waiting { next: Queue::EMPTY, outcome: MAPPED, parked: false, ended_at: 0, faults: FaultCounts::default() };
        Self {
            tokens: vec![idle; tokens].into_boxed_slice(),
            ready: Vec::with_capacity(tokens),
            retry: Vec::with_capacity(tokens),
        }
    }

    /// Makes `token` one of `queue`.
    #[inline]
    pub(crate) fn join(&mut self, queue: &mut Queue, token: u32) {
        let waiting = &mut self.tokens[token as usize];
        assert!(waiting.outcome != PENDING, "token {token} waits twice");
        *waiting = Waiting { next: *queue, outcome: PENDING, parked: false, ..*waiting };
        *queue = Queue(token);
    }

    /// From now on the token's unithread is parked: the end of its wait puts it on the ready list.
    #[inline]
    pub(crate) fn park(&mut self, token: u32) {
        let waiting = &mut self.tokens[token as usize];
        assert!(waiting.outcome == PENDING, "token {token} would wait for what has ended");
        waiting.parked = true;
    }

    /// From now on the token's owner looks for itself.
    #[inline]
    pub(crate) fn unpark(&mut self, token: u32) {
        self.tokens[token as usize].parked = false;
    }

    /// Ends the waits of `queue`, whose fetch has ended at `now`.
    #[inline]
    pub(crate) fn end(&mut self, mut queue: Queue, result: Result<(), PagingCause>, now: Nanos) {
        let outcome = result.map_or_else(|cause| cause.code().get(), |()| MAPPED);
        while queue != Queue::EMPTY {
            let waiting = &mut self.tokens[queue.0 as usize];
            (waiting.outcome, waiting.ended_at) = (outcome, now);
            if waiting.parked {
                self.ready.push(queue.0);
            }
            queue = waiting.next;
        }
    }

    /// The end of a token's wait, with its time; `None` while it goes on.
    #[inline]
    pub(crate) fn outcome(&self, token: u32) -> Option<(Result<(), PagingCause>, Nanos)> {
        let waiting = &self.tokens[token as usize];
        match waiting.outcome {
            PENDING => None,
            MAPPED => Some((Ok(()), waiting.ended_at)),
            code => {
                let code = std::num::NonZeroU32::new(code).expect("not MAPPED");
                Some((Err(PagingCause::from_code(code)), waiting.ended_at))
            }
        }
    }

    #[inline]
    pub(crate) fn count_major_fault(&mut self, token: u32, page_id: PageId) {
        let faults = &mut self.tokens[token as usize].faults;
        faults.major += 1;
        faults.page_id = Some(page_id);
    }

    #[inline]
    pub(crate) fn count_minor_fault(&mut self, token: u32, page_id: PageId) {
        let faults = &mut self.tokens[token as usize].faults;
        faults.minor += 1;
        if faults.major == 0 {
            faults.page_id = Some(page_id);
        }
    }

    /// Faults of `token` since the last call.
    #[inline]
    pub(crate) fn take_faults(&mut self, token: u32) -> FaultCounts {
        std::mem::take(&mut self.tokens[token as usize].faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_queue_end_together_and_the_parked_are_ready() {
        let (mut waiters, mut queue) = (Waiters::new(4), Queue::EMPTY);
        (0..3).for_each(|token| waiters.join(&mut queue, token));
        waiters.park(0);
        waiters.park(2);
        assert_eq!(waiters.outcome(1), None);
        waiters.end(queue, Err(PagingCause::NodeLost), 7);
        assert_eq!(waiters.ready, [2, 0]);
        assert!((0..3).all(|token| waiters.outcome(token) == Some((Err(PagingCause::NodeLost), 7))));
        let mut next = Queue::EMPTY;
        waiters.join(&mut next, 1);
        waiters.end(next, Ok(()), 9);
        assert_eq!((waiters.outcome(1), waiters.ready.len()), (Some((Ok(()), 9)), 2));
    }

    #[test]
    fn the_place_is_that_of_the_last_major_fault_or_of_the_last_minor_one() {
        let mut waiters = Waiters::new(1);
        let page_id = |page| PageId { region: 3, page: yonder_units::PageIndex(page) };
        waiters.count_minor_fault(0, page_id(1));
        waiters.count_minor_fault(0, page_id(2));
        assert_eq!(waiters.take_faults(0), FaultCounts { major: 0, minor: 2, page_id: Some(page_id(2)) });
        waiters.count_major_fault(0, page_id(4));
        waiters.count_major_fault(0, page_id(5));
        waiters.count_minor_fault(0, page_id(6));
        assert_eq!(waiters.take_faults(0), FaultCounts { major: 2, minor: 1, page_id: Some(page_id(5)) });
        assert_eq!(waiters.take_faults(0), FaultCounts::default());
    }

    /// Nobody would ever resume its unithread.
    #[test]
    #[should_panic(expected = "would wait for what has ended")]
    fn a_token_whose_wait_is_over_does_not_park() {
        let (mut waiters, mut queue) = (Waiters::new(1), Queue::EMPTY);
        waiters.join(&mut queue, 0);
        waiters.end(queue, Ok(()), 1);
        waiters.park(0);
    }

    #[test]
    #[should_panic(expected = "waits twice")]
    fn a_token_waits_for_one_fetch_at_a_time() {
        let (mut waiters, mut queue) = (Waiters::new(1), Queue::EMPTY);
        waiters.join(&mut queue, 0);
        waiters.join(&mut queue, 0);
    }
}
