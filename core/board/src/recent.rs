//! [`Recent`]: operations that must not be executed twice, for as long as a copy of them could still arrive.
//!
//! A client sends a request again when no answer has come, under a new request id that names the first (Clio, section 4.5,
//! T4). So writes and atomics are kept by the id of their *first* attempt, with their result: whichever attempt comes
//! first is executed, and every other one, early or late, is answered from here.
//!
//! The ring is bounded and forgets the oldest. Clio sizes it for two timeouts and takes the rest for impossible; here a
//! request says when its first attempt was sent, on the node's clock, as the client has learned it from answers and never
//! later than it was. What was forgotten was executed no later than [`Recent::admit`] remembers, so a request that was
//! first sent after that cannot have been forgotten, whatever the network does; any other is refused.
//!
//! Invariant: an operation is executed at most once. Nothing allocates after [`Recent::new`].

use std::collections::{HashMap, VecDeque};

/// Nanoseconds on the node's clock.
pub type NodeTime = u64;

/// One fragment of an operation, by the id of its first attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OperationKey {
    /// The client: a random number, so that no two clients have one.
    pub client: u64,
    /// Request id of the first attempt.
    pub first_request: u64,
    /// Offset of the fragment in the request's data, in bytes.
    pub fragment: u32,
}

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission<R> {
    /// It was not executed before.
    Execute,
    /// It was, with this result.
    Answer(R),
    /// It may have been: it is so old that the ring has forgotten its time. It must not be executed.
    TooOld,
}

/// A bounded memory of executed operations with results of type `R`.
#[derive(Debug)]
pub struct Recent<R> {
    results: HashMap<OperationKey, R>,
    /// The same, oldest first, with the time of execution.
    order: VecDeque<(OperationKey, NodeTime)>,
    capacity: usize,
    /// When the last operation that was forgotten had been executed; `None` while none was.
    forgotten_until: Option<NodeTime>,
}

impl<R: Copy> Recent<R> {
    /// Remembers the last `capacity` operations.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a ring that remembers nothing lets every retry be executed again");
        Self {
            // Twice the room, so that the map never grows: removed keys leave their places behind for a while.
            results: HashMap::with_capacity(2 * capacity),
            order: VecDeque::with_capacity(capacity),
            capacity,
            forgotten_until: None,
        }
    }

    /// What to do with a request whose first attempt was sent at `first_sent` or later.
    #[inline]
    #[must_use]
    pub fn admit(&self, key: &OperationKey, first_sent: NodeTime) -> Admission<R> {
        match self.results.get(key) {
            Some(result) => Admission::Answer(*result),
            None if self.forgotten_until.is_some_and(|until| first_sent <= until) => Admission::TooOld,
            None => Admission::Execute,
        }
    }

    /// Remembers an operation that has been executed at `now`, and forgets the oldest if there is no room.
    ///
    /// # Panics
    /// If it is remembered already: it was executed twice.
    pub fn record(&mut self, key: OperationKey, result: R, now: NodeTime) {
        if self.order.len() == self.capacity
            && let Some((oldest, executed)) = self.order.pop_front()
        {
            self.results.remove(&oldest);
            self.forgotten_until = self.forgotten_until.max(Some(executed));
        }
        assert!(self.results.insert(key, result).is_none(), "{key:?} was executed twice");
        self.order.push_back((key, now));
    }

    /// Operations that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn key(first_request: u64) -> OperationKey {
        OperationKey { client: 1, first_request, fragment: 0 }
    }

    #[test]
    fn a_second_attempt_gets_the_first_ones_result() {
        let mut recent = Recent::new(2);
        assert_eq!(recent.admit(&key(1), 10), Admission::Execute);
        recent.record(key(1), 'a', 12);
        assert_eq!(recent.admit(&key(1), 10), Admission::Answer('a'));
        let other = OperationKey { fragment: 4096, ..key(1) };
        assert_eq!(recent.admit(&other, 10), Admission::Execute, "each fragment is executed");
    }

    #[test]
    fn what_may_have_been_forgotten_is_refused_and_what_is_newer_is_not() {
        let mut recent = Recent::new(2);
        (1..=3).for_each(|id| recent.record(key(id), (), 100 * id));
        assert_eq!((recent.len(), recent.admit(&key(1), 90)), (2, Admission::TooOld));
        assert_eq!(recent.admit(&key(4), 100), Admission::TooOld, "it could be what was executed at 100");
        assert_eq!(recent.admit(&key(4), 101), Admission::Execute);
        assert_eq!(recent.admit(&key(3), 1), Admission::Answer(()), "what is remembered is answered, however old");
    }

    #[test]
    #[should_panic(expected = "executed twice")]
    fn executing_twice_is_our_bug() {
        let mut recent = Recent::new(2);
        recent.record(key(1), (), 1);
        recent.record(key(1), (), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        /// A network that delivers copies of requests at any later time, in any order: nothing is executed twice, and
        /// what is refused as too old was sent before something that the ring has forgotten.
        #[test]
        fn nothing_is_executed_twice(
            capacity in 1usize..8, sends in prop::collection::vec((0u64..40, prop::collection::vec(0u64..400, 1..5)), 1..60),
        ) {
            let mut arrivals = Vec::new();
            let mut now = 0;
            for (id, (pause, delays)) in sends.iter().enumerate() {
                now += pause;
                arrivals.extend(delays.iter().map(|delay| (now + delay, id as u64, now)));
            }
            arrivals.sort_unstable();
            let (mut recent, mut executed) = (Recent::new(capacity), HashMap::new());
            for (at, id, first_sent) in arrivals {
                match recent.admit(&key(id), first_sent) {
                    Admission::Execute => {
                        prop_assert!(executed.insert(id, at).is_none(), "{id} was executed twice");
                        recent.record(key(id), at, at);
                    }
                    Admission::Answer(result) => prop_assert_eq!(executed.get(&id), Some(&result)),
                    Admission::TooOld => {
                        prop_assert!(executed.values().filter(|executed| **executed >= first_sent).count() > 0);
                    }
                }
                prop_assert!(recent.len() <= capacity);
            }
        }
    }
}
