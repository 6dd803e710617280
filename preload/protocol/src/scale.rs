//! [`Scale`]: slots for values of which nobody knows how large they will be: fine ones for small values, coarser ones
//! behind.
//!
//! A histogram that halves its resolution whenever it is full would have to stop everybody who counts. Here a value's
//! slot depends on the value alone: the first slots are a unit wide each, and every further half as many twice as wide
//! as those before. Nothing moves, so counting is one addition; whoever reads (`Scale::fold`) makes all slots as wide
//! as the widest that was used.

use std::ops::Range;

/// How values become slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scale {
    /// A unit is two to the power of this.
    unit_bits: u32,
    /// There are two to the power of this slots of one unit.
    first_bits: u32,
    slots: usize,
}

/// What was counted, in slots of the same width.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Folded<T> {
    /// How much of the scale a slot covers.
    pub width: u64,
    /// The slots, from zero on.
    pub slots: Vec<T>,
}

impl Scale {
    /// A scale with units of `1 << unit_bits`, `1 << first_bits` slots of that width, and half as many of each of
    /// `doublings` widths behind. What does not fit is in the last slot.
    pub(crate) const fn new(unit_bits: u32, first_bits: u32, doublings: u32) -> Self {
        let half = 1 << (first_bits - 1);
        Self { unit_bits, first_bits, slots: (2 + doublings as usize) * half }
    }

    /// How many slots there are.
    pub(crate) const fn slots(self) -> usize {
        self.slots
    }

    /// The slot of a value.
    #[inline]
    pub(crate) fn slot(self, value: u64) -> usize {
        let units = value >> self.unit_bits;
        let level = (u64::BITS - units.leading_zeros()).saturating_sub(self.first_bits);
        let slot = ((level as usize) << (self.first_bits - 1)) + (units >> level) as usize;
        slot.min(self.slots - 1)
    }

    /// How much follows `value` before the next slot begins.
    #[inline]
    pub(crate) fn room(self, value: u64) -> u64 {
        let slot = self.slot(value);
        let next = self.level(slot).1.end << self.unit_bits;
        if slot + 1 == self.slots { u64::MAX } else { next - value }
    }

    /// How often the width of this slot was doubled, and which units it covers.
    fn level(self, slot: usize) -> (u32, Range<u64>) {
        let half = 1 << (self.first_bits - 1);
        if slot < half {
            return (0, slot as u64..slot as u64 + 1);
        }
        let (level, place) = ((slot - half) / half, (slot - half) % half + half);
        (level as u32, (place as u64) << level..(place as u64 + 1) << level)
    }

    /// The slots, each as wide as the last one that is not empty.
    pub(crate) fn fold<T: Clone + Default + PartialEq>(self, counts: &[T], add: impl FnMut(&mut T, &T)) -> Folded<T> {
        self.fold_first(used(counts), counts, add)
    }

    /// The first `used` slots, each as wide as the last of them. The others are empty.
    pub(crate) fn fold_first<T: Clone + Default>(
        self,
        used: usize,
        counts: &[T],
        mut add: impl FnMut(&mut T, &T),
    ) -> Folded<T> {
        assert!(counts.len() == self.slots, "{} counts for {} slots", counts.len(), self.slots);
        let (level, end) = used.checked_sub(1).map_or((0, 0), |last| {
            let (level, units) = self.level(last);
            (level, units.end)
        });
        let mut slots = vec![T::default(); end.div_ceil(1 << level) as usize];
        for (slot, count) in counts[..used].iter().enumerate() {
            add(&mut slots[(self.level(slot).1.start >> level) as usize], count);
        }
        Folded { width: 1 << (self.unit_bits + level), slots }
    }
}

/// How many slots there are up to the last that is not empty.
pub(crate) fn used<T: Default + PartialEq>(counts: &[T]) -> usize {
    let empty = T::default();
    counts.iter().rposition(|count| *count != empty).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale::new(4, 3, 5);

    #[test]
    fn slots_follow_one_another_and_cover_their_values() {
        let mut last = 0;
        for value in 0..16 * 8 * 32 {
            let slot = SCALE.slot(value);
            assert!(slot == last || slot == last + 1, "{value} is in slot {slot}, and the one before in {last}");
            assert!(SCALE.level(slot).1.contains(&(value / 16)), "{value} is in slot {slot}");
            let next = value.saturating_add(SCALE.room(value));
            assert!(
                next == u64::MAX || SCALE.slot(next) == slot + 1 && SCALE.slot(next - 1) == slot,
                "{value}: {next}"
            );
            last = slot;
        }
        assert_eq!((last, SCALE.slot(u64::MAX)), (SCALE.slots() - 1, SCALE.slots() - 1));
    }

    #[test]
    fn folding_halves_the_resolution_and_keeps_sums() {
        for most in [0, 1, 127, 128, 500, 4000, 1 << 20] {
            let mut counts = vec![0u64; SCALE.slots()];
            (0..=most).step_by(1 + most as usize / 999).for_each(|value| counts[SCALE.slot(value)] += value + 1);
            let folded = SCALE.fold(&counts, |sum, count| *sum += count);
            assert_eq!(folded.slots.iter().sum::<u64>(), counts.iter().sum::<u64>(), "up to {most}");
            assert!(folded.slots.len() <= 8 && folded.slots.last() != Some(&0), "{most}: {folded:?}");
            let last = SCALE.slot(most);
            assert!(last == SCALE.slots() - 1 || folded.width * folded.slots.len() as u64 > most, "{most}: {folded:?}");
        }
        // 100 is in the seventh slot of sixteen, 130 in one of 32 from 128 on: all are 32 wide then.
        let mut counts = vec![0; SCALE.slots()];
        [100, 96, 130].into_iter().for_each(|value| counts[SCALE.slot(value)] += value);
        let folded = SCALE.fold(&counts, |sum, count| *sum += count);
        assert_eq!(folded, Folded { width: 32, slots: vec![0, 0, 0, 196, 130] });
        assert!(SCALE.fold(&vec![0; SCALE.slots()], |sum, count| *sum += count).slots.is_empty());
    }
}
