//! [`BlockHeat`] and [`Age`]: what the sweep learns of a block.
//!
//! User space sees no accessed bits, so the only thing that says how hot a block is, is what becomes of it when it is swept:
//! how many of the pages that were taken are wanted back before the hand comes round again. The hand passes over a block the
//! more often the more of it was wanted back, so hot blocks are swept rarely, though never never: each sweep measures again,
//! and a block that has become cold is found out after at most [`PASSES_MAX`] rounds.
//!
//! How long ago a block was touched last is known too ([`Age`]), but says less: a block that is touched all the time without a
//! fault looks old, since nothing of it is missing. Ages are statistics only.

/// How often the hand passes over a block all of which was wanted back.
pub const PASSES_MAX: u8 = 7;

/// How hot a block is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BlockHeat {
    /// Pages that the last sweep took; 0 once the hand has seen what became of them.
    swept: u16,
    /// How often the hand will still pass over the block.
    passes: u8,
    /// What the last measure said, from 0 to [`PASSES_MAX`].
    last: u8,
}

impl BlockHeat {
    /// The block is swept of `pages`.
    #[must_use]
    pub fn swept(self, pages: u32) -> Self {
        Self { swept: pages.min(u32::from(u16::MAX)) as u16, passes: 0, last: self.last }
    }

    /// The hand comes to the block, of which `back` pages were wanted back since it was swept. Whether it passes over it.
    pub fn passes_over(&mut self, back: u32) -> bool {
        if self.swept > 0 {
            let swept = u32::from(self.swept);
            let measured = (back.min(swept) * u32::from(PASSES_MAX) / swept) as u8;
            // One odd round neither makes a block hot nor forgets that it was.
            self.passes = measured.midpoint(self.last);
            (self.last, self.swept) = (measured, 0);
        }
        let passes = self.passes > 0;
        self.passes = self.passes.saturating_sub(1);
        passes
    }

    /// Whether the hand would pass over the block now, as far as it has seen what became of it.
    #[must_use]
    pub fn is_hot(self) -> bool {
        self.passes > 0
    }

    /// One word, for a table.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        u32::from(self.swept) << 16 | u32::from(self.passes) << 8 | u32::from(self.last)
    }

    /// What [`BlockHeat::to_bits`] has made.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self { swept: (bits >> 16) as u16, passes: (bits >> 8) as u8, last: bits as u8 }
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
        Self { installs: (bits >> 32) as u32, look: bits as u32 }
    }
}
