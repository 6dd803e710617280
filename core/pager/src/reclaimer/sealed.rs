//! Pages of sealed regions, which the node has already: they are unmapped without a copy, those of several blocks with
//! one flush.

use std::ops::Range;

use crate::pagetable::Event;
use yonder_units::{BlockIndex, Narrow, PAGE_BYTES, PageIndex, Run};

use super::{DROP_PAGES_MAX, Reclaimer};
use crate::clean_drop::{CleanDrop, ReadsAs};
use crate::machine::Machine;
use crate::region::RegionCore;
use yonder_units::Vector;

impl<M: Machine> Reclaimer<M> {
    /// Unmaps resident pages of a sealed region with one flush: those of `block`, whose gate the caller has taken, and
    /// of the blocks behind it that are not hot, until there are enough. Returns how many there were.
    pub(super) fn drop_sealed(&mut self, core: &RegionCore<M>, block: BlockIndex, room: usize) -> usize {
        self.begin_drop();
        let blocks = core.blocks().narrow_u32();
        for step in 0..blocks {
            let block = BlockIndex((block.0 + step) % blocks);
            let is_wanted = core.counts.resident_in(block) > 0 && !core.counts.is_hot(block);
            if step == 0 || (is_wanted && core.block_gate(block).try_sweep()) {
                self.swept.push(block);
                self.take_sealed_pages(core, core.pages_of(block), room);
            }
            if self.dropped.len() >= room.min(DROP_PAGES_MAX) || self.swept.len() == self.swept.capacity() {
                break;
            }
        }
        self.end_drop(core)
    }

    pub(super) fn begin_drop(&mut self) {
        self.dropped.clear();
        self.runs.clear();
        self.swept.clear();
    }

    /// Unmaps what was taken of the blocks that were swept, and lets them go.
    pub(super) fn end_drop(&mut self, core: &RegionCore<M>) -> usize {
        let pager = &*core.pager;
        compare_sealed(core, &self.dropped);
        self.unmap_dropped(core);
        for page in &self.dropped {
            core.table.advance_owned(*page, Event::Dropped);
        }
        for pages in self.dropped.chunk_by(|one, next| one.block() == next.block()) {
            core.counts.uncount(pages[0].block(), pages.len().narrow_u32());
            core.counts.swept(pages[0].block(), pages.len().narrow_u32(), &mut self.warmth);
        }
        self.swept.iter().for_each(|block| core.block_gate(*block).end_sweep());
        pager.local.budget.uncharge(self.dropped.len() as u64);
        pager.reclaim.stats.dropped_pages.add(self.dropped.len() as u64);
        self.dropped.len()
    }

    /// Takes resident pages of a swept block, and one run that covers them: whatever else the run covers is not mapped.
    pub(super) fn take_sealed_pages(&mut self, core: &RegionCore<M>, pages: Range<u32>, room: usize) {
        let before = self.dropped.len();
        for page in pages.map(PageIndex) {
            if self.dropped.len() >= room.min(DROP_PAGES_MAX) {
                break;
            }
            if core.table.load(page).is_resident() {
                core.table.advance_owned(page, Event::Evict);
                self.dropped.push(page);
            }
        }
        if let (Some(first), Some(last)) = (self.dropped.get(before), self.dropped.last()) {
            self.runs.push(Run { first_page: first.0, pages: last.0 - first.0 + 1 });
        }
    }
}

/// Compares pages that are dropped without a copy, and are still mapped, with the second copy of a fabric that keeps
/// one.
fn compare_sealed<M: Machine>(core: &RegionCore<M>, pages: &[PageIndex]) {
    let fabric = &core.pager.fabric;
    if !M::compares_clean_drops(fabric) {
        return;
    }
    for page in pages {
        let mut content = [0; PAGE_BYTES];
        // What is damaged is found so by the next touch.
        if M::try_read(&core.mapping, page.offset(), &mut content).is_ok() {
            let (page_id, address) = (core.place(*page), core.remote_address(*page));
            let dropped = CleanDrop { page_id, address, vector: Vector::WHOLE, reads_as: ReadsAs::Fetched };
            M::compare_clean_drop(fabric, &dropped, &content);
        }
    }
}

/// Whether pages of the region are dropped without a copy: the node has them.
pub(super) fn drops<M: Machine>(core: &RegionCore<M>) -> bool {
    core.is_sealed() && !core.owner.is_set()
}
