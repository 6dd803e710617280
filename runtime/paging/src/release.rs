//! The way back: freeing ranges, sealing and ending regions.
//!
//! All three take the reclaimer for one block at a time and give it back while they wait, so that a node
//! that stands still stops only them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use yonder_fabric::RemoteAddress;
use yonder_pagetable::{Event, State};
use yonder_units::{BLOCK_PAGES, BlockIndex, Nanos, PAGE_BYTES, PageIndex};

use crate::error::{FarError, PagingCause};
use crate::forked;
use crate::pager::Pager;
use crate::reclaimer::Step;
use crate::region::RegionCore;
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

/// A range of pages, block by block.
fn by_block(pages: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let blocks = pages.start / BLOCK_PAGES as u32..pages.end.div_ceil(BLOCK_PAGES as u32);
    blocks.map(move |block| {
        let first = block * BLOCK_PAGES as u32;
        pages.start.max(first)..pages.end.min(first + BLOCK_PAGES as u32)
    })
}

/// What one look at a page that is to be forgotten came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    Forgotten,
    /// It is mapped: its block has to be taken first.
    Mapped,
    /// Something is under way with it.
    Busy,
}

impl Pager {
    /// Forgets the content of a page-aligned range, here and on the node: it reads as zeros again.
    pub(crate) fn release(&self, core: &RegionCore, offset: u64, bytes: u64) -> Result<(), FarError> {
        if self.child.is_one() {
            return forked::release(self, core, offset, bytes);
        }
        if self.release_locally(core, offset, bytes)? {
            let RemoteAddress(start) = core.remote_address(PageIndex::containing(offset));
            self.fabric.discard(RemoteAddress(start), bytes)?;
        }
        Ok(())
    }

    /// Forgets a page-aligned range here; whether the node may have something of it.
    fn release_locally(&self, core: &RegionCore, offset: u64, bytes: u64) -> Result<bool, FarError> {
        let deadline = yonder_clock::now() + self.fault_deadline;
        let mut is_on_node = false;
        for part in by_block(PageIndex::containing(offset).0..PageIndex::containing(offset + bytes).0) {
            is_on_node |= self.release_in_block(core, part, deadline)?;
        }
        Ok(is_on_node)
    }

    /// Forgets pages of one block; whether the node has had any. Writes and fetches of them have to end first; others use the
    /// reclaimer while this waits.
    fn release_in_block(&self, core: &RegionCore, pages: Range<u32>, deadline: Nanos) -> Result<bool, FarError> {
        let mut is_on_node = false;
        loop {
            let now = yonder_clock::now();
            let mut left = None;
            {
                let mut reclaimer = self.lock_reclaimer();
                reclaimer.poll_writes(self, now);
                let mut mapped = false;
                for page in pages.clone().map(PageIndex) {
                    let is_written =
                        !core.digests.get(page).is_zeros() || core.table.load(page).state() == State::Remote;
                    match self.try_release_page(core, page) {
                        Release::Forgotten if is_written => {
                            is_on_node = true;
                            core.digests.forget(page);
                        }
                        Release::Forgotten => {}
                        Release::Mapped => mapped = true,
                        Release::Busy => left = Some(page),
                    }
                }
                if mapped {
                    let (kept, was_on_node) = self.unmap_pages(core, pages.clone());
                    is_on_node |= was_on_node;
                    left = left.or(kept);
                }
            }
            let Some(page) = left else { return Ok(is_on_node) };
            worker::poll_own_port(self, now);
            if now > deadline {
                return Err(core.error(page.offset(), PagingCause::NodeLost).into());
            }
            std::thread::yield_now();
        }
    }

