//! The one fixed header: [`Header`] as the program sees it, `RawHeader` as it lies on the wire.
//!
//! A raw header is a prefix of 20 bytes, which says what the rest is and proves it, and 60 bytes of what is asked or
//! answered. Here are plain messages, whose proof is a checksum; `core/session` puts another prefix in front of the
//! same 60 bytes.
//!
//! Invariant: the raw header is [`HEADER_BYTES`] long and has no padding; its checksum is that of all the rest of it
//! and of the payload.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;
use crate::kind::{Direction, ErrorCode, Kind};

/// Bytes in a header.
pub const HEADER_BYTES: usize = 80;
/// Bytes of the prefix: what comes before `kind`.
pub const PREFIX_BYTES: usize = 20;
/// Where the code of a refusal is in a header.
pub const CODE_AT: std::ops::Range<usize> = PREFIX_BYTES + 2..PREFIX_BYTES + 4;
/// The version of the protocol that this crate speaks.
pub const VERSION: u8 = 3;
/// First two bytes of every message: `Yo`.
const MAGIC: u16 = u16::from_le_bytes(*b"Yo");
/// The only flag: the message is an answer.
const ANSWER: u8 = 1;

/// A message without its payload. Magic, version and checksum are added and checked by this crate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the message asks or answers.
    pub kind: Kind,
    /// Whether it asks or answers.
    pub direction: Direction,
    /// Why a request was refused.
    pub code: ErrorCode,
    /// Number of the address space that `address` is in; 0 where there is none.
    pub pid: u32,
    /// Bytes of the payload where there is one; else bytes that the request is about.
    pub length: u32,
    /// Byte offset of this fragment in the whole operation.
    pub fragment_offset: u32,
    /// The sender's name for this attempt; an answer carries it back. Unique among the attempts of all clients, because
    /// each client begins at a random number. The largest is 2^64 - 1, and none is 0.
    pub request_id: u64,
    /// Name of the first attempt: `request_id` itself, or of the attempt that this one repeats. At most 2^32 - 1 lower.
    pub first_id: u64,
    /// Byte address of this fragment in the remote address space.
    pub address: u64,
    /// Proof of the right to the address space.
    pub capability: u128,
    /// Proof that the sender of a datagram receives at its address, as the node has given it: in every answer to come.
    /// 0 where there is none.
    pub cookie: u64,
    /// In a request a time, on the node's clock in nanoseconds, not later than when the first attempt was sent; in an
    /// answer the node's clock when it was made.
    pub time: u64,
}

/// The header on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U16,
    version: u8,
    reserved: u8,
    cookie: U64,
    checksum: U64,
    kind: u8,
    flags: u8,
    code: U16,
    pid: U32,
    length: U32,
    fragment_offset: U32,
    /// How far `first_id` lies before `request_id`.
    retry_distance: U32,
    request_id: U64,
    address: U64,
    capability: U128,
    time: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, kind) == PREFIX_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, code) == CODE_AT.start);

impl Header {
    /// The first attempt of a request of `kind` about `length` bytes at `address`, in no address space.
    #[must_use]
    pub const fn request(kind: Kind, request_id: u64, address: u64, length: u32) -> Self {
        Self {
            kind,
            direction: Direction::Request,
            code: ErrorCode::None,
            pid: 0,
            length,
            fragment_offset: 0,
            request_id,
            first_id: request_id,
            address,
            capability: 0,
            cookie: 0,
            time: 0,
        }
    }

    /// The answer to this request at `time` on the node's clock, with `length` bytes of payload where there is one.
    #[must_use]
    pub const fn answer(&self, time: u64, length: u32) -> Self {
        Self { direction: Direction::Answer, code: ErrorCode::None, time, length, ..*self }
    }

    /// The refusal of this request at `time` on the node's clock.
    #[must_use]
    pub const fn refusal(&self, time: u64, code: ErrorCode) -> Self {
        Self { direction: Direction::Answer, code, time, ..*self }
    }

