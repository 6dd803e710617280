//! The one fixed header: [`Header`] as the program sees it, `RawHeader` as it lies on the wire.
//!
//! Invariant: the raw header is [`HEADER_BYTES`] long, has no padding, and its last field is the checksum of everything
//! before it and of the payload.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// Bytes in a header.
pub const HEADER_BYTES: usize = 64;
/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 1;
/// First two bytes of every message: `Yo`.
const MAGIC: u16 = u16::from_le_bytes(*b"Yo");
/// Bytes of the header that the checksum covers.
const SUMMED_BYTES: usize = HEADER_BYTES - size_of::<U64>();

/// What a message asks or answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Opens a session; the payload is a [`Greeting`](crate::Greeting).
    Hello = 1,
    /// Accepts a session; the payload is a [`Welcome`](crate::Welcome).
    HelloAck = 2,
    /// Asks for `length` bytes at `address`.
    Read = 3,
    /// Answers a read; the payload is what was asked for.
    ReadReply = 4,
    /// Stores the payload at `address`.
    Write = 5,
    /// The write is in the node's memory.
    WriteAck = 6,
    /// Asks for `length` bytes of memory that reads as zeros.
    Allocate = 7,
    /// Answers an allocation: `length` bytes at `address`.
    AllocateAck = 8,
    /// Gives `length` bytes at `address` back.
    Release = 9,
    /// The range is released.
    ReleaseAck = 10,
    /// Drops the content of `length` bytes at `address`; they stay allocated and read as zeros.
    Discard = 11,
    /// The range reads as zeros.
    DiscardAck = 12,
    /// Refuses the request; `code` says why.
    Error = 13,
    /// Asks whether the peer is there.
    Ping = 14,
    /// It is.
    PingAck = 15,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::Hello,
        Self::HelloAck,
        Self::Read,
        Self::ReadReply,
        Self::Write,
        Self::WriteAck,
        Self::Allocate,
        Self::AllocateAck,
        Self::Release,
        Self::ReleaseAck,
        Self::Discard,
        Self::DiscardAck,
        Self::Error,
        Self::Ping,
        Self::PingAck,
    ];

    /// Whether a payload of `length` bytes follows the header.
    #[must_use]
    pub const fn carries_payload(self) -> bool {
        matches!(self, Self::Hello | Self::HelloAck | Self::ReadReply | Self::Write)
    }

    fn from_wire(byte: u8) -> Result<Self, WireError> {
        let index = usize::from(byte).wrapping_sub(1);
        Self::ALL.get(index).copied().ok_or(WireError::Kind(byte))
    }
}

/// Why a request was refused. [`ErrorCode::None`] in every message that is not [`Kind::Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum ErrorCode {
    /// No error.
    None = 0,
    /// The range is not wholly inside memory allocated to this client.
    BadAddress = 1,
    /// The node has no room for the allocation.
    OutOfMemory = 2,
    /// The length is zero, not whole pages, or too long for this request.
    BadLength = 3,
    /// The node knows a newer session of this queue pair.
    StaleEpoch = 4,
    /// The node serves as many connections or queue pairs as it can.
    TooMany = 5,
    /// The request's checksum did not match; nothing was done.
    Corrupt = 6,
    /// The operating system refused something to the node.
    System = 7,
}

impl ErrorCode {
    const ALL: [Self; 8] = [
        Self::None,
        Self::BadAddress,
        Self::OutOfMemory,
        Self::BadLength,
        Self::StaleEpoch,
        Self::TooMany,
        Self::Corrupt,
        Self::System,
    ];

    fn from_wire(code: u16) -> Result<Self, WireError> {
        Self::ALL.get(usize::from(code)).copied().ok_or(WireError::Code(code))
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "no error",
            Self::BadAddress => "the address is not in memory allocated to this client",
            Self::OutOfMemory => "the node has no room left",
            Self::BadLength => "the length is not valid for this request",
            Self::StaleEpoch => "a newer session of this queue pair exists",
            Self::TooMany => "the node serves as many connections as it can",
            Self::Corrupt => "the request was corrupted on its way",
            Self::System => "the node's operating system refused the request",
        })
    }
}

