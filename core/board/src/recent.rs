//! [`Recent`]: operations that must not be executed twice, for as long as a copy of them could still arrive.
//!
//! A client sends a request again when no answer has come, under a new request id that names the first (Clio, section
//! 4.5, T4). So writes and atomics are kept by the id of their *first* attempt, with their result: whichever attempt
//! comes first is executed, and every other one, early or late, is answered from here. Each fragment has an id of its
//! own, and ids are unique among all clients, so the id alone is the key.
//!
//! The memory is bounded and forgets the oldest. Clio sizes it for two timeouts and takes the rest for impossible; here
//! a request says when its first attempt was sent, on the node's clock, as the client has learned it from answers and
//! never later than it was. What was forgotten was executed before a time that is kept, so a request that was first
//! sent at that time or later cannot have been forgotten, whatever the network does; any other is refused.
//!
//! It is an array of *sets*, small rings of [`WAYS`] operations that forget by themselves; a hash of the id chooses the
//! set. So the work is bounded whatever ids there are, also for those that somebody chooses: one cache line to see that
//! an operation is new, three more to keep it. The hash is multiplication by the golden ratio, which spreads ids that
//! follow each other, or that differ by a power of two, more evenly than a random function would: of a client's last
//! operations, as many as a half of the capacity are remembered.
//!
//! All of this needs no clock but the node's own to be right, nor that a client has guessed well: it is enough that all
//! attempts of a request claim one time, and that a request is executed at that time or later. A client that took the
//! node's clock for later than it is gives the request up before it asks for the same under another name. What is given
//! up before its time is *voided*: it is kept aside until the time has come, and then remembered as any other that was
//! given up. Were it remembered at once, it could be forgotten before its time, and a late copy be executed after all.
//!
//! Invariant: an operation is executed at most once. Nothing allocates after [`Recent::new`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use yonder_units::Narrow;
use yonder_wire::{ErrorCode, Header};

use crate::source::Share;

/// Nanoseconds on the node's clock.
pub type NodeTime = u64;

/// Operations of a set: with the time before which the set has forgotten operations, their ids fill a cache line.
const WAYS: usize = 7;
/// An operation has no such id.
const NOBODY: u64 = 0;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Requests that are voided at a time, and how many of one address space.
const VOIDED: Share = Share { places_max: 4096, of_one_max: 1024, few_max: 64 };
/// How far ahead a request's time may be for it to be voided, so that there is room again soon. Any bound is sound:
/// what is further ahead is refused as busy until it is not. A client stops when its lease is over by its own clock,
/// and has heard the node's clock since that began; so what it claims is ahead by a lease, or by what its clock is
/// wrong. This is ten leases as clients ask for them.
const VOIDED_AHEAD_MAX: NodeTime = 600_000_000_000;

/// What to do with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission<R> {
    /// It was not executed before.
    Execute,
    /// It was, with this result.
    Answer(R),
    /// It may have been: it is so old that its time is forgotten. It must not be executed.
    TooOld,
    /// It claims to have been sent later than now. If it were executed, it could be forgotten too early.
    FromTheFuture,
}

/// A bounded memory of executed operations with results of type `R`.
#[derive(Debug)]
pub(crate) struct Recent<R> {
    sets: Box<[Set<R>]>,
    /// Requests that were given up before their time, the earliest first.
    voided: BinaryHeap<Reverse<Voided>>,
}

/// A request that was given up before `time`, which it claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Voided {
    time: NodeTime,
    first_id: u64,
    pid: u32,
}

/// The last operations whose ids have one hash. `ids` and `forgotten_before` are the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Set<R> {
    ids: [u64; WAYS],
    /// Every operation that was forgotten had been executed before this; 0 while none was.
    forgotten_before: NodeTime,
    executed: [NodeTime; WAYS],
    /// The oldest operation's place, where the next is put.
    next: usize,
    results: [Option<R>; WAYS],
}

