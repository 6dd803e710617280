//! Payloads with a structure, each of one fixed size. [`Body`] encodes and decodes them.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{ConvertError, FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use crate::WireError;

/// A payload of one fixed size.
pub trait Body: Sized {
    /// Bytes on the wire.
    const BYTES: usize;

    /// Writes the payload to `into`, which has [`Body::BYTES`] bytes.
    fn write_to(&self, into: &mut [u8]);

    /// The body in `payload`. Fails if it has another size, or values that this version does not send.
    fn from_bytes(payload: &[u8]) -> Result<Self, WireError>;

    /// Whether `length` in a header is that of this body.
    #[must_use]
    fn fits(length: u32) -> bool {
        length as usize == Self::BYTES
    }
}

/// Payload of a [`Hello`](crate::Kind::Hello) request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The data thread that served the stream before this one, which remembers what it executed; `None` at first.
    pub home: Option<u32>,
}

/// Payload of a [`Hello`](crate::Kind::Hello) answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The data thread that serves the stream.
    pub home: u32,
    /// Bytes of the node's pages.
    pub page_bytes: u64,
    /// Bytes of the node's memory; what it exports is as long.
    pub memory_bytes: u64,
    /// Drawn by the node when it starts: another number is another node, which remembers nothing.
    pub incarnation: u64,
}

/// Payload of an [`Atomic`](crate::Kind::Atomic) request: what becomes of an aligned word of 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOperation {
    /// The word becomes 1.
    TestAndSet,
    /// The word becomes this.
    Store(u64),
    /// The word becomes the sum, modulo 2^64.
    FetchAdd(u64),
    /// The word becomes `new` if it is `expected`.
    CompareAndSwap {
        /// What it must be.
        expected: u64,
        /// What it becomes then.
        new: u64,
    },
}

impl AtomicOperation {
    /// The word after the operation.
    #[must_use]
    #[inline]
    pub const fn apply(self, old: u64) -> u64 {
        match self {
            Self::TestAndSet => 1,
            Self::Store(value) => value,
            Self::FetchAdd(more) => old.wrapping_add(more),
            Self::CompareAndSwap { expected, new } => {
                if old == expected {
                    new
                } else {
                    old
                }
            }
        }
    }
}

/// What memory may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u32)]
pub enum Permission {
    /// Reads only.
    Read = 0,
    /// Reads, writes and atomics.
    ReadWrite = 1,
}

/// What a capability allows. Each right includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, TryFromBytes)]
#[repr(u32)]
pub enum Rights {
    /// Reads.
    Read = 1,
    /// Reads, writes, atomics and calls of offloads.
    ReadWrite = 2,
    /// All of these, and to allocate, free, hand out capabilities and end the address space.
    Owner = 3,
}

impl Rights {
    /// The rights with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        zerocopy::try_transmute!(number).ok()
    }
}

/// When an allocation gets its memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, TryFromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(u32)]
pub enum Backing {
    /// Page by page, at the first write to each. A write fails if the node has no page left then.
    OnDemand = 0,
    /// At once: writes never lack a page, and the allocation can be translated.
    Now = 1,
}

/// Payload of an [`Allocate`](crate::Kind::Allocate) request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct AllocateRequest {
    /// How much; rounded up to whole pages of the node.
    pub bytes: u64,
    /// What it may be used for.
    pub permission: Permission,
    /// When it gets its memory.
    pub backing: Backing,
    /// Where it must lie: from this address ...
    pub from: u64,
    /// ... and end no later than at this one.
    pub to: u64,
}

/// Payload of an [`Allocate`](crate::Kind::Allocate) answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    /// Length of the allocation in bytes: whole pages.
    pub bytes: u64,
    /// Ranges that were tried and had a page without room in the page table.
    pub retries: u32,
}

/// Payload of a [`Translate`](crate::Kind::Translate) answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Translation {
    /// Offset in the node's exported memory.
    pub offset: u64,
    /// Bytes from there to the end of the page.
    pub bytes: u64,
}

