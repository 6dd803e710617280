//! [`Counts`]: what every result tells of faults, bytes and errors; [`WireBytes`]: what really went over the network
//! for far memory, where there is one.

use serde::Serialize;
use yonder::{FarMemory, Stats};

/// Faults, bytes and errors of a benchmark's measured time; zero where there are none. The fields are a contract with
/// scripts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
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
        Self {
            major_faults: after.major_faults - before.major_faults,
            minor_faults: after.minor_faults - before.minor_faults,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
            errors: 0,
        }
    }
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