impl<R: Copy> Recent<R> {
    /// Remembers about `capacity` operations.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "who remembers nothing lets every retry be executed again");
        let empty =
            Set { ids: [NOBODY; WAYS], forgotten_before: 0, executed: [0; WAYS], next: 0, results: [None; WAYS] };
        let sets = vec![empty; capacity.div_ceil(WAYS)].into_boxed_slice();
        Self { sets, voided: BinaryHeap::with_capacity(VOIDED.places_max) }
    }

    /// What to do at `now` with a request whose first attempt was `first_id`, and was sent at `first_sent` or later.
    #[inline]
    #[must_use]
    pub(crate) fn admit(&self, first_id: u64, first_sent: NodeTime, now: NodeTime) -> Admission<R> {
        let set = &self.sets[self.set_of(first_id)];
        match set.ids.iter().position(|id| *id == first_id).and_then(|at| set.results[at]) {
            Some(result) => Admission::Answer(result),
            None if first_sent < set.forgotten_before => Admission::TooOld,
            None if first_sent > now => Admission::FromTheFuture,
            None => Admission::Execute,
        }
    }

    /// Remembers an operation that has been executed at `now`, which is the time that it was admitted at or later, and
    /// forgets the oldest of its set if there is no room.
    ///
    /// # Panics
    /// If it is remembered already: it was executed twice.
    #[inline]
    pub(crate) fn record(&mut self, first_id: u64, result: R, now: NodeTime) {
        let index = self.set_of(first_id);
        let set = &mut self.sets[index];
        assert!(!set.ids.contains(&first_id), "operation {first_id} was executed twice");
        let at = set.next;
        if set.ids[at] != NOBODY {
            set.forgotten_before = set.forgotten_before.max(set.executed[at].saturating_add(1));
        }
        (set.ids[at], set.executed[at], set.results[at]) = (first_id, now, Some(result));
        set.next = (at + 1) % WAYS;
    }

    /// Bytes that it takes, whatever is in it.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        (size_of_val::<[Set<R>]>(&self.sets) + VOIDED.places_max * size_of::<Voided>()) as u64
    }

    #[inline]
    fn set_of(&self, first_id: u64) -> usize {
        ((u128::from(first_id.wrapping_mul(GOLDEN)) * self.sets.len() as u128) >> 64).narrow_usize()
    }
}

/// Operations that end with a value, or with a refusal that was final.
impl<T: Copy> Recent<Result<T, ErrorCode>> {
    /// How the request with `header` has ended, or why it must not be executed; `None` if it is to be executed now, and
    /// [`Recent::keep`] to be called.
    #[inline]
    pub(crate) fn ended(&mut self, header: &Header, now: NodeTime) -> Option<Result<T, ErrorCode>> {
        self.remember_voided(now);
        match self.admit(header.first_id, header.time, now) {
            Admission::Execute => None,
            Admission::Answer(result) => Some(result),
            Admission::TooOld => Some(Err(ErrorCode::TooOld)),
            Admission::FromTheFuture => Some(Err(ErrorCode::Busy)),
        }
    }

    /// Executes the request with `header` if it was not executed before, remembers how it ended, and returns that: what
    /// `execute` returned now or at the first time, or why it was not executed. A right that is void is void at every
    /// time, so that need not be remembered, and pushes nothing out.
    #[inline]
    pub(crate) fn once(
        &mut self,
        header: &Header,
        now: NodeTime,
        execute: impl FnOnce() -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        self.ended(header, now).unwrap_or_else(|| {
            let result = execute();
            if !matches!(result, Err(ErrorCode::BadCapability)) {
                self.keep(header, result, now);
            }
            result
        })
    }

    /// Remembers how a request that was admitted has ended, unless it was refused for a reason that may pass.
    #[inline]
    pub(crate) fn keep(&mut self, header: &Header, result: Result<T, ErrorCode>, now: NodeTime) {
        if !result.is_err_and(ErrorCode::may_pass) {
            self.record(header.first_id, result, now);
        }
    }

    /// The request with `header` was admitted, and its execution has begun: [`Recent::keep_ended`] says how it has
    /// ended. An earlier abort of it claimed another time than it does, and is void.
    pub(crate) fn begin(&mut self, header: &Header) {
        self.voided.retain(|Reverse(voided)| voided.first_id != header.first_id);
    }

    /// As [`Recent::keep`], some time after the request was admitted. Of a request that was given up meanwhile, because
    /// its client claimed two times for it, the first word stands.
    pub(crate) fn keep_ended(&mut self, header: &Header, result: Result<T, ErrorCode>, now: NodeTime) {
        if !self.sets[self.set_of(header.first_id)].ids.contains(&header.first_id) {
            self.keep(header, result, now);
        }
    }

    /// Gives the request that `header` names up: from now on it is refused as aborted. Returns 1 if it had been
    /// executed before and 0 if it had not, and never will be.
    pub(crate) fn abort(&mut self, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        self.remember_voided(now);
        match self.admit(header.first_id, header.time, now) {
            Admission::Execute => {
                self.record(header.first_id, Err(ErrorCode::Aborted), now);
                Ok(0)
            }
            Admission::Answer(result) => Ok(u32::from(result.is_ok())),
            Admission::TooOld => Err(ErrorCode::TooOld),
            Admission::FromTheFuture => self.void(header, now),
        }
    }

    /// Gives up a request whose time has not come. Until then no copy of it is executed in any case.
    fn void(&mut self, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        let Header { first_id, time, pid, .. } = *header;
        if self.voided.iter().any(|Reverse(voided)| (voided.first_id, voided.time) == (first_id, time)) {
            return Ok(0);
        }
        let of_space = self.voided.iter().filter(|Reverse(voided)| voided.pid == pid).count();
        if !VOIDED.admits(self.voided.len(), of_space) || time - now > VOIDED_AHEAD_MAX {
            return Err(ErrorCode::Busy);
        }
        self.voided.push(Reverse(Voided { time, first_id, pid }));
        Ok(0)
    }

