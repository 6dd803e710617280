//! [`Effort`]: how much a process works, and how much of its time faults take.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use yonder_pager::Stats;
use yonder_units::{Nanos, saturating_nanos};

/// What the kernel takes to bring a fault to its handler and the thread back, which no account of faults has.
const TRAP: Nanos = 1_500;

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
        let traps = (stats.major_faults + stats.minor_faults) * TRAP;
        // Who waits for a page uses a CPU as long as it does not sleep.
        let not_work = stats.reclaim_cpu_ns + stats.stalled_ns.saturating_sub(stats.slept_ns) + traps;
        let worked = process_cpu().saturating_sub(not_work);
        // What is taken off is in part an estimate, and work does not go back.
        let worked = WORKED.fetch_max(worked, Ordering::Relaxed).max(worked);
        Self { worked, stalled: stats.stalled_ns + traps }
    }
}

fn process_cpu() -> Nanos {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).map_or(0, saturating_nanos)
}
