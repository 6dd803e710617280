//! What the owner of a client submits and gets back: [`Operation`], [`OperationId`], [`Completion`].

use yonder_units::Nanos;
use yonder_wire::{ErrorCode, Kind};

/// Most bytes of an operation's body.
pub const BODY_BYTES_MAX: usize = 64;

/// One operation on the node. The fields mean what they mean in a [`Header`](yonder_wire::Header).
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// What to do. [`Kind::Abort`] is the client's own; everything else may be submitted.
    pub kind: Kind,
    /// The address space; 0 where there is none.
    pub pid: u32,
    /// The right to it.
    pub capability: u128,
    /// Where in it; the number of the offload of a [`Kind::Call`].
    pub address: u64,
    /// Bytes that are read, written, discarded or freed, or what the kind's header has in `length`. A read or write has
    /// at most 2^32 - 1. For a [`Kind::Free`] 0 means that the length is not known: it then waits for everything at
    /// `address` and above. For a [`Kind::Call`] or [`Kind::Adopt`] without a body, the bytes of its arguments among
    /// the owner's data.
    pub length: u64,
    /// A payload with a structure, copied: at most [`BODY_BYTES_MAX`]; empty for reads and writes.
    pub body: &'a [u8],
    /// When it is given up if it has not completed; [`Nanos::MAX`] for never.
    pub deadline: Nanos,
    /// The owner's name for it.
    pub token: u64,
}

/// The client's name for a submitted operation, never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OperationId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Why an operation was not taken. Nothing has been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The client holds as many operations as it can: take completions, then submit again.
    #[error("the client is full")]
    Full,
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The node has done it.
    Done,
    /// The node has done it; this was the word before a [`Kind::Atomic`].
    Old(u64),
    /// The node has refused it, or a fragment of it; other fragments of a write may have been executed. After
    /// [`ErrorCode::TooOld`] it is unknown whether it was executed; after the others, that fragment was not.
    Refused(ErrorCode),
    /// Its deadline has come. Whether a write, an atomic or an operation of the slow path is executed is unknown; it is
    /// aborted in the background, and nothing that depends on it is sent before the node has confirmed that.
    TimedOut,
    /// [`abandon`](crate::Client::abandon) was called. Whether it was executed is unknown.
    Lost,
}

/// The end of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The owner's name for it.
    pub token: u64,
    /// The client's name for it.
    pub id: OperationId,
    /// How it ended.
    pub outcome: Outcome,
}
