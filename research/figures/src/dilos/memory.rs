//! [`Memory`]: the local and the far pages of one thread's array, under the real policies: states and transitions are
//! `core/pager`'s, watermarks and hands `core/pager`'s.
//!
//! A page keeps its frame from the read that is posted until it is on the node alone again: unmapped by the evictor it
//! stands by in the frame it was mapped in, since a kernel need not copy it. That makes Yonder's two hands DiLOS'
//! reclaimer and cleaner (section 4.4) in the other order: it cleans first and unmaps then.
//!
//! Invariants: every change of a page is [`Memory::change`], which the page table refuses if it cannot happen; no two
//! pages have one frame; no more frames are in use than the limit.

use std::ops::Range;

use yonder_pager::pagetable::{Entry, Event, PageTable, State};
use yonder_pager::reclaim::{Policy, Shares, Standby, StandbyQueue, SweepHand, Usage, Visit};
use yonder_units::{BLOCK_PAGES, FrameIndex, Nanos, PageIndex};

/// Pages, frames, and who is where.
#[derive(Debug)]
pub(super) struct Memory {
    table: PageTable,
    pub(super) policy: Policy,
    /// The frame of each page that has one.
    frames: Vec<Option<FrameIndex>>,
    free: Vec<FrameIndex>,
    /// Whether a page is newer than the node's.
    dirty: Vec<bool>,
    standby: StandbyQueue,
    hand: SweepHand,
    /// What is unswept of the block that the hand is at.
    unswept: Range<usize>,
    resident: u64,
    standing: u64,
    writing: u64,
    /// Pages that were mapped after a read.
    pub(super) installed: u64,
}

impl Memory {
    /// `pages` of which `limit` can be local; all have been read once in their order, so that the last ones are still
    /// here.
    pub(super) fn new(pages: u32, limit: u32, shares: Shares) -> Self {
        let policy = Policy::new(u64::from(limit), shares).expect("every system's shares are ordered");
        let limit = u32::try_from(policy.limit()).expect("limits are small");
        let mut memory = Self {
            table: PageTable::new(pages as usize),
            policy,
            frames: vec![None; pages as usize],
            free: (0..limit).rev().map(FrameIndex).collect(),
            dirty: vec![false; pages as usize],
            standby: StandbyQueue::default(),
            hand: SweepHand::default(),
            unswept: 0..0,
            resident: 0,
            standing: 0,
            writing: 0,
            installed: 0,
        };
        for page in (0..pages).map(PageIndex) {
            memory.settle(memory.policy.reserve() + 1);
            memory.take_frame(page);
            memory.change(page, Event::Install);
            memory.change(page, Event::Installed);
        }
        memory
    }

    /// Takes no time to leave so many frames free.
    pub(super) fn settle(&mut self, free: u64) {
        while (self.free.len() as u64) < free {
            let victims = self.sweep(1);
            victims.into_iter().for_each(|victim| self.write_out(victim));
        }
    }

    pub(super) fn pages(&self) -> u32 {
        self.frames.len() as u32
    }

    pub(super) fn entry(&self, page: PageIndex) -> Entry {
        self.table.load(page)
    }

    /// Whether a fault may charge so many pages.
    pub(super) fn has_room(&self, pages: u32) -> bool {
        self.free.len() as u64 >= self.policy.reserve() + u64::from(pages)
    }

    /// Whether a window that was not asked for by a miss may have `pages`: half of what is between the faults' limit
    /// and reclaim's start stays for faults.
    pub(super) fn has_room_ahead(&self, pages: u32) -> bool {
        let (reserve, start) = (self.policy.reserve(), self.policy.limit() - self.policy.start_above());
        self.free.len() as u64 >= reserve + start.saturating_sub(reserve) / 2 + u64::from(pages)
    }

    pub(super) fn usage(&self) -> Usage {
        let free = self.free.len() as u64;
        Usage {
            charged: self.policy.limit() - free,
            spare_frames: 0,
            standby: self.standing,
            writing: self.writing,
            resident: self.resident,
            headroom: free,
            ..Usage::default()
        }
    }