/// A message without its payload. Magic, version and checksum are added and checked by this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the message asks or answers.
    pub kind: Kind,
    /// None are defined in this version: sent as zero, and anything else is refused.
    pub flags: u16,
    /// Why a request was refused.
    pub code: ErrorCode,
    /// Owner of the address space that `address` is in; the client's own is 0.
    pub pid: u32,
    /// Byte offset of this fragment in the whole operation.
    pub fragment_offset: u32,
    /// The sender's name for the request; an answer carries it back.
    pub request_id: u64,
    /// The request that this one repeats, or 0.
    pub retry_of: u64,
    /// Byte address in the remote address space.
    pub address: u64,
    /// Bytes that the request is about; the length of the payload where there is one.
    pub length: u64,
    /// Proof of the right to the range; 0 where the session gives it.
    pub capability: u64,
}

/// The header on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    version: u8,
    kind: u8,
    flags: U16,
    code: U16,
    pid: U32,
    fragment_offset: U32,
    request_id: U64,
    retry_of: U64,
    address: U64,
    length: U64,
    capability: U64,
    checksum: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, checksum) == SUMMED_BYTES);

impl Header {
    /// A request of `kind` about `length` bytes at `address`.
    #[must_use]
    pub const fn request(kind: Kind, request_id: u64, address: u64, length: u64) -> Self {
        Self {
            kind,
            flags: 0,
            code: ErrorCode::None,
            pid: 0,
            fragment_offset: 0,
            request_id,
            retry_of: 0,
            address,
            length,
            capability: 0,
        }
    }

    /// The answer of `kind` to this request, about the same range.
    #[must_use]
    pub const fn answer(&self, kind: Kind) -> Self {
        Self { kind, code: ErrorCode::None, ..*self }
    }

    /// The refusal of this request.
    #[must_use]
    pub const fn refusal(&self, code: ErrorCode) -> Self {
        Self { kind: Kind::Error, code, ..*self }
    }

    /// Bytes of payload that follow the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> u64 {
        if self.kind.carries_payload() { self.length } else { 0 }
    }

    /// The header as it goes on the wire before `payload`, with its checksum.
    ///
    /// # Panics
    /// If `payload` is not as long as the header says: a message that no receiver could split.
    #[must_use]
    #[inline]
    pub fn seal(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        assert_eq!(payload.len() as u64, self.payload_bytes(), "payload of a {:?}", self.kind);
        let mut raw = RawHeader {
            magic: U16::new(MAGIC),
            version: VERSION,
            kind: self.kind as u8,
            flags: U16::new(self.flags),
            code: U16::new(self.code as u16),
            pid: U32::new(self.pid),
            fragment_offset: U32::new(self.fragment_offset),
            request_id: U64::new(self.request_id),
            retry_of: U64::new(self.retry_of),
            address: U64::new(self.address),
            length: U64::new(self.length),
            capability: U64::new(self.capability),
            checksum: U64::ZERO,
        };
        raw.checksum = U64::new(checksum(&raw, payload));
        zerocopy::transmute!(raw)
    }

    /// The header and the checksum it carries. Fails on anything that this version does not send.
    pub(crate) fn open(bytes: &[u8; HEADER_BYTES]) -> Result<(Self, u64), WireError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if raw.magic.get() != MAGIC {
            return Err(WireError::Magic(raw.magic.get()));
        }
        if raw.version != VERSION {
            return Err(WireError::Version(raw.version));
        }
        if raw.flags.get() != 0 {
            return Err(WireError::Flags(raw.flags.get()));
        }
        let header = Self {
            kind: Kind::from_wire(raw.kind)?,
            flags: 0,
            code: ErrorCode::from_wire(raw.code.get())?,
            pid: raw.pid.get(),
            fragment_offset: raw.fragment_offset.get(),
            request_id: raw.request_id.get(),
            retry_of: raw.retry_of.get(),
            address: raw.address.get(),
            length: raw.length.get(),
            capability: raw.capability.get(),
        };
        Ok((header, raw.checksum.get()))
    }
}

/// Whether the checksum in `header` is the one of `header` and `payload`.
#[inline]
pub(crate) fn checksum_matches(header: &[u8; HEADER_BYTES], payload: &[u8]) -> bool {
    let raw: &RawHeader = zerocopy::transmute_ref!(header);
    raw.checksum.get() == checksum(raw, payload)
}

/// The header's sum seeds the payload's, so one 64-bit number covers both without a streaming state.
#[inline]
fn checksum(header: &RawHeader, payload: &[u8]) -> u64 {
    let seed = xxh3_64(&header.as_bytes()[..SUMMED_BYTES]);
    if payload.is_empty() { seed } else { xxh3_64_with_seed(payload, seed) }
}
