//! [`Heat`]: how much regions of address spaces are used of late, so that cold ones can be told from hot ones.
//!
//! One access in [`ACCESSES_PER_COUNT`] is counted, drawn by a hash of the time, in a table of a fixed size: nothing is
//! allocated or locked, whatever addresses clients choose. Regions whose hash is the same share a counter and look
//! equally hot, which at worst moves another region than the coldest.
//!
//! Any thread counts and reads. Counts are independent, so no order between them is needed.

use std::sync::atomic::{AtomicU32, Ordering};

use yonder_units::Narrow;

use crate::address::Pid;
use crate::recent::NodeTime;

/// Counters: as many as there are likely regions on a node, at most.
const COUNTERS: usize = 1 << 12;
/// One access in so many is counted.
const ACCESSES_PER_COUNT: u64 = 16;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Accesses of late, by region.
#[derive(Debug)]
pub(crate) struct Heat {
    counters: Box<[AtomicU32]>,
    region_shift: u32,
}

impl Heat {
    /// Nothing has been used yet. Regions have `1 << region_shift` bytes.
    pub(crate) fn new(region_shift: u32) -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(), region_shift }
    }

    /// Counts an access at `now`, if it is one that is counted.
    #[inline]
    pub(crate) fn touch(&self, pid: Pid, address: u64, now: NodeTime) {
        if now.wrapping_mul(GOLDEN) < u64::MAX / ACCESSES_PER_COUNT {
            self.counter(pid, address >> self.region_shift).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// About how many accesses there were of late.
    pub(crate) fn of(&self, pid: Pid, region: u32) -> u64 {
        u64::from(self.counter(pid, u64::from(region)).load(Ordering::Relaxed)) * ACCESSES_PER_COUNT
    }

    /// Lets what was counted so far weigh half from now on.
    pub(crate) fn cool(&self) {
        for counter in &self.counters {
            let count = counter.load(Ordering::Relaxed);
            counter.fetch_sub(count.div_ceil(2), Ordering::Relaxed);
        }
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val::<[AtomicU32]>(&self.counters) as u64
    }

    #[inline]
    fn counter(&self, pid: Pid, region: u64) -> &AtomicU32 {
        let key = (u64::from(pid.get()) << 32) ^ region;
        // Twice, so that neighbours in one space do not take turns with neighbours in the next.
        let hash = key.wrapping_mul(GOLDEN);
        let hash = (hash ^ (hash >> 32)).wrapping_mul(GOLDEN);
        &self.counters[(hash >> (u64::BITS - COUNTERS.ilog2())).narrow_usize()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid::new(7).unwrap();

    #[test]
    fn what_is_used_more_is_hotter_and_cools() {
        let heat = Heat::new(20);
        for now in 0..16_000 {
            heat.touch(PID, 5 << 20, now);
            if now % 10 == 0 {
                heat.touch(PID, (6 << 20) + 1, now);
            }
        }
        let (hot, warm) = (heat.of(PID, 5), heat.of(PID, 6));
        assert!((15_000..17_000).contains(&hot), "{hot}");
        assert!((1000..2500).contains(&warm), "{warm}");
        assert_eq!(heat.of(PID, 7), 0);
        heat.cool();
        assert_eq!(heat.of(PID, 5), hot / 32 * 16);
        (0..32).for_each(|_| heat.cool());
        assert_eq!((heat.of(PID, 5), heat.of(PID, 6)), (0, 0));
    }

    #[test]
    fn regions_spread_over_the_counters() {
        let heat = Heat::new(30);
        let pids = (0..32).map(|number| Pid::new((1 << 31) + number).unwrap());
        let regions = pids.flat_map(|pid| (0..32).map(move |region| (pid, region)));
        let mut found: Vec<_> = regions.map(|(pid, region)| std::ptr::from_ref(heat.counter(pid, region))).collect();
        found.sort_unstable();
        found.dedup();
        // 1,024 random choices among 4,096 meet in about 115 places.
        assert!(found.len() > 1024 - 160, "{} counters for 1024 regions", found.len());
    }
}
