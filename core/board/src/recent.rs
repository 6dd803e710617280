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
//! It is an array of *sets* ([`Set`]), small rings that forget by themselves; a hash of the id chooses the set. So the
//! work is bounded whatever ids there are, also for those that somebody chooses: one cache line to see that an
//! operation is new, three more to keep it. Of a client's last operations, as many as a half of the capacity are
//! remembered.
//!
//! One party that does much would have the operations of all others forgotten, and their retries refused. So what is
//! pushed out of the sets that all share is kept once more, in sets of its own [`Party`]. These are few: tenants whose
//! numbers differ by a multiple of [`SLICES`] share them, and where tenants have no names, one that has many address
//! spaces has a part in all. They are looked at only for a request that was first sent before the last operation that
//! went there: up to three cache lines more for what is kept, and two for a late retry.
//!
//! All of this needs no clock but the node's own to be right, nor that a client has guessed well: it is enough that all
//! attempts of a request claim one time, and that a request is executed at that time or later. A client that took the
//! node's clock for later than it is gives the request up before it asks for the same under another name. What is given
//! up before its time is *voided*: it is kept aside until the time has come, and then remembered as any other that was
//! given up. Were it remembered at once, it could be forgotten before its time, and a late copy be executed after all.
//!
//! Invariant: an operation of one party is executed at most once. Nothing allocates after [`Recent::new`].

mod set;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use yonder_units::Narrow;
use yonder_wire::{ErrorCode, Header};

use crate::capability::Claims;
use crate::recent::set::{Operation, Set, WAYS, set_of, set_of_mut};
use crate::source::{Share, Source};

/// Nanoseconds on the node's clock.
pub type NodeTime = u64;

/// Parties that keep what the sets of all forget apart from each other; further ones share with these. A power of two.
const SLICES: usize = 32;
/// What is kept for parties is this part of what is kept of all.
const KEPT_DIVISOR: usize = 2;

/// Requests that are voided at a time, and how many of one who pays for it: a party, or the source of those without
/// one.
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

/// Whose operation one is. All attempts of one are of the same party.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Party(u32);

impl Party {
    /// A tenant that is known by name, or else an address space. The capability is one that was checked.
    #[inline]
    pub(crate) fn of(header: &Header) -> Self {
        match Claims::tenant_in(header.capability) {
            0 => Self(header.pid),
            tenant => Self(u32::from(tenant)),
        }
    }

    /// Who pays for what it does, if it has a capability.
    #[inline]
    pub(crate) fn payer(self) -> u64 {
        self.0.into()
    }

    /// Who asks for what needs no capability. Those without names are one: where they ask from may change.
    pub(crate) fn of_source(source: Source) -> Self {
        Self(source.tenant().map_or(0, u32::from))
    }
}

/// A bounded memory of executed operations with results of type `R`.
#[derive(Debug)]
pub(crate) struct Recent<R> {
    /// The last operations of all.
    sets: Box<[Set<R>]>,
    /// What was pushed out of them: [`Recent::sets_of_slice`] sets for each slice.
    kept: Box<[Set<R>]>,
    sets_of_slice: usize,
    /// The number of slices, a power of two, less one.
    slice_mask: u8,
    /// Requests that were given up before their time, the earliest first.
    voided: BinaryHeap<Reverse<Voided>>,
}

/// A request that was given up before `time`, which it claims.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Voided {
    time: NodeTime,
    first_id: u64,
    party: Party,
    payer: u64,
}

impl<R: Copy> Recent<R> {
    /// Remembers about `capacity` operations of all, and half as many of what was pushed out of these, shared evenly
    /// among parties.
    ///
    /// # Panics
    /// If `capacity` is 0.
    #[must_use]
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "who remembers nothing lets every retry be executed again");
        let sets = capacity.div_ceil(WAYS);
        let kept = sets.div_ceil(KEPT_DIVISOR);
        let slices = 1 << kept.min(SLICES).ilog2();
        let sets_of_slice = kept / slices;
        let of = |sets: usize| vec![Set::EMPTY; sets].into_boxed_slice();
        let voided = BinaryHeap::with_capacity(VOIDED.places_max);
        let slice_mask = (slices - 1).narrow_u8();
        Self { sets: of(sets), kept: of(slices * sets_of_slice), sets_of_slice, slice_mask, voided }
    }

    /// What to do at `now` with a request of `party` whose first attempt was `first_id`, and was sent at `first_sent`
    /// or later.
    #[inline]
    #[must_use]
    pub(crate) fn admit(&self, party: Party, first_id: u64, first_sent: NodeTime, now: NodeTime) -> Admission<R> {
        let set = set_of(&self.sets, first_id);
        if let Some(result) = set.result_of(first_id) {
            return Admission::Answer(result);
        }
        if first_sent < set.forgotten_before()
            && let Some(admission) = self.admit_late(self.slice_of(party), first_id, first_sent)
        {
            return admission;
        }
        if first_sent > now { Admission::FromTheFuture } else { Admission::Execute }
    }

    /// As [`Recent::admit`], for what may have been pushed out of the sets of all; `None` if it was not executed.
    #[inline(never)]
    fn admit_late(&self, slice: u8, first_id: u64, first_sent: NodeTime) -> Option<Admission<R>> {
        let set = set_of(self.kept_of(slice), first_id);
        match set.result_of(first_id) {
            Some(result) => Some(Admission::Answer(result)),
            None => (first_sent < set.forgotten_before()).then_some(Admission::TooOld),
        }
    }

    /// Remembers an operation of `party` that has been executed at `now`, which is the time that it was admitted at or
    /// later, and forgets an older one if there is no room.
    ///
    /// # Panics
    /// If it is remembered already: it was executed twice.
    #[inline]
    pub(crate) fn record(&mut self, party: Party, first_id: u64, result: R, now: NodeTime) {
        let slice = self.slice_of(party);
        let set = set_of_mut(&mut self.sets, first_id);
        assert!(set.result_of(first_id).is_none(), "operation {first_id} was executed twice");
        if let Some(pushed_out) = set.push(Operation { id: first_id, executed: now, slice, result }) {
            let kept = &mut self.kept[usize::from(pushed_out.slice) * self.sets_of_slice..][..self.sets_of_slice];
            set_of_mut(kept, pushed_out.id).push(pushed_out);
        }
    }

    /// Whether an operation of `party` is remembered.
    fn has(&self, party: Party, first_id: u64) -> bool {
        let of_all = set_of(&self.sets, first_id).result_of(first_id);
        of_all.or_else(|| set_of(self.kept_of(self.slice_of(party)), first_id).result_of(first_id)).is_some()
    }

    #[inline]
    fn slice_of(&self, party: Party) -> u8 {
        (party.0 & u32::from(self.slice_mask)).narrow_u8()
    }

    fn kept_of(&self, slice: u8) -> &[Set<R>] {
        &self.kept[usize::from(slice) * self.sets_of_slice..][..self.sets_of_slice]
    }

    /// Bytes that it takes, whatever is in it.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        let sets = size_of_val::<[Set<R>]>(&self.sets) + size_of_val::<[Set<R>]>(&self.kept);
        (sets + VOIDED.places_max * size_of::<Voided>()) as u64
    }
}

