//! [`Stalls`]: how long faults have held threads and unithreads up.
//!
//! From where a fault comes to the pager to where its page is there, so what the trap itself takes is not in it, nor
//! how long a unithread waits for its worker then. Of unithreads major faults count.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use yonder_units::Nanos;

use crate::machine::Machine;

/// Threads that count apart: neighbours share no cache line.
const SHARDS: usize = 8;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Stalls([CachePadded<Shard>; SHARDS]);

#[derive(Debug, Default)]
struct Shard {
    stalled: AtomicU64,
    /// The part of it in which no CPU was used.
    slept: AtomicU64,
    /// Touches that had no trap: their pages were brought before they could be missed.
    without_trap: AtomicU64,
    /// Those of them whose pages were far, or on their way.
    fetched_without_trap: AtomicU64,
}

impl Stalls {
    /// The calling thread, or unithread, was held up for `stalled`, and used no CPU for `slept` of that.
    #[inline]
    pub(crate) fn add<M: Machine>(&self, stalled: Nanos, slept: Nanos) {
        let shard = &self.0[M::guest_number() % SHARDS];
        shard.stalled.fetch_add(stalled, Ordering::Relaxed);
        if slept > 0 {
            shard.slept.fetch_add(slept, Ordering::Relaxed);
        }
    }

    /// The calling thread has brought a missing page without a trap, from afar or not.
    pub(crate) fn had_no_trap<M: Machine>(&self, was_far: bool) {
        let shard = &self.0[M::guest_number() % SHARDS];
        shard.without_trap.fetch_add(1, Ordering::Relaxed);
        if was_far {
            shard.fetched_without_trap.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Touches that had no trap, and those of them whose pages were far.
    pub(crate) fn without_trap(&self) -> [u64; 2] {
        let sum = |part: fn(&Shard) -> &AtomicU64| self.0.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum();
        [sum(|shard| &shard.without_trap), sum(|shard| &shard.fetched_without_trap)]
    }

    /// How long all together were held up, and how long without a CPU of that.
    pub(crate) fn sums(&self) -> [Nanos; 2] {
        let sum = |part: fn(&Shard) -> &AtomicU64| self.0.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum();
        [sum(|shard| &shard.stalled), sum(|shard| &shard.slept)]
    }
}
