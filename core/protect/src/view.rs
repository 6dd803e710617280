//! [`View`]: what is in the slots of a group at a moment: one word, which changes with every change.
//!
//! Two bits for each slot say what it is: free, *live* (it is written and read), *retiring* (it fell silent and alone
//! has pages: it is read, and not written), or *leaving* (it was given up, and the words are swept of it). Six bits
//! count the places that were in it.
//!
//! ```text
//! free -> live ----------------> leaving -> free
//!           <-> retiring --------/
//! ```

use crate::slots::{Place, SLOTS_MAX, Slot, SlotSet};

/// As many places of a slot are told apart. A ticket that is older than so many adoptions of one slot is unheard of.
pub(crate) const GENERATIONS: u8 = 1 << GENERATION_BITS;

const GENERATION_BITS: u32 = 6;
const HIGH_SHIFT: u32 = 8;
const GENERATION_SHIFT: u32 = 16;
const _: () = assert!(GENERATION_SHIFT as usize + GENERATION_BITS as usize * SLOTS_MAX == u64::BITS as usize);

/// What a slot is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Nothing is there.
    Free,
    /// Its place is written and read.
    Live,
    /// Its place is silent, and has pages that no other has: it is read, and not written.
    Retiring,
    /// Its place was given up and is never asked again; words may still name it.
    Leaving,
}

/// What is in the slots of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct View(u64);

impl View {
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }

    /// What a slot is for.
    #[must_use]
    pub fn use_of(self, slot: Slot) -> Use {
        match (self.low().contains(slot), self.high().contains(slot)) {
            (false, false) => Use::Free,
            (true, false) => Use::Live,
            (true, true) => Use::Retiring,
            (false, true) => Use::Leaving,
        }
    }

    /// Slots that writes go to.
    #[must_use]
    pub fn live(self) -> SlotSet {
        self.low() - self.high()
    }

    /// Slots that are read only.
    #[must_use]
    pub fn retiring(self) -> SlotSet {
        self.low() & self.high()
    }

    /// Slots that reads may go to.
    #[must_use]
    pub fn readable(self) -> SlotSet {
        self.low()
    }

    /// Slots that were given up and are not free yet.
    #[must_use]
    pub fn leaving(self) -> SlotSet {
        self.high() - self.low()
    }

    /// Slots that a place can be put into.
    #[must_use]
    pub fn free(self) -> SlotSet {
        SlotSet::ALL - self.low() - self.high()
    }

    /// What is in a slot, or was last.
    #[must_use]
    pub fn place(self, slot: Slot) -> Place {
        let word = self.0 >> Self::generation_shift(slot);
        Place { slot, generation: (word & u64::from(GENERATIONS - 1)).to_le_bytes()[0] }
    }

    /// Slots that had the same place at another view.
    #[must_use]
    pub fn same_places(self, other: Self) -> SlotSet {
        Slot::all().filter(|slot| self.place(*slot) == other.place(*slot)).collect()
    }

    /// Whether a place is in its slot, and is read at least.
    #[must_use]
    pub fn has(self, place: Place) -> bool {
        self.readable().contains(place.slot) && self.place(place.slot) == place
    }

    /// A slot becomes something else. A free one that becomes live has its next place.
    pub(crate) fn with(self, slot: Slot, becomes: Use) -> Self {
        let was = self.use_of(slot);
        let is_allowed = matches!(
            (was, becomes),
            (Use::Free, Use::Live)
                | (Use::Live, Use::Retiring | Use::Leaving)
                | (Use::Retiring, Use::Live | Use::Leaving)
                | (Use::Leaving, Use::Free)
        );
        assert!(is_allowed, "a slot that is {was:?} becomes {becomes:?}");
        let (low, high) = match becomes {
            Use::Free => (0, 0),
            Use::Live => (1, 0),
            Use::Retiring => (1, 1),
            Use::Leaving => (0, 1),
        };
        let (number, shift) = (u32::from(slot.number()), Self::generation_shift(slot));
        let mut word = self.0 & !(1 << number | 1 << (HIGH_SHIFT + number));
        word |= low << number | high << (HIGH_SHIFT + number);
        if was == Use::Free {
            let generation = u64::from((self.place(slot).generation + 1) % GENERATIONS);
            word = word & !(u64::from(GENERATIONS - 1) << shift) | generation << shift;
        }
        Self(word)
    }

    fn low(self) -> SlotSet {
        SlotSet::from_bits(self.0.to_le_bytes()[0])
    }

    fn high(self) -> SlotSet {
        SlotSet::from_bits(self.0.to_le_bytes()[1])
    }

    fn generation_shift(slot: Slot) -> u32 {
        GENERATION_SHIFT + GENERATION_BITS * u32::from(slot.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_of_every_slot_is_told_apart() {
        let mut view = View::default();
        for slot in Slot::all() {
            let first = view.place(slot);
            view = view.with(slot, Use::Live);
            assert!(view.place(slot) != first && view.has(view.place(slot)) && !view.has(first));
            let place = view.place(slot);
            view = view.with(slot, Use::Retiring);
            assert!(view.readable().contains(slot) && !view.live().contains(slot) && view.has(place));
            assert!(view.with(slot, Use::Live).has(place), "it is the same place again");
            view = view.with(slot, Use::Leaving);
            assert!(view.leaving().contains(slot) && !view.readable().contains(slot) && !view.has(place));
            view = view.with(slot, Use::Free);
            assert!(view.free().contains(slot) && !view.leaving().contains(slot));
        }
    }

    #[test]
    fn generations_wrap_within_their_slot() {
        let slot = Slot::new(7);
        let (mut view, mut places) = (View::default(), Vec::new());
        for _ in 0..GENERATIONS {
            view = view.with(slot, Use::Live);
            places.push(view.place(slot));
            view = view.with(slot, Use::Leaving).with(slot, Use::Free);
        }
        let distinct: std::collections::HashSet<_> = places.iter().collect();
        assert_eq!((distinct.len(), view), (usize::from(GENERATIONS), View::default()));
        let view = view.with(Slot::new(6), Use::Live);
        assert_eq!(view.same_places(View::default()), SlotSet::ALL - SlotSet::only(Slot::new(6)));
    }

    #[test]
    #[should_panic(expected = "a slot that is Leaving becomes Live")]
    fn a_slot_that_is_not_swept_is_not_used_again() {
        let slot = Slot::new(0);
        let _ = View::default().with(slot, Use::Live).with(slot, Use::Leaving).with(slot, Use::Live);
    }
}
