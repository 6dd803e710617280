//! The wire format between a compute node and a memory node.
//!
//! A message is one fixed [`Header`] of [`HEADER_BYTES`] and, for some kinds, a payload of `length` bytes. Everything
//! is little-endian. [`Header::seal`] encodes, [`split`] finds the first whole message in received bytes, and
//! [`Message::verify`] checks its checksum; no received input makes them panic. A [`MessageBuffer`] holds the bytes
//! between a socket and the messages, in either direction.
//!
//! The checksum is the whole 64-bit XXH3 of header and payload, not a CRC: the header has room for it, it costs a few
//! hundred nanoseconds a page without special instructions, and a 64-bit sum keeps the chance of an unnoticed error far
//! below that of the memory itself. It guards against corruption, not against an attacker.
//!
//! Neighbours: `runtime/node` answers these messages, `runtime/fabric` sends them. Nothing here does I/O.

#![forbid(unsafe_code)]

mod adopt;
mod body;
mod buffer;
mod header;
mod kind;
mod message;

pub use adopt::{
    ADOPT_HEAD_BYTES, ADOPT_PAGES_MAX, AdoptRequest, AdoptStage, AdoptedAllocation, Inventory, InventoryList,
};
pub use body::{
    AllocateRequest, Allocated, AtomicOperation, Backing, Body, Greeting, NodeStatus, Permission, Rights, Translation,
    Welcome,
};
pub use buffer::MessageBuffer;
pub use header::{CODE_AT, HEADER_BYTES, Header, PREFIX_BYTES, VERSION};
pub use kind::{Direction, ErrorCode, Kind};
pub use message::{Message, WireError, split, split_proven};

/// Most payload bytes in one message. A receiver's buffer holds at least one whole message.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Most bytes of one discard, or a page of the node if that has more: as many as a node makes read as zeros without
/// holding others up. A power of two.
pub const DISCARD_BYTES_MAX: u64 = 1 << 20;
/// Longest lease of an address space in milliseconds, and that of one made without, unless a node was told otherwise: a
/// day.
pub const LEASE_MS_MAX: u32 = 24 * 3600 * 1000;
/// Bytes of the proof behind a protected message.
pub const PROOF_BYTES: usize = 16;
/// Most bytes in one message, protected or not.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + PAYLOAD_BYTES_MAX + PROOF_BYTES;
