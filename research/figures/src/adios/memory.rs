//! Local memory: which pages are here, by `core/pager`, and when pages are evicted, by the watermarks of `core/pager`.
//!
//! Pages are touched at random and only read, so that who is evicted does not count and nothing is written back: the
//! oldest page goes first. Invariant: pages here and on their way are never more than the limit.

use std::collections::VecDeque;

use yonder_pager::pagetable::{Event, PageTable, State};
use yonder_pager::reclaim::{Action, Margin, Policy, Shares, Usage};
use yonder_units::PageIndex;

use crate::costs::adios as costs;

/// Where a page is when it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Here.
    Local,
    /// On its way: asked for by another request.
    Coming,
    /// At the memory node.
    Remote,
}

/// The compute node's pages.
#[derive(Debug)]
pub(crate) struct Memory {
    table: PageTable,
    /// Pages that are here, the oldest first.
    local: VecDeque<PageIndex>,
    policy: Policy,
    /// Pages that are here or on their way.
    charged: u64,
}

impl Memory {
    /// `pages` pages, of which `limit` may be here; as many are as reclaim leaves, spread evenly. All are if the limit
    /// has room.
    pub(crate) fn new(pages: u32, limit: u64) -> Self {
        let start_percent = costs::FREE_SHARE.value;
        let shares = Shares {
            start_percent,
            least_percent: start_percent,
            end_percent: start_percent + 1.0,
            standby_percent: 0.0,
        };
        let policy = Policy::new(limit, shares)
            .expect("the shares are in order")
            .for_pages(u64::from(pages), &Margin::default());
        let table = PageTable::new(pages as usize);
        let mut memory = Self { table, local: VecDeque::new(), policy, charged: 0 };
        let wanted = policy.start_above().min(u64::from(pages));
        for page in 0..pages {
            let page_index = PageIndex(page);
            memory.table.advance_owned(page_index, Event::Install);
            memory.table.advance_owned(page_index, Event::Installed);
            let due = |pages: u32| u64::from(pages) * wanted / u64::from(memory.table.pages() as u32);
            if due(page + 1) > due(page) {
                memory.local.push_back(page_index);
                memory.charged += 1;
            } else {
                memory.drop_page(page_index);
            }
        }
        memory
    }

    /// A request touches a page.
    pub(crate) fn find(&self, page: PageIndex) -> Found {
        match self.table.load(page).state() {
            State::Resident => Found::Local,
            State::Fetching { .. } => Found::Coming,
            State::Remote => Found::Remote,
            state => unreachable!("page {page:?} is {state:?}"),
        }
    }

    /// A worker takes a remote page over to fetch it. False if there is no room.
    pub(crate) fn fetch(&mut self, page: PageIndex, worker: usize) -> bool {
        if self.charged + self.policy.reserve() >= self.policy.limit()
            && self.policy.start_above() < self.policy.limit()
        {
            return false;
        }
        self.charged += 1;
        self.table.advance_owned(page, Event::Fetch { port: worker as u16, slot: 0 });
        true
    }

    /// A page that was fetched has been mapped.
    pub(crate) fn installed(&mut self, page: PageIndex) {
        self.table.advance_owned(page, Event::Installed);
        self.local.push_back(page);
        debug_assert!(self.charged <= self.policy.limit(), "{} pages are here", self.charged);
    }

    /// Whether the reclaimer is to be woken.
    pub(crate) fn is_low(&self) -> bool {
        self.policy.is_low(&self.usage())
    }

    /// Evicts up to `most` pages; how many. None once enough is free.
    pub(crate) fn evict(&mut self, most: u64) -> u64 {
        let Action::Sweep(wanted) = self.policy.decide(&self.usage()) else { return 0 };
        let count = wanted.min(most).min(self.local.len() as u64);
        for _ in 0..count {
            let page = self.local.pop_front().expect("as many are local");
            self.drop_page(page);
            self.charged -= 1;
        }
        count
    }

    fn drop_page(&self, page: PageIndex) {
        self.table.advance_owned(page, Event::Evict);
        self.table.advance_owned(page, Event::Dropped);
    }

    fn usage(&self) -> Usage {
        let resident = self.local.len() as u64;
        Usage { charged: self.charged, resident, headroom: self.policy.reserve(), ..Usage::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(memory: &Memory, pages: u32) -> usize {
        (0..pages).filter(|page| memory.find(PageIndex(*page)) == Found::Local).count()
    }

    #[test]
    fn reclaim_leaves_its_share_free() {
        let (pages, limit) = (100_000, 20_000);
        let mut memory = Memory::new(pages, limit);
        assert_eq!(local(&memory, pages), 17_000);
        let remote: Vec<PageIndex> =
            (0..pages).map(PageIndex).filter(|page| memory.find(*page) == Found::Remote).take(1_000).collect();
        for page in &remote {
            assert!(memory.fetch(*page, 3) && memory.find(*page) == Found::Coming);
            memory.installed(*page);
        }
        assert!(memory.is_low() && local(&memory, pages) == 18_000);
        while memory.evict(64) > 0 {}
        assert!(!memory.is_low());
        assert!((16_700..=16_800).contains(&local(&memory, pages)), "{}", local(&memory, pages));
        assert!(remote.iter().all(|page| memory.find(*page) == Found::Local), "the oldest go first");
    }

    #[test]
    fn a_fault_finds_no_room_where_nobody_evicts() {
        let mut memory = Memory::new(10_000, 2_000);
        let mut fetched = 0;
        for page in (0..10_000).map(PageIndex) {
            if memory.find(page) == Found::Remote && memory.fetch(page, 0) {
                memory.installed(page);
                fetched += 1;
            }
        }
        assert!((1..=300).contains(&fetched), "{fetched} of the 300 that were free");
    }

    #[test]
    fn with_room_for_all_nothing_is_remote() {
        let memory = Memory::new(4_096, 4_096 + 512);
        assert_eq!(local(&memory, 4_096), 4_096);
        assert!(!memory.is_low());
    }
}