    /// A read of a remote page is posted: it has a frame from now on.
    pub(super) fn fetch(&mut self, page: PageIndex, port: u16, slot: u16) {
        self.take_frame(page);
        self.dirty[page.index()] = false;
        self.change(page, Event::Fetch { port, slot });
    }

    /// A read is withdrawn.
    pub(super) fn withdraw(&mut self, page: PageIndex) {
        self.change(page, Event::FetchFailed);
        self.release(page);
    }

    /// The page of a read is mapped.
    pub(super) fn install(&mut self, page: PageIndex) {
        self.change(page, Event::Installed);
        self.installed += 1;
    }

    /// A page on standby is mapped again: its second chance.
    pub(super) fn rescue(&mut self, page: PageIndex) {
        self.change(page, Event::Install);
        self.change(page, Event::Installed);
    }

    /// A mapped page is written to.
    pub(super) fn store(&mut self, page: PageIndex) {
        self.dirty[page.index()] = true;
    }

    pub(super) fn is_dirty(&self, page: PageIndex) -> bool {
        self.dirty[page.index()]
    }

    /// The evictor takes up to `pages` mapped pages of one block, from where it has come to in it.
    pub(super) fn sweep(&mut self, pages: usize) -> Vec<PageIndex> {
        let mut taken = self.take_mapped(pages);
        if taken.is_empty() {
            let blocks = [self.frames.len().div_ceil(BLOCK_PAGES)];
            let (table, last) = (&self.table, self.frames.len());
            let is_mapped = |page: usize| table.load(PageIndex(page as u32)).is_resident();
            let of_block = |block: usize| block * BLOCK_PAGES..last.min((block + 1) * BLOCK_PAGES);
            let visit = |_, block| if of_block(block).any(is_mapped) { Visit::Take } else { Visit::Skip };
            let Some((_, block)) = self.hand.advance(&blocks, visit) else { return taken };
            self.unswept = of_block(block);
            taken = self.take_mapped(pages);
        }
        taken.iter().for_each(|page| self.change(*page, Event::Evict));
        taken
    }

    /// Mapped pages of what is unswept of the hand's block.
    fn take_mapped(&mut self, pages: usize) -> Vec<PageIndex> {
        let (table, unswept) = (&self.table, &mut self.unswept);
        unswept
            .by_ref()
            .map(|page| PageIndex(page as u32))
            .filter(|page| table.load(*page).is_resident())
            .take(pages)
            .collect()
    }

    /// A page that was swept is unmapped and stands by.
    pub(super) fn stand_by(&mut self, page: PageIndex, now: Nanos) {
        let frame = self.frames[page.index()].expect("a mapped page has a frame");
        self.change(page, Event::Evicted(frame));
        let is_dirty = self.dirty[page.index()];
        self.standby.push(Standby { region: 0, page, frame, since: now, is_dirty });
    }

    /// The cleaner takes the oldest page that still stands by.
    pub(super) fn oldest(&mut self) -> Option<PageIndex> {
        loop {
            let standby = self.standby.pop()?;
            let entry = self.table.load(standby.page);
            if entry.state() == State::Standby(standby.frame) && !entry.write_in_flight() {
                return Some(standby.page);
            }
        }
    }

    /// A clean page on standby, if it still is one, is dropped: the node has it.
    pub(super) fn drop_standing(&mut self, page: PageIndex) {
        let entry = self.table.load(page);
        if matches!(entry.state(), State::Standby(_)) && !entry.write_in_flight() {
            assert!(!self.dirty[page.index()], "page {} would be lost", page.0);
            self.change(page, Event::Clean);
            self.release(page);
        }
    }

    /// A page that was swept goes at once, without a second chance; a dirty one has been written meanwhile.
    pub(super) fn write_out(&mut self, page: PageIndex) {
        let frame = self.frames[page.index()].expect("a mapped page has a frame");
        self.change(page, Event::Evicted(frame));
        if self.begin_write(page) {
            self.change(page, Event::WriteEnded);
        }
        self.drop_standing(page);
    }