    /// Forgets one page if nothing is under way with it and it is not mapped. The caller holds the reclaimer.
    fn try_release_page(&self, core: &RegionCore, page: PageIndex) -> Release {
        let seen = core.table.load(page);
        let forgotten = match seen.state() {
            _ if seen.write_in_flight() => false,
            State::Untouched => true,
            State::Remote | State::Poisoned(_) => core.table.advance(page, seen, Event::Free).is_ok(),
            State::Standby(frame) if core.table.advance(page, seen, Event::Free).is_ok() => {
                self.standby.fetch_sub(1, Ordering::AcqRel);
                self.frames.release(frame);
                true
            }
            State::Resident => return Release::Mapped,
            State::Fetching { port, slot } => {
                self.drop_ahead_of(core, page, port, slot);
                false
            }
            State::Standby(_) | State::Installing(_) | State::Evicting => false,
        };
        if forgotten { Release::Forgotten } else { Release::Busy }
    }

    /// Unmaps the resident pages among `pages` of one block without keeping their content, neighbours with one call. The first
    /// that has to be looked at again, and whether the node has had any of the others. The caller holds the reclaimer.
    fn unmap_pages(&self, core: &RegionCore, pages: Range<u32>) -> (Option<PageIndex>, bool) {
        let (first, block) = (PageIndex(pages.start), PageIndex(pages.start).block());
        let gate = core.gate(first);
        if !gate.try_sweep() {
            return (Some(first), false);
        }
        let (mut left, mut is_on_node, mut run) = (None, false, pages.start..pages.start);
        for page in pages.map(PageIndex) {
            let seen = core.table.load(page);
            if seen.state() == State::Resident && !seen.write_in_flight() {
                core.table.advance_owned(page, Event::Evict);
                is_on_node |= !core.digests.get(page).is_zeros();
                if run.end != page.0 {
                    self.forget_run(core, block, std::mem::replace(&mut run, page.0..page.0));
                }
                run.end = page.0 + 1;
            } else if seen.state() != State::Untouched {
                left = left.or(Some(page));
            }
        }
        self.forget_run(core, block, run);
        gate.end_sweep();
        (left, is_on_node)
    }

    /// Unmaps pages of a block that are `Evicting`.
    fn forget_run(&self, core: &RegionCore, block: BlockIndex, run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        let (offset, pages) = (PageIndex(run.start).offset(), run.len());
        core.mapping.discard(offset, pages * PAGE_BYTES).expect("mapped pages can be dropped");
        for page in run.map(PageIndex) {
            core.digests.forget(page);
            core.table.advance_owned(page, Event::Free);
        }
        core.counts.uncount(block, pages as u32);
        self.budget.uncharge(pages as u64);
    }

