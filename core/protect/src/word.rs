//! [`Word`]: what is known of a page: one 64-bit word, and its pure changes.
//!
//! - *written*: else the page reads as zeros, and no node is asked;
//! - *writing*: one write of it is under way; the pager never has two;
//! - *mending*, with a slot: the mender copies it there, so that writes leave the slot out;
//! - *touched*: some place may have something else than zeros;
//! - *current*: the slots whose places have what was last acknowledged;
//! - *unsettled*: the slots where a write that was given up may still land;
//! - *swept*: counts the sweeps that had something to do here, so that a change that looked before them is repeated;
//! - *version*: counts the changes of content. What was read counts only if it is still the same.
//!
//! Invariants: no slot is current and unsettled; a page that is not written is current nowhere.

use crate::slots::{Slot, SlotSet};

const WRITTEN: u64 = 1 << 0;
const WRITING: u64 = 1 << 1;
const MENDING: u64 = 1 << 2;
const TOUCHED: u64 = 1 << 3;
const MENDED_SHIFT: u32 = 4;
const MENDED_MASK: u64 = 7 << MENDED_SHIFT;
const CURRENT_SHIFT: u32 = 8;
const UNSETTLED_SHIFT: u32 = 16;
const SWEPT: u64 = 1 << 24;
const SWEPT_MASK: u64 = 0xff * SWEPT;
const VERSION_SHIFT: u32 = 32;

/// What is known of a page.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Word(u64);

impl Word {
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn to_bits(self) -> u64 {
        self.0
    }

    /// Whether it has content: else it reads as zeros.
    #[must_use]
    pub const fn is_written(self) -> bool {
        self.0 & WRITTEN != 0
    }

    /// Whether a write of it is under way.
    #[must_use]
    pub const fn is_writing(self) -> bool {
        self.0 & WRITING != 0
    }

    /// Whether some place may have something else than zeros.
    #[must_use]
    pub const fn is_touched(self) -> bool {
        self.0 & TOUCHED != 0
    }

    /// The slot that it is copied to.
    #[must_use]
    pub fn mended(self) -> Option<Slot> {
        let slot = ((self.0 & MENDED_MASK) >> MENDED_SHIFT).to_le_bytes()[0];
        (self.0 & MENDING != 0).then(|| Slot::new(slot))
    }

    /// The slots whose places have what was last acknowledged.
    #[must_use]
    pub const fn current(self) -> SlotSet {
        SlotSet::from_bits(self.0.to_le_bytes()[1])
    }

    /// The slots where a write that was given up may still land.
    #[must_use]
    pub const fn unsettled(self) -> SlotSet {
        SlotSet::from_bits(self.0.to_le_bytes()[2])
    }

