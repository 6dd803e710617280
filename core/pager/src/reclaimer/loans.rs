//! What is lent is counted in full, so before anything leaves local memory the kernel is asked what is really there.

use std::sync::Arc;

use super::Reclaimer;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::reclaim::{SweepHand, Visit};
use crate::region::RegionCore;
use yonder_units::{BlockIndex, Nanos, Narrow};

/// Blocks that are recalled in one step.
const RECALLS_MAX: usize = 16;
/// What the kernel has refused it refuses again for a while.
const REFUSED_PAUSE: Nanos = 100_000_000;

/// Which block is recalled next.
#[derive(Default)]
pub(super) struct LoanHand {
    hand: SweepHand,
    /// Until when the kernel is not asked again, since it has refused.
    refused_until: Nanos,
}

impl<M: Machine> Reclaimer<M> {
    /// Recalls lent blocks, of `only` one region if that is wanted, until they have given `room` pages, or so many of
    /// them that it is time for other work: how many pages.
    pub(super) fn recall_some(&mut self, pager: &Pager<M>, room: usize, only: Option<usize>) -> usize {
        if pager.loans.blocks() == 0 || M::now() < self.loan_hand.refused_until {
            return 0;
        }
        let blocks_of = |(number, region): (usize, &Option<Arc<RegionCore<M>>>)| match region {
            Some(core) if only.is_none_or(|only| only == number) => core.blocks(),
            _ => 0,
        };
        let blocks: Vec<usize> = self.regions.iter().enumerate().map(blocks_of).collect();
        let regions = &self.regions;
        let mut freed = 0;
        for _ in 0..RECALLS_MAX {
            let found = self.loan_hand.hand.advance(&blocks, |region, block| {
                let core = regions[region].as_ref().expect("only regions that are there have blocks");
                let block = BlockIndex(block.narrow_u32());
                let gate = core.block_gate(block);
                // What is held of it is mapped, and stays.
                if !core.is_lent(block) || !gate.try_close() {
                    return Visit::Skip;
                }
                // Whoever has found damage there may have been first.
                if core.is_lent(block) {
                    return Visit::Take;
                }
                gate.open();
                Visit::Skip
            });
            let Some((region, block)) = found else { return freed };
            let core = Arc::clone(regions[region].as_ref().expect("found"));
            let block = BlockIndex(block.narrow_u32());
            let untouched = pager.recall(&core, block);
            core.block_gate(block).open();
            let Some(untouched) = untouched else {
                self.loan_hand.refused_until = M::now() + REFUSED_PAUSE;
                return freed;
            };
            freed += untouched as usize;
            if freed >= room {
                return freed;
            }
        }
        freed
    }
}
