//! [`SweepHand`]: which block is swept next.

/// What the hand does with the block that it has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// The block is swept.
    Take,
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
    /// whole round in which no block was taken.
    pub fn advance(
        &mut self,
        blocks: &[usize],
        mut visit: impl FnMut(usize, usize) -> Visit,
    ) -> Option<(usize, usize)> {
        for _ in 0..blocks.iter().sum() {
            let here = self.step(blocks);
            if visit(here.0, here.1) == Visit::Take {
                return Some(here);
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
    use super::*;

    #[test]
    fn the_hand_visits_every_block_once_a_round() {
        let (mut hand, blocks) = (SweepHand::default(), [2, 0, 3]);
        let round: Vec<_> = (0..5).map(|_| hand.advance(&blocks, |_, _| Visit::Take).unwrap()).collect();
        assert_eq!(round, [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]);
        assert_eq!(hand.advance(&blocks, |_, _| Visit::Skip), None);
        assert_eq!(hand.advance(&[], |_, _| Visit::Take), None);
    }
}
