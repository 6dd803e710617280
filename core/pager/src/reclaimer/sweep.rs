//! The evictor: which block it takes, and how pages come onto standby.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::pagetable::{Event, State};
use crate::reclaim::{Standby, SweepHand, Turns, Visit};
use yonder_units::{BlockIndex, FrameIndex, Narrow, PageIndex};

use super::sealed::drops;
use super::{MEAGER_PAGES, Reclaimer, is_dirty};
use crate::budget::Account;
use crate::damage;
use crate::machine::{Machine, Rule};
use crate::pager::Pager;
use crate::region::RegionCore;
use yonder_units::Vector;

/// Blocks that are looked through for pages on probation in one step.
const LOOKS_MAX: usize = 8;

/// Which pages of a block a sweep takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Victims {
    OnProbation,
    All,
}

impl Victims {
    /// Whether the block is swept for them, as far as is known.
    pub(super) fn are_worth_a_sweep<M: Machine>(
        self,
        core: &RegionCore<M>,
        block: BlockIndex,
        turns: &mut Turns,
    ) -> bool {
        let resident = core.counts.resident_in(block);
        match self {
            Self::OnProbation => turns.is_worth_a_sweep(resident.saturating_sub(core.probation.proven_in(block))),
            Self::All => resident > 0,
        }
    }
}

/// The hands of a sweep, one for each kind of victims.
#[derive(Clone, Copy, Default)]
pub(super) struct Hands {
    on_probation: SweepHand,
    all: SweepHand,
}

impl Hands {
    fn of(&mut self, victims: Victims) -> &mut SweepHand {
        match victims {
            Victims::OnProbation => &mut self.on_probation,
            Victims::All => &mut self.all,
        }
    }
}

impl<M: Machine> Reclaimer<M> {
    /// Evictor: puts pages of the next block on standby, as many as `room` allows: of any region, or of region `only`.
    /// Those on probation go first if they are many. Returns how many pages were taken.
    pub(super) fn sweep(&mut self, pager: &Pager<M>, room: usize, only: Option<usize>) -> usize {
        let cores = self.regions.iter().enumerate().filter(|(number, _)| only.is_none_or(|only| only == *number));
        let sums = cores.filter_map(|(_, core)| core.as_ref()).fold([0, 0], |[mapped, proven], core| {
            let resident = core.counts.resident();
            [mapped + resident, proven + core.probation.proven().min(resident)]
        });
        let mut taken = 0;
        if self.turns.are_of_probation(sums[0], sums[1], pager.limit()) {
            // Of what is found there some is proven by now.
            for _ in 0..LOOKS_MAX {
                let Some(more) = self.sweep_next(room - taken, only, Victims::OnProbation) else { break };
                self.turns.sweep_on_probation(more as u64);
                taken += more;
                if taken > MEAGER_PAGES || taken == room {
                    return taken;
                }
            }
        }
        self.turns.sweep_all();
        taken + self.sweep_next(room - taken, only, Victims::All).unwrap_or(0)
    }

    /// Takes `victims` of the next block that has some; `None` if no block has any.
    fn sweep_next(&mut self, room: usize, only: Option<usize>, victims: Victims) -> Option<usize> {
        let blocks_of = |(number, region): (usize, &Option<Arc<RegionCore<M>>>)| match region {
            Some(core) if only.is_none_or(|only| only == number) => core.blocks(),
            _ => 0,
        };
        let blocks: Vec<usize> = self.regions.iter().enumerate().map(blocks_of).collect();
        let (regions, turns) = (&self.regions, &mut self.turns);
        let hands = match only {
            Some(number) => &mut self.region_hands[number],
            None => &mut self.hands,
        };
        let (region, block) = hands.of(victims).advance(&blocks, |region, block| {
            let core = regions[region].as_ref().expect("only regions that are there have blocks");
            let block = BlockIndex(block.narrow_u32());
            let is_worth_it = victims.are_worth_a_sweep(core, block, turns);
            if is_worth_it && core.block_gate(block).try_sweep() { Visit::Take } else { Visit::Skip }
        })?;
        let core = Arc::clone(self.regions[region].as_ref().expect("found"));
        Some(self.take_block(&core, BlockIndex(block.narrow_u32()), room, victims))
    }

    /// Takes pages of a block whose gate the caller has taken, and lets it go. Of a sealed region, other blocks behind
    /// it may have to give theirs too.
    pub(crate) fn take_block(
        &mut self,
        core: &RegionCore<M>,
        block: BlockIndex,
        room: usize,
        victims: Victims,
    ) -> usize {
        if drops(core) {
            return self.drop_sealed(core, block, room, victims);
        }
        let swept = self.sweep_pages(core, core.pages_of(block), room, victims);
        core.block_gate(block).end_sweep();
        swept
    }

    /// Sweeps `victims` among pages of a block whose gate the caller has taken, but for what is unreadable, or held by
    /// a discard and could not leave standby: of all, up to the first of those. Returns the number of pages that were
    /// put on standby or forgotten.
    pub(crate) fn sweep_pages(
        &mut self,
        core: &RegionCore<M>,
        pages: Range<u32>,
        room: usize,
        victims: Victims,
    ) -> usize {
        let pager = &*core.pager;
        let block = PageIndex(pages.start).block();
        if core.is_lent(block) && pager.recall(core, block).is_none() {
            return 0;
        }
        self.taken.clear();
        for page in pages.clone().map(PageIndex) {
            if core.table.load(page).state() != State::Resident {
                continue;
            }
            let is_proven = core.probation.look(page);
            if self.taken.len() == room || is_proven && victims == Victims::OnProbation {
                continue;
            }
            let is_unreadable = core.unreadable.contains(page) && !M::breaks(Rule::UnreadableStay);
            if is_unreadable || core.order.holds(page) {
                // It stays, and what is write-protected is one range.
                core.probation.prove(page);
                if self.taken.is_empty() {
                    continue;
                }
                break;
            }
            let Some(frame) = pager.local.frames.take(&pager.local.budget, Account::Reclaim) else { break };
            core.table.advance_owned(page, Event::Evict);
            core.probation.stands(page, is_proven);
            self.taken.push((page, frame));
        }
        let taken = self.taken.first().zip(self.taken.last()).map(|((first, _), (last, _))| first.0..last.0 + 1);
        let unmapped = taken.map_or(0, |taken| self.evict_taken(core, taken));
        count_proven(core, block);
        unmapped
    }

    /// Sweeps what was taken, which lies in `pages` of one block: how many pages are unmapped.
    fn evict_taken(&mut self, core: &RegionCore<M>, pages: Range<u32>) -> usize {
        let pager = &*core.pager;
        let block = PageIndex(pages.start).block();
        self.protect_taken(core);
        self.find_runs(core, pages.clone());
        if self.taken.is_empty() {
            self.runs.clear();
        }
        self.copy_taken(core);
        let unmapped = self.unmap_taken(core);
        self.unprotect_spared(core, pages);
        core.counts.uncount(block, unmapped.narrow_u32());
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
            core.probation.forget(*page);
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

/// What is known of a block has changed: counts what is proven of it.
pub(crate) fn count_proven<M: Machine>(core: &RegionCore<M>, block: BlockIndex) {
    let pages = core.pages_of(block).map(PageIndex);
    core.probation.count(block, pages.filter(|page| core.table.load(*page).is_resident()));
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
