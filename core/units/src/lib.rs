//! The quantities every part of Yonder speaks in.
//!
//! Pages, blocks and frames are index newtypes; sizes, durations and local-memory shares parse from the text that the
//! command line takes (`64MiB`, `2.5us`, `20%`). Nothing here does I/O or reads a clock.

#![forbid(unsafe_code)]

mod free_ranges;
mod index;
mod narrow;
mod parse;
mod vector;

use std::time::Duration;

pub use free_ranges::FreeRanges;
pub use index::{BlockIndex, FrameIndex, PageId, PageIndex, Residence, Run};
pub use narrow::Narrow;
pub use parse::{LocalSize, ParseError, format_bytes, parse_bytes, parse_duration};
pub use vector::{GRANULE_BYTES, SEGMENTS_MAX, Vector};

/// Bytes in a page: the unit of faults and of fetches.
pub const PAGE_BYTES: usize = 4096;
/// Pages in a block: the unit of reclaim (2 MiB).
pub const BLOCK_PAGES: usize = BLOCK_PAGES_U32 as usize;
/// The same, to reckon with page numbers.
pub const BLOCK_PAGES_U32: u32 = 512;
/// Bytes in a block.
pub const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE_BYTES;

/// A point in time or a span, in nanoseconds. Points count from an arbitrary start, the same for one process.
pub type Nanos = u64;

/// Pages needed to hold `bytes`.
#[must_use]
pub const fn pages_for(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES as u64)
}

/// A span in nanoseconds; one that is too long for them, of some 584 years, is the longest there is.
#[must_use]
#[inline]
pub fn saturating_nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}
