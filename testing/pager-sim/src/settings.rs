//! [`Settings`]: how one seed's world is, drawn from the seed.

use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yonder_pager::reclaim::{LIMIT_PAGES_MIN, RESERVE_PAGES_MAX, RESERVE_PAGES_MIN};
use yonder_pager::{FaultPolicy, Prefetch, Reads, Verify};
use yonder_units::{BLOCK_PAGES, Nanos};

/// Blocks that the shared pages are in, and in how many they are in a region that is large.
const BLOCKS: u32 = 4;
const BLOCKS_MANY: u32 = 70;
/// Threads that share a port, in a crowd: more than are woken at a time.
const CROWD: usize = 40;

/// Smallest limit of local memory in pages: of most seeds the least there is, and of one in so many one that is large
/// enough for the largest reserve, so that what is kept back for the evictor grows with what does not fit.
const LIMIT_PAGES: u64 = LIMIT_PAGES_MIN;
const LIMIT_PAGES_LARGE: u64 = 9 * RESERVE_PAGES_MAX;
const LARGE_ONE_IN: u64 = 32;

/// What the program has beside what its threads work on, in pages of the ballast, from the first on.
pub(crate) struct Ballast {
    /// The first, which stay local, and their blocks.
    pub(crate) held: u32,
    pub(crate) held_blocks: u32,
    /// They are touched once, and may leave.
    pub(crate) cold: Range<u32>,
}

/// How threads take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Schedule {
    /// Any that can run, at so many thousandths of the steps another.
    Uniform(u32),
    /// The one with the highest priority, which changes now and then.
    Priorities,
}

impl Schedule {
    fn draw(rng: &mut SmallRng) -> Self {
        let switches = [5, 50, 200, 600];
        if rng.random_range(0..3) == 0 {
            Self::Priorities
        } else {
            Self::Uniform(switches[rng.random_range(0..switches.len())])
        }
    }
}

/// What a worker's faults may do, yielding more often than the others.
const POLICIES: [FaultPolicy; 5] =
    [FaultPolicy::Yield, FaultPolicy::Yield, FaultPolicy::Busy, FaultPolicy::BusyDelegated, FaultPolicy::Hybrid(1_500)];

/// The world of one seed.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) schedule: Schedule,
    pub(crate) threads: usize,
    pub(crate) workers: usize,
    pub(crate) unithreads: usize,
    pub(crate) policy: FaultPolicy,
    pub(crate) has_host: bool,
    pub(crate) operations: usize,
    /// Smallest limit of local memory in pages.
    pub(crate) limit_pages: u64,
    /// Pages that faults may take before local memory is full.
    pub(crate) local_pages: u64,
    /// Pages that all threads work on.
    pub(crate) shared_pages: u32,
    /// Distance from one of them to the next.
    pub(crate) spread: u32,
    pub(crate) prefetch: Prefetch,
    pub(crate) reads: Reads,
    pub(crate) verify: Verify,
    pub(crate) fault_deadline: Nanos,
    pub(crate) attempt_deadline: Nanos,
    pub(crate) latency: Nanos,
    pub(crate) depth: usize,
    pub(crate) fails: u32,
    pub(crate) loses: u32,
    pub(crate) delays: u32,
    pub(crate) late_max: Nanos,
    pub(crate) loses_operations: bool,
    pub(crate) is_mapped: bool,
    /// Installs that are answered so, in thousandths.
    pub(crate) again: u32,
    pub(crate) no_memory: u32,
    /// Stalls of a thread, in millionths of the steps, and the longest.
    pub(crate) stall_millionths: u32,
    pub(crate) stall_max: Nanos,
    /// What the owner does, in thousandths of its turns.
    pub(crate) outages: u32,
    pub(crate) loses_power: bool,
    pub(crate) damages: bool,
    pub(crate) changes: bool,
    pub(crate) holds: bool,
    pub(crate) seals: bool,
    /// Whether paging of the regions of one's own is guided.
    pub(crate) guides: bool,
    /// Whether the process forks now and then.
    pub(crate) forks: bool,
    /// Whether the far side has two tiers, between which pages move, and of which one may be out of reach.
    pub(crate) has_tiers: bool,
    /// When the lease ends for good, if it does: nothing is answered from then on.
    pub(crate) lease_end: Option<Nanos>,
    /// Pages that the kernel will not protect or unmap now, in thousandths.
    pub(crate) refused: u32,
    /// Discards that are given up, in thousandths.
    pub(crate) discards_fail: u32,
    /// Blocks that the shared pages are in.
    pub(crate) blocks: u32,
    /// How many workers there are one after another where there is one at a time.
    pub(crate) successions: usize,
    /// Whether the region that is only read is sealed while others read it.
    pub(crate) seals_late: bool,
    /// After which fork, if any, the seed goes on as the child.
    pub(crate) follows_fork: Option<u32>,
    /// Whether a child has a copy of far memory.
    pub(crate) is_inherited: bool,
    /// Whether another process gets far memory that was given back.
    pub(crate) has_neighbour: bool,
    /// Whether each port has a guide.
    pub(crate) has_guide: bool,
    /// Whether many threads share a port, and wait for the same pages.
    pub(crate) is_crowd: bool,
    /// Whether the pager lends blocks to the kernel.
    pub(crate) lends: bool,
}

