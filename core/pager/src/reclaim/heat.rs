//! [`BlockHeat`], [`Warmth`] and [`Age`]: what the sweep learns of a block.
//!
//! User space sees no accessed bits, so the only thing that says how hot a block is, is what becomes of it when it is
//! swept: how fast the pages that were taken are wanted back. When the hand comes round again it compares that with
//! what is usual ([`Warmth`]), and passes over the block the more often the more it is above that. So hot blocks are
//! swept rarely, though never never: each sweep measures again, and a block that has become cold is found out after at
//! most [`PASSES_MAX`] rounds.
//!
//! What counts is the rate and not the share that was wanted back: the more blocks are passed over, the shorter is a
//! round, and the less is wanted back in one. Time is counted in swept pages, so that a program that rests forgets
//! nothing.
//!
//! How long ago a block was touched last is known too ([`Age`]), but says less: a block that is touched all the time
//! without a fault looks old, since nothing of it is missing. Ages are statistics only.

use yonder_units::Narrow;

/// How often the hand passes over a block at most.
pub const PASSES_MAX: u8 = 31;
/// How often the hand comes to a block that is wanted back at the usual rate before it takes it.
const PASSES_EACH: u64 = 4;
/// One page wanted back for each page that was swept, while one was swept elsewhere, as a rate.
const RATE_ONE: u64 = 1 << 24;
/// How slowly the usual rate follows what is measured.
const INERTIA: i64 = 32;

/// How hot a block is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockHeat {
    /// Pages that the last sweep took; 0 once the hand has seen what became of them.
    swept: u16,
    /// How often the hand will still pass over the block.
    passes: u8,
    /// What the last measure said, from 0 to [`PASSES_MAX`].
    last: u8,
    /// When it was swept.
    since: u32,
}

/// How fast pages that were swept are usually wanted back, and the time that this is measured in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Warmth {
    /// Pages swept so far.
    now: u32,
    usual_rate: u64,
}

impl Warmth {
    /// `pages` of a block are swept.
    pub fn sweep(&mut self, heat: &mut BlockHeat, pages: u32) {
        self.now = self.now.wrapping_add(pages);
        *heat = BlockHeat {
            swept: pages.min(u32::from(u16::MAX)).narrow_u16(),
            passes: 0,
            last: heat.last,
            since: self.now,
        };
    }

    /// The hand comes to a block, of which `back` pages were wanted back since it was swept. Whether it passes over it.
    pub fn passes_over(&mut self, heat: &mut BlockHeat, back: u32) -> bool {
        debug_assert!(heat.passes <= PASSES_MAX && heat.last <= PASSES_MAX, "{heat:?}");
        if heat.swept > 0 {
            let (swept, elapsed) = (u64::from(heat.swept), u64::from(self.now.wrapping_sub(heat.since)).max(1));
            let rate = u64::from(back).min(swept) * RATE_ONE / (swept * elapsed);
            let passes = (PASSES_EACH * rate / self.usual_rate.max(1)).saturating_sub(1);
            let measured = passes.min(u64::from(PASSES_MAX)).narrow_u8();
            // One odd round neither makes a block hot nor forgets that it was.
            heat.passes = measured.midpoint(heat.last);
            (heat.last, heat.swept) = (measured, 0);
            self.usual_rate =
                self.usual_rate.saturating_add_signed((rate.cast_signed() - self.usual_rate.cast_signed()) / INERTIA);
        }
        let passes = heat.passes > 0;
        heat.passes = heat.passes.saturating_sub(1);
        passes
    }
}

impl BlockHeat {
    /// Whether the hand would pass over the block now, as far as it has seen what became of it.
    #[must_use]
    pub fn is_hot(self) -> bool {
        self.passes > 0
    }

    /// One word, for a table.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.since) << 32 | u64::from(self.swept) << 16 | u64::from(self.passes) << 8 | u64::from(self.last)
    }

    /// What [`BlockHeat::to_bits`] has made.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        let [last, passes, ..] = bits.to_le_bytes();
        debug_assert!(passes <= PASSES_MAX && last <= PASSES_MAX, "{bits:#x} is no block's heat");
        Self { swept: (bits >> 16 & 0xffff) as u16, passes, last, since: (bits >> 32) as u32 }
    }
}

/// When a block was last seen to be touched: at which look its number of installs had changed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Age {
    installs: u32,
    look: u32,
}

impl Age {
    /// Look number `look` finds that there were `installs` in all.
    #[must_use]
    pub fn seen(self, installs: u32, look: u32) -> Self {
        if installs == self.installs { self } else { Self { installs, look } }
    }

    /// Looks since the block was last touched, if there were `installs` in all and the next look has number `look`.
    #[must_use]
    pub fn looks_since(self, installs: u32, look: u32) -> u32 {
        if installs == self.installs { look.saturating_sub(self.look) } else { 0 }
    }

    /// One word, for a table.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.installs) << 32 | u64::from(self.look)
    }

    /// What [`Age::to_bits`] has made.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self { installs: (bits >> 32) as u32, look: (bits & 0xffff_ffff) as u32 }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "is no block's heat")]
    fn heat_beyond_the_most_passes_is_our_bug() {
        let _ = BlockHeat::from_bits(u64::from(PASSES_MAX) + 1);
    }
}
