//! [`Effort`]: how much a process works, and how much of its time faults take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use yonder_pager::Stats;
use yonder_units::{Nanos, PAGE_BYTES, saturating_nanos};

use crate::error::FarError;
use crate::far_memory::FarMemory;
use crate::region::Access;

/// What the kernel takes to bring a fault to its handler and the thread back, in nanoseconds, which no account of
/// faults has. Until it is measured, what a fast machine takes.
static TRAP: AtomicU64 = AtomicU64::new(1_500);
/// Pages that it is measured with, and how often. It takes some milliseconds.
const PAGES: u64 = 64;
const ROUNDS: usize = 8;
/// More than that is something else.
const TRAP_MAX: Nanos = 50_000;

/// The most that this process was found to have worked.
static WORKED: AtomicU64 = AtomicU64::new(0);

/// How much this process has worked, and how much it was held up. Sums since its start, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Effort {
    /// CPU time of all of its threads, without what faults and reclaim have taken.
    pub worked: Nanos,
    /// How long faults have held its threads and unithreads up, traps included.
    pub stalled: Nanos,
}

impl Effort {
    /// Up to now, with `stats` of now.
    #[must_use]
    pub fn of(stats: &Stats) -> Self {
        let traps = (stats.major_faults + stats.minor_faults) * TRAP.load(Ordering::Relaxed);
        // Who waits for a page uses a CPU as long as it does not sleep.
        let not_work = stats.reclaim_cpu_ns + stats.stalled_ns.saturating_sub(stats.slept_ns) + traps;
        let worked = process_cpu().saturating_sub(not_work);
        // What is taken off is in part an estimate, and work does not go back.
        let worked = WORKED.fetch_max(worked, Ordering::Relaxed).max(worked);
        Self { worked, stalled: stats.stalled_ns + traps }
    }
}

/// Finds out what traps take on this machine, for all [`Effort`]s from now on: touches pages with traps and without,
/// and compares. In nanoseconds; an error if it could not touch them.
pub fn measure_trap(far: &FarMemory) -> Result<Nanos, FarError> {
    let region = far.region((1 + PAGES) * PAGE_BYTES as u64)?.with_access(Access::Trap);
    // Of a block with something in it nothing is lent, so each touch is a fault of ours.
    let _held = region.hold(0, 1)?;
    let mut took = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for page in 1..=PAGES {
            let (offset, traps) = (page * PAGE_BYTES as u64, (page % 2) as usize);
            let began = yonder_clock::now();
            if traps == 0 {
                region.probe(offset)?;
            }
            region.write_u64(offset, page)?;
            took[traps].push(yonder_clock::now() - began);
        }
        region.discard(PAGE_BYTES as u64, PAGES * PAGE_BYTES as u64)?;
    }
    let [without, with] = took.map(middle);
    let trap = with.saturating_sub(without).min(TRAP_MAX);
    TRAP.store(trap, Ordering::Relaxed);
    Ok(trap)
}

fn middle(mut all: Vec<Nanos>) -> Nanos {
    all.sort_unstable();
    all[all.len() / 2]
}

fn process_cpu() -> Nanos {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).map_or(0, saturating_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_trap_takes_time_and_its_measuring_leaves_nothing() {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        for lends in [false, true] {
            let config = Config { lends, ..Config::with_local(16 << 20) };
            let far = FarMemory::open("emu://?latency=1us&size=64MiB", config).unwrap();
            let trap = measure_trap(&far).unwrap();
            assert!((1..TRAP_MAX).contains(&trap), "{trap} ns");
            let stats = far.stats();
            let faults = 1 + PAGES * ROUNDS as u64;
            assert_eq!((stats.zero_faults, stats.resident_pages), (faults, 0), "{stats:?}");
        }
    }
}
