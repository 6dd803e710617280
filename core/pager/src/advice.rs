//! Advice on ranges of a region (LightSwap's `swap_advise`, section 4.1): what will not be needed soon
//! ([`AdvisedOut`]), and what will be needed together, or each page for itself ([`AdvisedRanges`]).
//!
//! Advice is kept in tables of fixed size: of too much of it the oldest is forgotten. Nothing but speed depends on it.
//!
//! Who touches what: whoever advises writes both. The reclaimer takes from [`AdvisedOut`] under its lock, which nobody
//! holds for longer than a look at the list. The fault path reads [`AdvisedRanges`], plain words without a lock: what
//! it makes of a word that changes meanwhile is what the old or the new one says.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use yonder_units::{Narrow, PAGE_BYTES, PageIndex, format_bytes};

use crate::machine::Machine;
use crate::region::RegionCore;

/// Ranges advised out that are remembered of one far memory.
const OUT_RANGES_MAX: usize = 1024;
/// Ranges of a kind that are remembered of one region, of those that misses look at.
const RANGES_MAX: usize = 64;

/// What a program knows of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// It will not be touched soon: its pages are the first to leave local memory. At once if the quota of the region
    /// or of the process is reached or almost, else when room is needed. Holds for what is local until it has left
    /// once.
    Out,
    /// It will be touched as a whole: a touch of one of its pages that has to be fetched fetches others of it too, as
    /// many as are bounded by [`ADVISED_PAGES_MAX`]. Holds until other advice comes. Has no effect where nothing is
    /// fetched ahead ([`Prefetch::None`](crate::Prefetch::None)).
    Ahead,
    /// Which page of it is touched next cannot be told: nothing is fetched ahead. Holds until other advice comes.
    Random,
    /// Nothing is known of it any more.
    Normal,
}

/// Pages that one touch of a range that was advised ahead fetches at most, beside the one that is touched.
pub const ADVISED_PAGES_MAX: u32 = 128;

/// Advice that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdviceError {
    /// A range of no bytes.
    #[error("a range of 0 bytes cannot be advised on: give its length")]
    Empty,
    /// A range that is not of one region.
    #[error("{bytes} bytes at {address:#x} are not in one region of this far memory: give a range of one")]
    Outside {
        /// Where the range begins.
        address: usize,
        /// Its length.
        bytes: u64,
    },
    /// A range that does not end in its region.
    #[error("{bytes} bytes at offset {offset} end behind the region of {}: give less", format_bytes(*.region_bytes))]
    TooLong {
        /// Where the range begins in the region.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// The length of the region.
        region_bytes: u64,
    },
}

impl<M: Machine> RegionCore<M> {
    /// Which pages `bytes` bytes at `offset` are in, that somebody advises on.
    pub fn pages_advised(&self, offset: u64, bytes: u64) -> Result<Range<u32>, AdviceError> {
        let region_bytes = M::len(&self.mapping) as u64;
        let end = offset.checked_add(bytes).filter(|end| *end <= region_bytes);
        let end = end.ok_or(AdviceError::TooLong { offset, bytes, region_bytes })?;
        Ok(PageIndex::containing(offset).0..end.div_ceil(PAGE_BYTES as u64).narrow_u32())
    }

    /// Takes advice on pages.
    pub fn note_advice(&self, pages: Range<u32>, advice: Advice) {
        let pager = &*self.pager;
        if pager.child.is_one() {
            // A forked child neither reclaims nor fetches ahead.
            return;
        }
        match advice {
            Advice::Out => {
                self.ahead.forget_in(&pages);
                self.random.forget_in(&pages);
                pager.advised_out.add(self.number, pages);
            }
            Advice::Ahead | Advice::Random | Advice::Normal => {
                pager.advised_out.forget_in(self.number, &pages);
                let kinds = [(&self.ahead, Advice::Ahead), (&self.random, Advice::Random)];
                for (ranges, kind) in kinds {
                    if kind == advice { ranges.add(&pages) } else { ranges.forget_in(&pages) }
                }
            }
        }
        pager.enforce_quotas_now();
    }
}

/// Pages of a region that will not be needed soon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OutRange {
    pub(crate) region: u32,
    pub(crate) pages: Range<u32>,
}

/// What was advised out and has not left yet, the oldest first.
#[derive(Default)]
pub(crate) struct AdvisedOut(Mutex<VecDeque<OutRange>>);

