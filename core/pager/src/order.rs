//! [`Order`]: which operations on a page of a region may be under way on the node at once, and the pages that a discard
//! holds.
//!
//! Fetches, write-backs and discards travel on queue pairs and lanes of their own, and the node executes what arrives
//! first. So the process itself orders what touches one page: an operation begins when those that it must not meet have
//! ended, and the end of an operation is the node's answer to it, never a deadline.
//! `docs/design/order-of-operations.md` has the whole table. The states of a page keep fetches and write-backs apart; a
//! discard is not in the states, because it covers ranges, and stands here: from the moment at which its pages are
//! forgotten locally until the node has agreed to it, nothing of them is written to the node, and nothing that the node
//! has of them is taken for their content. A discard whose end is not known stays *unconfirmed*: it is asked for again
//! until the node says that it is done. By then an earlier attempt has been executed or aborted, because a lane holds a
//! request back until the abort of an earlier one of the same pages is answered.
//!
//! Who may do what: pages are held by whoever holds the reclaimer, let go by whoever holds the reclaimer and the
//! discards of the region; looked at by anyone. What the node is asked for is asked for under [`Order::discards`], one
//! request at a time.
//!
//! Invariant: no write is posted for a page that a discard holds, and no such page becomes `Remote`.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use yonder_units::PageIndex;

use crate::machine::Machine;

const BITS: u32 = u64::BITS;

/// Whether the region still has memory on the node that may be discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Discards {
    /// It has.
    #[default]
    Allowed,
    /// The region ends: its addresses may soon be those of another one.
    Over,
}

/// The pages of a region that discards hold.
#[derive(Default)]
pub(crate) struct Order {
    /// Pages that are held.
    count: AtomicU64,
    /// A bit for each page, once the first is held.
    words: OnceLock<Box<[AtomicU64]>>,
    discards: Mutex<Discards>,
}

impl Order {
    /// A discard holds `page` of a region of `pages` pages from now on. The caller holds the reclaimer, and has seen
    /// that neither a fetch nor a write of the page is under way.
    pub(crate) fn hold(&self, page: PageIndex, pages: usize) {
        let new = || (0..pages.div_ceil(BITS as usize)).map(|_| AtomicU64::new(0)).collect();
        let words = self.words.get_or_init(new);
        let bit = 1 << (page.0 % BITS);
        if words[(page.0 / BITS) as usize].fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The node has agreed to the discard of `pages`.
    pub(crate) fn let_go(&self, pages: Range<u32>) {
        let Some(words) = self.words.get() else { return };
        let mut first = pages.start;
        while first < pages.end {
            let end = pages.end.min((first / BITS + 1) * BITS);
            let bits = (u64::MAX >> (BITS - (end - first))) << (first % BITS);
            let held = words[(first / BITS) as usize].fetch_and(!bits, Ordering::AcqRel) & bits;
            self.count.fetch_sub(u64::from(held.count_ones()), Ordering::AcqRel);
            first = end;
        }
    }

    /// Whether a discard holds the page.
    #[inline]
    pub(crate) fn holds(&self, page: PageIndex) -> bool {
        self.holds_any() && self.bits(page.0 / BITS) >> (page.0 % BITS) & 1 == 1
    }

    /// Whether a discard holds any page.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// The first pages among `pages` that are held, neighbours together.
    pub(crate) fn first_held(&self, pages: Range<u32>) -> Option<Range<u32>> {
        if !self.holds_any() {
            return None;
        }
        let start = self.next(pages.clone(), true)?;
        let end = self.next(start..pages.end, false).unwrap_or(pages.end);
        Some(start..end)
    }

    /// Keeps everybody else from asking the node to discard pages of the region.
    pub(crate) fn discards<M: Machine>(&self) -> MutexGuard<'_, Discards> {
        M::lock(&self.discards)
    }

    /// The first page among `pages` that is held, or that is not.
    fn next(&self, pages: Range<u32>, is_held: bool) -> Option<u32> {
        let mut at = pages.start;
        while at < pages.end {
            let bits = if is_held { self.bits(at / BITS) } else { !self.bits(at / BITS) };
            let left = bits >> (at % BITS);
            if left != 0 {
                return Some(at + left.trailing_zeros()).filter(|page| *page < pages.end);
            }
            at = (at / BITS + 1) * BITS;
        }
        None
    }

    #[inline]
    fn bits(&self, word: u32) -> u64 {
        self.words.get().map_or(0, |words| words[word as usize].load(Ordering::Acquire))
    }

    /// A write of the page is about to be posted, or the page is about to be left to the node.
    ///
    /// # Panics
    /// If a discard holds the page: it could be executed later, over what is written now.
    #[inline]
    pub(crate) fn assert_is_free(&self, page: PageIndex) {
        assert!(!self.holds(page), "page {} is used on the node while a discard of it has not ended", page.0);
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
        fn held_pages_are_a_set(changes in prop::collection::vec((any::<bool>(), 0..PAGES, 0..PAGES), 0..20)) {
            let (order, mut model) = (Order::default(), BTreeSet::new());
            for (holds, one, other) in changes {
                let range = one.min(other)..one.max(other);
                if holds {
                    range.clone().for_each(|page| order.hold(PageIndex(page), PAGES as usize));
                    model.extend(range);
                } else {
                    order.let_go(range.clone());
                    model.retain(|page| !range.contains(page));
                }
                prop_assert!((0..PAGES).all(|page| order.holds(PageIndex(page)) == model.contains(&page)));
                prop_assert_eq!(order.holds_any(), !model.is_empty());
                let (mut at, mut found) = (0, BTreeSet::new());
                while let Some(run) = order.first_held(at..PAGES) {
                    prop_assert!(!run.is_empty() && !model.contains(&run.end));
                    at = run.end;
                    found.extend(run);
                }
                prop_assert_eq!(found, model.clone());
            }
        }
    }

    #[test]
    #[should_panic(expected = "a discard of it has not ended")]
    fn a_page_that_a_discard_holds_is_not_used() {
        let order = Order::default();
        order.hold(PageIndex(7), PAGES as usize);
        order.assert_is_free(PageIndex(6));
        order.assert_is_free(PageIndex(7));
    }
}
