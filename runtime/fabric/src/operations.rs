//! [`Operations`]: the operations of a queue pair over others, with their names below, and those that have ended.
//!
//! Neighbours: the queue pairs of `stored` and `tier` say what an operation is and when it ends.
//!
//! Invariant: nothing is allocated after it was made.

use std::collections::VecDeque;

use yonder_units::Narrow;

use crate::{Completion, PostError, Status, WorkId};

/// The operations of a queue pair that posts them below, each in a place.
pub(crate) struct Operations<T> {
    places: Box<[Option<T>]>,
    /// How often each place was used: part of the name below, so that no two operations have the same.
    uses: Box<[u32]>,
    free: Vec<u16>,
    /// What has ended here, until a poll hands it out.
    ended: VecDeque<Completion>,
}

impl<T> Operations<T> {
    /// Room for `depth` of them.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            places: (0..depth).map(|_| None).collect(),
            uses: vec![0; depth].into(),
            free: (0..depth.narrow_u16()).rev().collect(),
            ended: VecDeque::with_capacity(2 * depth),
        }
    }

    /// How many fit.
    pub(crate) fn depth(&self) -> usize {
        self.places.len()
    }

    /// How many have begun and not ended, and how many have ended and were not handed out.
    pub(crate) fn outstanding(&self) -> usize {
        self.places.len() - self.free.len() + self.ended.len()
    }

    /// The place of the next one, if there is one.
    pub(crate) fn next(&self) -> Result<u16, PostError> {
        self.free.last().copied().ok_or(PostError::Full)
    }

    /// Puts an operation at `at`, which is the next place.
    pub(crate) fn begin(&mut self, at: u16, operation: T) {
        assert_eq!(self.free.pop(), Some(at), "the last free place is taken");
        self.places[usize::from(at)] = Some(operation);
    }

    /// Takes the operation at `at` away.
    pub(crate) fn take(&mut self, at: u16) -> T {
        self.rename(at);
        self.free.push(at);
        self.places[usize::from(at)].take().expect("an operation that ends is there")
    }

    /// The operation at `at`, if there is one.
    pub(crate) fn get(&self, at: u16) -> Option<&T> {
        self.places[usize::from(at)].as_ref()
    }

    /// The operation at `at`.
    pub(crate) fn at(&mut self, at: u16) -> &mut T {
        self.places[usize::from(at)].as_mut().expect("only what is posted below ends there")
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The place of the one that `is_it`.
    pub(crate) fn position(&self, is_it: impl Fn(&T) -> bool) -> Option<u16> {
        self.places.iter().position(|place| place.as_ref().is_some_and(&is_it)).map(Narrow::narrow_u16)
    }

    /// The name below of the operation at `at`.
    pub(crate) fn id_below(&self, at: u16) -> WorkId {
        WorkId(u64::from(self.uses[usize::from(at)]) << 16 | u64::from(at))
    }

    /// The place of what was completed below as `id`.
    pub(crate) fn place_of(&self, id: WorkId) -> u16 {
        let at = (id.0 & u64::from(u16::MAX)).narrow_u16();
        assert_eq!(id, self.id_below(at), "a completion of what was cancelled");
        at
    }

    /// Gives what is posted below for the operation at `at` from now on another name.
    pub(crate) fn rename(&mut self, at: u16) {
        self.uses[usize::from(at)] = self.uses[usize::from(at)].wrapping_add(1);
    }

    /// Completes what the poster calls `id`.
    pub(crate) fn end(&mut self, id: WorkId, status: Status) {
        self.ended.push_back(Completion { id, status });
    }

    /// Forgets a completion that was not handed out.
    pub(crate) fn forget_ended(&mut self, id: WorkId) {
        self.ended.retain(|completion| completion.id != id);
    }

    /// Hands completions out, as far as `completions` has room.
    pub(crate) fn hand_out(&mut self, completions: &mut Vec<Completion>) {
        let room = completions.capacity() - completions.len();
        completions.extend(self.ended.drain(..room.min(self.ended.len())));
    }
}
