//! [`Effort`]: how much a process works, and how much of its time faults take.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use yonder_mapping::Mapping;
use yonder_pager::Stats;
use yonder_trap::{Fault, FaultHandler, Verdict};
use yonder_units::{Nanos, PAGE_BYTES, PageIndex, saturating_nanos};

use crate::error::FarError;
use crate::far_memory::FarMemory;
use crate::kernel::Pager;

/// What the kernel takes to bring a fault to its handler and the thread back, in nanoseconds, which no account of
/// faults has. Until it is measured, what a fast machine takes.
static TRAP: AtomicU64 = AtomicU64::new(1_500);
static IS_MEASURED: AtomicBool = AtomicBool::new(false);
/// Touches that it is measured with. They take some tenths of a millisecond.
const TOUCHES: usize = 64;
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
    /// The part of that in which pages came that were far.
    pub fetching: Nanos,
}

impl Effort {
    /// Up to now, with `stats` of now.
    #[must_use]
    pub fn of(stats: &Stats) -> Self {
        let trap = TRAP.load(Ordering::Relaxed);
        let trapped = (stats.major_faults + stats.minor_faults).saturating_sub(stats.untrapped_faults);
        let traps = trapped * trap;
        // Who waits for a page uses a CPU as long as it does not sleep.
        let not_work = stats.reclaim_cpu_ns + stats.stalled_ns.saturating_sub(stats.slept_ns) + traps;
        let worked = process_cpu().saturating_sub(not_work);
        // What is taken off is in part an estimate, and work does not go back.
        let worked = WORKED.fetch_max(worked, Ordering::Relaxed).max(worked);
        let fetches = stats.major_faults + stats.prefetch_hits + stats.joins;
        let fetches = fetches.saturating_sub(stats.untrapped_fetches);
        let fetching = stats.stages.total.sum() + fetches.min(trapped) * trap;
        Self { worked, stalled: stats.stalled_ns + traps, fetching }
    }
}

/// Finds out what traps take on this machine, for all [`Effort`]s from now on, if that is not known yet. Of faults that
/// monitors handle it is not found out. Needs nothing of the node.
pub fn know_traps(far: &FarMemory) {
    // Nobody waits for it: a child of a fork would for ever.
    if IS_MEASURED.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Ok(Some(trap)) = measure_trap(far) {
        TRAP.store(trap, Ordering::Relaxed);
    }
}

/// What a trap takes beside its handler, in nanoseconds; `None` if the faults of `far` are not delivered as signals.
fn measure_trap(far: &FarMemory) -> Result<Option<Nanos>, FarError> {
    if far.has_monitors() {
        return Ok(None);
    }
    let memory = Arc::new(Mapping::region(TOUCHES * PAGE_BYTES)?);
    far.pager().space().register(&memory)?;
    let handled = Arc::new(AtomicU64::new(0));
    let zeros = Zeros { pager: Arc::clone(far.pager()), memory: Arc::clone(&memory), took: Arc::clone(&handled) };
    let refused = |error| FarError::Regions(format!("no place for the faults of a measurement: {error:?}"));
    let registration = yonder_trap::register(memory.address(), memory.len(), Box::new(zeros)).map_err(refused)?;
    let mut traps = Vec::with_capacity(TOUCHES);
    for touch in 0..TOUCHES {
        let began = yonder_clock::now();
        let is_read = memory.try_read_u64((touch * PAGE_BYTES) as u64).is_ok();
        let took = yonder_clock::now() - began;
        let handled = handled.swap(0, Ordering::Relaxed);
        if is_read && handled > 0 {
            traps.push(took.saturating_sub(handled));
        }
    }
    drop(registration);
    traps.sort_unstable();
    Ok(traps.get(traps.len() / 2).map(|trap| *trap.min(&TRAP_MAX)))
}

/// Memory whose missing pages are zeros, and how long it took to map the last of them.
struct Zeros {
    pager: Arc<Pager>,
    memory: Arc<Mapping>,
    took: Arc<AtomicU64>,
}

impl FaultHandler for Zeros {
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
        let began = yonder_clock::now();
        let page = PageIndex::containing(fault.offset).offset();
        let mapped = self.pager.space().zero_page(&self.memory, page);
        self.took.store((yonder_clock::now() - began).max(1), Ordering::Relaxed);
        if mapped.is_ok() { Verdict::Retry } else { Verdict::Fail(NonZeroU32::MIN) }
    }

    fn describe(&self, _fault: &Fault<'_>, _code: NonZeroU32, out: &mut dyn std::fmt::Write) {
        // Nothing can be done about a message that does not fit.
        let _ = write!(out, "a page of a measurement cannot be mapped");
    }
}

fn process_cpu() -> Nanos {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).map_or(0, saturating_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Delivery};

    #[test]
    fn a_trap_takes_time_and_its_measuring_leaves_nothing() {
        if let Err(error) = yonder_uffd::probe().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        // The node has no more room.
        let far = FarMemory::open("emu://?latency=1us&size=1MiB", Config::with_local(4 << 20)).unwrap();
        let region = far.region(1 << 20).unwrap();
        let before = far.stats();
        for _ in 0..10 {
            let trap = measure_trap(&far).unwrap().unwrap();
            assert!((1..TRAP_MAX).contains(&trap), "{trap} ns");
        }
        let stats = far.stats();
        let faults = [stats.minor_faults, stats.peak_pages, stats.stalled_ns];
        assert_eq!(faults, [before.minor_faults, before.peak_pages, before.stalled_ns]);
        region.write_u64(0, 7).unwrap();
        assert_eq!(region.read_u64(0), Ok(7));
        let monitored = Config { delivery: Delivery::UserMessages, ..Config::with_local(4 << 20) };
        let far = FarMemory::open("emu://?latency=1us&size=1MiB", monitored).unwrap();
        assert_eq!(measure_trap(&far).unwrap(), None);
    }
}