    /// Remembers the voided requests whose time has come. It is called before any request is looked at, so that there
    /// is no moment at which a copy of one could be executed.
    #[inline]
    fn remember_voided(&mut self, now: NodeTime) {
        if self.voided.peek().is_some_and(|Reverse(first)| first.time <= now) {
            self.remember_due(now);
        }
    }

    #[cold]
    fn remember_due(&mut self, now: NodeTime) {
        while let Some(Reverse(Voided { first_id, .. })) =
            self.voided.peek().copied().filter(|Reverse(first)| first.time <= now)
        {
            self.voided.pop();
            // Only a client that claims two times for one request can have had it executed meanwhile.
            if !self.sets[self.set_of(first_id)].ids.contains(&first_id) {
                self.record(first_id, Err(ErrorCode::Aborted), now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use yonder_wire::Kind;

    use super::*;

    #[test]
    fn a_second_attempt_gets_the_first_ones_result() {
        let mut recent = Recent::new(2);
        assert_eq!(recent.admit(1, 10, 11), Admission::Execute);
        recent.record(1, 'a', 12);
        assert_eq!(recent.admit(1, 10, 13), Admission::Answer('a'));
        assert_eq!(recent.admit(2, 10, 13), Admission::Execute, "each fragment is executed");
    }

    #[test]
    fn what_may_have_been_forgotten_is_refused_and_what_is_newer_is_not() {
        let mut recent = Recent::new(WAYS);
        (1..=WAYS as u64 + 1).for_each(|id| recent.record(id, (), 100 * id));
        assert_eq!(recent.admit(1, 90, 2000), Admission::TooOld);
        assert_eq!(recent.admit(99, 100, 2000), Admission::TooOld, "it could be what was executed at 100");
        assert_eq!(recent.admit(99, 101, 2000), Admission::Execute);
        assert_eq!(recent.admit(3, 1, 2000), Admission::Answer(()), "what is remembered is answered, however old");
        assert_eq!(recent.admit(99, 2001, 2000), Admission::FromTheFuture);
    }

    #[test]
    fn half_of_the_capacity_is_remembered_whatever_the_steps_between_ids() {
        const CAPACITY: usize = 7000;
        for step in [1, 3, 64, 256, 1024, 4096, 1 << 16] {
            for first in [1u64, 0x0edc_ba98_7654_3210, 1 << 62] {
                let mut recent = Recent::new(CAPACITY);
                let ids = |count: u64| (0..count).map(move |number| first + step * number);
                ids(2 * CAPACITY as u64).for_each(|id| recent.record(id, (), 5));
                let last = ids(2 * CAPACITY as u64).skip(3 * CAPACITY / 2);
                let lost = last.filter(|id| recent.admit(*id, 5, 9) != Admission::Answer(())).count();
                assert_eq!(lost, 0, "steps of {step} from {first}");
                let bytes = recent.bytes() - (VOIDED.places_max * size_of::<Voided>()) as u64;
                assert!(bytes <= 40 * CAPACITY as u64, "{bytes} bytes");
            }
        }
    }

    #[test]
    #[should_panic(expected = "executed twice")]
    fn executing_twice_is_our_bug() {
        let mut recent = Recent::new(2);
        recent.record(1, (), 1);
        recent.record(1, (), 2);
    }

    fn request(first_id: u64, time: u64) -> Header {
        Header { time, ..Header::request(Kind::Write, first_id, 0, 8) }
    }

    #[test]
    fn final_refusals_are_remembered_and_passing_ones_are_not() {
        let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
        assert_eq!(recent.once(&request(1, 0), 1, || Err(ErrorCode::Busy)), Err(ErrorCode::Busy));
        assert_eq!(recent.once(&request(1, 0), 1, || Ok(7)), Ok(7));
        assert_eq!(recent.once(&request(1, 0), 2, || unreachable!("it was executed")), Ok(7));
        assert_eq!(recent.once(&request(2, 0), 1, || Err(ErrorCode::BadAddress)), Err(ErrorCode::BadAddress));
        assert_eq!(recent.once(&request(2, 0), 2, || Ok(7)), Err(ErrorCode::BadAddress));
        assert_eq!(recent.once(&request(3, 9), 2, || unreachable!("from the future")), Err(ErrorCode::Busy));
    }

    #[test]
    fn what_is_given_up_is_never_executed_and_what_was_executed_stays() {
        let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
        assert_eq!((recent.abort(&request(1, 0), 1), recent.abort(&request(1, 0), 2)), (Ok(0), Ok(0)));
        assert_eq!(recent.once(&request(1, 0), 3, || unreachable!("given up")), Err(ErrorCode::Aborted));
        assert_eq!(recent.once(&request(2, 0), 3, || Ok(5)), Ok(5));
        assert_eq!(recent.abort(&request(2, 0), 4), Ok(1));
        assert_eq!(recent.once(&request(2, 0), 5, || unreachable!("it was executed")), Ok(5));
        assert_eq!(recent.once(&request(3, 0), 5, || Err(ErrorCode::NotAllowed)), Err(ErrorCode::NotAllowed));
        assert_eq!(recent.abort(&request(3, 0), 6), Ok(0), "a refused request was not executed");
    }

    #[test]
    fn what_is_given_up_before_its_time_is_not_executed_when_that_has_come() {
        let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(WAYS);
        assert_eq!(recent.once(&request(1, 500), 10, || unreachable!("too early")), Err(ErrorCode::Busy));
        assert_eq!((recent.abort(&request(1, 500), 11), recent.abort(&request(1, 500), 12)), (Ok(0), Ok(0)));
        // Many others, so that it would have been forgotten had it been remembered.
        for id in 100..200 {
            assert_eq!(recent.once(&request(id, 300 + id), 300 + id, || Ok(0)), Ok(0));
        }
        assert_eq!(recent.once(&request(1, 500), 499, || unreachable!("too early")), Err(ErrorCode::Busy));
        assert_eq!(recent.once(&request(1, 500), 500, || unreachable!("given up")), Err(ErrorCode::Aborted));
        for id in 200..300 {
            let _ = recent.once(&request(id, 501), 501 + id, || Ok(0));
        }
        assert_eq!(recent.once(&request(1, 500), 900, || unreachable!("forgotten")), Err(ErrorCode::TooOld));
    }

    #[test]
    fn there_is_a_limit_to_what_is_voided_and_there_is_room_again() {
        let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
        let of = |pid: u32, id: u64, time: u64| Header { pid, ..request(id, time) };
        let (mut id, mut pid) = (0, 0);
        while recent.voided.len() < VOIDED.places_max {
            let before = recent.voided.len();
            while recent.abort(&of(pid, 1 + id, 100), 1) == Ok(0) {
                id += 1;
            }
            let few = before >= VOIDED.places_max * 3 / 4;
            let share = if few { VOIDED.few_max } else { VOIDED.of_one_max };
            assert_eq!(recent.voided.len(), before + share, "{pid} has had its share");
            pid += 1;
        }
        let stranger = 1 << 20;
        assert_eq!(recent.abort(&of(stranger, 1 << 20, 100), 1), Err(ErrorCode::Busy), "there is no more room");
        assert_eq!(recent.abort(&of(stranger, 1 << 20, 101), 100), Ok(0), "there is again");
        assert_eq!(recent.abort(&of(stranger, 1 << 21, 101 + VOIDED_AHEAD_MAX), 100), Err(ErrorCode::Busy));
    }

    #[test]
    fn a_client_that_claims_two_times_for_one_request_does_not_stop_the_node() {
        let mut recent: Recent<Result<u64, ErrorCode>> = Recent::new(64);
        assert_eq!(recent.abort(&request(1, 50), 10), Ok(0));
        assert_eq!(recent.once(&request(1, 10), 20, || Ok(3)), Ok(3));
        assert_eq!(recent.once(&request(2, 60), 60, || Ok(4)), Ok(4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        /// A network that delivers copies of requests at any later time, in any order: nothing is executed twice, and
        /// what is refused as too old was sent before something that was forgotten.
        #[test]
        fn nothing_is_executed_twice(
            capacity in 1usize..16,
            sends in prop::collection::vec((0u64..40, prop::collection::vec(0u64..400, 1..5)), 1..60),
        ) {
            let mut arrivals = Vec::new();
            let mut now = 0;
            for (id, (pause, delays)) in (1u64..).zip(&sends) {
                now += pause;
                arrivals.extend(delays.iter().map(|delay| (now + delay, id, now)));
            }
            arrivals.sort_unstable();
            let (mut recent, mut executed) = (Recent::new(capacity), HashMap::new());
            for (at, id, first_sent) in arrivals {
                match recent.admit(id, first_sent, at) {
                    Admission::Execute => {
                        prop_assert!(executed.insert(id, at).is_none(), "{id} was executed twice");
                        recent.record(id, at, at);
                    }
                    Admission::Answer(result) => prop_assert_eq!(executed.get(&id), Some(&result)),
                    Admission::TooOld => {
                        prop_assert!(executed.values().filter(|executed| **executed >= first_sent).count() > 0);
                    }
                    Admission::FromTheFuture => prop_assert!(false, "it was sent before it arrived"),
                }
            }
        }
    }
}
