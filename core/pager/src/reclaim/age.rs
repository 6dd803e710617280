//! [`Age`]: how long ago a block was touched last.
//!
//! Ages are statistics only: a block that is touched all the time without a fault looks old, since nothing of it is
//! missing.

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
