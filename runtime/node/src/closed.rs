//! [`Closed`]: why a connection ends.

use rustix::io::Errno;
use yonder_mapping::MapError;
use yonder_wire::{ErrorCode, Kind, WireError};

use crate::gate::Unwelcome;

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Closed {
    /// The peer has closed it, or it broke.
    #[error("the peer has gone: {0}")]
    Gone(Errno),
    /// The node has no room for it.
    #[error("refused: {0}")]
    Refused(ErrorCode),
    /// The peer did not greet in time.
    #[error("no greeting in time")]
    Silent,
    /// The bytes are not messages.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A message is not of the lane that it claims to be of, or comes again.
    #[error("a message is forged, repeated, or of a session that is over")]
    Unwelcome,
    /// The message is not one for this moment.
    #[error("unexpected {0:?} message")]
    Unexpected(Kind),
}

impl Closed {
    /// Whether the peer has broken the protocol.
    pub(crate) fn is_violation(self) -> bool {
        matches!(self, Self::Silent | Self::Wire(_) | Self::Unwelcome | Self::Unexpected(_))
    }
}

impl From<MapError> for Closed {
    /// There is no memory for its keys.
    fn from(_: MapError) -> Self {
        Self::Refused(ErrorCode::OutOfMemory)
    }
}

impl From<Unwelcome> for Closed {
    fn from(_: Unwelcome) -> Self {
        Self::Unwelcome
    }
}
