//! [`Demand`]: who takes local memory, those that map pages or those that read them in frames.

use yonder_units::Narrow;

/// Pages taken after which the share is looked at anew.
const WINDOW: u64 = 1024;

/// The share of reads in what is taken, over the last few windows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Demand {
    in_frames: u64,
    mapped: u64,
    reads: u32,
}

impl Demand {
    /// So many pages were taken since the last call.
    pub fn observe(&mut self, in_frames: u64, mapped: u64) {
        self.in_frames += in_frames;
        self.mapped += mapped;
        let all = self.in_frames + self.mapped;
        if all >= WINDOW {
            let now = (self.in_frames * 256 / all).narrow_u32();
            // Rounded towards what is new, so that both ends are reached.
            self.reads = if now > self.reads { (self.reads + now).div_ceil(2) } else { self.reads.midpoint(now) };
            (self.in_frames, self.mapped) = (0, 0);
        }
        debug_assert!(self.reads <= 256, "{} parts of 256 are reads", self.reads);
    }

    /// The share of reads, in 256ths.
    #[must_use]
    pub fn reads(&self) -> u32 {
        self.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_within_a_few_windows_and_reaches_both_ends() {
        let mut demand = Demand::default();
        (0..100).for_each(|_| demand.observe(0, 100));
        assert_eq!(demand.reads(), 0);
        (0..100).for_each(|_| demand.observe(100, 0));
        assert_eq!(demand.reads(), 256);
        (0..44).for_each(|_| demand.observe(50, 50));
        assert!((128..160).contains(&demand.reads()), "{demand:?}");
        (0..100).for_each(|_| demand.observe(0, 100));
        assert!(demand.reads() == 0, "{demand:?}");
    }
}
