//! [`LocalMemory`]: the frames of a pager, and the accounts of all local memory.
//!
//! Any thread may touch all of it at any time, without a lock: each part is a word, or a lock-free structure with rules
//! of its own (`budget`, `frames`). Every fault writes the budget, and faults and reclaim the [`StandbyCounts`], so
//! each is alone in its cache lines.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use yonder_units::{Narrow, PAGE_BYTES};

use crate::budget::Budget;
use crate::config::{Config, Reads};
use crate::frames::FramePool;
use crate::machine::Machine;
use crate::reclaim::{Policy, RESERVE_PAGES_MAX, Usage};
use crate::reclaimer::Purpose;

/// Fewest frames: a sweep's, and as many whose pages are written meanwhile.
const FRAMES_MIN: u64 = 4 * RESERVE_PAGES_MAX;

/// See the head of this file.
pub(crate) struct LocalMemory<M: Machine> {
    pub(crate) budget: CachePadded<Budget>,
    pub(crate) frames: FramePool<M>,
    pub(crate) counts: CachePadded<StandbyCounts>,
    /// Local memory of page tables, hashes and frame lists. Written where regions begin and end.
    metadata_bytes: AtomicU64,
    /// Pages that were lost with their local memory.
    damaged_pages: AtomicU64,
}

/// Pages on standby and writes in flight.
#[derive(Debug, Default)]
pub(crate) struct StandbyCounts {
    /// Pages whose entry is `Standby`, written or not. By faults too, which take pages from standby and leave some
    /// there.
    standby: AtomicU64,
    /// Writes in flight. By who has the reclaimer alone.
    writing: AtomicU64,
    /// Those of them whose page stays on standby: nobody gets a frame by them. By who has the reclaimer alone.
    cleaning: AtomicU64,
}

impl<M: Machine> LocalMemory<M> {
    /// Frames for what may stand under `config`, writes in flight, a sweep, and fetches on their way; nothing is used.
    pub(crate) fn new(config: &Config, policy: &Policy) -> Result<Self, M::Error> {
        let pages = config.local_bytes_max / PAGE_BYTES as u64;
        let standing = match config.reads {
            Reads::InFrames => pages,
            Reads::Mapped => pages / 2,
        };
        let most = (config.frames_max as u64).max(FRAMES_MIN);
        let frames = FramePool::new((standing + 2 * RESERVE_PAGES_MAX).min(most).narrow_usize())?;
        let metadata_bytes = AtomicU64::new(frames.metadata_bytes());
        Ok(Self {
            budget: CachePadded::new(Budget::new(policy)),
            frames,
            counts: CachePadded::default(),
            metadata_bytes,
            damaged_pages: AtomicU64::new(0),
        })
    }

    /// Local memory as it is now; who takes it only the reclaimer knows.
    pub(crate) fn usage(&self) -> Usage {
        let (charged, backed) = (self.budget.charged(), self.frames.backed());
        let cleaning = self.counts.cleaning.load(Ordering::Acquire);
        let writing = self.counts.writing().saturating_sub(cleaning);
        Usage {
            charged,
            spare_frames: self.frames.spare(),
            // A page that is rescued while it is written leaves standby but still counts as writing, so this may be
            // too low for the moment of a write, never too high.
            standby: self.counts.standby().saturating_sub(writing),
            writing,
            resident: charged.saturating_sub(backed),
            headroom: self.frames_to_back(),
            ..Usage::default()
        }
    }

    /// Frames that the reclaimer may have backed now.
    pub(crate) fn frames_to_back(&self) -> u64 {
        self.budget.headroom().min(self.frames.bare())
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn add_metadata(&self, bytes: u64) {
        self.metadata_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn take_metadata_away(&self, bytes: u64) {
        self.metadata_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn damaged_pages(&self) -> u64 {
        self.damaged_pages.load(Ordering::Relaxed)
    }

    pub(crate) fn count_damaged_page(&self) {
        self.damaged_pages.fetch_add(1, Ordering::Relaxed);
    }
}

impl StandbyCounts {
    #[inline]
    pub(crate) fn standby(&self) -> u64 {
        self.standby.load(Ordering::Acquire)
    }

    /// `pages` come onto standby. Before their entries say so: who takes one from there counts down.
    #[inline]
    pub(crate) fn stand(&self, pages: u64) {
        self.standby.fetch_add(pages, Ordering::AcqRel);
    }

    /// A page has left standby.
    #[inline]
    pub(crate) fn leave(&self) {
        self.standby.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn writing(&self) -> u64 {
        self.writing.load(Ordering::Acquire)
    }

    pub(crate) fn begin_write(&self, purpose: Purpose) {
        self.writing.fetch_add(1, Ordering::AcqRel);
        if purpose == Purpose::Clean {
            self.cleaning.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The page of a write that was to stay on standby leaves it with the write.
    pub(crate) fn free_by_write(&self) {
        self.cleaning.fetch_sub(1, Ordering::AcqRel);
    }

    /// A write is over, well or badly.
    pub(crate) fn end_write(&self, purpose: Purpose) {
        if purpose == Purpose::Clean {
            self.cleaning.fetch_sub(1, Ordering::AcqRel);
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
    }
}
