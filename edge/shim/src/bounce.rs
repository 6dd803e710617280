//! [`Bounces`]: local buffers that small transfers of the kernel go through.
//!
//! A buffer is taken for the length of one system call, from signal handlers too, so taking one is one compare-and-swap.

use std::sync::atomic::{AtomicU64, Ordering};

use yonder_mapping::{MapError, Mapping};

/// Bytes of a buffer, and so the largest transfer that is copied; larger ones use the memory itself, which is held meanwhile.
pub(crate) const BOUNCE_BYTES: usize = 16 << 10;
/// System calls that have a buffer at a time. Others hold the memory.
const BUFFERS: usize = 64;

/// The buffers.
pub(crate) struct Bounces {
    memory: Mapping,
    /// A bit for each buffer that is in use.
    taken: AtomicU64,
}

/// A buffer.
pub(crate) struct Bounce<'a> {
    of: &'a Bounces,
    number: u32,
}

impl Bounces {
    pub(crate) fn new() -> Result<Self, MapError> {
        Ok(Self { memory: Mapping::anonymous(BUFFERS * BOUNCE_BYTES)?, taken: AtomicU64::new(0) })
    }

    /// A buffer, if one is free.
    pub(crate) fn take(&self) -> Option<Bounce<'_>> {
        let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Bounce { of: self, number: before.trailing_ones() })
    }
}

impl Bounce<'_> {
    /// Its address.
    pub(crate) fn address(&self) -> usize {
        self.of.memory.address() + self.number as usize * BOUNCE_BYTES
    }
}

impl Drop for Bounce<'_> {
    fn drop(&mut self) {
        self.of.taken.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}
