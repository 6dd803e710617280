//! Leases, as the oracle sees them: by the time of the simulation, which no clock shows.
//!
//! A node may end an address space when its lease has passed since the last renewal was executed, less what the node's
//! clock has been wrong by: its pace, and a step for each time that it leapt by less than that. A client that keeps to
//! its lease by its own clock, which it takes to end earlier by one part in 32, so loses nothing.

use yonder_units::Nanos;

use super::Oracle;

/// A node's clock is too fast by less than one part in this many.
const PACE_SHARE: Nanos = 49;

/// The lease of an address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    length: Nanos,
    /// When it was last renewed.
    renewed: Nanos,
    /// How often the node's clock had leapt then.
    leaps: u64,
}

impl Oracle {
    /// The time of the simulation, and how often the node's clock has leapt by less than a step of leases.
    pub(crate) fn set_time(&mut self, now: Nanos, leaps: u64) {
        (self.now, self.leaps) = (now, leaps);
    }

    /// A lease of so many milliseconds begins, or none.
    pub(super) fn new_lease(&self, length_ms: u32) -> Option<Lease> {
        let length = u64::from(length_ms) * 1_000_000;
        (length > 0).then_some(Lease { length, renewed: self.now, leaps: self.leaps })
    }

    /// The lease of an address space was renewed.
    pub(super) fn renew(&mut self, pid: u32) {
        let (now, leaps) = (self.now, self.leaps);
        if let Some(lease) = self.spaces.get_mut(&pid).and_then(|space| space.lease.as_mut()) {
            (lease.renewed, lease.leaps) = (now, leaps);
        }
    }

    /// The node has ended the address spaces of which `is_there` is not true, one step of its clock of leases being
    /// `step`. Returns those that it has ended since the last call.
    pub(crate) fn end_leases(&mut self, is_there: impl Fn(u32) -> bool, step: Nanos) -> Result<Vec<u32>, String> {
        let gone = self.spaces.iter().filter(|(pid, space)| !space.is_ending && !is_there(**pid));
        let gone: Vec<(u32, Option<Lease>)> = gone.map(|(pid, space)| (*pid, space.lease)).collect();
        for (pid, lease) in &gone {
            let Some(Lease { length, renewed, leaps }) = *lease else {
                return Err(format!("address space {pid:x} has ended and has no lease"));
            };
            let age = self.now - renewed;
            let believed = age + age / PACE_SHARE + (self.leaps - leaps) * step + 1;
            if believed < length {
                return Err(format!("address space {pid:x} has ended {age} ns after a renewal of its {length} ns"));
            }
            self.begin_end_of_space(*pid, 0);
        }
        Ok(gone.into_iter().map(|(pid, _)| pid).collect())
    }

    /// Whether an address space of this owner is there, and not ending.
    pub(crate) fn is_lasting(&self, pid: u32, owner: u128) -> bool {
        self.spaces.get(&pid).is_some_and(|space| space.owner == owner && !space.is_ending)
    }

    /// Forgets the address spaces with a lease: all have run out.
    pub(crate) fn expire_leases(&mut self) {
        let leased: Vec<u32> =
            self.spaces.iter().filter(|(_, space)| space.lease.is_some()).map(|(pid, _)| *pid).collect();
        leased.into_iter().for_each(|pid| _ = self.remove_space(pid));
    }
}
