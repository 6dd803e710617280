//! [`FreeRanges`]: which ranges of something are free, found first-fit and joined when they come back.

use std::collections::BTreeMap;

/// Free ranges of `0..end` by their start, never adjacent. The unit is the caller's: bytes, pages, slots.
#[derive(Debug)]
pub struct FreeRanges {
    free: BTreeMap<u64, u64>,
    total: u64,
}

impl FreeRanges {
    /// All of `0..end` is free.
    #[must_use]
    pub fn new(end: u64) -> Self {
        Self { free: BTreeMap::from([(0, end)]), total: end }
    }

    /// Free units in total.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Takes `units`, at least 1, from the first gap that has as many. Returns where they start.
    pub fn take(&mut self, units: u64) -> Option<u64> {
        assert!(units > 0, "a range has a unit");
        if self.total < units {
            return None;
        }
        let (start, length) = self.free.iter().find(|(_, length)| **length >= units).map(|(s, l)| (*s, *l))?;
        self.free.remove(&start);
        if length > units {
            self.free.insert(start + units, length - units);
        }
        self.total -= units;
        Some(start)
    }

    /// Gives a range back and joins it with its neighbours.
    ///
    /// # Panics
    /// If a part of it is free.
    pub fn give(&mut self, mut start: u64, mut units: u64) {
        self.total += units;
        if let Some((before, length)) = self.free.range(..=start).next_back().map(|(s, l)| (*s, *l)) {
            assert!(before + length <= start, "what starts at {start} is freed twice");
            if before + length == start {
                (start, units) = (before, length + units);
            }
        }
        if let Some((after, length)) = self.free.range(start + 1..).next().map(|(s, l)| (*s, *l)) {
            assert!(start + units <= after, "what starts at {after} is freed twice");
            if start + units == after {
                self.free.remove(&after);
                units += length;
            }
        }
        self.free.insert(start, units);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a model that marks units: the first gap is taken, and everything can be had again in one piece.
        #[test]
        fn ranges_agree_with_a_bitmap(requests in prop::collection::vec((1u64..6, any::<bool>()), 1..120)) {
            const UNITS: usize = 40;
            let mut ranges = FreeRanges::new(UNITS as u64);
            let mut owned: Vec<(u64, u64)> = Vec::new();
            let mut free = [true; UNITS];
            for (units, frees) in requests {
                if frees && !owned.is_empty() {
                    let (start, units) = owned.swap_remove(units as usize % owned.len());
                    free[start as usize..(start + units) as usize].fill(true);
                    ranges.give(start, units);
                } else {
                    let fits = free.windows(units as usize).position(|window| window.iter().all(|free| *free));
                    let got = ranges.take(units);
                    prop_assert_eq!(got, fits.map(|start| start as u64));
                    if let Some(start) = got {
                        free[start as usize..(start + units) as usize].fill(false);
                        owned.push((start, units));
                    }
                }
                prop_assert_eq!(ranges.total() as usize, free.iter().filter(|free| **free).count());
            }
            owned.into_iter().for_each(|(start, units)| ranges.give(start, units));
            prop_assert_eq!(ranges.take(UNITS as u64), Some(0));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_seen() {
        FreeRanges::new(4).give(1, 1);
    }
}
