//! Free units, as runs: [`FreeRuns`] hands out contiguous units first-fit and joins what comes back.

use std::collections::BTreeMap;

/// Runs of free units, by their first unit. No two runs touch.
pub(super) struct FreeRuns {
    runs: BTreeMap<u32, u32>,
    units: u32,
}

impl FreeRuns {
    /// All of `units` units are free.
    pub(super) fn new(units: u32) -> Self {
        Self { runs: BTreeMap::from([(0, units)]), units }
    }

    /// Free units in total.
    pub(super) fn units(&self) -> u32 {
        self.units
    }

    /// Takes the first run of `units` contiguous units.
    pub(super) fn take(&mut self, units: u32) -> Option<u32> {
        if self.units < units {
            return None;
        }
        let (first, len) = self.runs.iter().find(|(_, len)| **len >= units).map(|(first, len)| (*first, *len))?;
        self.runs.remove(&first);
        if len > units {
            self.runs.insert(first + units, len - units);
        }
        self.units -= units;
        Some(first)
    }

    /// Takes back units that were handed out.
    pub(super) fn give(&mut self, first: u32, units: u32) {
        self.units += units;
        let (mut first, mut len) = (first, units);
        if let Some((before, before_len)) = self.runs.range(..first).next_back().map(|(at, len)| (*at, *len)) {
            assert!(before + before_len <= first, "units are given back once");
            if before + before_len == first {
                self.runs.remove(&before);
                (first, len) = (before, before_len + len);
            }
        }
        if let Some(behind_len) = self.runs.remove(&(first + len)) {
            len += behind_len;
        }
        self.runs.insert(first, len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_agree_with_a_bitmap(steps in prop::collection::vec((1u32..5, any::<prop::sample::Index>()), 1..200)) {
            const UNITS: u32 = 24;
            let mut runs = FreeRuns::new(UNITS);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            let mut free = [true; UNITS as usize];
            for (units, pick) in steps {
                let fits = free.windows(units as usize).position(|window| window.iter().all(|free| *free));
                let got = runs.take(units);
                prop_assert_eq!(got, fits.map(|first| first as u32));
                match got {
                    Some(first) => {
                        taken.push((first, units));
                        free[first as usize..(first + units) as usize].fill(false);
                    }
                    None => {
                        let (first, units) = taken.swap_remove(pick.index(taken.len()));
                        runs.give(first, units);
                        free[first as usize..(first + units) as usize].fill(true);
                    }
                }
                prop_assert_eq!(runs.units() as usize, free.iter().filter(|free| **free).count());
            }
        }
    }
}