impl AdvisedOut {
    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<OutRange>) -> T) -> T {
        work(&mut self.0.lock().expect("no code panics while it holds the advice"))
    }

    pub(crate) fn add(&self, region: u32, pages: Range<u32>) {
        self.with(|ranges| {
            // What was put back may have taken a place more.
            while ranges.len() >= OUT_RANGES_MAX {
                ranges.pop_front();
            }
            ranges.push_back(OutRange { region, pages });
        });
    }

    /// Takes the oldest range of a region that is `wanted`.
    pub(crate) fn take(&self, wanted: impl Fn(u32) -> bool) -> Option<OutRange> {
        self.with(|ranges| {
            let at = ranges.iter().position(|range| wanted(range.region))?;
            ranges.remove(at)
        })
    }

    /// Puts back what is left of a range that was taken: as the oldest, or as the youngest if it could not be had.
    pub(crate) fn put_back(&self, range: OutRange, is_oldest: bool) {
        self.with(|ranges| if is_oldest { ranges.push_front(range) } else { ranges.push_back(range) });
    }

    fn forget_in(&self, region: u32, pages: &Range<u32>) {
        self.with(|ranges| ranges.retain(|range| range.region != region || !is_in(&range.pages, pages)));
    }

    /// The region ends.
    pub(crate) fn forget_region(&self, region: u32) {
        self.with(|ranges| ranges.retain(|range| range.region != region));
    }
}

/// Ranges of a region that were given the same advice.
pub(crate) struct AdvisedRanges {
    /// First page and end in one word; zero is none.
    ranges: [AtomicU64; RANGES_MAX],
    /// Ranges that were ever added.
    added: AtomicUsize,
}

impl Default for AdvisedRanges {
    fn default() -> Self {
        Self { ranges: std::array::from_fn(|_| AtomicU64::new(0)), added: AtomicUsize::new(0) }
    }
}

impl AdvisedRanges {
    fn add(&self, pages: &Range<u32>) {
        let word = u64::from(pages.start) << 32 | u64::from(pages.end);
        if self.ranges.iter().all(|range| range.load(Ordering::Relaxed) != word) {
            let at = self.added.fetch_add(1, Ordering::AcqRel) % RANGES_MAX;
            self.ranges[at].store(word, Ordering::Release);
        }
    }

    /// A range that `page` is of.
    #[inline]
    pub(crate) fn around(&self, page: PageIndex) -> Option<Range<u32>> {
        let used = self.added.load(Ordering::Acquire).min(RANGES_MAX);
        let range_at = |word: &AtomicU64| range_of(word.load(Ordering::Acquire));
        self.ranges[..used].iter().map(range_at).find(|range| range.contains(&page.0))
    }

    fn forget_in(&self, pages: &Range<u32>) {
        for cell in &self.ranges {
            let word = cell.load(Ordering::Acquire);
            if is_in(&range_of(word), pages) {
                // Another may have taken the place meanwhile: it stays.
                _ = cell.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

#[inline]
fn range_of(word: u64) -> Range<u32> {
    (word >> 32) as u32..(word & 0xffff_ffff) as u32
}

/// Whether `inner` lies wholly in `outer`.
fn is_in(inner: &Range<u32>, outer: &Range<u32>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_advice_is_taken_first_and_forgotten_first() {
        let out = AdvisedOut::default();
        (0..OUT_RANGES_MAX as u32 + 1).for_each(|range| out.add(range % 2, range..range + 1));
        assert_eq!(out.take(|region| region == 0).unwrap().pages, 2..3, "the oldest was forgotten");
        let taken = out.take(|_| true).unwrap();
        assert_eq!(taken.pages, 1..2);
        out.put_back(taken.clone(), true);
        assert_eq!(out.take(|_| true), Some(taken));
        out.forget_in(1, &(0..6));
        assert_eq!(out.take(|region| region == 1).unwrap().pages, 7..8);
        out.forget_region(1);
        assert!(out.take(|region| region == 1).is_none() && out.take(|region| region == 0).is_some());
    }

    #[test]
    fn ranges_ahead_are_found_by_their_pages() {
        let ahead = AdvisedRanges::default();
        assert_eq!(ahead.around(PageIndex(0)), None);
        ahead.add(&(10..20));
        ahead.add(&(30..40));
        assert_eq!(ahead.around(PageIndex(19)), Some(10..20));
        assert_eq!(ahead.around(PageIndex(20)), None);
        ahead.forget_in(&(0..39));
        assert_eq!((ahead.around(PageIndex(19)), ahead.around(PageIndex(30))), (None, Some(30..40)));
        (0..RANGES_MAX as u32).for_each(|range| ahead.add(&(100 + range..101 + range)));
        assert_eq!(ahead.around(PageIndex(30)), None, "the oldest made room");
        (0..3).for_each(|_| ahead.add(&(100..101)));
        assert_eq!(ahead.around(PageIndex(101)), Some(101..102), "the same advice again takes no other's place");
    }
}
