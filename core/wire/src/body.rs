//! Payloads with a structure: the two halves of the session's handshake.
//!
//! A session is one queue pair of one client for one connection. The client numbers its sessions with rising epochs; a
//! node that has answered an epoch executes nothing more of an older one, so a write that is sent again on a new
//! connection is never overwritten by its late first copy.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WireError;

/// A client's name: random, so that no two clients share one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct ClientId(pub [u8; 16]);

/// Names what a node remembers of a client: random, drawn when the node first meets the client. A client that is
/// welcomed with another incarnation has lost its memory, whatever its addresses read as now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Incarnation(pub [u8; 16]);

/// Payload of `Hello`: who opens the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// The client.
    pub client: ClientId,
    /// Number of the session among the client's sessions; higher is newer.
    pub epoch: u64,
    /// The client's queue pair that the session serves; 0 is its control connection.
    pub queue_pair: u32,
}

/// Payload of `HelloAck`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// What the node remembers of the client.
    pub incarnation: Incarnation,
    /// Bytes in the node's address space; its exported memory is as long.
    pub address_space_bytes: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGreeting {
    client: ClientId,
    epoch: U64,
    queue_pair: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawWelcome {
    incarnation: Incarnation,
    address_space_bytes: U64,
}

const _: () = assert!(size_of::<RawGreeting>() == Greeting::BYTES);
const _: () = assert!(size_of::<RawWelcome>() == Welcome::BYTES);

impl Greeting {
    /// Bytes on the wire.
    pub const BYTES: usize = 32;

    /// The payload to send.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(RawGreeting {
            client: self.client,
            epoch: U64::new(self.epoch),
            queue_pair: U32::new(self.queue_pair),
            reserved: U32::ZERO,
        })
    }

    /// The greeting in `payload`. Fails if it has another size.
    pub fn from_bytes(payload: &[u8]) -> Result<Self, WireError> {
        let raw = RawGreeting::ref_from_bytes(payload).map_err(|_| WireError::Length(payload.len() as u64))?;
        Ok(Self { client: raw.client, epoch: raw.epoch.get(), queue_pair: raw.queue_pair.get() })
    }
}

impl Welcome {
    /// Bytes on the wire.
    pub const BYTES: usize = 24;

    /// The payload to send.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(RawWelcome {
            incarnation: self.incarnation,
            address_space_bytes: U64::new(self.address_space_bytes),
        })
    }

    /// The welcome in `payload`. Fails if it has another size.
    pub fn from_bytes(payload: &[u8]) -> Result<Self, WireError> {
        let raw = RawWelcome::ref_from_bytes(payload).map_err(|_| WireError::Length(payload.len() as u64))?;
        Ok(Self { incarnation: raw.incarnation, address_space_bytes: raw.address_space_bytes.get() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bodies_come_back(id in any::<[u8; 16]>(), number in any::<u64>(), queue_pair in any::<u32>()) {
            let greeting = Greeting { client: ClientId(id), epoch: number, queue_pair };
            prop_assert_eq!(Greeting::from_bytes(&greeting.to_bytes()), Ok(greeting));
            let welcome = Welcome { incarnation: Incarnation(id), address_space_bytes: number };
            prop_assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Ok(welcome));
        }

        #[test]
        fn bodies_of_other_sizes_are_errors(payload in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(Greeting::from_bytes(&payload).is_ok(), payload.len() == Greeting::BYTES);
            prop_assert_eq!(Welcome::from_bytes(&payload).is_ok(), payload.len() == Welcome::BYTES);
        }
    }
}
