//! [`Ranges`]: which parts of a range of addresses are allocated. First fit, because there are few of them.

use std::collections::BTreeMap;

/// Allocations in `0..end`.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Length of each, by its start.
    allocated: BTreeMap<u64, u64>,
    end: u64,
}

impl Ranges {
    /// None yet.
    pub(crate) const fn new(end: u64) -> Self {
        Self { allocated: BTreeMap::new(), end }
    }

    /// Takes the first gap that has `bytes`, and returns where it starts.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let mut start = 0;
        for (next, length) in &self.allocated {
            if next - start >= bytes {
                break;
            }
            start = next + length;
        }
        start.checked_add(bytes).filter(|after| *after <= self.end)?;
        self.allocated.insert(start, bytes);
        Some(start)
    }

    /// Makes the allocation that begins at `start` free again, and returns its length.
    pub(crate) fn release(&mut self, start: u64) -> Option<u64> {
        self.allocated.remove(&start)
    }

    /// The length of the allocation that begins at `start`.
    pub(crate) fn length(&self, start: u64) -> Option<u64> {
        self.allocated.get(&start).copied()
    }

    /// Whether `bytes` at `start` lie in one allocation.
    pub(crate) fn contains(&self, start: u64, bytes: u64) -> bool {
        let before = self.allocated.range(..=start).next_back();
        before.is_some_and(|(first, length)| start.checked_add(bytes).is_some_and(|end| end <= first + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_used_again() {
        let mut ranges = Ranges::new(100);
        let starts: Vec<u64> = std::iter::from_fn(|| ranges.allocate(25)).collect();
        assert_eq!(starts, [0, 25, 50, 75]);
        assert!(ranges.contains(30, 20) && !ranges.contains(30, 21) && !ranges.contains(100, 1));
        assert_eq!((ranges.release(25), ranges.release(25), ranges.release(60)), (Some(25), None, None));
        assert!(!ranges.contains(30, 1));
        assert_eq!(ranges.release(50), Some(25));
        assert_eq!((ranges.allocate(51), ranges.allocate(50)), (None, Some(25)));
        assert_eq!(ranges.allocate(u64::MAX), None);
    }
}