    /// A write of a page on standby is posted; false if it no longer stands by.
    pub(super) fn begin_write(&mut self, page: PageIndex) -> bool {
        let can =
            matches!(self.table.load(page).state(), State::Standby(_)) && !self.table.load(page).write_in_flight();
        if can {
            self.change(page, Event::Write);
            self.dirty[page.index()] = false;
        }
        can
    }

    /// The node has acknowledged a write: the page goes, unless it was rescued meanwhile.
    pub(super) fn end_write(&mut self, page: PageIndex, now: Nanos) {
        self.change(page, Event::WriteEnded);
        if let State::Standby(frame) = self.table.load(page).state() {
            if self.dirty[page.index()] {
                self.standby.push(Standby { region: 0, page, frame, since: now, is_dirty: true });
            } else {
                self.drop_standing(page);
            }
        }
    }

    fn take_frame(&mut self, page: PageIndex) {
        let frame = self.free.pop().expect("whoever fetches has looked for room");
        assert!(self.frames[page.index()].replace(frame).is_none(), "page {} is here twice", page.0);
    }

    fn release(&mut self, page: PageIndex) {
        self.free.push(self.frames[page.index()].take().expect("it had a frame"));
    }

    /// The one way in which a page changes, and is counted.
    fn change(&mut self, page: PageIndex, event: Event) {
        let before = self.table.load(page);
        let after = self.table.advance_owned(page, event);
        for (entry, sign) in [(before, u64::MAX), (after, 1)] {
            let is = |yes: bool| if yes { sign } else { 0 };
            let (standing, writing) = (matches!(entry.state(), State::Standby(_)), entry.write_in_flight());
            self.resident = self.resident.wrapping_add(is(entry.is_resident()));
            self.standing = self.standing.wrapping_add(is(standing && !writing));
            self.writing = self.writing.wrapping_add(is(writing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(
            4096,
            1024,
            Shares { start_percent: 25.0, least_percent: 25.0, end_percent: 30.0, standby_percent: 0.0 },
        )
    }

    #[test]
    fn what_was_read_last_is_here_and_the_rest_is_far() {
        let memory = memory();
        let here = (0..4096).filter(|page| memory.entry(PageIndex(*page)).is_resident()).collect::<Vec<u32>>();
        assert_eq!(here.len() as u64, memory.policy.limit() - memory.policy.reserve());
        assert_eq!((here[0], here.last()), (4096 - here.len() as u32, Some(&4095)));
        assert_eq!(memory.usage().charged, here.len() as u64);
    }

    #[test]
    fn the_hand_goes_on_in_the_block_that_it_is_at() {
        let mut memory = memory();
        let first = 4096 - memory.usage().resident as u32;
        let swept: Vec<u32> = (0..10).flat_map(|_| memory.sweep(60)).map(|page| page.0).collect();
        assert_eq!(swept, (first..first + swept.len() as u32).collect::<Vec<_>>());
        assert!(swept.len() > 500);
    }

    #[test]
    fn a_dirty_page_goes_only_after_its_write() {
        let mut memory = memory();
        let page = memory.sweep(1)[0];
        memory.store(page);
        memory.stand_by(page, 5);
        assert_eq!(memory.oldest(), Some(page));
        let charged = memory.usage().charged;
        assert!(memory.begin_write(page) && memory.usage().writing == 1);
        memory.rescue(page);
        memory.store(page);
        memory.end_write(page, 9);
        assert!(memory.entry(page).is_resident() && memory.usage().charged == charged);
        assert!(memory.is_dirty(page));
    }

    #[test]
    #[should_panic(expected = "would be lost")]
    fn a_dirty_page_cannot_be_dropped() {
        let mut memory = memory();
        let page = memory.sweep(1)[0];
        memory.store(page);
        memory.stand_by(page, 0);
        memory.drop_standing(page);
    }

    #[test]
    #[should_panic(expected = "cannot Installed")]
    fn a_page_is_never_installed_twice() {
        let mut memory = memory();
        memory.fetch(PageIndex(3), 0, 0);
        memory.install(PageIndex(3));
        memory.install(PageIndex(3));
    }
}
