//! The way back: freeing ranges, sealing and ending regions.
//!
//! All three take the reclaimer for one page or one block at a time and give it back while they wait, so that a node
//! that stands still stops only them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use yonder_fabric::RemoteAddress;
use yonder_pagetable::{Event, State};
use yonder_units::{BlockIndex, Nanos, PAGE_BYTES, PageIndex};

use crate::error::{FarError, PagingCause};
use crate::pager::Pager;
use crate::reclaimer::Step;
use crate::region::{HASH_OF_ZEROS, RegionCore};
use crate::worker;

/// Free ranges of a region by their offset, in whole pages, never adjacent.
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
}

impl Extents {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]) }
    }

    /// Takes the first gap of at least `bytes`, rounded up to pages.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = bytes.max(1).div_ceil(PAGE_BYTES as u64) * PAGE_BYTES as u64;
        let (start, length) = self.free.iter().find(|(_, length)| **length >= bytes).map(|(s, l)| (*s, *l))?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Gives a range back and joins it with its neighbours.
    pub(crate) fn give(&mut self, mut start: u64, mut bytes: u64) {
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

impl Pager {
    /// Forgets the content of a page-aligned range, here and on the node: it reads as zeros again.
    pub(crate) fn release(&self, core: &RegionCore, offset: u64, bytes: u64) -> Result<(), FarError> {
        let deadline = yonder_clock::now() + self.fault_deadline;
        let (first, end) = (PageIndex::containing(offset).0, PageIndex::containing(offset + bytes).0);
        for page in (first..end).map(PageIndex) {
            self.release_page(core, page, deadline)?;
        }
        let RemoteAddress(start) = core.remote_address(PageIndex(first));
        Ok(self.fabric.discard(RemoteAddress(start), bytes)?)
    }

    /// Forgets one page. A write or a fetch of it has to end first; others use the reclaimer while this waits.
    fn release_page(&self, core: &RegionCore, page: PageIndex, deadline: Nanos) -> Result<(), FarError> {
        loop {
            let now = yonder_clock::now();
            {
                let mut reclaimer = self.lock_reclaimer();
                reclaimer.poll_writes(self, now);
                if self.try_release_page(core, page) {
                    core.set_remote_hash(page, HASH_OF_ZEROS);
                    return Ok(());
                }
            }
            worker::poll_own_port(self, now);
            if now > deadline {
                return Err(core.error(page.offset(), PagingCause::NodeLost).into());
            }
            std::thread::yield_now();
        }
    }

    /// Forgets one page if nothing is under way with it. The caller holds the reclaimer.
    fn try_release_page(&self, core: &RegionCore, page: PageIndex) -> bool {
        let seen = core.table.load(page);
        match seen.state() {
            _ if seen.write_in_flight() => false,
            State::Untouched => true,
            State::Remote | State::Poisoned(_) => core.table.advance(page, seen, Event::Free).is_ok(),
            State::Standby(frame) if core.table.advance(page, seen, Event::Free).is_ok() => {
                self.standby.fetch_sub(1, Ordering::AcqRel);
                self.frames.release(frame);
                true
            }
            State::Resident => self.unmap_page(core, page),
            State::Fetching { port, slot } => {
                self.drop_ahead_of(core, page, port, slot);
                false
            }
            State::Standby(_) | State::Installing(_) | State::Evicting => false,
        }
    }

    /// Unmaps a resident page without keeping its content; false if its block is in use.
    fn unmap_page(&self, core: &RegionCore, page: PageIndex) -> bool {
        let gate = core.gate(page);
        if !gate.try_sweep() {
            return false;
        }
        let seen = core.table.load(page);
        let owned = seen.state() == State::Resident && !seen.write_in_flight();
        if owned {
            core.table.advance_owned(page, Event::Evict);
            core.mapping.discard(page.offset(), PAGE_BYTES).expect("a mapped page can be dropped");
            core.table.advance_owned(page, Event::Free);
            core.uncount_resident(page.block(), 1);
            self.budget.uncharge(1);
        }
        gate.end_sweep();
        owned
    }

    /// Writes everything local of a region to the node and lets go of it, then marks the region read-only. The caller
    /// has exclusive access to the region.
    pub(crate) fn seal(&self, core: &RegionCore) -> Result<(), FarError> {
        let mut deadline = yonder_clock::now() + self.fault_deadline;
        for block in (0..core.blocks() as u32).map(BlockIndex) {
            while core.resident_in(block) > 0 {
                let progress = self.sweep_some(core, block) || self.drain_some();
                self.extend(&mut deadline, progress, core)?;
            }
        }
        while self.standby.load(Ordering::Acquire) > 0 {
            let progress = self.drain_some();
            self.extend(&mut deadline, progress, core)?;
        }
        core.set_sealed();
        Ok(())
    }

    /// One turn of the first hand on a block; whether anything moved.
    fn sweep_some(&self, core: &RegionCore, block: BlockIndex) -> bool {
        let mut reclaimer = self.lock_reclaimer();
        if !core.block_gate(block).try_sweep() {
            return false;
        }
        let swept = reclaimer.sweep_block(self, core, block, usize::MAX);
        core.block_gate(block).end_sweep();
        swept > 0
    }

    /// One turn of the second hand; whether anything moved.
    fn drain_some(&self) -> bool {
        let now = yonder_clock::now();
        let mut reclaimer = self.lock_reclaimer();
        let before = self.standby.load(Ordering::Acquire);
        reclaimer.poll_writes(self, now);
        let step = reclaimer.drain(self, yonder_reclaim::Policy::DRAIN_PAGES, now);
        step == Step::Worked || self.standby.load(Ordering::Acquire) < before
    }

    /// Moves a deadline that is measured from the last progress.
    fn extend(&self, deadline: &mut Nanos, progress: bool, core: &RegionCore) -> Result<(), FarError> {
        let now = yonder_clock::now();
        if progress {
            *deadline = now + self.fault_deadline;
        } else if now > *deadline {
            return Err(core.error(0, PagingCause::NodeLost).into());
        } else {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Lets go of everything of a region whose owner is gone: nobody can touch it any more.
    pub(crate) fn end_region(&self, core: &RegionCore) {
        for page in (0..core.table.pages() as u32).map(PageIndex) {
            self.abandon_page(core, page);
        }
        // Before the number is free for another region, or a port would take that one for this.
        for port in self.ports() {
            port.lock().forget_region(core.number);
        }
        self.lock_reclaimer().remove_region(core.number);
        self.uncover(core.table.pages() as u64);
        self.metadata_bytes.fetch_sub(core.metadata_bytes(), Ordering::Relaxed);
    }

    /// As [`Pager::release_page`], but a lost node cannot keep the page: its write is abandoned, since nobody will read
    /// it.
    fn abandon_page(&self, core: &RegionCore, page: PageIndex) {
        let seen = core.table.load(page);
        if seen.state() == State::Untouched && !seen.write_in_flight() {
            return;
        }
        if self.release_page(core, page, yonder_clock::now() + self.attempt_deadline).is_err() {
            self.lock_reclaimer().abandon_writes(self, core.number);
            let result = self.release_page(core, page, yonder_clock::now() + self.fault_deadline);
            result.expect("a page without a write is released");
        }
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
