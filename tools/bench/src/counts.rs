//! [`Counts`]: what every result tells of faults, bytes and errors; [`WireBytes`]: what really went over the network
//! for far memory, where there is one.

use serde::{Deserialize, Serialize};
use yonder::units::PAGE_BYTES;
use yonder::{FarMemory, Stats};
use yonder_preload_protocol::Figures;

/// Faults, bytes and errors of a benchmark's measured time; zero where there are none. The fields are a contract with
/// scripts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Bytes fetched, or read from a node or a store.
    pub fetched_bytes: u64,
    /// Bytes written back, or written to a node or a store.
    pub written_bytes: u64,
    /// Requests, operations or commands that failed; they count nowhere else.
    pub errors: u64,
}

impl Counts {
    /// What far memory has counted between two looks.
    pub(crate) fn between(before: &Stats, after: &Stats) -> Self {
        Self::from(after).since(before.into())
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let since = |count: fn(&Self) -> u64| count(&self).saturating_sub(count(&earlier));
        Self {
            major_faults: since(|counts| counts.major_faults),
            minor_faults: since(|counts| counts.minor_faults),
            fetched_bytes: since(|counts| counts.fetched_bytes),
            written_bytes: since(|counts| counts.written_bytes),
            errors: since(|counts| counts.errors),
        }
    }

    /// What the whole machine has swapped since it began; nothing where the kernel does not tell.
    pub(crate) fn swapped() -> Self {
        let pages = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let bytes = |name| count_in(&pages, name) * PAGE_BYTES as u64;
        Self { fetched_bytes: bytes("pswpin"), written_bytes: bytes("pswpout"), ..Self::default() }
    }
}

impl From<&Stats> for Counts {
    fn from(stats: &Stats) -> Self {
        let Stats { major_faults, minor_faults, fetched_bytes, written_bytes, .. } = *stats;
        Self { major_faults, minor_faults, fetched_bytes, written_bytes, errors: 0 }
    }
}

impl From<Figures> for Counts {
    fn from(figures: Figures) -> Self {
        let Figures { major_faults, minor_faults, fetched_bytes, written_bytes, .. } = figures;
        Self { major_faults, minor_faults, fetched_bytes, written_bytes, errors: 0 }
    }
}

/// What a table of the kernel's has behind a name; 0 where the kernel does not tell.
pub(crate) fn count_in(table: &str, name: &str) -> u64 {
    let value = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Bytes of the messages exchanged with a memory node: of all attempts, with their headers, but without what the
/// network below adds. Zero where far memory is not behind a network. The fields are a contract with scripts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct WireBytes {
    /// Bytes sent to the node.
    pub wire_sent_bytes: u64,
    /// Bytes received from it.
    pub wire_received_bytes: u64,
}

impl WireBytes {
    /// So far.
    pub(crate) fn of(far: &FarMemory) -> Self {
        let counters = far.counters();
        let of = |name| counters.iter().filter(|counter| counter.name == name).map(|counter| counter.value).sum();
        Self { wire_sent_bytes: of("wire_sent_bytes"), wire_received_bytes: of("wire_received_bytes") }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            wire_sent_bytes: self.wire_sent_bytes - earlier.wire_sent_bytes,
            wire_received_bytes: self.wire_received_bytes - earlier.wire_received_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_read() {
        assert_eq!(count_in("nr_free 5\npswpin 12\npswpin_zero 9\npswpout 7\n", "pswpin"), 12);
        assert_eq!(count_in("pswpin_zero 9\n", "pswpin"), 0);
        let swapped = |fetched_bytes, written_bytes| Counts { fetched_bytes, written_bytes, ..Counts::default() };
        assert_eq!(swapped(9, 5).since(swapped(4, 5)), swapped(5, 0));
    }
}
