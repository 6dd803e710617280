//! [`OffloadMemory`]: the memory that a node gives to an offload for one call.

use yonder_wire::{AtomicOperation, ErrorCode};

/// Whose memory an address is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// The offload's own, which nobody else reaches.
    Own,
    /// That of whoever calls, with the caller's rights.
    Caller,
}

/// The virtual memory of a node, as an offload sees it during a call. A refusal means that nothing was done, except
/// that a write across pages may have been done in part.
pub trait OffloadMemory {
    /// Fills `into` from `address`; does nothing if it is empty.
    fn read(&mut self, space: Space, address: u64, into: &mut [u8]) -> Result<(), ErrorCode>;

    /// Stores `from` at `address`; does nothing if it is empty.
    fn write(&mut self, space: Space, address: u64, from: &[u8]) -> Result<(), ErrorCode>;

    /// Changes the aligned word of 8 bytes at `address`, and returns what it was.
    fn atomic(&mut self, space: Space, address: u64, operation: AtomicOperation) -> Result<u64, ErrorCode>;

    /// Allocates `bytes` in the offload's own space, which read as zeros. They begin at a multiple of a node page.
    fn allocate(&mut self, bytes: u64) -> Result<u64, ErrorCode>;

    /// Frees the allocation that begins at `address`.
    fn free(&mut self, address: u64) -> Result<(), ErrorCode>;

    /// The little-endian word of 8 bytes at `address`, which need not be aligned.
    fn read_word(&mut self, space: Space, address: u64) -> Result<u64, ErrorCode> {
        let mut bytes = [0; 8];
        self.read(space, address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// `address + offset`, which must not pass the end of all addresses.
pub(crate) fn offset(address: u64, offset: u64) -> Result<u64, ErrorCode> {
    address.checked_add(offset).ok_or(ErrorCode::BadAddress)
}
