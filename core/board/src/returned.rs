//! [`Returned`]: when regions came back that had been here before, so that what was sent until then changes nothing.
//!
//! A region goes to another node and comes back. A request that was on its way here all the time may arrive only now,
//! and its sender has long gone on: it was refused elsewhere, or asked again there, or gave it up. Nothing tells such a
//! request from a new one but when it was sent first, which it says on the clock of this node, and never later than it
//! was (Clio's T4, as in `recent`). So what claims a time before the region began to come back is refused for good, as
//! it would have been while the region was elsewhere.
//!
//! Times are kept in a table of a fixed size, by a hash of the region that clients cannot foresee; those that share a
//! place share the later time. Then one that did not move refuses what was on its way at that moment, and it is asked
//! for again. Only address spaces of a controller have regions that move, so what others send is never refused.
//!
//! The slow path notes, before pages of the region can be found here; any thread looks, after it has found one.

use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_units::Narrow;

use crate::address::Pid;
use crate::recent::NodeTime;

/// Places of the table.
const PLACES: usize = 1 << 12;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Returned {
    /// The latest of all.
    latest: AtomicU64,
    times: Box<[AtomicU64]>,
    region_shift: u32,
    seed: u64,
}

impl Returned {
    /// Nothing has come back yet. Regions have `1 << region_shift` bytes. `seed` makes it unpredictable to clients
    /// which of them share a place.
    pub(crate) fn new(region_shift: u32, seed: u64) -> Self {
        let times = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { latest: AtomicU64::new(0), times, region_shift, seed }
    }

    /// The regions between two addresses begin to come back.
    pub(crate) fn note(&self, pid: Pid, from: u64, to: u64, now: NodeTime) {
        for region in from >> self.region_shift..=to.saturating_sub(1).max(from) >> self.region_shift {
            self.time_of(pid, region).fetch_max(now, Ordering::Release);
        }
        self.latest.fetch_max(now, Ordering::Release);
    }

    /// Whether a request that was sent first at a time, or later, may be from before the region came back.
    #[inline]
    pub(crate) fn is_before(&self, pid: Pid, address: u64, sent: NodeTime) -> bool {
        pid.is_of_controller()
            && sent < self.latest.load(Ordering::Acquire)
            && sent < self.time_of(pid, address >> self.region_shift).load(Ordering::Acquire)
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val::<[AtomicU64]>(&self.times) as u64
    }

    fn time_of(&self, pid: Pid, region: u64) -> &AtomicU64 {
        let key = u64::from(pid.get()) << u32::BITS ^ region;
        &self.times[xxh3_64_with_seed(&key.to_le_bytes(), self.seed).narrow_usize() % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid::new(7 | 1 << 31).unwrap();

    #[test]
    fn what_was_sent_before_a_region_came_back_is_told_apart() {
        let returned = Returned::new(20, 7);
        assert!(!returned.is_before(PID, 5 << 20, 0));
        returned.note(PID, 5 << 20, 7 << 20, 1000);
        let at = |address: u64, sent| returned.is_before(PID, address, sent);
        assert!(at(5 << 20, 999) && at((7 << 20) - 1, 999) && at((5 << 20) + 77, 0));
        assert!(!at(5 << 20, 1000) && !at(7 << 20, 999) && !at((5 << 20) - 1, 999));
        assert!(!returned.is_before(Pid::new(8 | 1 << 31).unwrap(), 5 << 20, 999));
        returned.note(PID, 6 << 20, 7 << 20, 2000);
        returned.note(PID, 6 << 20, 6 << 20, 1500);
        assert!(at(6 << 20, 1999) && !at(5 << 20, 1000), "time does not go back");
        let of_node = Pid::new(7).unwrap();
        returned.note(of_node, 5 << 20, 7 << 20, 3000);
        assert!(!returned.is_before(of_node, 5 << 20, 999), "its regions never move");
    }

    #[test]
    fn which_regions_share_a_place_is_not_foreseen() {
        let shared = |seed| {
            let returned = Returned::new(20, seed);
            returned.note(PID, 0, 1 << 30, 1000);
            (1024..9216_u64).filter(|region| returned.is_before(PID, region << 20, 999)).collect::<Vec<_>>()
        };
        assert!(!shared(1).is_empty() && shared(1) != shared(2));
    }
}