/// Payload of a [`Status`](crate::Kind::Status) answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, TryFromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct NodeStatus {
    /// Bytes of the node's memory.
    pub memory_bytes: u64,
    /// Bytes of it that no address space has.
    pub free_bytes: u64,
    /// Bytes of all allocations, with memory or without.
    pub allocated_bytes: u64,
    /// Address spaces.
    pub spaces: u64,
}

/// No data thread.
const NO_HOME: u32 = u32::MAX;

macro_rules! body {
    ($body:ty as $raw:ident { $($field:ident: $type:ty),+ $(,)? }, $bytes:literal) => {
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        struct $raw { $($field: $type),+ }

        const _: () = assert!(size_of::<$raw>() == $bytes);

        impl Body for $body {
            const BYTES: usize = $bytes;

            fn write_to(&self, into: &mut [u8]) {
                into.copy_from_slice($raw::from(*self).as_bytes());
            }

            fn from_bytes(payload: &[u8]) -> Result<Self, WireError> {
                let raw = $raw::ref_from_bytes(payload).map_err(|_| WireError::Length(payload.len()))?;
                raw.decode().ok_or(WireError::Body)
            }
        }
    };
}

// As long as the welcome, which goes to an address that has proven nothing.
body!(Greeting as RawGreeting { home: U32, reserved: [u8; 28] }, 32);
body!(Welcome as RawWelcome { home: U32, reserved: U32, page_bytes: U64, memory_bytes: U64, incarnation: U64 }, 32);
body!(AtomicOperation as RawAtomic { operation: U32, reserved: U32, operand: U64, expected: U64 }, 24);
body!(Allocated as RawAllocated { bytes: U64, retries: U32, reserved: U32 }, 16);

/// Bodies that lie in memory as on the wire.
macro_rules! plain_body {
    ($body:ty, $bytes:literal) => {
        const _: () = assert!(size_of::<$body>() == $bytes && cfg!(target_endian = "little"));

        impl Body for $body {
            const BYTES: usize = $bytes;

            fn write_to(&self, into: &mut [u8]) {
                into.copy_from_slice(self.as_bytes());
            }

            fn from_bytes(payload: &[u8]) -> Result<Self, WireError> {
                Self::try_read_from_bytes(payload).map_err(|error| match error {
                    ConvertError::Size(_) => WireError::Length(payload.len()),
                    _ => WireError::Body,
                })
            }
        }
    };
}

plain_body!(AllocateRequest, 32);
plain_body!(Translation, 16);
plain_body!(NodeStatus, 32);

impl From<Greeting> for RawGreeting {
    fn from(greeting: Greeting) -> Self {
        Self { home: U32::new(greeting.home.unwrap_or(NO_HOME)), reserved: [0; 28] }
    }
}

impl RawGreeting {
    fn decode(&self) -> Option<Greeting> {
        Some(Greeting { home: Some(self.home.get()).filter(|home| *home != NO_HOME) })
    }
}

impl From<Welcome> for RawWelcome {
    fn from(welcome: Welcome) -> Self {
        Self {
            home: U32::new(welcome.home),
            reserved: U32::ZERO,
            page_bytes: U64::new(welcome.page_bytes),
            memory_bytes: U64::new(welcome.memory_bytes),
            incarnation: U64::new(welcome.incarnation),
        }
    }
}

impl RawWelcome {
    fn decode(&self) -> Option<Welcome> {
        let (page_bytes, memory_bytes) = (self.page_bytes.get(), self.memory_bytes.get());
        let (home, incarnation) = (self.home.get(), self.incarnation.get());
        page_bytes.is_power_of_two().then_some(Welcome { home, page_bytes, memory_bytes, incarnation })
    }
}

