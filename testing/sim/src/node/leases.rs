//! A node's look at its leases.

use std::collections::BTreeSet;

use yonder_units::Nanos;

use crate::node::Node;

impl Node {
    /// Ends address spaces whose lease is over. Returns their numbers.
    pub(crate) fn look_at_leases(&mut self, now: Nanos) -> Result<Vec<u32>, String> {
        self.slow_path.expire(self.clock.read(now));
        let there: BTreeSet<u32> = self.slow_path.spaces().into_iter().map(|pid| pid.get()).collect();
        self.oracle.set_time(now, self.leaps);
        let ended = self.oracle.end_leases(|pid| there.contains(&pid), self.lease_step);
        let ended = ended.map_err(|cause| format!("{:?}: {cause}", self.life()))?;
        self.take_ended()?;
        Ok(ended)
    }

    /// Ends all address spaces that have a lease, a long time after the last request.
    pub(crate) fn expire_leases(&mut self, now: Nanos, lease: Nanos) {
        let mut shown = self.clock.read(now);
        self.slow_path.expire(shown);
        for _ in 0..=lease / self.lease_step {
            shown += self.lease_step;
            self.slow_path.expire(shown);
        }
        self.oracle.expire_leases();
    }
}
