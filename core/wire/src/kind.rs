//! What a message asks for: [`Kind`]; which way it goes: [`Direction`]; and why a request was refused: [`ErrorCode`].

use zerocopy::TryFromBytes;

use crate::WireError;

/// An operation. A request and its answer have the same kind and differ by their [`Direction`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Greets a node: [`Greeting`](crate::Greeting), answered by [`Welcome`](crate::Welcome). A stream begins with it.
    Hello = 1,
    /// Asks for the node's clock; with a capability it also renews the lease of the address space.
    Ping = 2,
    /// Asks for `length` bytes at `address`; the answer's payload is those bytes.
    Read = 3,
    /// Stores the payload at `address`.
    Write = 4,
    /// Changes the aligned word at `address`: [`AtomicOperation`](crate::AtomicOperation), answered by the word's old
    /// value in `address`.
    Atomic = 5,
    /// Gives the request named by `first_id` up: from the answer on it is never executed. `length` of the answer is 1
    /// if it had been executed before.
    Abort = 6,
    /// Makes an address space, whose number the node draws; `length` is its lease in milliseconds, or 0 for the node's
    /// own. The answer has its PID, its capability, and in `length` the lease that it has.
    CreateSpace = 7,
    /// Ends an address space: all its memory is freed.
    DestroySpace = 8,
    /// Allocates memory that reads as zeros: [`AllocateRequest`](crate::AllocateRequest), answered by its first address
    /// and [`Allocated`](crate::Allocated).
    Allocate = 9,
    /// Frees the allocation that begins at `address`.
    Free = 10,
    /// Makes `length` bytes at `address` read as zeros; whole pages give their memory back.
    Discard = 11,
    /// Asks for a capability with the rights in `length`, as [`Rights`](crate::Rights) are numbered. It is void after
    /// as many minutes as `address` says, or never if that is 0.
    Grant = 12,
    /// Asks where in the node's exported memory `address` lies: answered by [`Translation`](crate::Translation). Only
    /// for those who were handed that memory.
    Translate = 13,
    /// Calls the offload with the number in `address`; the payloads are its arguments and its answer.
    Call = 14,
    /// Asks how full the node is: answered by [`NodeStatus`](crate::NodeStatus). Any right to an address space allows
    /// it.
    Status = 15,
    /// Takes a range of an address space over from another node, stage by stage: [`AdoptRequest`](crate::AdoptRequest).
    /// `address` is where the bytes of a fill belong.
    Adopt = 16,
    /// Makes all capabilities of an address space void, and answers with the owner's new one.
    Revoke = 17,
}

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// From a client to a node.
    Request,
    /// From a node to a client.
    Answer,
}

impl Kind {
    /// All of them, by number.
    pub const ALL: [Self; 17] = [
        Self::Hello,
        Self::Ping,
        Self::Read,
        Self::Write,
        Self::Atomic,
        Self::Abort,
        Self::CreateSpace,
        Self::DestroySpace,
        Self::Allocate,
        Self::Free,
        Self::Discard,
        Self::Grant,
        Self::Translate,
        Self::Call,
        Self::Status,
        Self::Adopt,
        Self::Revoke,
    ];

    /// Whether a payload of `length` bytes follows the header of such a message, if it is not a refusal.
    #[must_use]
    pub const fn carries_payload(self, direction: Direction) -> bool {
        match direction {
            Direction::Request => {
                matches!(self, Self::Hello | Self::Write | Self::Atomic | Self::Allocate | Self::Call | Self::Adopt)
            }
            Direction::Answer => {
                matches!(self, Self::Hello | Self::Read | Self::Allocate | Self::Translate | Self::Call | Self::Status)
            }
        }
    }

    /// Whether a node must execute a request of this kind at most once, however many copies of it arrive.
    #[must_use]
    pub const fn is_exactly_once(self) -> bool {
        !matches!(self, Self::Hello | Self::Ping | Self::Read | Self::Grant | Self::Translate | Self::Status)
    }

    /// Whether a node's data threads execute it; all other kinds are the slow path's.
    #[must_use]
    pub const fn is_fast(self) -> bool {
        matches!(self, Self::Hello | Self::Ping | Self::Read | Self::Write | Self::Atomic | Self::Abort)
    }

    pub(crate) fn from_wire(byte: u8) -> Result<Self, WireError> {
        let index = usize::from(byte).wrapping_sub(1);
        Self::ALL.get(index).copied().ok_or(WireError::Kind(byte))
    }
}

/// Why a request was refused. [`ErrorCode::None`] in every request and in every answer that is not a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, thiserror::Error)]
#[repr(u16)]
pub enum ErrorCode {
    /// No error.
    #[error("no error")]
    None = 0,
    /// The range is not wholly inside allocated memory of this address space.
    #[error("the address is not in allocated memory of this address space")]
    BadAddress = 1,
    /// The node has no room left: pages, slots or address spaces.
    #[error("the node has no room left")]
    OutOfMemory = 2,
    /// The length or the alignment is not valid for this request.
    #[error("the length or the alignment is not valid for this request")]
    BadLength = 3,
    /// No such address space, or the capability is not one that this node gave out for it.
    #[error("the node does not know this address space, or this capability is not one for it")]
    BadCapability = 4,
    /// The capability or the page's permission does not allow this.
    #[error("the capability or the permission of the memory does not allow this")]
    NotAllowed = 5,
    /// The checksum did not match; nothing was done. Send it again.
    #[error("the request was corrupted on its way")]
    Corrupt = 6,
    /// The operating system refused something to the node.
    #[error("the node's operating system refused the request")]
    System = 7,
    /// The request is so old that the node no longer knows whether it was executed; it was not executed now.
    #[error("the request came so late that the node cannot tell whether it was executed before")]
    TooOld = 8,
    /// The request was given up by its sender before it was executed.
    #[error("the request was given up before it was executed")]
    Aborted = 9,
    /// The node is short of something for a moment; nothing was done. Send it again later.
    #[error("the node is busy")]
    Busy = 10,
    /// The region is moving to another node, or has moved; nothing was done. Ask where it is.
    #[error("the region has moved to another node")]
    Moved = 11,
    /// This transport or node does not serve such a request.
    #[error("the node does not serve such a request here")]
    Unsupported = 12,
    /// No offload has this number.
    #[error("the node has no such offload")]
    NoOffload = 13,
    /// The offload did not understand its arguments, or failed.
    #[error("the offload failed or did not understand its arguments")]
    OffloadFailed = 14,
    /// The sender has not shown that it receives at its address; nothing was done. The answer has the cookie that does.
    #[error("the node has not seen that this client receives at its address")]
    Unproven = 15,
    /// The node speaks protected messages only; nothing was done.
    #[error("the node wants to know who asks: set YONDER_IDENTITY=FILE, or YONDER_KEY=FILE to a key that it shares")]
    Unprotected = 16,
}

impl ErrorCode {
    /// Whether the same request may be sent again later: nothing was done, and the reason may pass.
    #[must_use]
    pub const fn may_pass(self) -> bool {
        matches!(self, Self::Corrupt | Self::Busy | Self::Unproven)
    }

    pub(crate) fn from_wire(code: u16) -> Result<Self, WireError> {
        zerocopy::try_transmute!(code).map_err(|_| WireError::Code(code))
    }
}
