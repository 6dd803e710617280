//! [`Config`]: the limits that placement and migration keep to.

use yonder_units::Nanos;

use crate::leases::{SPACE_LEASE_MS_MAX, SPACE_LEASE_MS_MIN};
use crate::sets::BLOCK_SEATS;

/// Most spare nodes of a set: a block is one, for groups of two.
const SET_SPARES_MAX: u32 = BLOCK_SEATS - 2;

/// What a controller keeps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of a region: a power of two, the same for as long as there are address spaces.
    pub region_bytes: u64,
    /// How long a node that says nothing is taken to be there.
    pub lease: Nanos,
    /// Shortest lease of an address space in milliseconds, which an owner gets that asks for a shorter one. Less than
    /// [`SPACE_LEASE_MS_MIN`] is for tests: programs on a busy machine lose their address spaces then.
    pub space_lease_ms_min: u32,
    /// Most bytes that are allocated on a node, in percent of its memory.
    pub overcommit_percent: u32,
    /// A node with as much of its memory in use, in percent, gives regions away and gets none.
    pub pressure_high_percent: u32,
    /// It stops giving regions away below this.
    pub pressure_low_percent: u32,
    /// Nodes that a set has more than a group has places, at least: to choose the emptiest from, and to go to when one
    /// fails. Fewer lose less when many nodes fail at once, more rebuild faster.
    pub set_spares: u32,
    /// Most moves under way at a time, among all nodes.
    pub moves_max: usize,
    /// How long a region rests after a move that failed.
    pub move_retry: Nanos,
    /// Most address spaces that one program has, or all programs without a name at one address.
    pub spaces_per_maker_max: usize,
    /// Most nodes without a name that are connected from one address.
    pub nodes_per_source_max: usize,
    /// How long a connection of others than nodes is kept on which nothing comes.
    pub peer_idle_max: Nanos,
}

/// What is wrong with a [`Config`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl Default for Config {
    fn default() -> Self {
        Self {
            region_bytes: 1 << 30,
            lease: 3_000_000_000,
            space_lease_ms_min: SPACE_LEASE_MS_MIN,
            overcommit_percent: 150,
            pressure_high_percent: 90,
            pressure_low_percent: 80,
            set_spares: 1,
            moves_max: 2,
            move_retry: 5_000_000_000,
            spaces_per_maker_max: 4096,
            nodes_per_source_max: 256,
            peer_idle_max: 300_000_000_000,
        }
    }
}

impl Config {
    /// Fails if the limits contradict each other; the text says which, and what to type.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: &str| Err(ConfigError(text.to_owned()));
        if !self.region_bytes.is_power_of_two() || self.region_bytes < 4096 {
            return wrong("the region size is not a power of two of at least 4 KiB: type one such as 1GiB");
        }
        if self.lease == 0 {
            return wrong("a lease of no time is always over: type one such as 3s");
        }
        if !(1..=SPACE_LEASE_MS_MAX).contains(&self.space_lease_ms_min) {
            return wrong("the shortest lease of an address space is none, or longer than a day: type one such as 5s");
        }
        if self.peer_idle_max == 0 {
            return wrong("connections that may not be silent at all cannot be used: let them be for some minutes");
        }
        if self.overcommit_percent == 0 {
            return wrong("an over-commitment of 0 % leaves no memory to place: type 100 or more");
        }
        if self.pressure_low_percent > self.pressure_high_percent || self.pressure_high_percent > 100 {
            return wrong("memory pressure must begin at 100 % or less, and end no higher than it begins");
        }
        if self.set_spares > SET_SPARES_MAX {
            return wrong("a set with more than 22 spare nodes is none: type 1, or more to rebuild faster");
        }
        if self.moves_max == 0 {
            return wrong("no move at a time means that no node can be drained: type 1 or more");
        }
        Ok(())
    }

    /// Most bytes that may be allocated on a node with so much memory.
    pub(crate) fn commit_limit(&self, memory_bytes: u64) -> u64 {
        share(memory_bytes, self.overcommit_percent)
    }

    /// Bytes in use at which such a node is under pressure.
    pub(crate) fn pressure_high(&self, memory_bytes: u64) -> u64 {
        share(memory_bytes, self.pressure_high_percent)
    }

    /// Bytes in use below which it is not any more.
    pub(crate) fn pressure_low(&self, memory_bytes: u64) -> u64 {
        share(memory_bytes, self.pressure_low_percent)
    }
}

fn share(bytes: u64, percent: u32) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_refused() {
        let good = Config::default();
        assert_eq!(good.check(), Ok(()));
        let bad = [
            Config { region_bytes: 3 << 20, ..good },
            Config { region_bytes: 1024, ..good },
            Config { lease: 0, ..good },
            Config { space_lease_ms_min: 0, ..good },
            Config { space_lease_ms_min: SPACE_LEASE_MS_MAX + 1, ..good },
            Config { peer_idle_max: 0, ..good },
            Config { overcommit_percent: 0, ..good },
            Config { pressure_low_percent: 95, ..good },
            Config { pressure_high_percent: 101, ..good },
            Config { set_spares: SET_SPARES_MAX + 1, ..good },
            Config { moves_max: 0, ..good },
        ];
        assert!(bad.iter().all(|config| config.check().is_err()));
    }

    #[test]
    fn shares_of_large_memories_do_not_overflow() {
        assert_eq!(share(u64::MAX, 100), u64::MAX);
        assert_eq!(share(u64::MAX, 150), u64::MAX);
        assert_eq!(share(1000, 85), 850);
    }
}