    /// Writes everything local of a region to the node and lets go of it, then marks the region read-only. Nobody writes to it
    /// meanwhile; who has its address may read.
    ///
    /// Each page is seen away once before the region is sealed. What is local of it afterwards was fetched since, and is what the node
    /// has; what only left its mapping could be back from its frame, and be dropped without ever having been written.
    pub(crate) fn seal(&self, core: &RegionCore) -> Result<(), FarError> {
        let pages = core.table.pages() as u32;
        assert!(core.secluded.of(0..pages).next().is_none(), "what is secluded can be neither read nor sealed");
        let mut deadline = yonder_clock::now() + self.fault_deadline;
        for block in (0..core.blocks() as u32).map(BlockIndex) {
            while core.counts.resident_in(block) > 0 {
                let progress = self.sweep_some(core, block) || self.drain_some();
                self.extend(&mut deadline, progress, core)?;
            }
        }
        // Page by page: others may put theirs on standby meanwhile, for as long as they like.
        for page in (0..pages).map(PageIndex) {
            loop {
                let progress = match core.table.load(page).state() {
                    State::Untouched | State::Remote | State::Fetching { .. } | State::Poisoned(_) => break,
                    State::Standby(_) => self.drain_some(),
                    State::Resident | State::Evicting | State::Installing(_) => self.sweep_some(core, page.block()),
                };
                self.extend(&mut deadline, progress, core)?;
            }
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
        let swept = reclaimer.sweep_pages(self, core, core.pages_of(block), usize::MAX);
        core.block_gate(block).end_sweep();
        swept > 0
    }

    /// Takes what is local of `pages` away, as far as that is possible in time, and keeps sweeps off them.
    pub(crate) fn seclude(&self, core: &RegionCore, pages: Range<u32>) {
        // A child sweeps nothing.
        if self.child.is_one() {
            return;
        }
        let mut deadline = yonder_clock::now() + self.fault_deadline;
        for part in by_block(pages) {
            let gate = core.gate(PageIndex(part.start));
            let mut in_time = true;
            loop {
                let mut reclaimer = self.lock_reclaimer();
                let is_taken = gate.try_sweep();
                let swept = if is_taken { reclaimer.sweep_pages(self, core, part.clone(), usize::MAX) } else { 0 };
                let is_left = |page| core.table.load(page).is_resident() && !core.secluded.contains(page);
                let has_left = is_taken && !part.clone().map(PageIndex).any(is_left);
                // What somebody holds stays, for perhaps as long as the seclusion.
                let is_over = has_left || gate.is_held() || !in_time;
                if is_over {
                    // While nothing can be installed: whoever touches the pages all the time does not make this go on for ever.
                    core.secluded.seclude(part.clone(), core.table.pages());
                }
                if is_taken {
                    gate.end_sweep();
                }
                if is_over {
                    break;
                }
                drop(reclaimer);
                let progress = swept > 0 || self.drain_some();
                in_time = self.extend(&mut deadline, progress, core).is_ok();
            }
        }
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
        for block in (0..core.blocks() as u32).map(BlockIndex) {
            self.abandon_block(core, block);
        }
        // Before the number is free for another region, or a port would take that one for this.
        for port in self.ports() {
            port.lock().forget_region(core.number, self);
        }
        self.places.leave(core.number);
        self.advised_out.forget_region(core.number);
        self.lock_reclaimer().remove_region(self, core.number);
        self.uncover(core.table.pages() as u64);
        self.metadata_bytes.fetch_sub(core.metadata_bytes(), Ordering::Relaxed);
    }

    /// As [`Pager::release_in_block`] for a whole block, but a lost node cannot keep its pages: their writes are abandoned,
    /// since nobody will read them.
    fn abandon_block(&self, core: &RegionCore, block: BlockIndex) {
        let first = block.first_page().0;
        let pages = first..(first + BLOCK_PAGES as u32).min(core.table.pages() as u32);
        if self.release_in_block(core, pages.clone(), yonder_clock::now() + self.attempt_deadline).is_err() {
            self.lock_reclaimer().abandon_writes(self, core.number);
            let result = self.release_in_block(core, pages, yonder_clock::now() + self.fault_deadline);
            result.expect("pages without a write are released");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::far_memory::FarMemory;

    /// Regions that are sealed: in each, many pages are on standby when they are read.
    const ROUNDS: u64 = 8;
    const PAGE: u64 = PAGE_BYTES as u64;

    /// As a library does that has been given its address: what is on standby is mapped again, and was not written.
    #[test]
    fn what_is_read_while_its_region_is_sealed_is_not_lost() {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        const LOCAL: u64 = 4 << 20;
        for round in 1..=ROUNDS {
            let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(LOCAL)).unwrap();
            let mut region = far.region(LOCAL / 2).unwrap();
            let pages = region.bytes() / PAGE;
            (0..pages).for_each(|page| region.write_u64(page * PAGE, page + round).unwrap());
            let (core, is_sealed) = (Arc::clone(&region.core), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for at in (0..).take_while(|_| !is_sealed.load(Ordering::Relaxed)) {
                        let page = at * 7919 % pages;
                        assert_eq!(core.mapping.try_read_u64(page * PAGE), Ok(page + round));
                    }
                });
                region.seal().unwrap();
                is_sealed.store(true, Ordering::Relaxed);
            });
            // Whatever is local goes.
            let other = far.region(4 * LOCAL).unwrap();
            (0..other.bytes() / PAGE).for_each(|page| other.write_u64(page * PAGE, 1).unwrap());
            (0..pages).for_each(|page| assert_eq!(region.read_u64(page * PAGE), Ok(page + round), "page {page}"));
        }
    }

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