    /// Whether this is an answer that says that nothing was done.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self.code, ErrorCode::None)
    }

    /// Bytes of payload that follow the header.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        if self.kind.carries_payload(self.direction) && !self.is_refusal() { self.length as usize } else { 0 }
    }

    /// The header as it goes on the wire before `payload`, with its checksum.
    ///
    /// # Panics
    /// If `payload` is not as long as the header says, or if `first_id` is not one that the header can name: a message
    /// that no receiver could read.
    #[must_use]
    #[inline]
    pub fn seal(&self, payload: &[u8]) -> [u8; HEADER_BYTES] {
        assert_eq!(payload.len(), self.payload_bytes(), "payload of a {:?}", self.kind);
        let distance = self.request_id.checked_sub(self.first_id).and_then(|distance| u32::try_from(distance).ok());
        let flags = if self.direction == Direction::Answer { ANSWER } else { 0 };
        let mut raw = RawHeader {
            magic: U16::new(MAGIC),
            version: VERSION,
            reserved: 0,
            cookie: U64::new(self.cookie),
            checksum: U64::ZERO,
            kind: self.kind as u8,
            flags,
            code: U16::new(self.code as u16),
            pid: U32::new(self.pid),
            length: U32::new(self.length),
            fragment_offset: U32::new(self.fragment_offset),
            retry_distance: U32::new(distance.expect("a retry follows its first attempt closely")),
            request_id: U64::new(self.request_id),
            address: U64::new(self.address),
            capability: U128::new(self.capability),
            time: U64::new(self.time),
        };
        raw.checksum = U64::new(checksum(&raw, payload));
        zerocopy::transmute!(raw)
    }

    /// Whether a message may begin with these bytes, which are fewer than a header's.
    pub(crate) fn may_begin(bytes: &[u8]) -> Result<(), WireError> {
        let magic = bytes.first_chunk().map(|magic| u16::from_le_bytes(*magic));
        magic.filter(|magic| *magic != MAGIC).map_or(Ok(()), |magic| Err(WireError::Magic(magic)))
    }

    /// The header in `bytes`. Fails on anything that this version does not send.
    pub(crate) fn open(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if raw.magic.get() != MAGIC {
            return Err(WireError::Magic(raw.magic.get()));
        }
        if raw.version != VERSION {
            return Err(WireError::Version(raw.version));
        }
        let direction = match (raw.flags, raw.reserved) {
            (0, 0) => Direction::Request,
            (ANSWER, 0) => Direction::Answer,
            (flags, reserved) => return Err(WireError::Flags(u16::from_le_bytes([flags, reserved]))),
        };
        let code = ErrorCode::from_wire(raw.code.get())?;
        if direction == Direction::Request && code != ErrorCode::None {
            return Err(WireError::Code(raw.code.get()));
        }
        let (request_id, distance) = (raw.request_id.get(), u64::from(raw.retry_distance.get()));
        let first_id = request_id.checked_sub(distance).filter(|first| *first != 0);
        Ok(Self {
            kind: Kind::from_wire(raw.kind)?,
            direction,
            code,
            pid: raw.pid.get(),
            length: raw.length.get(),
            fragment_offset: raw.fragment_offset.get(),
            request_id,
            first_id: first_id.ok_or(WireError::RequestId(request_id))?,
            address: raw.address.get(),
            capability: raw.capability.get(),
            cookie: raw.cookie.get(),
            time: raw.time.get(),
        })
    }
}

/// Whether the checksum in `header` is the one of `header` and `payload`.
#[inline]
pub(crate) fn checksum_matches(header: &[u8; HEADER_BYTES], payload: &[u8]) -> bool {
    let raw: &RawHeader = zerocopy::transmute_ref!(header);
    raw.checksum.get() == checksum(&RawHeader { checksum: U64::ZERO, ..*raw }, payload)
}

/// The sum of a header whose checksum is 0, and of its payload. The header's seeds the payload's, so one 64-bit number
/// covers both without a streaming state.
#[inline]
fn checksum(header: &RawHeader, payload: &[u8]) -> u64 {
    let seed = xxh3_64(header.as_bytes());
    if payload.is_empty() { seed } else { xxh3_64_with_seed(payload, seed) }
}
