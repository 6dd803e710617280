//! Pages of sealed regions, which the node has already: they are unmapped without a copy, those of several blocks with
//! one flush.

use std::ops::Range;

use crate::pagetable::Event;
use yonder_units::{BlockIndex, Narrow, PAGE_BYTES, PageIndex, Run};

use super::{DROP_PAGES_MAX, Reclaimer, Victims, count_proven};
use crate::clean_drop::{CleanDrop, ReadsAs};
use crate::machine::Machine;
use crate::region::RegionCore;
use yonder_units::Vector;

impl<M: Machine> Reclaimer<M> {
    /// Unmaps `victims` of a sealed region with one flush: those of `block`, whose gate the caller has taken, and of
    /// the blocks behind it, until there are enough. Returns how many there were.
    pub(super) fn drop_sealed(
        &mut self,
        core: &RegionCore<M>,
        block: BlockIndex,
        room: usize,
        victims: Victims,
    ) -> usize {
        self.begin_drop();
        let blocks = core.blocks().narrow_u32();
        for step in 0..blocks {
            let block = BlockIndex((block.0 + step) % blocks);
            if step == 0
                || (victims.are_worth_a_sweep(core, block, &mut self.turns) && core.block_gate(block).try_sweep())
            {
                self.swept.push(block);
                self.take_sealed_pages(core, core.pages_of(block), room, victims);
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
            core.probation.leaves(*page, &pager.reclaim.departures);
        }
        for pages in self.dropped.chunk_by(|one, next| one.block() == next.block()) {
            core.counts.uncount(pages[0].block(), pages.len().narrow_u32());
        }
        for block in &self.swept {
            count_proven(core, *block);
            core.block_gate(*block).end_sweep();
        }
        pager.local.budget.uncharge(self.dropped.len() as u64);
        pager.reclaim.stats.dropped_pages.add(self.dropped.len() as u64);
        self.dropped.len()
    }

    /// Takes `victims` among the pages of a swept block, and the runs that cover them: whatever else a run covers is
    /// not mapped.
    pub(super) fn take_sealed_pages(&mut self, core: &RegionCore<M>, pages: Range<u32>, room: usize, victims: Victims) {
        let mut run: Option<Run> = None;
        for page in pages.map(PageIndex).filter(|page| core.table.load(*page).is_resident()) {
            let is_proven = core.probation.look(page);
            if self.dropped.len() >= room.min(DROP_PAGES_MAX) || is_proven && victims == Victims::OnProbation {
                self.runs.extend(run.take());
                continue;
            }
            core.table.advance_owned(page, Event::Evict);
            self.dropped.push(page);
            let first_page = run.map_or(page.0, |run| run.first_page);
            run = Some(Run { first_page, pages: page.0 - first_page + 1 });
        }
        self.runs.extend(run);
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
