//! What records must be for a controller to go on with them.

use crate::config::ConfigError;
use crate::record::RECORDS_FORMAT_READ_MAX;
use crate::state::State;

/// Why records do not make a controller.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// The limits contradict each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A later release has written the records.
    #[error(
        "the stored state has format {stored}, and this release knows {RECORDS_FORMAT_READ_MAX} at most: use the later \
         release"
    )]
    Format {
        /// The format of the records.
        stored: u32,
    },
    /// The regions have another size.
    #[error(
        "the stored address spaces have regions of {}, not {}: type the size that they were made with",
        yonder_units::format_bytes(*.stored),
        yonder_units::format_bytes(*.configured)
    )]
    RegionBytes {
        /// Bytes of a region in the records.
        stored: u64,
        /// Bytes of a region in the configuration.
        configured: u64,
    },
    /// A record is about something that has none.
    #[error("the stored state is not whole ({0}): restore it from a copy, or begin with an empty one")]
    Incomplete(String),
}

/// Everything that records name must have a record of its own.
pub(crate) fn check_whole(state: &State) -> Result<(), RestoreError> {
    let missing = |what: String| Err(RestoreError::Incomplete(what));
    for (pid, node) in state.presences.keys() {
        if !state.nodes.contains_key(node) {
            return missing(format!("node {node} of address space {pid} has no record"));
        }
    }
    for ((pid, region), record) in &state.regions {
        if state.spaces.contains_key(pid) && !state.ready(*pid, record.owner) {
            return missing(format!(
                "region {region} of address space {pid} is at a node that does not know the space"
            ));
        }
    }
    Ok(())
}
