//! [`PageSet`]: a set of pages that knows its lowest member.
//!
//! A bitmap, and above it bitmaps of the words that are not zero, up to one word. It never allocates after its
//! creation, and the kernel backs its memory where it is used, not before.

use yonder_units::Narrow;

/// Members a word.
const FAN: usize = u64::BITS as usize;

/// A set of page numbers below a limit.
#[derive(Debug)]
pub(crate) struct PageSet {
    /// The members first; each level has a bit for each word of the one before.
    levels: Vec<Vec<u64>>,
}

impl PageSet {
    /// An empty set of pages below `limit`.
    pub(crate) fn new(limit: usize) -> Self {
        let mut levels = vec![vec![0; limit.div_ceil(FAN).max(1)]];
        while let words @ 2.. = levels[levels.len() - 1].len() {
            levels.push(vec![0; words.div_ceil(FAN)]);
        }
        Self { levels }
    }

    /// The lowest member.
    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        let top = &self.levels[self.levels.len() - 1];
        if top[0] == 0 {
            return None;
        }
        let lowest = |index: usize, level: &Vec<u64>| index * FAN + level[index].trailing_zeros() as usize;
        Some(self.levels.iter().rev().fold(0, lowest).narrow_u32())
    }

    /// Makes `page` a member.
    #[inline]
    pub(crate) fn insert(&mut self, page: u32) {
        let mut index = page as usize;
        for level in &mut self.levels {
            let word = &mut level[index / FAN];
            let before = std::mem::replace(word, *word | 1 << (index % FAN));
            if before != 0 {
                break;
            }
            index /= FAN;
        }
    }

    /// Makes `page` no member.
    #[inline]
    pub(crate) fn remove(&mut self, page: u32) {
        let mut index = page as usize;
        for level in &mut self.levels {
            let word = &mut level[index / FAN];
            *word &= !(1 << (index % FAN));
            if *word != 0 {
                break;
            }
            index /= FAN;
        }
    }

    /// Bytes of address space that it has.
    pub(crate) fn bytes(&self) -> u64 {
        self.levels.iter().map(|level| 8 * level.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_an_ordered_set(
            limit in 1u32..300_000, changes in prop::collection::vec((any::<bool>(), any::<u32>(), 1u32..1000), 1..200),
        ) {
            let (mut set, mut model) = (PageSet::new(limit as usize), BTreeSet::new());
            for (insert, page, spread) in changes {
                // Dense at the low end, so that words fill and empty again.
                let page = page % spread.min(limit);
                let page = if spread > 900 { limit - 1 - page } else { page };
                if insert { set.insert(page); model.insert(page); } else { set.remove(page); model.remove(&page); }
                prop_assert_eq!(set.first(), model.first().copied());
            }
            while let Some(page) = model.pop_first() {
                prop_assert_eq!(set.first(), Some(page));
                set.remove(page);
            }
            prop_assert_eq!(set.first(), None);
        }
    }
}
