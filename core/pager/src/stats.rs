//! Counters and stage histograms.
//!
//! Each port has its own, written only by the thread that holds the port; readers add them up. A count costs a load
//! and a store, a histogram entry the same.

use std::sync::atomic::{AtomicU64, Ordering};

use yonder_units::{Nanos, Narrow, PAGE_BYTES};

use crate::machine::Machine;
use crate::pager::Pager;

/// Buckets of a [`StageHistogram`]: four to each power of two, up to 2^32 ns.
pub const STAGE_BUCKETS: usize = 128;

/// A counter with one writer at a time.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Times in nanoseconds, in buckets a quarter of a power of two wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageHistogram {
    /// Number of times in each bucket.
    pub buckets: [u64; STAGE_BUCKETS],
}

impl Default for StageHistogram {
    fn default() -> Self {
        Self { buckets: [0; STAGE_BUCKETS] }
    }
}

impl StageHistogram {
    /// Number of recorded times.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// About how long all recorded times are together, to an eighth, in nanoseconds.
    #[must_use]
    pub fn sum(&self) -> Nanos {
        self.buckets.iter().enumerate().map(|(bucket, count)| bucket_middle(bucket) * count).sum()
    }

    /// The time that a share of `quantile` (0 to 1) of the recorded times does not exceed, in nanoseconds.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Nanos {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is one")]
        let wanted = (self.count() as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.map_or(0, bucket_middle)
    }

    /// What was recorded since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { buckets: std::array::from_fn(|bucket| self.buckets[bucket] - earlier.buckets[bucket]) }
    }

    fn add(&mut self, other: &StageRecorder) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count.get();
        }
    }
}

/// A [`StageHistogram`] that one thread at a time writes and any thread reads.
#[derive(Debug)]
pub struct StageRecorder {
    buckets: [Counter; STAGE_BUCKETS],
}

impl Default for StageRecorder {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()) }
    }
}

impl StageRecorder {
    /// Counts a time. Two threads that record at once lose counts.
    #[inline]
    pub fn record(&self, nanos: Nanos) {
        self.buckets[bucket(nanos)].add(1);
    }

    /// What has been recorded so far.
    #[must_use]
    pub fn snapshot(&self) -> StageHistogram {
        let mut snapshot = StageHistogram::default();
        snapshot.add(self);
        snapshot
    }
}

/// Bucket of a time: two bits below the leading one choose the quarter.
#[inline]
fn bucket(nanos: Nanos) -> usize {
    if nanos < 4 {
        return nanos.narrow_usize();
    }
    let exponent = 63 - nanos.leading_zeros() as usize;
    let quarter = (nanos >> (exponent - 2) & 3) as usize;
    ((exponent - 1) * 4 + quarter).min(STAGE_BUCKETS - 1)
}

fn bucket_middle(bucket: usize) -> Nanos {
    if bucket < 4 {
        return bucket as Nanos;
    }
    let (exponent, quarter) = (bucket / 4 + 1, bucket as u64 % 4);
    let width = 1u64 << (exponent - 2);
    (4 + quarter) * width + width / 2
}

/// Where the time of a major fault goes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FaultStages {
    /// From the handler's first instruction to the posted read.
    pub post: StageHistogram,
    /// From the posted read to the completion that a poll found.
    pub fetch: StageHistogram,
    /// From the completion to the mapped page.
    pub install: StageHistogram,
    /// From the mapped page to the handler running again.
    pub resume: StageHistogram,
    /// From the handler's first instruction to its last.
    pub total: StageHistogram,
}