impl From<AtomicOperation> for RawAtomic {
    fn from(operation: AtomicOperation) -> Self {
        let (number, operand, expected) = match operation {
            AtomicOperation::TestAndSet => (0, 0, 0),
            AtomicOperation::Store(value) => (1, value, 0),
            AtomicOperation::FetchAdd(more) => (2, more, 0),
            AtomicOperation::CompareAndSwap { expected, new } => (3, new, expected),
        };
        Self {
            operation: U32::new(number),
            reserved: U32::ZERO,
            operand: U64::new(operand),
            expected: U64::new(expected),
        }
    }
}

impl RawAtomic {
    fn decode(&self) -> Option<AtomicOperation> {
        let (operand, expected) = (self.operand.get(), self.expected.get());
        match self.operation.get() {
            0 => Some(AtomicOperation::TestAndSet),
            1 => Some(AtomicOperation::Store(operand)),
            2 => Some(AtomicOperation::FetchAdd(operand)),
            3 => Some(AtomicOperation::CompareAndSwap { expected, new: operand }),
            _ => None,
        }
    }
}

impl From<Allocated> for RawAllocated {
    fn from(allocated: Allocated) -> Self {
        Self { bytes: U64::new(allocated.bytes), retries: U32::new(allocated.retries), reserved: U32::ZERO }
    }
}

impl RawAllocated {
    fn decode(&self) -> Option<Allocated> {
        Some(Allocated { bytes: self.bytes.get(), retries: self.retries.get() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comes_back<B: Body + PartialEq + std::fmt::Debug>(body: &B) {
        let mut bytes = vec![0; B::BYTES];
        body.write_to(&mut bytes);
        assert_eq!(B::from_bytes(&bytes).as_ref(), Ok(body));
        bytes.push(0);
        assert_eq!(B::from_bytes(&bytes), Err(WireError::Length(B::BYTES + 1)));
    }

    proptest! {
        #[test]
        fn bodies_come_back(a in any::<u64>(), b in any::<u64>(), home in prop::option::of(0..NO_HOME), shift in 0u32..64) {
            comes_back(&Greeting { home });
            comes_back(&Welcome { home: 3, page_bytes: 1 << shift, memory_bytes: a, incarnation: b });
            let atomics = [
                AtomicOperation::TestAndSet,
                AtomicOperation::Store(a),
                AtomicOperation::FetchAdd(a),
                AtomicOperation::CompareAndSwap { expected: a, new: b },
            ];
            atomics.iter().for_each(comes_back);
            let request = AllocateRequest {
                bytes: a, permission: Permission::Read, backing: Backing::OnDemand, from: b, to: a,
            };
            comes_back(&request);
            comes_back(&AllocateRequest { permission: Permission::ReadWrite, backing: Backing::Now, ..request });
            comes_back(&Allocated { bytes: a, retries: b as u32 });
            comes_back(&Translation { offset: a, bytes: b });
            comes_back(&NodeStatus { memory_bytes: a, free_bytes: b, allocated_bytes: a, spaces: b });
        }
    }

    #[test]
    fn values_that_nobody_sends_are_errors() {
        assert_eq!(AtomicOperation::from_bytes(&[9; 24]), Err(WireError::Body));
        assert_eq!(AllocateRequest::from_bytes(&[9; 32]), Err(WireError::Body));
        assert_eq!(Welcome::from_bytes(&[9; 32]), Err(WireError::Body));
    }

    #[test]
    fn atomics_do_what_they_say() {
        let old = 5;
        assert_eq!(AtomicOperation::TestAndSet.apply(old), 1);
        assert_eq!(AtomicOperation::Store(9).apply(old), 9);
        assert_eq!(AtomicOperation::FetchAdd(u64::MAX).apply(old), 4);
        assert_eq!(AtomicOperation::CompareAndSwap { expected: 5, new: 7 }.apply(old), 7);
        assert_eq!(AtomicOperation::CompareAndSwap { expected: 6, new: 7 }.apply(old), 5);
    }
}