impl Settings {
    /// The settings of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x5e77_1265);
        let rng = &mut rng;
        let is_faulty = rng.random_range(0..3) > 0;
        let faulty = |rng: &mut SmallRng, most: u32| {
            if is_faulty && rng.random_range(0..2) == 0 { rng.random_range(0..most) } else { 0 }
        };
        let most_lost = if rng.random_range(0..4) == 0 { 300 } else { 40 };
        let loses = faulty(rng, most_lost);
        let local_pages = rng.random_range(24..160);
        let workers = rng.random_range(0..3);
        let is_mapped = rng.random_range(0..4) == 0;
        let prefetches = [Prefetch::None, Prefetch::Readahead, Prefetch::Trend];
        let most_refused = if rng.random_range(0..4) == 0 { 400 } else { 40 };
        let settings = Self {
            schedule: Schedule::draw(rng),
            threads: if workers == 0 { rng.random_range(1..4) } else { rng.random_range(0..3) },
            workers,
            unithreads: rng.random_range(1..6),
            policy: POLICIES[rng.random_range(0..POLICIES.len())],
            has_host: rng.random_range(0..2) == 0,
            operations: rng.random_range(20..150),
            limit_pages: if seed % LARGE_ONE_IN == LARGE_ONE_IN - 1 { LIMIT_PAGES_LARGE } else { LIMIT_PAGES },
            local_pages,
            shared_pages: (local_pages as u32 * rng.random_range(2..12) / 4).max(8),
            spread: [1, 1, 1, 3, 7][rng.random_range(0..5)],
            prefetch: prefetches[rng.random_range(0..prefetches.len())],
            reads: if rng.random_range(0..2) == 0 { Reads::InFrames } else { Reads::Mapped },
            verify: if rng.random_range(0..4) == 0 { Verify::On } else { Verify::Off },
            fault_deadline: 5_000_000,
            attempt_deadline: 300_000,
            latency: [500, 2_500, 10_000][rng.random_range(0..3)],
            depth: [2, 8, 32][rng.random_range(0..3)],
            fails: faulty(rng, 60),
            loses,
            delays: faulty(rng, 60),
            late_max: [20_000, 400_000, 8_000_000][rng.random_range(0..3)],
            loses_operations: loses > 0 || rng.random_range(0..2) == 0,
            is_mapped,
            again: faulty(rng, 100),
            no_memory: faulty(rng, most_refused),
            stall_millionths: faulty(rng, 500),
            stall_max: [20_000, 500_000, 12_000_000][rng.random_range(0..3)],
            outages: faulty(rng, 100),
            // Memory that is mapped here outlives its node.
            loses_power: is_faulty && !is_mapped && rng.random_range(0..6) == 0,
            damages: is_faulty && rng.random_range(0..4) == 0,
            changes: rng.random_range(0..3) > 0,
            holds: rng.random_range(0..4) == 0,
            seals: rng.random_range(0..3) == 0,
            guides: rng.random_range(0..2) == 0,
            forks: rng.random_range(0..3) == 0,
            has_tiers: rng.random_range(0..4) == 0,
            lease_end: (is_faulty && rng.random_range(0..12) == 0).then(|| rng.random_range(100_000..4_000_000)),
            refused: faulty(rng, 60),
            discards_fail: faulty(rng, 600),
            blocks: if rng.random_range(0..32) == 0 { BLOCKS_MANY } else { BLOCKS },
            successions: [1, 1, 2, 3][rng.random_range(0..4)],
            seals_late: rng.random_range(0..2) == 0,
            follows_fork: (rng.random_range(0..3) == 0).then(|| rng.random_range(1..6)),
            is_inherited: is_mapped && rng.random_range(0..2) == 0,
            has_neighbour: rng.random_range(0..2) == 0,
            has_guide: rng.random_range(0..5) == 0,
            is_crowd: !is_faulty && rng.random_range(0..20) == 0,
            lends: rng.random_range(0..2) == 0,
        };
        if settings.is_crowd { settings.crowded() } else { settings }
    }

    /// Many threads and slow pages: they wait together, and each can fetch.
    fn crowded(self) -> Self {
        let (threads, operations, shared_pages, latency, depth) = (CROWD, 12, 8, 100_000, 64);
        let (workers, seals, seals_late, prefetch) = (0, true, false, Prefetch::None);
        let (has_tiers, has_guide) = (false, false);
        let slow = Self { threads, operations, shared_pages, latency, depth, workers, has_tiers, ..self };
        Self { seals, seals_late, prefetch, has_guide, ..slow }
    }

    /// Most pages that may be local.
    pub(crate) fn limit_pages_max(&self) -> u64 {
        self.limit_pages + self.limit_pages / 4
    }

    /// With all of the reserve, threads have [`Settings::local_pages`]. With a limit that is large all fits at first,
    /// and no longer once they have touched some of what they share.
    pub(crate) fn ballast(&self) -> Ballast {
        let reserve = (self.limit_pages / 8).min(RESERVE_PAGES_MAX);
        let held = (self.limit_pages - reserve - self.local_pages) as u32;
        // Nothing of a block that is held leaves.
        let held_blocks = held.div_ceil(BLOCK_PAGES as u32);
        let first = held_blocks * BLOCK_PAGES as u32;
        // Its writes would not end once the lease has.
        let has_cold = self.limit_pages > LIMIT_PAGES && self.lease_end.is_none();
        let cold = |least: u64| (reserve - least) as u32 - self.shared_pages.min(2 * least as u32) / 2;
        Ballast { held, held_blocks, cold: first..first + if has_cold { cold(RESERVE_PAGES_MIN) } else { 0 } }
    }

    /// Where the shared page of this number is: they are in several blocks.
    pub(crate) fn shared_page(&self, number: u32) -> u32 {
        let in_block = self.shared_pages.div_ceil(self.blocks);
        number / in_block * BLOCK_PAGES as u32 + number % in_block * self.spread
    }

    /// Pages of the region that all threads work on.
    pub(crate) fn region_pages(&self) -> u32 {
        self.shared_page(self.shared_pages - 1) + 1
    }

    /// Whether an access may fail because something was not there in time.
    pub(crate) fn may_time_out(&self) -> bool {
        self.fails
            + self.loses
            + self.delays
            + self.stall_millionths
            + self.outages
            + self.no_memory
            + self.discards_fail
            > 0
            || self.loses_power
            || self.lease_end.is_some()
    }
}
