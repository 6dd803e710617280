//! What the store needs from far memory: [`ItemMemory`], the access methods of a [`Region`]. Tests use other memory
//! that fails when it is told to.
//!
//! Every access may wait for a page and, on a unithread, yield to other requests meanwhile. Callers therefore hold no
//! ordinary mutex across an access.

use std::sync::Arc;

use yonder::{FarError, PagingCause, PagingError, Region};

/// A range of far memory, addressed in bytes from its start. All methods may be called by many threads at once.
pub trait ItemMemory: Send + Sync + 'static {
    /// Why an access failed: the memory node is lost, the deadline has passed, or a page is lost.
    type Error: std::error::Error;

    /// Whether the bytes that the access asked for can never be had again, and only those: the error is of a page, not
    /// of the node.
    fn is_lost(error: &Self::Error) -> bool;

    /// Gives up the content of `bytes` at `offset`, whole pages: they read as zeros, also those that were lost. After
    /// an error they are not to be used before another attempt has succeeded: the first may still be executed.
    fn renew(&self, offset: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Size of the range in bytes.
    fn bytes(&self) -> u64;

    /// Copies `into.len()` bytes at `offset` into local memory. After an error the content of `into` is unspecified.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Self::Error>;

    /// Copies `from` to `offset`. After an error any part of it may have been written.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), Self::Error>;

    /// Reads the word at `offset`, a multiple of eight.
    fn read_u64(&self, offset: u64) -> Result<u64, Self::Error>;

    /// Writes the word at `offset`, a multiple of eight. After an error the old word is in place.
    fn write_u64(&self, offset: u64, value: u64) -> Result<(), Self::Error>;

    /// Whether the bytes at `offset` equal `bytes`.
    fn matches(&self, offset: u64, bytes: &[u8]) -> Result<bool, Self::Error>;
}

/// Memory that somebody else looks at too.
impl<M: ItemMemory> ItemMemory for Arc<M> {
    type Error = M::Error;

    fn is_lost(error: &M::Error) -> bool {
        M::is_lost(error)
    }

    fn renew(&self, offset: u64, bytes: u64) -> Result<(), M::Error> {
        M::renew(self, offset, bytes)
    }

    fn bytes(&self) -> u64 {
        M::bytes(self)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), M::Error> {
        M::read(self, offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), M::Error> {
        M::write(self, offset, from)
    }

    fn read_u64(&self, offset: u64) -> Result<u64, M::Error> {
        M::read_u64(self, offset)
    }

    fn write_u64(&self, offset: u64, value: u64) -> Result<(), M::Error> {
        M::write_u64(self, offset, value)
    }

    fn matches(&self, offset: u64, bytes: &[u8]) -> Result<bool, M::Error> {
        M::matches(self, offset, bytes)
    }
}

impl ItemMemory for Region {
    type Error = PagingError;

    fn is_lost(error: &PagingError) -> bool {
        matches!(error.cause, PagingCause::Poisoned | PagingCause::HardwareError)
    }

    fn renew(&self, offset: u64, bytes: u64) -> Result<(), PagingError> {
        match self.discard(offset, bytes) {
            Err(FarError::Paging(error)) => Err(error),
            // Whether the node will still forget its copy is not known: the range is nobody's before it has said so.
            Err(error) => {
                tracing::debug!(%error, "the node has not agreed to forget pages that were given up");
                let node = Arc::from(self.far().url());
                Err(PagingError { address: self.address() + offset as usize, node, cause: PagingCause::TimedOut })
            }
            Ok(()) => Ok(()),
        }
    }

    fn bytes(&self) -> u64 {
        Region::bytes(self)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), PagingError> {
        Region::read(self, offset, into)
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), PagingError> {
        Region::write(self, offset, from)
    }

    fn read_u64(&self, offset: u64) -> Result<u64, PagingError> {
        Region::read_u64(self, offset)
    }

    fn write_u64(&self, offset: u64, value: u64) -> Result<(), PagingError> {
        Region::write_u64(self, offset, value)
    }

    fn matches(&self, offset: u64, bytes: &[u8]) -> Result<bool, PagingError> {
        Region::matches(self, offset, bytes)
    }
}
