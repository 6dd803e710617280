//! [`Stalls`]: how long threads have been held up by faults.
//!
//! Counted for threads that are not workers, because a fault holds nothing else up: a worker runs others meanwhile.
//! From where a fault comes to the pager to where its access may go on, so what the trap itself takes is not in it.

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
    /// The part of it in which the thread slept.
    slept: AtomicU64,
}

impl Stalls {
    /// The calling thread was held up for `time`.
    #[inline]
    pub(crate) fn add<M: Machine>(&self, time: Nanos) {
        self.shard::<M>().stalled.fetch_add(time, Ordering::Relaxed);
    }

    /// Of what it is held up for, the calling thread has slept for `time`.
    #[inline]
    pub(crate) fn add_slept<M: Machine>(&self, time: Nanos) {
        self.shard::<M>().slept.fetch_add(time, Ordering::Relaxed);
    }

    #[inline]
    fn shard<M: Machine>(&self) -> &Shard {
        &self.0[M::guest_number() % SHARDS]
    }

    /// How long all threads together were held up, and how long they slept of that.
    pub(crate) fn sums(&self) -> [Nanos; 2] {
        let sum = |part: fn(&Shard) -> &AtomicU64| self.0.iter().map(|shard| part(shard).load(Ordering::Relaxed)).sum();
        [sum(|shard| &shard.stalled), sum(|shard| &shard.slept)]
    }
}