    /// The number of the last change of content.
    #[must_use]
    pub const fn version(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// A write begins.
    pub(crate) fn begin_write(self) -> Self {
        assert!(!self.is_writing(), "two writes of one page are under way");
        Self(self.next_version().0 | WRITING | TOUCHED)
    }

    /// A write that was begun goes nowhere: the page is what it was at `before`, but for its version.
    pub(crate) fn take_write_back(self, before: Self) -> Self {
        assert!(self.is_writing(), "no write is under way");
        Self(self.0 & !(WRITING | TOUCHED) | before.0 & TOUCHED)
    }

    /// A write is done: the page is current where it was acknowledged, and nowhere else.
    pub(crate) fn end_write(self, current: SlotSet, unsettled: SlotSet) -> Self {
        assert!(self.is_writing(), "no write is under way");
        Self(self.0 & !WRITING | WRITTEN).with_slots(current, self.unsettled() | unsettled)
    }

    /// A write is not done: what the places have that it was sent to is not known.
    pub(crate) fn give_write_up(self, sent: SlotSet, unsettled: SlotSet) -> Self {
        assert!(self.is_writing(), "no write is under way");
        Self(self.0 & !WRITING).with_slots(self.current() - sent, self.unsettled() | unsettled)
    }

    /// The mender begins to copy the page to a slot, unless it may not. `taken` are slots that it copies nothing to.
    pub(crate) fn begin_mend(self, to: Slot, taken: SlotSet, needed: u8) -> Option<Self> {
        let is_there = self.copies().is_some_and(|copies| copies >= needed);
        let may = is_there && !self.is_writing() && self.mended().is_none() && !taken.contains(to);
        may.then(|| Self(self.0 & !MENDED_MASK | MENDING | u64::from(to.number()) << MENDED_SHIFT))
    }

    /// The mender is done with it, one way or another.
    pub(crate) fn end_mend(self, to: Slot, current: SlotSet, unsettled: SlotSet) -> Self {
        assert!(self.mended() == Some(to), "the page is not being mended there");
        Self(self.0 & !(MENDING | MENDED_MASK)).with_slots(self.current() | current, self.unsettled() | unsettled)
    }

    /// Nothing can land at these slots any more.
    pub(crate) fn settle(self, slots: SlotSet) -> Self {
        self.with_slots(self.current(), self.unsettled() - slots)
    }

    /// The page reads as zeros again.
    pub(crate) fn forget(self) -> Self {
        assert!(!self.is_writing(), "a page is forgotten while a write of it is under way");
        Self(self.next_version().0 & !WRITTEN).with_slots(SlotSet::NONE, self.unsettled())
    }

    /// The same, in a way that a reader does not see.
    pub(crate) fn forget_unseen(self) -> Self {
        Self(self.0 & !WRITTEN).with_slots(SlotSet::NONE, self.unsettled())
    }

    /// Whether a sweep of these slots has nothing to change: no slot is named, and nothing is under way that may yet.
    pub(crate) fn is_free_of(self, slots: SlotSet) -> bool {
        let named = (self.current() | self.unsettled()) & slots;
        !self.is_writing() && self.mended().is_none() && named.is_empty()
    }

    /// The places of these slots were given up.
    pub(crate) fn sweep(self, slots: SlotSet) -> Self {
        self.next_sweep().with_slots(self.current() - slots, self.unsettled() - slots)
    }

    /// The places that are not `live` retire: the page is no longer theirs where `needed` others have it.
    pub(crate) fn retire(self, live: SlotSet, needed: u8) -> Self {
        let others = self.current() & live;
        let stays = others.count() < needed || others == self.current();
        if stays { self } else { self.next_sweep().with_slots(others, self.unsettled()) }
    }

    /// The places of these slots are left, if as many `others` as wanted have the page, or it cannot be read at all.
    pub(crate) fn leave(self, slots: SlotSet, others: SlotSet, (needed, wanted): (u8, u8)) -> Self {
        let is_there = (self.current() & others).count() >= wanted;
        let is_lost = self.current().count() < needed;
        if (is_there || is_lost) && !(self.current() & slots).is_empty() {
            self.next_sweep().with_slots(self.current() - slots, self.unsettled())
        } else {
            self
        }
    }

    /// How many places have it, if it has content.
    pub(crate) fn copies(self) -> Option<u8> {
        self.is_written().then(|| self.current().count())
    }

    /// The slots without any one of which the content is lost.
    pub(crate) fn sole(self, needed: u8) -> SlotSet {
        if self.copies() == Some(needed) { self.current() } else { SlotSet::NONE }
    }

    fn next_version(self) -> Self {
        Self(self.0.wrapping_add(1 << VERSION_SHIFT))
    }

    fn next_sweep(self) -> Self {
        Self(self.0 & !SWEPT_MASK | self.0.wrapping_add(SWEPT) & SWEPT_MASK)
    }

    fn with_slots(self, current: SlotSet, unsettled: SlotSet) -> Self {
        assert!((current & unsettled).is_empty(), "a place is current where a write may still land");
        let slots = u64::from(current.bits()) << CURRENT_SHIFT | u64::from(unsettled.bits()) << UNSETTLED_SHIFT;
        let word = Self(self.0 & !(0xff << CURRENT_SHIFT | 0xff << UNSETTLED_SHIFT) | slots);
        assert!(word.is_written() || current.is_empty(), "a page without content is current somewhere");
        word
    }
}

impl std::fmt::Debug for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [(WRITTEN, "written "), (WRITING, "writing "), (TOUCHED, "touched ")];
        names.iter().filter(|(bit, _)| self.0 & bit != 0).try_for_each(|(_, name)| f.write_str(name))?;
        if let Some(slot) = self.mended() {
            write!(f, "mending {} ", slot.number())?;
        }
        let swept = (self.0 & SWEPT_MASK) / SWEPT;
        let (current, unsettled, version) = (self.current(), self.unsettled(), self.version());
        write!(f, "current {current:?} unsettled {unsettled:?} version {version} swept {swept}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: u8) -> SlotSet {
        SlotSet::from_bits(bits)
    }

    fn written(bits: u8) -> Word {
        Word::default().begin_write().end_write(set(bits), SlotSet::NONE)
    }

    #[test]
    fn fields_do_not_touch_one_another() {
        let mut word = written(0xff);
        for _ in 0..300 {
            word = word.next_sweep();
        }
        assert_eq!((word.current(), word.unsettled(), word.version()), (SlotSet::ALL, SlotSet::NONE, 1));
        let word = Word(u64::MAX << VERSION_SHIFT | word.0 & u64::from(u32::MAX)).begin_write();
        assert_eq!((word.version(), word.current()), (0, SlotSet::ALL));
        let word = written(1).begin_mend(Slot::new(7), set(1), 1).unwrap();
        assert_eq!((word.mended(), word.current(), word.is_written()), (Some(Slot::new(7)), set(1), true));
        assert_eq!(written(1).begin_mend(Slot::new(0), set(1), 1), None);
        assert_eq!(written(1).begin_mend(Slot::new(7), set(1), 2), None);
    }

    #[test]
    fn a_write_leaves_the_places_behind_that_it_did_not_reach() {
        let word = written(0b11).begin_write().end_write(set(0b101), set(0b010));
        assert_eq!((word.current(), word.unsettled()), (set(0b101), set(0b010)));
        let word = word.settle(set(0b010));
        assert_eq!((word.current(), word.unsettled()), (set(0b101), SlotSet::NONE));
    }

    #[test]
    fn a_retiring_place_keeps_only_what_it_has_alone() {
        assert_eq!(written(0b11).retire(set(0b10), 1).current(), set(0b10));
        assert_eq!(written(0b01).retire(set(0b10), 1), written(0b01));
        assert_eq!(written(0b111).retire(set(0b110), 3), written(0b111));
    }

    #[test]
    #[should_panic(expected = "current where a write may still land")]
    fn current_and_unsettled_exclude_one_another() {
        let _ = written(0b11).begin_write().end_write(set(0b11), set(0b10));
    }

    #[test]
    #[should_panic(expected = "two writes of one page")]
    fn two_writes_at_a_time_are_a_bug() {
        let _ = written(0b11).begin_write().begin_write();
    }

    #[test]
    #[should_panic(expected = "no write is under way")]
    fn an_end_without_a_beginning_is_a_bug() {
        let _ = written(0b11).end_write(set(0b11), SlotSet::NONE);
    }
}
