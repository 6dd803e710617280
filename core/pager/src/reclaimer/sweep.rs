//! The evictor: which block it takes, and how pages come onto standby.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::{Event, State};
use crate::reclaim::{Standby, Visit};
use yonder_units::{BlockIndex, FrameIndex, Narrow, PageIndex};

use super::sealed::drops;
use super::{Reclaimer, is_dirty};
use crate::budget::Account;
use crate::damage;
use crate::machine::{Machine, Rule};
use crate::region::RegionCore;
use yonder_units::Vector;

impl<M: Machine> Reclaimer<M> {
    /// Evictor: puts the resident pages of the next block on standby, or as many as `room` allows: of any region, or
    /// of region `only`. Returns how many pages were taken.
    pub(super) fn sweep(&mut self, room: usize, only: Option<usize>) -> usize {
        let blocks_of = |(number, region): (usize, &Option<Arc<RegionCore<M>>>)| match region {
            Some(core) if only.is_none_or(|only| only == number) => core.blocks(),
            _ => 0,
        };
        let blocks: Vec<usize> = self.regions.iter().enumerate().map(blocks_of).collect();
        let (regions, warmth) = (&self.regions, &mut self.warmth);
        let hand = match only {
            Some(number) => &mut self.region_hands[number],
            None => &mut self.hand,
        };
        let found = hand.advance(&blocks, |region, block| {
            let core = regions[region].as_ref().expect("only regions that are there have blocks");
            let block = BlockIndex(block.narrow_u32());
            if core.counts.resident_in(block) == 0 {
                Visit::Skip
            } else if core.counts.passes_over(block, warmth) {
                Visit::PassOver
            } else if core.block_gate(block).try_sweep() {
                Visit::Take
            } else {
                Visit::Skip
            }
        });
        let Some((region, block)) = found else { return 0 };
        let core = Arc::clone(self.regions[region].as_ref().expect("found"));
        let block = BlockIndex(block.narrow_u32());
        self.take_block(&core, block, room)
    }

    /// Takes pages of a block whose gate the caller has taken, and lets it go. Of a sealed region, other blocks behind
    /// it may have to give theirs too.
    pub(crate) fn take_block(&mut self, core: &RegionCore<M>, block: BlockIndex, room: usize) -> usize {
        if drops(core) {
            return self.drop_sealed(core, block, room);
        }
        let swept = self.sweep_pages(core, core.pages_of(block), room);
        core.block_gate(block).end_sweep();
        swept
    }

    /// Sweeps pages of a block whose gate the caller has taken, up to the first that stays because it is unreadable, or
    /// because a discard holds it and it could not leave standby. Returns the number of pages that were put on standby
    /// or forgotten.
    pub(crate) fn sweep_pages(&mut self, core: &RegionCore<M>, pages: Range<u32>, room: usize) -> usize {
        let pager = &*core.pager;
        let block = PageIndex(pages.start).block();
        if core.is_lent(block) && pager.recall(core, block).is_none() {
            return 0;
        }
        self.taken.clear();
        for page in pages.map(PageIndex) {
            let seen = core.table.load(page);
            if self.taken.len() == room || seen.state() != State::Resident {
                continue;
            }
            let is_unreadable = core.unreadable.contains(page) && !M::breaks(Rule::UnreadableStay);
            if is_unreadable || core.order.holds(page) {
                // It stays, and what is unmapped is one range.
                if self.taken.is_empty() {
                    continue;
                }
                break;
            }
            let Some(frame) = pager.local.frames.take(&pager.local.budget, Account::Reclaim) else { break };
            core.table.advance_owned(page, Event::Evict);
            self.taken.push((page, frame));
        }
        self.protect_taken(core);
        let (Some((first, _)), Some((last, _))) = (self.taken.first(), self.taken.last()) else { return 0 };
        let (block, pages) = (first.block(), first.0..last.0 + 1);
        self.copy_taken(core);
        let unmapped = self.unmap_taken(core, pages);
        core.counts.uncount(block, unmapped.narrow_u32());
        core.counts.swept(block, unmapped.narrow_u32(), &mut self.warmth);
        pager.local.counts.stand(self.taken.len() as u64);
        pager.local.budget.uncharge(unmapped as u64);
        self.record_taken(core);
        unmapped
    }

    /// Copies what was taken and is write-protected into its frames; keeps apart what is dead or damaged.
    fn copy_taken(&mut self, core: &RegionCore<M>) {
        let (taken, dead, damaged) = (&mut self.taken, &mut self.dead, &mut self.damaged);
        dead.clear();
        damaged.clear();
        taken.retain(|(page, frame)| {
            match copy_live(core, *page, *frame) {
                Ok(Copied::Live) => return true,
                Ok(Copied::Dead) => dead.push(*page),
                Err(_) => damaged.push(*page),
            }
            core.pager.local.frames.release(*frame);
            false
        });
    }

    /// What was taken is unmapped: its entries say where it is now.
    fn record_taken(&mut self, core: &RegionCore<M>) {
        let pager = &*core.pager;
        for page in &self.dead {
            core.table.advance_owned(*page, Event::Free);
        }
        for page in &self.damaged {
            damage::poison(core, *page);
        }
        let since = M::now();
        M::preempt();
        for (page, frame) in &self.taken {
            let (page, frame) = (*page, *frame);
            let seen = core.table.advance_owned(page, Event::Evicted(frame));
            let is_dirty = is_dirty(core, page, frame, seen);
            self.standby.push(Standby { region: core.number, page, frame, since, is_dirty });
        }
        pager.reclaim.stats.swept_pages.add(self.taken.len() as u64);
        pager.reclaim.stats.dead_pages.add(self.dead.len() as u64);
        pager.reclaim.stats.swept_blocks.add(1);
        self.compact_standby(pager);
    }
}

/// What the evictor has found in a page.
enum Copied {
    /// Something that is kept, which is in the frame now.
    Live,
    /// Nothing that anybody needs.
    Dead,
}

/// Copies a write-protected page into a frame, with the digest of what is live of it. Fails if the memory is damaged.
fn copy_live<M: Machine>(core: &RegionCore<M>, page: PageIndex, frame: FrameIndex) -> Result<Copied, NonZeroU32> {
    let frames = &core.pager.local.frames;
    let live = match core.owner.live(page) {
        // A page whose write has not ended is not forgotten, whatever becomes of its content.
        None if core.table.load(page).write_in_flight() => Vector::WHOLE,
        None => return Ok(Copied::Dead),
        Some(live) => live,
    };
    M::try_copy(frames.mapping(), frame.offset(), &core.mapping, page.offset())?;
    M::with_page(frames.mapping(), frame.offset(), |content| {
        let digest = core.digests.of(live, content);
        core.digests.narrow(page, digest, content);
        frames.set_digest(frame, digest);
    });
    Ok(Copied::Live)
}
