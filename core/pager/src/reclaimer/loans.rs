//! What is lent is counted in full, so before anything leaves local memory the kernel is asked what is really there.

use std::sync::Arc;

use super::Reclaimer;
use crate::machine::Machine;
use crate::pager::Pager;
use crate::reclaim::{SweepHand, Visit};
use yonder_units::{BlockIndex, Narrow};

/// Blocks that are recalled in one step.
const RECALLS_MAX: usize = 16;

/// Which block is recalled next.
#[derive(Default)]
pub(super) struct LoanHand {
    hand: SweepHand,
    /// How many blocks were lent when none of them could be recalled: the kernel refuses.
    stuck: u64,
}

impl<M: Machine> Reclaimer<M> {
    /// Recalls lent blocks, of `only` one region if that is wanted, until they have given `room` pages, or so many of
    /// them that it is time for other work: how many pages.
    pub(super) fn recall_some(&mut self, pager: &Pager<M>, room: usize, only: Option<usize>) -> usize {
        if [0, self.loan_hand.stuck].contains(&pager.loans.blocks()) {
            return 0;
        }
        let blocks: Vec<usize> =
            self.regions.iter().map(|region| region.as_ref().map_or(0, |core| core.blocks())).collect();
        let regions = &self.regions;
        let mut freed = 0;
        for _ in 0..RECALLS_MAX {
            let found = self.loan_hand.hand.advance(&blocks, |region, block| {
                if only.is_some_and(|only| only != region) {
                    return Visit::Skip;
                }
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
            let Some((region, block)) = found else {
                if only.is_none() {
                    self.loan_hand.stuck = pager.loans.blocks();
                }
                return freed;
            };
            let core = Arc::clone(regions[region].as_ref().expect("found"));
            let block = BlockIndex(block.narrow_u32());
            let untouched = pager.recall(&core, block);
            core.block_gate(block).open();
            let Some(untouched) = untouched else {
                // What it has refused it refuses again.
                self.loan_hand.stuck = pager.loans.blocks();
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
