//! [`SweepHand`]: which block is swept next.

use crate::reclaim::heat::PASSES_MAX;

/// What the hand does with the block that it has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// The block is swept.
    Take,
    /// The block is hot: not in this round.
    PassOver,
    /// The block has nothing, or cannot be had.
    Skip,
}

/// A position that goes round and round over the blocks of every region.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SweepHand {
    region: usize,
    block: usize,
}

impl SweepHand {
    /// The next block that `visit` takes, as (region, block), given each region's number of blocks. `None` after a
    /// whole round in which no block was taken or passed over. Blocks that are passed over are taken in one of the next
    /// [`PASSES_MAX`] rounds at the latest.
    pub fn advance(
        &mut self,
        blocks: &[usize],
        mut visit: impl FnMut(usize, usize) -> Visit,
    ) -> Option<(usize, usize)> {
        for _ in 0..=PASSES_MAX {
            let mut passed_over = false;
            for _ in 0..blocks.iter().sum() {
                let here = self.step(blocks);
                match visit(here.0, here.1) {
                    Visit::Take => return Some(here),
                    Visit::PassOver => passed_over = true,
                    Visit::Skip => {}
                }
            }
            if !passed_over {
                return None;
            }
        }
        None
    }

    /// Moves over one block, of which there is at least one.
    fn step(&mut self, blocks: &[usize]) -> (usize, usize) {
        debug_assert!(blocks.iter().any(|count| *count > 0), "the hand has no block to come to");
        while self.block >= blocks.get(self.region).copied().unwrap_or(0) {
            self.block = 0;
            self.region = (self.region + 1) % blocks.len();
        }
        self.block += 1;
        (self.region, self.block - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::reclaim::heat::{BlockHeat, Warmth};

    #[test]
    fn the_hand_visits_every_block_once_a_round() {
        let (mut hand, blocks) = (SweepHand::default(), [2, 0, 3]);
        let round: Vec<_> = (0..5).map(|_| hand.advance(&blocks, |_, _| Visit::Take).unwrap()).collect();
        assert_eq!(round, [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(hand.advance(&blocks, |_, _| Visit::Skip), None);
        assert_eq!(hand.advance(&[], |_, _| Visit::Take), None);
    }

    #[test]
    fn a_block_that_is_as_hot_as_can_be_is_swept_in_the_end() {
        let (mut hand, mut heat, mut warmth) = (SweepHand::default(), BlockHeat::default(), Warmth::default());
        for _ in 0..3 {
            warmth.sweep(&mut heat, 512);
            let mut visit =
                |heat: &mut BlockHeat| if warmth.passes_over(heat, 512) { Visit::PassOver } else { Visit::Take };
            let taken = hand.advance(&[1], |_, _| visit(&mut heat));
            assert_eq!(taken, Some((0, 0)));
        }
    }

    const BLOCKS: usize = 32;
    const BLOCK_PAGES: usize = 32;
    const LOCAL_PAGES: usize = BLOCKS * BLOCK_PAGES * 2 / 5;
    const STANDBY_PAGES: usize = LOCAL_PAGES / 8;

    /// Local memory as it would be under the two hands: mapped pages, and frames in the order of their sweep.
    struct Model {
        mapped: Vec<[bool; BLOCK_PAGES]>,
        standby: VecDeque<(usize, usize)>,
        heat: Vec<BlockHeat>,
        back: Vec<u32>,
        hand: SweepHand,
        warmth: Warmth,
        by_heat: bool,
        major_faults: u64,
    }

    impl Model {
        fn new(by_heat: bool) -> Self {
            Self {
                mapped: vec![[false; BLOCK_PAGES]; BLOCKS],
                standby: VecDeque::new(),
                heat: vec![BlockHeat::default(); BLOCKS],
                back: vec![0; BLOCKS],
                hand: SweepHand::default(),
                warmth: Warmth::default(),
                by_heat,
                major_faults: 0,
            }
        }

        fn touch(&mut self, block: usize, page: usize) {
            if self.mapped[block][page] {
                return;
            }
            match self.standby.iter().position(|standby| *standby == (block, page)) {
                Some(at) => _ = self.standby.remove(at),
                None => self.major_faults += 1,
            }
            self.back[block] += 1;
            self.mapped[block][page] = true;
            while self.mapped() + self.standby.len() > LOCAL_PAGES {
                self.reclaim();
            }
        }

        fn mapped(&self) -> usize {
            self.mapped.iter().flatten().filter(|mapped| **mapped).count()
        }

        fn reclaim(&mut self) {
            if self.standby.len() > STANDBY_PAGES {
                self.standby.pop_front();
                return;
            }
            let (mapped, heat, back, by_heat) = (&self.mapped, &mut self.heat, &self.back, self.by_heat);
            let warmth = &mut self.warmth;
            let taken = self.hand.advance(&[BLOCKS], |_, block| {
                if !mapped[block].contains(&true) {
                    Visit::Skip
                } else if warmth.passes_over(&mut heat[block], back[block]) && by_heat {
                    Visit::PassOver
                } else {
                    Visit::Take
                }
            });
            let (_, block) = taken.expect("something is mapped");
            let pages: Vec<_> = (0..BLOCK_PAGES).filter(|page| self.mapped[block][*page]).collect();
            self.warmth.sweep(&mut self.heat[block], pages.len() as u32);
            self.back[block] = 0;
            for page in pages {
                self.mapped[block][page] = false;
                self.standby.push_back((block, page));
            }
        }
    }

    /// Major faults by heat and in blind order, of the same touches: `hot_percent` of them go to the first `hot`
    /// blocks.
    fn major_faults(seed: u64, hot: usize, hot_percent: u64) -> (u64, u64) {
        let (mut random, mut by_heat, mut blind) = (seed, Model::new(true), Model::new(false));
        let mut next = move |bound: u64| {
            // SplitMix64.
            random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (random ^ random >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) % bound
        };
        for _ in 0..60_000 {
            let is_hot = next(100) < hot_percent;
            let block = if is_hot { next(hot as u64) } else { hot as u64 + next((BLOCKS - hot) as u64) };
            let page = next(BLOCK_PAGES as u64) as usize;
            by_heat.touch(block as usize, page);
            blind.touch(block as usize, page);
        }
        (by_heat.major_faults, blind.major_faults)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(6))]
        /// What the hand learns pays where there is something to learn.
        #[test]
        #[cfg_attr(miri, ignore = "statistics of 60,000 touches")]
        fn hot_blocks_stay_where_a_blind_hand_takes_them(seed in any::<u64>(), hot in 7usize..9, percent in 80u64..93) {
            let (by_heat, blind) = major_faults(seed, hot, percent);
            prop_assert!(by_heat * 100 < blind * 96, "{by_heat} major faults by heat, {blind} without");
        }

        /// And costs little where there is nothing.
        #[test]
        #[cfg_attr(miri, ignore = "statistics of 60,000 touches")]
        fn where_no_block_is_hotter_heat_costs_little(seed in any::<u64>()) {
            let (by_heat, blind) = major_faults(seed, 8, 25);
            prop_assert!(by_heat * 100 < blind * 103, "{by_heat} major faults by heat, {blind} without");
        }
    }
}
