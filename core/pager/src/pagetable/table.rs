//! [`PageTable`]: the flat array of entries of a region.
//!
//! Any thread may load and advance any entry; all changes are compare-and-swap through [`Entry::on`].

use std::sync::atomic::AtomicI64;

use crossbeam_utils::CachePadded;
use yonder_units::PageIndex;

use crate::atomic::{AtomicU64, Ordering, zeros};
use crate::pagetable::{Entry, Event};

/// One word a page, untouched at first.
#[derive(Debug)]
pub struct PageTable {
    entries: Box<[AtomicU64]>,
    /// Pages that are not untouched. Two changes of a page may be counted in either order, so it may be below zero for
    /// a moment. Alone in its cache lines, because the first touch of each page writes it.
    touched: CachePadded<AtomicI64>,
}

impl PageTable {
    /// A table of `pages` untouched pages. Its memory is backed only where it is used.
    ///
    /// # Panics
    /// If the address space cannot hold the table.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        assert!(u32::try_from(pages).is_ok(), "an index cannot name each of {pages} pages");
        Self { entries: zeros(pages), touched: CachePadded::default() }
    }

    /// Number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.entries.len()
    }

    /// Pages that are not untouched.
    #[must_use]
    pub fn touched_pages(&self) -> u64 {
        self.touched.load(std::sync::atomic::Ordering::Relaxed).max(0).unsigned_abs()
    }

    /// The entry of `page` now.
    #[must_use]
    #[inline]
    pub fn load(&self, page: PageIndex) -> Entry {
        Entry::from_bits(self.entries[page.index()].load(Ordering::SeqCst))
    }

    /// Applies `event` to `page` if its entry still is `seen`, and returns the new entry; else returns what the entry
    /// has become.
    ///
    /// # Panics
    /// If `event` cannot happen in the state of `seen`: the caller has a bug.
    #[inline]
    pub fn advance(&self, page: PageIndex, seen: Entry, event: Event) -> Result<Entry, Entry> {
        let next = seen.on(event).unwrap_or_else(|| panic!("page {} in {seen:?} cannot {event:?}", page.0));
        self.entries[page.index()]
            .compare_exchange(seen.bits(), next.bits(), Ordering::SeqCst, Ordering::SeqCst)
            .map_err(Entry::from_bits)?;
        if seen.is_untouched() != next.is_untouched() {
            let more = if next.is_untouched() { -1 } else { 1 };
            self.touched.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(next)
    }

    /// Applies `event` to a page that the caller owns (`Fetching`, `Installing`, `Evicting`): only the end of an
    /// earlier write can change the entry meanwhile, so this always succeeds.
    #[inline]
    pub fn advance_owned(&self, page: PageIndex, event: Event) -> Entry {
        let mut seen = self.load(page);
        loop {
            match self.advance(page, seen, event) {
                Ok(next) => return next,
                Err(current) => {
                    let is_owned = event == Event::WriteEnded || current.state() == seen.state();
                    debug_assert!(is_owned, "page {} was {seen:?} and became {current:?}", page.0);
                    seen = current;
                }
            }
        }
    }
}

#[cfg(all(test, yonder_loom))]
mod model;

#[cfg(all(test, not(yonder_loom)))]
mod tests {
    use super::*;
    use crate::pagetable::State;

    #[test]
    fn only_one_of_two_fetchers_wins() {
        let table = PageTable::new(4);
        let page = PageIndex(2);
        for event in [Event::Install, Event::Installed, Event::Evict, Event::Dropped] {
            table.advance_owned(page, event);
        }
        let seen = table.load(page);
        assert_eq!(seen.state(), State::Remote);
        assert!(table.advance(page, seen, Event::Fetch { port: 1, slot: 1 }).is_ok());
        let lost = table.advance(page, seen, Event::Fetch { port: 2, slot: 2 }).unwrap_err();
        assert_eq!(lost.state(), State::Fetching { port: 1, slot: 1 });
    }

    #[test]
    fn pages_count_as_touched_from_the_first_touch_until_they_are_freed() {
        let table = PageTable::new(4);
        let apply =
            |page, events: &[Event]| events.iter().for_each(|event| _ = table.advance_owned(PageIndex(page), *event));
        apply(0, &[Event::Install]);
        assert_eq!(table.touched_pages(), 1);
        apply(0, &[Event::InstallFailed]);
        assert_eq!(table.touched_pages(), 0);
        apply(0, &[Event::Install, Event::Installed, Event::Evict, Event::Dropped]);
        apply(1, &[Event::Lend]);
        apply(2, &[Event::Lend, Event::RecallUntouched]);
        assert_eq!(table.touched_pages(), 2);
        apply(1, &[Event::Recall]);
        apply(0, &[Event::Free]);
        assert_eq!(table.touched_pages(), 1);
    }

    #[test]
    #[should_panic(expected = "cannot Clean")]
    fn an_illegal_event_is_our_bug() {
        let table = PageTable::new(1);
        let _ = table.advance(PageIndex(0), table.load(PageIndex(0)), Event::Clean);
    }

    #[test]
    #[should_panic(expected = "an index cannot name each")]
    fn a_table_that_indices_do_not_reach_is_our_bug() {
        let _ = PageTable::new(1 << 32);
    }
}