/// Operations that end with a value, or with a refusal that was final.
impl<T: Copy> Recent<Result<T, ErrorCode>> {
    /// How the request with `header` has ended, or why it must not be executed; `None` if it is to be executed now, and
    /// [`Recent::keep`] to be called.
    #[inline]
    pub(crate) fn ended(&mut self, party: Party, header: &Header, now: NodeTime) -> Option<Result<T, ErrorCode>> {
        self.remember_voided(now);
        match self.admit(party, header.first_id, header.time, now) {
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
        party: Party,
        header: &Header,
        now: NodeTime,
        execute: impl FnOnce() -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        self.ended(party, header, now).unwrap_or_else(|| {
            let result = execute();
            if !matches!(result, Err(ErrorCode::BadCapability)) {
                self.keep(party, header, result, now);
            }
            result
        })
    }

    /// Remembers how a request that was admitted has ended, unless it was refused for a reason that may pass.
    #[inline]
    pub(crate) fn keep(&mut self, party: Party, header: &Header, result: Result<T, ErrorCode>, now: NodeTime) {
        if !result.is_err_and(ErrorCode::may_pass) {
            self.record(party, header.first_id, result, now);
        }
    }

    /// The request with `header` was admitted, and its execution has begun: [`Recent::keep_ended`] says how it has
    /// ended. An earlier abort of it claimed another time than it does, and is void.
    pub(crate) fn begin(&mut self, party: Party, header: &Header) {
        self.voided.retain(|Reverse(voided)| (voided.first_id, voided.party) != (header.first_id, party));
    }

    /// As [`Recent::keep`], some time after the request was admitted. Of a request that was given up meanwhile, because
    /// its client claimed two times for it, the first word stands.
    pub(crate) fn keep_ended(&mut self, party: Party, header: &Header, result: Result<T, ErrorCode>, now: NodeTime) {
        if !self.has(party, header.first_id) {
            self.keep(party, header, result, now);
        }
    }

    /// Gives the request that `header` names up: from now on it is refused as aborted. Returns 1 if it had been
    /// executed before and 0 if it had not, and never will be.
    pub(crate) fn abort(&mut self, party: Party, payer: u64, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        self.remember_voided(now);
        match self.admit(party, header.first_id, header.time, now) {
            Admission::Execute => {
                self.record(party, header.first_id, Err(ErrorCode::Aborted), now);
                Ok(0)
            }
            Admission::Answer(result) => Ok(u32::from(result.is_ok())),
            Admission::TooOld => Err(ErrorCode::TooOld),
            Admission::FromTheFuture => self.void(party, payer, header, now),
        }
    }

    /// As [`Recent::abort`], for a request that is not executed in any case, because who asks has no right to it: that
    /// leaves no trace.
    pub(crate) fn was_executed(&mut self, party: Party, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        self.remember_voided(now);
        match self.admit(party, header.first_id, header.time, now) {
            Admission::Execute | Admission::FromTheFuture => Ok(0),
            Admission::Answer(result) => Ok(u32::from(result.is_ok())),
            Admission::TooOld => Err(ErrorCode::TooOld),
        }
    }

    /// Gives up a request whose time has not come. Until then no copy of it is executed in any case.
    fn void(&mut self, party: Party, payer: u64, header: &Header, now: NodeTime) -> Result<u32, ErrorCode> {
        let Header { first_id, time, .. } = *header;
        if self
            .voided
            .iter()
            .any(|Reverse(voided)| (voided.first_id, voided.time, voided.party) == (first_id, time, party))
        {
            return Ok(0);
        }
        let of_payer = self.voided.iter().filter(|Reverse(voided)| voided.payer == payer).count();
        if !VOIDED.admits(self.voided.len(), of_payer) || time - now > VOIDED_AHEAD_MAX {
            return Err(ErrorCode::Busy);
        }
        self.voided.push(Reverse(Voided { time, first_id, party, payer }));
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
        while let Some(Reverse(Voided { first_id, party, .. })) =
            self.voided.peek().copied().filter(|Reverse(first)| first.time <= now)
        {
            self.voided.pop();
            // Only a client that claims two times for one request can have had it executed meanwhile.
            if !self.has(party, first_id) {
                self.record(party, first_id, Err(ErrorCode::Aborted), now);
            }
        }
    }
}
