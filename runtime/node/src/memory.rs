//! The node's memory: one sparse file in memory, mapped once, and who owns which part of it.
//!
//! The kernel backs a page when it is first written. The address space is larger than the limit, so that free ranges
//! rarely fail an allocation by being scattered.
//!
//! A [`View`] is the right to access memory for one batch of requests: while one exists no range changes its owner, so a
//! late write of one client never lands in memory that another one has been given meanwhile.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::fs::{MemfdFlags, SealFlags};
use yonder_mapping::Mapping;
use yonder_units::PAGE_BYTES;
use yonder_wire::ErrorCode;

use crate::NodeError;
use crate::extents::{Extents, Owner};

/// Bytes of address space for each byte that may be allocated, as in Clio's over-provisioned page table.
const SPACE_PER_BYTE: u64 = 4;

/// All memory of a node.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
    mapping: Mapping,
    extents: RwLock<Extents>,
}

impl Memory {
    /// Reserves the address space for `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64) -> Result<Self, NodeError> {
        let limit_bytes = limit_bytes.next_multiple_of(PAGE_BYTES as u64);
        let space_bytes = limit_bytes.saturating_mul(SPACE_PER_BYTE);
        let file = sealed_file(space_bytes)
            .map_err(|cause| NodeError::System { what: "a file in memory", cause: cause.into() })?;
        let mapping = Mapping::shared(file.as_fd(), space_bytes as usize)?;
        Ok(Self { file, mapping, extents: RwLock::new(Extents::new(space_bytes, limit_bytes)) })
    }

    /// The file, for clients that map it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes in the address space.
    pub(crate) fn space_bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Bytes allocated, and the most that may be.
    pub(crate) fn allocated_and_limit_bytes(&self) -> (u64, u64) {
        let extents = self.shared();
        (extents.used_bytes(), extents.limit_bytes())
    }

    /// Bytes that the kernel has backed.
    pub(crate) fn backed_bytes(&self) -> u64 {
        /// The unit of `st_blocks`, whatever the file system's block size.
        const STAT_BLOCK_BYTES: u64 = 512;
        rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_blocks as u64 * STAT_BLOCK_BYTES)
    }

    /// The right to access memory until it is dropped.
    pub(crate) fn view(&self) -> View<'_> {
        View { mapping: &self.mapping, extents: self.shared() }
    }

    /// Gives `bytes` that read as zeros to `owner`.
    pub(crate) fn allocate(&self, owner: Owner, bytes: u64) -> Result<u64, ErrorCode> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(ErrorCode::BadLength);
        }
        self.exclusive().allocate(owner, bytes).ok_or(ErrorCode::OutOfMemory)
    }

    /// Takes a range from `owner`, drops its content and makes it free.
    pub(crate) fn release(&self, owner: Owner, start: u64, bytes: u64) -> Result<(), ErrorCode> {
        if !self.exclusive().withdraw(owner, start, bytes) {
            return Err(ErrorCode::BadAddress);
        }
        self.recycle(start, bytes)
    }

    /// Takes everything from `owner`, as [`Memory::release`].
    pub(crate) fn release_all(&self, owner: Owner) {
        let ranges = self.exclusive().withdraw_all(owner);
        for (start, bytes) in ranges {
            if let Err(code) = self.recycle(start, bytes) {
                tracing::error!(start, bytes, "memory of a client that has gone is not reusable: {code}");
            }
        }
    }

    /// Drops the content of a range of `owner`'s, which reads as zeros afterwards. It is in limbo meanwhile, so that a
    /// release of the same range cannot make this drop what somebody else has been given.
    pub(crate) fn discard(&self, owner: Owner, start: u64, bytes: u64) -> Result<(), ErrorCode> {
        if !start.is_multiple_of(PAGE_BYTES as u64) || !bytes.is_multiple_of(PAGE_BYTES as u64) {
            return Err(ErrorCode::BadLength);
        }
        if !self.exclusive().withdraw(owner, start, bytes) {
            return Err(ErrorCode::BadAddress);
        }
        let cleared = self.clear(start, bytes);
        self.exclusive().restore(owner, start, bytes);
        cleared
    }

    /// A range whose content cannot be dropped stays in limbo: nobody may read what the last owner left.
    fn recycle(&self, start: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.clear(start, bytes)?;
        self.exclusive().recycle(start, bytes);
        Ok(())
    }

    fn clear(&self, start: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.mapping.discard(start, bytes as usize).map_err(|error| {
            tracing::error!(start, bytes, "dropping the content of a range failed: {error}");
            ErrorCode::System
        })
    }

    fn shared(&self) -> RwLockReadGuard<'_, Extents> {
        self.extents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Extents> {
        self.extents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to access memory for one batch of requests. No range changes its owner meanwhile.
#[derive(Debug)]
pub(crate) struct View<'a> {
    mapping: &'a Mapping,
    extents: RwLockReadGuard<'a, Extents>,
}

