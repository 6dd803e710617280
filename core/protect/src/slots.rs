//! [`Slot`]: where a group may have a place; [`SlotSet`]: several of them; [`Place`]: what is in a slot at a time.

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Sub, SubAssign};

/// Slots of a group, and so places that it has at a time.
pub const SLOTS_MAX: usize = 8;

/// Where a group may have a place: a number below [`SLOTS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(u8);

/// Some slots of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotSet(u8);

/// A place: what is in a slot until it is given up. The next in the same slot is another one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Where in the group it is.
    pub slot: Slot,
    /// Tells the places of a slot apart; wraps at [`GENERATIONS`](crate::view::GENERATIONS).
    pub(crate) generation: u8,
}

impl Slot {
    /// The slot with a number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        assert!((number as usize) < SLOTS_MAX, "a group has fewer slots");
        Self(number)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        SlotSet::ALL.iter()
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// As an index into an array of one for each slot.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SlotSet {
    /// None.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(u8::MAX);

    /// The slots whose bits are set: slot 0 is the lowest.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// A bit for each: slot 0 is the lowest.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// One slot.
    #[must_use]
    pub const fn only(slot: Slot) -> Self {
        Self(1 << slot.0)
    }

    /// How many.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a byte has eight bits")]
    pub const fn count(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a slot is one of them.
    #[must_use]
    pub const fn contains(self, slot: Slot) -> bool {
        self.0 >> slot.0 & 1 == 1
    }

    /// Whether all of them are in `other`.
    #[must_use]
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The lowest.
    #[must_use]
    pub fn first(self) -> Option<Slot> {
        self.iter().next()
    }

    /// One of them: another for each `turn`, in turn. The same `turn` gets the same.
    #[must_use]
    pub fn pick(self, turn: u64) -> Option<Slot> {
        let count = u64::from(self.count().max(1));
        self.iter().nth(usize::try_from(turn % count).expect("there are eight at most"))
    }

    /// Each of them, the lowest first.
    pub fn iter(self) -> impl Iterator<Item = Slot> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let slot = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            u8::try_from(slot).ok().filter(|slot| usize::from(*slot) < SLOTS_MAX).map(Slot)
        })
    }
}

impl From<Slot> for SlotSet {
    fn from(slot: Slot) -> Self {
        Self::only(slot)
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        slots.into_iter().fold(Self::NONE, |set, slot| set | Self::only(slot))
    }
}

impl BitAnd for SlotSet {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for SlotSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for SlotSet {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitAndAssign for SlotSet {
    fn bitand_assign(&mut self, other: Self) {
        *self = *self & other;
    }
}

impl BitOrAssign for SlotSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl SubAssign for SlotSet {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Slot::number)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets() {
        let set: SlotSet = [0, 3, 7].map(Slot::new).into_iter().collect();
        assert_eq!(set.iter().map(Slot::number).collect::<Vec<_>>(), [0, 3, 7]);
        assert_eq!((set.count(), set.first(), SlotSet::NONE.first()), (3, Some(Slot::new(0)), None));
        assert!(set.contains(Slot::new(3)) && !set.contains(Slot::new(4)) && set.is_within(SlotSet::ALL));
        assert_eq!(set - SlotSet::only(Slot::new(0)), SlotSet::from_bits(0b1000_1000));
        assert_eq!(format!("{set:?}"), "{0, 3, 7}");
        assert_eq!(Slot::all().count(), SLOTS_MAX);
    }

    #[test]
    fn a_pick_takes_turns() {
        let set = SlotSet::from_bits(0b1010);
        assert_eq!([0, 1, 2, u64::MAX].map(|turn| set.pick(turn).unwrap().number()), [1, 3, 1, 3]);
        assert_eq!(SlotSet::NONE.pick(7), None);
    }

    #[test]
    #[should_panic(expected = "fewer slots")]
    fn there_is_no_ninth_slot() {
        let _ = Slot::new(8);
    }
}