/// What has happened since the start, and what is now.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Those of them whose page was fetched together with others, by one touch or for one copy.
    pub range_faults: u64,
    /// Faults that needed none: standby pages, first touches, pages that others were fetching.
    pub minor_faults: u64,
    /// Of the minor faults, first touches.
    pub zero_faults: u64,
    /// Of the minor faults, second chances from standby.
    pub rescues: u64,
    /// Of the major faults, those of reads whose page stayed in its frame.
    pub kept_in_frames: u64,
    /// Fetched pages that another thread than their worker mapped, or copied into the frame where they stay.
    pub delegated_installs: u64,
    /// Of the minor faults, waits for a fetch that was on its way.
    pub joins: u64,
    /// Pages fetched ahead of demand.
    pub prefetched_pages: u64,
    /// Of the minor faults, touches of pages that were fetched ahead.
    pub prefetch_hits: u64,
    /// Pages fetched ahead that were mapped, with the one that was touched.
    pub prefetch_used_pages: u64,
    /// Reads of a few bytes that guides have made of far pages.
    pub guide_reads: u64,
    /// Accesses that ended in a paging error.
    pub paging_errors: u64,
    /// Pages that were lost with their local memory: uncorrectable errors.
    pub damaged_pages: u64,
    /// Reads that were posted again.
    pub fetch_retries: u64,
    /// Bytes read from the node.
    pub fetched_bytes: u64,
    /// Bytes of fetched pages that were not read, because nobody needs them.
    pub saved_fetch_bytes: u64,
    /// Bytes the node has acknowledged.
    pub written_bytes: u64,
    /// Bytes of written pages that were not written, because nobody needs them.
    pub saved_written_bytes: u64,
    /// Writes that were posted again.
    pub write_retries: u64,
    /// Pages that the evictor put on standby.
    pub swept_pages: u64,
    /// Blocks that the evictor swept.
    pub swept_blocks: u64,
    /// Sealed pages dropped without a copy.
    pub dropped_pages: u64,
    /// Standby pages found clean by the cleaner.
    pub clean_pages: u64,
    /// Pages that the evictor forgot, because nobody needs a byte of them.
    pub dead_pages: u64,
    /// Dirty standby pages written back because of their age, before anybody needed their frames.
    pub flushed_by_age_pages: u64,
    /// Dirty standby pages written back because there were as many as a batch has.
    pub flushed_by_size_pages: u64,
    /// Pages that were put on standby or dropped because of a quota.
    pub quota_evicted_pages: u64,
    /// Pages that were put on standby or dropped because they had been advised out.
    pub advised_out_pages: u64,
    /// Pages fetched because they had been advised ahead.
    pub advised_ahead_pages: u64,
    /// How long faults have held threads and unithreads up, all together, in nanoseconds. Without what the traps
    /// themselves take.
    pub stalled_ns: Nanos,
    /// The part of that in which they used no CPU.
    pub slept_ns: Nanos,
    /// Faults of threads that had no trap, because whoever was about to touch the page has brought it first.
    pub untrapped_faults: u64,
    /// Those of them whose pages were far, or on their way.
    pub untrapped_fetches: u64,
    /// CPU time of the reclaimer thread in nanoseconds.
    pub reclaim_cpu_ns: u64,
    /// Limit of local memory in pages.
    pub limit_pages: u64,
    /// Pages charged now.
    pub charged_pages: u64,
    /// Most pages ever charged.
    pub peak_pages: u64,
    /// Pages mapped now, including those being installed.
    pub resident_pages: u64,
    /// Pages that were touched and not given back, or are lent.
    pub touched_pages: u64,
    /// Pages on standby now, not counting those being written.
    pub standby_pages: u64,
    /// Pages being written now.
    pub writing_pages: u64,
    /// Fetches in flight now.
    pub in_flight: u64,
    /// Bytes of local metadata: page tables, hashes, frame lists.
    pub metadata_bytes: u64,
    /// Stages of major faults.
    pub stages: FaultStages,
}

impl Stats {
    /// Pages that reclaim has taken: swept or dropped.
    #[must_use]
    pub fn taken_pages(&self) -> u64 {
        self.swept_pages + self.dropped_pages
    }

    /// Pages that were mapped, or read in their frames, after they had been taken.
    #[must_use]
    pub fn returned_pages(&self) -> u64 {
        self.fetched_pages() + self.rescues
    }

    /// Of these, the pages that were far.
    #[must_use]
    pub fn fetched_pages(&self) -> u64 {
        (self.major_faults + self.prefetch_used_pages).saturating_sub(self.range_faults)
    }
}

/// Counters of one writer, which have the names of the counts of [`Stats`] that they are a share of.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($counter:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $name {
            $(pub(crate) $counter: Counter,)+
        }

        impl $name {
            pub(crate) fn add_to(&self, stats: &mut Stats) {
                $(stats.$counter += self.$counter.get();)+
            }
        }
    };
}

