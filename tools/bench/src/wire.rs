//! [`WireBytes`]: what really went over the network for far memory, where there is one.

use serde::Serialize;
use yonder::FarMemory;

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
