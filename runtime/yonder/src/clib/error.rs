//! [`ClibError`]: why an operation on a remote address space was not done. One variant for each reaction.

use yonder_controller::ClientError;
use yonder_fabric::FabricError;
use yonder_fabric::cluster::ClusterError;
use yonder_fabric::lane::CallError;
use yonder_placement::Refusal;
use yonder_wire::ErrorCode;

/// Why an operation was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClibError {
    /// The address or the length is wrong: the range is not wholly in allocated memory, or a word is not aligned.
    #[error("{0}: check the address and the length against what ralloc returned")]
    BadRange(ErrorCode),
    /// The ticket or the permission of the memory does not allow it.
    #[error("{0}: ask the owner of the address space for a ticket with more rights, or allocate with read and write")]
    NotAllowed(ErrorCode),
    /// The node has no room left.
    #[error("the memory node has no room left: ask for less, free something, or start the node with more --memory")]
    OutOfMemory,
    /// There are as many asynchronous operations as there may be: poll some, then call again.
    #[error("{0} asynchronous operations are pending, which is as many as there may be: rpoll some of them first")]
    TooManyPending(usize),
    /// The node was restarted, or the lease of the address space is over: what was in it is lost.
    #[error(
        "the memory node has forgotten this address space: it was restarted, this program was away for too long, or its \
         identity was revoked"
    )]
    Lost,
    /// No answer came in time. The operation may have been executed, or not; it will not be executed later.
    #[error("the memory node does not answer: it is unknown whether the operation was executed")]
    TimedOut,
    /// The controller cannot be reached, or refused for a reason of its own.
    #[error(transparent)]
    Controller(ClientError),
    /// An address space of several nodes was asked for what only one node has.
    #[error("an address space of several nodes has no one node that could do this: name an address, as with call_at")]
    ManyNodes,
    /// The node cannot be reached at all.
    #[error(transparent)]
    Unreachable(#[from] FabricError),
    /// The offload refused its arguments, or there is none with this number.
    #[error("{0}")]
    Offload(ErrorCode),
    /// The node refused for a reason of its own.
    #[error("the memory node refused: {0}")]
    Refused(ErrorCode),
}

impl From<ErrorCode> for ClibError {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::BadAddress | ErrorCode::BadLength => Self::BadRange(code),
            ErrorCode::NotAllowed => Self::NotAllowed(code),
            ErrorCode::BadCapability => Self::Lost,
            ErrorCode::OutOfMemory => Self::OutOfMemory,
            ErrorCode::TooOld | ErrorCode::Aborted => Self::TimedOut,
            ErrorCode::NoOffload | ErrorCode::OffloadFailed => Self::Offload(code),
            _ => Self::Refused(code),
        }
    }
}

impl From<ClientError> for ClibError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(Refusal::BadKey { .. } | Refusal::RegionLost { .. }) => Self::Lost,
            ClientError::Refused(Refusal::NotAllowed { .. }) => Self::NotAllowed(ErrorCode::NotAllowed),
            ClientError::Refused(Refusal::NoRoom { .. }) => Self::OutOfMemory,
            ClientError::Refused(Refusal::NoRegion { .. } | Refusal::BadLength { .. }) => {
                Self::BadRange(ErrorCode::BadAddress)
            }
            error => Self::Controller(error),
        }
    }
}

impl From<ClusterError> for ClibError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Controller(error) => error.into(),
            ClusterError::Fabric(error) => error.into(),
            ClusterError::Refused(code) => code.into(),
        }
    }
}

impl From<CallError> for ClibError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(code) => code.into(),
            CallError::TimedOut => Self::TimedOut,
            CallError::Lost => Self::Lost,
        }
    }
}
