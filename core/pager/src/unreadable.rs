//! [`UnreadablePages`]: pages that nobody can read meanwhile, not even whoever would sweep them.
//!
//! Who protects memory against reading says so first: what is local of it leaves, and what comes there all the same
//! stays until the pages can be read again. Only pages are kept apart, not their blocks: a guard page keeps none of its
//! neighbours local.
//!
//! Who may do what: pages are unreadable by whoever holds the reclaimer, so that no sweep is under way; marked readable
//! by anyone who has made them readable; looked at by whoever holds the reclaimer.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder_units::PageIndex;

const BITS: u32 = u64::BITS;

/// A bit for each page of a region, once the first is unreadable.
#[derive(Debug, Default)]
pub(crate) struct UnreadablePages {
    words: OnceLock<Box<[AtomicU64]>>,
}

impl UnreadablePages {
    /// Marks unreadable `range` of a region of `pages` pages.
    pub(crate) fn mark_unreadable(&self, range: Range<u32>, pages: usize) {
        let new = || (0..pages.div_ceil(BITS as usize)).map(|_| AtomicU64::new(0)).collect();
        let words = self.words.get_or_init(new);
        each_word(range, |word, bits| _ = words[word].fetch_or(bits, Ordering::Release));
    }

    /// Pages that can be read again.
    pub(crate) fn mark_readable(&self, range: Range<u32>) {
        if let Some(words) = self.words.get() {
            each_word(range, |word, bits| _ = words[word].fetch_and(!bits, Ordering::Release));
        }
    }

    #[inline]
    pub(crate) fn contains(&self, page: PageIndex) -> bool {
        let word = |words: &[AtomicU64]| words[(page.0 / BITS) as usize].load(Ordering::Acquire);
        self.words.get().is_some_and(|words| word(words) >> (page.0 % BITS) & 1 == 1)
    }

    /// Those among `pages`.
    pub(crate) fn of(&self, pages: Range<u32>) -> impl Iterator<Item = PageIndex> {
        let some = self.words.get().map(|_| pages);
        some.into_iter().flatten().map(PageIndex).filter(|page| self.contains(*page))
    }
}

/// Calls `each` with every word that has bits of `range`, and those bits.
fn each_word(range: Range<u32>, mut each: impl FnMut(usize, u64)) {
    let mut first = range.start;
    while first < range.end {
        let end = range.end.min((first / BITS + 1) * BITS);
        each((first / BITS) as usize, (u64::MAX >> (BITS - (end - first))) << (first % BITS));
        first = end;
    }
}

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const PAGES: u32 = 300;

    proptest! {
        #[test]
        fn they_are_a_set(changes in prop::collection::vec((any::<bool>(), 0..PAGES, 0..PAGES), 0..20)) {
            let (unreadable, mut model) = (UnreadablePages::default(), BTreeSet::new());
            for (hides, one, other) in changes {
                let range = one.min(other)..one.max(other);
                if hides {
                    unreadable.mark_unreadable(range.clone(), PAGES as usize);
                    model.extend(range);
                } else {
                    unreadable.mark_readable(range.clone());
                    model.retain(|page| !range.contains(page));
                }
                prop_assert!(unreadable.of(0..PAGES).map(|page| page.0).eq(model.iter().copied()));
            }
        }
    }
}
