//! Fetches of what was advised ahead ([`Advice::Ahead`](crate::Advice)): a miss in such a range fetches what is behind
//! it, and then what is before it, a window at a time. A miss in a range of random touches fetches nothing else.

use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::State;
use crate::prefetch::WINDOW_PAGES_MAX;
use yonder_units::{Narrow, PageIndex};

use super::PortInner;
use super::windows::await_room;
use crate::advice::ADVISED_PAGES_MAX;
use crate::machine::Machine;
use crate::region::RegionCore;
use crate::turn::Turn;

impl<M: Machine> PortInner<M> {
    /// A page has been missed: fetches others of a range that was advised ahead. Whether all is fetched that should
    /// be.
    #[inline]
    pub(crate) fn fetch_advised(&mut self, region: &Arc<RegionCore<M>>, page: PageIndex, turn: Turn<'_, M>) -> bool {
        if region.random.around(page).is_some() {
            return true;
        }
        let Some(range) = region.ahead.around(page) else { return false };
        if self.ahead.slots() == 0 {
            return false;
        }
        let before = turn.port.stats.prefetched_pages.get();
        let behind = page.0 + 1..range.end.min(page.0 + 1 + ADVISED_PAGES_MAX);
        let left = ADVISED_PAGES_MAX - behind.len().narrow_u32();
        if self.guests.is_alone() {
            await_room(turn, WINDOW_PAGES_MAX.min(range.len().narrow_u32()));
        }
        let ahead_of_it = range.start.max(page.0.saturating_sub(left))..page.0;
        for pages in [behind, ahead_of_it] {
            self.fetch_windows(region, pages, turn);
        }
        turn.port.stats.advised_ahead_pages.add(turn.port.stats.prefetched_pages.get() - before);
        true
    }

    fn fetch_windows(&mut self, region: &Arc<RegionCore<M>>, mut pages: Range<u32>, turn: Turn<'_, M>) {
        // A window that has nothing to fetch would take the place of one that has.
        while let Some(first) = pages.find(|page| region.table.load(PageIndex(*page)).state() == State::Remote) {
            if turn.pager.room_ahead() == 0 {
                return;
            }
            let count = (pages.end - first).min(WINDOW_PAGES_MAX);
            self.fetch_range(region, PageIndex(first), count, turn);
            pages.start = first + count;
        }
    }
}
