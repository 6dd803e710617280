//! [`Set`]: the last operations whose ids have one hash, a ring that fills a few cache lines.
//!
//! The hash is multiplication by the golden ratio, which spreads ids that follow each other, or that differ by a power
//! of two, more evenly than a random function would.
//!
//! Invariant: what a set has not was never put there, or was executed before the time at which it forgets.

use yonder_units::Narrow;

use super::NodeTime;

/// Operations of a set: with the time before which the set has forgotten operations, their ids fill a cache line.
pub(super) const WAYS: usize = 7;
/// An operation has no such id.
const NOBODY: u64 = 0;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// An operation that was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation<R> {
    pub(super) id: u64,
    pub(super) executed: NodeTime,
    /// Where it is kept when it is pushed out of the sets of all.
    pub(super) slice: u8,
    pub(super) result: R,
}

/// A ring of operations. `ids` and `forgotten_before` are the first cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Set<R> {
    ids: [u64; WAYS],
    /// Every operation that was forgotten had been executed before this; 0 while none was.
    forgotten_before: NodeTime,
    executed: [NodeTime; WAYS],
    slices: [u8; WAYS],
    /// The oldest operation's place, where the next is put.
    next: u8,
    results: [Option<R>; WAYS],
}

/// The set, of some of which there is one at least, that has the operation with this id, or has it not.
#[inline]
pub(super) fn set_of<R>(sets: &[Set<R>], id: u64) -> &Set<R> {
    &sets[index_of(sets.len(), id)]
}

/// As [`set_of`].
#[inline]
pub(super) fn set_of_mut<R>(sets: &mut [Set<R>], id: u64) -> &mut Set<R> {
    &mut sets[index_of(sets.len(), id)]
}

#[inline]
fn index_of(sets: usize, id: u64) -> usize {
    ((u128::from(id.wrapping_mul(GOLDEN)) * sets as u128) >> 64).narrow_usize()
}

impl<R: Copy> Set<R> {
    /// One that has forgotten nothing.
    pub(super) const EMPTY: Self = Self {
        ids: [NOBODY; WAYS],
        forgotten_before: 0,
        executed: [0; WAYS],
        slices: [0; WAYS],
        next: 0,
        results: [None; WAYS],
    };

    /// How the operation has ended, if the set has it.
    #[inline]
    pub(super) fn result_of(&self, id: u64) -> Option<R> {
        self.ids.iter().position(|other| *other == id).and_then(|at| self.results[at])
    }

    /// The time that every operation was executed before that the set has forgotten.
    #[inline]
    pub(super) fn forgotten_before(&self) -> NodeTime {
        self.forgotten_before
    }

    /// Takes an operation in, and forgets the oldest for it if there is no room: that one is returned.
    #[inline]
    pub(super) fn push(&mut self, operation: Operation<R>) -> Option<Operation<R>> {
        let Operation { id, executed, slice, result } = operation;
        let at = usize::from(self.next);
        let oldest = self.results[at].map(|result| Operation {
            id: self.ids[at],
            executed: self.executed[at],
            slice: self.slices[at],
            result,
        });
        if let Some(oldest) = &oldest {
            self.forgotten_before = self.forgotten_before.max(oldest.executed.saturating_add(1));
        }
        (self.ids[at], self.executed[at], self.slices[at], self.results[at]) = (id, executed, slice, Some(result));
        self.next = ((at + 1) % WAYS).narrow_u8();
        oldest
    }
}
