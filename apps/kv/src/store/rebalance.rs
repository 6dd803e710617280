//! Moves memory between size classes when the mix of sizes has changed.
//!
//! A class that evicts much for its size is starved; one that evicts little has memory to spare. Every
//! [`EPOCH_BYTES`] of evicted slots, the most starved class is granted a few slabs of the least pressed one, unless
//! their pressures are within a factor of [`PRESSURE_FACTOR`]. Pure arithmetic; [`super::arena`] carries the grant out.

use super::shape::{ClassIndex, UNIT_BYTES};

/// Evicted bytes between two decisions.
const EPOCH_BYTES: u64 = 16 * UNIT_BYTES as u64;
/// Slabs granted by one decision.
const GRANT_SLABS: u32 = 4;
/// How much more pressed the receiver must be than the donor.
const PRESSURE_FACTOR: f64 = 2.0;

/// A class, as far as the decision needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Slabs that the class has.
    pub(super) slabs: usize,
    /// Bytes of one of its slabs.
    pub(super) slab_bytes: usize,
}

/// The evictions of the current epoch and the grant of the last one.
pub(super) struct Rebalance {
    evicted_bytes: Vec<u64>,
    epoch_bytes: u64,
    grant: Option<Grant>,
}

struct Grant {
    receiver: ClassIndex,
    donor: ClassIndex,
    slabs: u32,
}

impl Rebalance {
    pub(super) fn new(classes: usize) -> Self {
        Self { evicted_bytes: vec![0; classes], epoch_bytes: 0, grant: None }
    }

    /// A slot of `bytes` was evicted from `class`.
    pub(super) fn evicted(&mut self, class: ClassIndex, bytes: usize, load: impl Fn(ClassIndex) -> Load) {
        self.evicted_bytes[class.index()] += bytes as u64;
        self.epoch_bytes += bytes as u64;
        if self.epoch_bytes >= EPOCH_BYTES {
            self.grant = self.decide(load);
            self.evicted_bytes.fill(0);
            self.epoch_bytes = 0;
        }
    }

    /// The class from which `receiver` may take a slab now, if any.
    pub(super) fn donor_for(&mut self, receiver: ClassIndex) -> Option<ClassIndex> {
        let grant = self.grant.as_mut().filter(|grant| grant.receiver == receiver && grant.slabs > 0)?;
        grant.slabs -= 1;
        Some(grant.donor)
    }

    fn decide(&self, load: impl Fn(ClassIndex) -> Load) -> Option<Grant> {
        let pressures: Vec<(ClassIndex, usize, f64)> = (0..self.evicted_bytes.len())
            .map(|class| ClassIndex(class as u8))
            .map(|class| (class, load(class)))
            .filter(|(_, load)| load.slabs > 0)
            .map(|(class, load)| {
                (class, load.slabs, self.evicted_bytes[class.index()] as f64 / (load.slabs * load.slab_bytes) as f64)
            })
            .collect();
        let by_pressure = |a: &&(ClassIndex, usize, f64), b: &&(ClassIndex, usize, f64)| a.2.total_cmp(&b.2);
        let (receiver, _, starved) = pressures.iter().max_by(by_pressure)?;
        let (donor, _, relaxed) = pressures.iter().filter(|(_, slabs, _)| *slabs > 1).min_by(by_pressure)?;
        let worthwhile = donor != receiver && *starved > PRESSURE_FACTOR * relaxed;
        worthwhile.then_some(Grant { receiver: *receiver, donor: *donor, slabs: GRANT_SLABS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [Load; 3] = [
        Load { slabs: 10, slab_bytes: UNIT_BYTES },
        Load { slabs: 1, slab_bytes: UNIT_BYTES },
        Load { slabs: 0, slab_bytes: UNIT_BYTES },
    ];

    #[test]
    fn a_starved_class_is_granted_slabs_of_a_relaxed_one() {
        let mut rebalance = Rebalance::new(LOADS.len());
        let (large, small) = (ClassIndex(0), ClassIndex(1));
        for _ in 0..EPOCH_BYTES / 1024 {
            assert_eq!(rebalance.donor_for(small), None);
            rebalance.evicted(small, 1024, |class| LOADS[class.index()]);
        }
        assert_eq!(rebalance.donor_for(large), None);
        for _ in 0..GRANT_SLABS {
            assert_eq!(rebalance.donor_for(small), Some(large));
        }
        assert_eq!(rebalance.donor_for(small), None);
    }

    #[test]
    fn equal_pressure_moves_nothing() {
        let mut rebalance = Rebalance::new(LOADS.len());
        for _ in 0..2 * EPOCH_BYTES / 11 / 1024 {
            for (class, evictions) in [(0, 10), (1, 1)] {
                for _ in 0..evictions {
                    rebalance.evicted(ClassIndex(class), 1024, |class| LOADS[class.index()]);
                }
            }
            assert_eq!(rebalance.donor_for(ClassIndex(0)).or(rebalance.donor_for(ClassIndex(1))), None);
        }
    }
}
