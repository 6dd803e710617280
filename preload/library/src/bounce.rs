//! [`Local`]: local memory that transfers of the kernel go through.
//!
//! It is taken for the length of one system call, from signal handlers too: one of the [`Bounces`] where that is
//! enough, which is one compare-and-swap, else a mapping of its own, of which only what is used costs anything. A call
//! that a handler leaves by a jump never gives it back; then others have a mapping too.

use std::sync::atomic::{AtomicU64, Ordering};

use yonder_intercept::Call;
use yonder_mapping::{MapError, Mapping};

use crate::calls;

/// Bytes of a small buffer, and how many there are.
const SMALL: (usize, u32) = (16 << 10, 64);
/// Of large ones, for a piece of a transfer: few are under way at once. What was used of them stays mapped, because a
/// mapping for each call cost a server that sends replies of 110 KB more than all else that it did.
const LARGE: (usize, u32) = (calls::PIECE_BYTES as usize, 8);

/// The buffers.
pub(crate) struct Bounces {
    small: Buffers,
    large: Buffers,
}

/// Buffers of one size.
struct Buffers {
    memory: Mapping,
    bytes: usize,
    /// A bit for each buffer that is in use, or that does not exist.
    taken: AtomicU64,
}

/// Local memory for one call, zeros or not.
pub(crate) enum Local<'a> {
    Bounce(Bounce<'a>),
    Mapped(Mapped),
}

/// A buffer.
pub(crate) struct Bounce<'a> {
    of: &'a Buffers,
    number: u32,
}

/// A mapping that is only for one call.
pub(crate) struct Mapped {
    address: usize,
    bytes: usize,
}

impl Bounces {
    pub(crate) fn new() -> Result<Self, MapError> {
        Ok(Self { small: Buffers::new(SMALL)?, large: Buffers::new(LARGE)? })
    }

    /// So much memory, which begins with a page; an error is the answer of the call that needs it.
    pub(crate) fn local(&self, bytes: usize) -> Result<Local<'_>, i64> {
        let of_size = [&self.small, &self.large].into_iter().filter(|buffers| bytes <= buffers.bytes);
        match of_size.filter_map(Buffers::take).next() {
            Some(bounce) => Ok(Local::Bounce(bounce)),
            None => Mapped::new(bytes).map(Local::Mapped),
        }
    }
}

impl Buffers {
    fn new((bytes, count): (usize, u32)) -> Result<Self, MapError> {
        let missing = u64::MAX.checked_shl(count).unwrap_or(0);
        Ok(Self { memory: Mapping::anonymous(bytes * count as usize)?, bytes, taken: AtomicU64::new(missing) })
    }

    /// A buffer, if one is free.
    fn take(&self) -> Option<Bounce<'_>> {
        let take = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Bounce { of: self, number: before.trailing_ones() })
    }
}

impl Local<'_> {
    /// Its address.
    pub(crate) fn address(&self) -> usize {
        match self {
            Self::Bounce(bounce) => bounce.of.memory.address() + bounce.number as usize * bounce.of.bytes,
            Self::Mapped(mapped) => mapped.address,
        }
    }
}

impl Mapped {
    fn new(bytes: usize) -> Result<Self, i64> {
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        let arguments = [0, bytes as u64, prot as u64, flags as u64, u64::MAX, 0];
        let address = calls::make(&Call { number: libc::SYS_mmap, arguments });
        if address < 0 {
            return Err(address);
        }
        // What is in it is far memory, of which core dumps have nothing; a kernel that does not know that dumps it.
        let arguments = [address as u64, bytes as u64, libc::MADV_DONTDUMP as u64, 0, 0, 0];
        let _ = calls::make(&Call { number: libc::SYS_madvise, arguments });
        Ok(Self { address: address as usize, bytes })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let arguments = [self.address as u64, self.bytes as u64, 0, 0, 0, 0];
        let _ = calls::make(&Call { number: libc::SYS_munmap, arguments });
    }
}

impl Drop for Bounce<'_> {
    fn drop(&mut self) {
        self.of.taken.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}