counters! {
    /// Those of a port.
    PortStats {
        major_faults, range_faults, zero_faults, rescues, kept_in_frames, delegated_installs, joins, prefetched_pages,
        prefetch_hits,
        prefetch_used_pages, advised_ahead_pages, guide_reads, paging_errors, fetch_retries, fetched_bytes,
        saved_fetch_bytes,
    }
}

counters! {
    /// Those of reclaim, written by whoever holds the reclaimer and read by anyone.
    ReclaimStats {
        swept_pages, swept_blocks, dropped_pages, clean_pages, dead_pages, written_bytes, saved_written_bytes,
        write_retries, flushed_by_age_pages, flushed_by_size_pages, quota_evicted_pages, advised_out_pages,
    }
}

/// A port's share of [`FaultStages`].
#[derive(Debug, Default)]
pub(crate) struct PortStages {
    pub(crate) post: StageRecorder,
    pub(crate) fetch: StageRecorder,
    pub(crate) install: StageRecorder,
    pub(crate) resume: StageRecorder,
    pub(crate) total: StageRecorder,
}

impl PortStages {
    fn add_to(&self, stages: &mut FaultStages) {
        stages.post.add(&self.post);
        stages.fetch.add(&self.fetch);
        stages.install.add(&self.install);
        stages.resume.add(&self.resume);
        stages.total.add(&self.total);
    }
}

impl PortStats {
    /// A page has arrived, of which so many bytes were fetched.
    #[inline]
    pub(crate) fn count_fetched(&self, bytes: usize) {
        self.fetched_bytes.add(bytes as u64);
        self.saved_fetch_bytes.add((PAGE_BYTES - bytes) as u64);
    }
}

impl<M: Machine> Pager<M> {
    /// Counters and what is now. Never waits.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for port in self.ports() {
            port.stats.add_to(&mut stats);
            port.stages.add_to(&mut stats.stages);
            stats.in_flight += u64::from(port.outstanding());
        }
        stats.minor_faults = stats.zero_faults + stats.rescues + stats.joins + stats.prefetch_hits;
        stats.major_faults += stats.range_faults;
        self.reclaim.stats.add_to(&mut stats);
        let usage = self.local.usage();
        stats.charged_pages = usage.charged;
        stats.limit_pages = self.local.budget.limit();
        stats.peak_pages = self.local.budget.peak();
        stats.resident_pages = usage.resident;
        stats.standby_pages = usage.standby;
        stats.writing_pages = usage.writing;
        stats.damaged_pages = self.local.damaged_pages();
        stats.metadata_bytes = self.local.metadata_bytes();
        let touched = |number| self.region_table.with(number, |core| core.table.touched_pages());
        stats.touched_pages = self.region_table.numbers().filter_map(touched).sum();
        [stats.stalled_ns, stats.slept_ns] = self.stalls.sums();
        [stats.untrapped_faults, stats.untrapped_fetches] = self.stalls.without_trap();
        stats.reclaim_cpu_ns = self.reclaim.signals.cpu_ns();
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_times_in_order() {
        let mut last = 0;
        for nanos in (0..5_000).chain((13..40).map(|exponent| 1 << exponent)) {
            let here = bucket(nanos);
            assert!(here >= last && here < STAGE_BUCKETS, "{nanos}");
            last = here;
        }
        for nanos in [5u64, 100, 2_500, 1_000_000] {
            let middle = bucket_middle(bucket(nanos));
            assert!((middle as f64 / nanos as f64 - 1.0).abs() < 0.25, "{nanos} is shown as {middle}");
        }
    }

    #[test]
    fn quantiles() {
        let histogram = StageRecorder::default();
        (0..99).for_each(|_| histogram.record(1_000));
        histogram.record(1_000_000);
        let mut sum = StageHistogram::default();
        sum.add(&histogram);
        assert!((900..1_200).contains(&sum.quantile(0.5)));
        assert!((900_000..1_200_000).contains(&sum.quantile(0.999)));
        assert_eq!(sum.since(&sum).count(), 0);
    }
}