impl View<'_> {
    /// Whether `owner` owns the whole range.
    #[inline]
    pub(crate) fn owns(&self, owner: Owner, start: u64, bytes: u64) -> bool {
        self.extents.owns(owner, start, bytes)
    }

    /// Copies the bytes at `start` out, which the reader owns.
    #[inline]
    pub(crate) fn read(&self, start: u64, into: &mut [u8]) {
        self.mapping.read(start, into);
    }

    /// Copies `from` to `start`, which the writer owns.
    #[inline]
    pub(crate) fn write(&self, start: u64, from: &[u8]) {
        self.mapping.write(start, from);
    }
}

/// A file in memory whose size nobody can change: a client that shrank it would make the node's accesses fault.
fn sealed_file(bytes: u64) -> rustix::io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"yonder-node", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn released_memory_returns_to_the_machine_and_reads_as_zeros() {
        let memory = Memory::new(64 * PAGE).unwrap();
        let start = memory.allocate(Owner(1), 64 * PAGE).unwrap();
        assert_eq!(memory.backed_bytes(), 0);
        for page in 0..64 {
            memory.view().write(start + page * PAGE, &[7; 100]);
        }
        assert_eq!(memory.backed_bytes(), 64 * PAGE);
        memory.discard(Owner(1), start, 16 * PAGE).unwrap();
        assert_eq!(memory.backed_bytes(), 48 * PAGE);
        memory.release(Owner(1), start, 64 * PAGE).unwrap();
        assert_eq!((memory.backed_bytes(), memory.allocated_and_limit_bytes()), (0, (0, 64 * PAGE)));
        let again = memory.allocate(Owner(2), 64 * PAGE).unwrap();
        let mut bytes = [1; 100];
        memory.view().read(again + 63 * PAGE, &mut bytes);
        assert_eq!(bytes, [0; 100]);
    }

    #[test]
    fn ranges_of_others_are_refused() {
        let memory = Memory::new(8 * PAGE).unwrap();
        let start = memory.allocate(Owner(1), 4 * PAGE).unwrap();
        assert_eq!(memory.release(Owner(2), start, PAGE), Err(ErrorCode::BadAddress));
        assert_eq!(memory.discard(Owner(2), start, PAGE), Err(ErrorCode::BadAddress));
        assert_eq!(memory.discard(Owner(1), start + 1, PAGE), Err(ErrorCode::BadLength));
        assert_eq!(memory.allocate(Owner(2), 5 * PAGE), Err(ErrorCode::OutOfMemory));
        assert_eq!(memory.allocate(Owner(2), 100), Err(ErrorCode::BadLength));
        assert!(!memory.view().owns(Owner(2), start, 1));
    }

    #[test]
    fn the_file_cannot_be_shrunk() {
        let memory = Memory::new(PAGE).unwrap();
        assert!(rustix::fs::ftruncate(memory.file(), 0).is_err());
    }
}
