//! [`ReclaimState`]: the reclaimer behind its lock, and what it, its host and others tell one another.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crossbeam_utils::CachePadded;
use yonder_units::Nanos;

use crate::machine::Machine;
use crate::queue_pair::QueuePair;
use crate::reclaim::Departures;
use crate::reclaimer::Reclaimer;
use crate::stats::ReclaimStats;

/// See the head of this file. Each part is alone in its cache lines, because who reclaims writes it while faults read
/// what is beside it.
pub(crate) struct ReclaimState<M: Machine> {
    reclaimer: CachePadded<Mutex<Reclaimer<M>>>,
    pub(crate) signals: CachePadded<ReclaimSignals>,
    /// Written by who has the reclaimer, and read by anyone.
    pub(crate) stats: CachePadded<ReclaimStats>,
    /// Written by who has the reclaimer, and read by who fetches.
    pub(crate) departures: CachePadded<Departures>,
}

/// What the reclaimer, its host and those who wait for it tell one another. Words, without a lock.
#[derive(Debug, Default)]
pub(crate) struct ReclaimSignals {
    /// CPU time of reclaim in nanoseconds, of its thread and of a host. By both.
    cpu_ns: AtomicU64,
    /// Steps of a host, which runs reclaim instead of the thread while it makes steps; 0 without a host. By the host.
    hosted_steps: AtomicU64,
    /// Whether reclaim has started and not reached the upper watermark, or has writes in flight. By who has the
    /// reclaimer.
    at_work: AtomicBool,
    /// Whether somebody waits for room. Set by anyone, taken by who has the reclaimer.
    starved: AtomicBool,
    /// When the reclaimer should look after standby pages, quotas and advice. By who has the reclaimer; set to now by
    /// anyone.
    enforce_at: AtomicU64,
    /// Threads that wait for the reclaimer: its own thread lets them go first. By those.
    wanted: AtomicU32,
    /// Most spare frames that count as free, because reads will take them. By who has the reclaimer.
    spare_for_reads: AtomicU64,
    /// Looks at the ages of blocks so far. By who has the reclaimer.
    looks: AtomicU32,
}

impl<M: Machine> ReclaimState<M> {
    pub(crate) fn new(write_back: Box<dyn QueuePair>) -> Self {
        Self {
            reclaimer: CachePadded::new(Mutex::new(Reclaimer::new(write_back))),
            signals: CachePadded::default(),
            stats: CachePadded::default(),
            departures: CachePadded::default(),
        }
    }

    /// The reclaimer, for a moment.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Reclaimer<M>> {
        self.signals.wanted.fetch_add(1, Ordering::AcqRel);
        let guard = M::lock(&self.reclaimer);
        self.signals.wanted.fetch_sub(1, Ordering::AcqRel);
        guard
    }

    /// The reclaimer, if nobody has it and nobody waits for it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Reclaimer<M>>> {
        if self.signals.wanted.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.reclaimer.try_lock().ok()
    }
}

impl ReclaimSignals {
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn count_cpu(&self, cpu_ns: u64) {
        self.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    pub(crate) fn hosted_steps(&self) -> u64 {
        self.hosted_steps.load(Ordering::Acquire)
    }

    pub(crate) fn count_hosted_step(&self) {
        self.hosted_steps.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn end_hosting(&self) {
        self.hosted_steps.store(0, Ordering::Release);
    }

    pub(crate) fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
    }

    pub(crate) fn starve(&self) {
        self.starved.store(true, Ordering::Release);
    }

    /// Whether somebody has waited for room since the last call.
    pub(crate) fn take_starved(&self) -> bool {
        self.starved.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn enforce_quotas_now(&self) {
        self.enforce_at.store(0, Ordering::Release);
    }

    /// The reclaimer begins to look after things: what is changed from here on is looked at again.
    pub(crate) fn begin_enforcing(&self) {
        self.enforce_at.store(Nanos::MAX, Ordering::SeqCst);
    }

    /// It has to do so again by `until`.
    pub(crate) fn end_enforcing(&self, until: Nanos) {
        self.enforce_at.fetch_min(until, Ordering::SeqCst);
    }

    pub(crate) fn spare_for_reads(&self) -> u64 {
        self.spare_for_reads.load(Ordering::Relaxed)
    }

    pub(crate) fn set_spare_for_reads(&self, frames: u64) {
        self.spare_for_reads.store(frames, Ordering::Relaxed);
    }

    pub(crate) fn looks(&self) -> u32 {
        self.looks.load(Ordering::Acquire)
    }

    /// Counts `looks` more; how many there were.
    pub(crate) fn count_looks(&self, looks: u32) -> u32 {
        self.looks.fetch_add(looks, Ordering::AcqRel)
    }

    /// Whether it is time to look after things.
    #[inline]
    pub(crate) fn is_due(&self, now: Nanos) -> bool {
        now >= self.enforce_at.load(Ordering::Relaxed)
    }

    /// Whether something was begun, or somebody waits.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.at_work.load(Ordering::Relaxed) || self.starved.load(Ordering::Relaxed)
    }
}
