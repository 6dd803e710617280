//! [`Extents`]: which ranges of a region are free.

use std::collections::BTreeMap;

use yonder_units::PAGE_BYTES;

/// Free ranges of a region by their offset, in whole pages, never adjacent.
#[derive(Debug)]
pub struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// All of a region of `bytes`, a whole number of pages, is free.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]) }
    }

    /// Takes the first gap of at least `bytes`, rounded up to pages.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).div_ceil(PAGE_BYTES as u64) * PAGE_BYTES as u64;
        let (start, length) = self.free.iter().find(|(_, length)| **length >= bytes).map(|(s, l)| (*s, *l))?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Gives a range back and joins it with its neighbours.
    ///
    /// # Panics
    /// If a part of it is free.
    pub fn give(&mut self, mut start: u64, mut bytes: u64) {
        if let Some((before, length)) = self.free.range(..=start).next_back().map(|(s, l)| (*s, *l)) {
            assert!(before + length <= start, "bytes at {start} are freed twice");
            if before + length == start {
                (start, bytes) = (before, length + bytes);
            }
        }
        if let Some((after, length)) = self.free.range(start + 1..).next().map(|(s, l)| (*s, *l)) {
            assert!(start + bytes <= after, "bytes at {after} are freed twice");
            if start + bytes == after {
                self.free.remove(&after);
                bytes += length;
            }
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    proptest! {
        /// Against a model that marks pages: ranges never overlap, and everything can be had again in one piece.
        #[test]
        fn extents_behave_like_a_set_of_pages(requests in prop::collection::vec((1u64..6, any::<bool>()), 1..80)) {
            let mut extents = Extents::new(64 * PAGE);
            let mut owned: Vec<(u64, u64)> = Vec::new();
            let mut used = [false; 64];
            for (pages, frees) in requests {
                if frees && !owned.is_empty() {
                    let (start, pages) = owned.swap_remove(pages as usize % owned.len());
                    used[start as usize..(start + pages) as usize].fill(false);
                    extents.give(start * PAGE, pages * PAGE);
                } else if let Some(offset) = extents.take(pages * PAGE - 1) {
                    let start = offset / PAGE;
                    let range = &mut used[start as usize..(start + pages) as usize];
                    prop_assert!(range.iter().all(|used| !used));
                    range.fill(true);
                    owned.push((start, pages));
                } else {
                    let gap = used.split(|used| *used).map(<[bool]>::len).max().unwrap_or(0);
                    prop_assert!((gap as u64) < pages, "a gap of {gap} pages was not found");
                }
            }
            owned.into_iter().for_each(|(start, pages)| extents.give(start * PAGE, pages * PAGE));
            prop_assert_eq!(extents.take(64 * PAGE), Some(0));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_double_free_is_seen() {
        Extents::new(4 * PAGE).give(PAGE, PAGE);
    }
}
