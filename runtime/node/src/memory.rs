//! The node's memory: one sparse file in memory, mapped once, and the ring of zeroed pages for first writes.
//!
//! The kernel backs a page when it is first written. Pages of the ring read as zeros; the slow path fills it, data
//! threads take from it without a lock. Who owns which page is the board's business.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossbeam_queue::ArrayQueue;
use rustix::fs::{MemfdFlags, SealFlags};
use yonder_board::{NUMBERS_PER_PAGE, PageSize, PageSource, PhysicalPage};
use yonder_mapping::Mapping;
use yonder_units::Narrow;
use yonder_wire::AtomicOperation;

use crate::NodeError;

/// Most pages in the ring.
const RING_PAGES_MAX: usize = 256;

/// All memory of a node.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
    /// Of all numbers that pages may have; there are never more pages than `bytes` at a time.
    mapping: Mapping,
    bytes: u64,
    page_bytes: u64,
    /// Pages that read as zeros and belong to nobody.
    zeroed: ArrayQueue<PhysicalPage>,
    /// As many pages as the ring is filled with. It has room for more: for those that threads have taken and bring
    /// back, because somebody else was faster, after it was filled again.
    ring_pages: usize,
}

impl Memory {
    /// Reserves the address space for `pages` pages. At most `users` threads take pages from the ring, each one at a
    /// time.
    pub(crate) fn new(pages: u32, page_size: PageSize, users: usize) -> Result<Self, NodeError> {
        let bytes = u64::from(pages) * page_size.bytes();
        let places = bytes * u64::from(NUMBERS_PER_PAGE);
        let file =
            sealed_file(places).map_err(|cause| NodeError::System { what: "a file in memory", cause: cause.into() })?;
        let mapping = Mapping::shared(file.as_fd(), places.narrow_usize())?;
        mapping.prefer_huge_pages();
        // It is the memory of all clients, and they trust the node with it while it runs.
        mapping.keep_out_of_core_dumps()?;
        let ring_pages = (pages as usize).clamp(1, RING_PAGES_MAX);
        let zeroed = ArrayQueue::new(ring_pages + users);
        Ok(Self { file, mapping, bytes, page_bytes: page_size.bytes(), zeroed, ring_pages })
    }

    /// The file, for clients that map it.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of the memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that the kernel has backed.
    pub(crate) fn backed_bytes(&self) -> u64 {
        /// The unit of `st_blocks`, whatever the file system's block size.
        const STAT_BLOCK_BYTES: u64 = 512;
        rustix::fs::fstat(&self.file).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * STAT_BLOCK_BYTES)
    }

    /// Whether the ring is worth filling, if no page has `free_pages` pages: those of the ring are among them. On a
    /// node whose memory is all in use it never is, or every batch would wake the slow path for nothing.
    pub(crate) fn ring_wants(&self, free_pages: u32) -> bool {
        let waiting = self.zeroed.len();
        waiting < self.ring_pages.div_ceil(2) && waiting < free_pages as usize
    }

    /// Whether the ring takes no more pages.
    pub(crate) fn ring_is_full(&self) -> bool {
        self.zeroed.len() >= self.ring_pages
    }

    /// Gives the backing of a page back to the kernel, so that it reads as zeros.
    ///
    /// # Panics
    /// If the kernel does not take it: then nobody may ever see the page again, and going on would lose memory
    /// silently.
    pub(crate) fn zero(&self, page: PhysicalPage) {
        let dropped = self.mapping.discard(u64::from(page.0) * self.page_bytes, self.page_bytes.narrow_usize());
        dropped.expect("memory of our own file can be dropped");
    }

    /// Offset of `offset` in `page` in the file.
    #[inline]
    fn at(&self, page: PhysicalPage, offset: u64) -> u64 {
        assert!(offset < self.page_bytes, "offset {offset} is not in a page");
        u64::from(page.0) * self.page_bytes + offset
    }
}

impl yonder_board::Memory for Memory {
    #[inline]
    fn read(&self, page: PhysicalPage, offset: u64, into: &mut [u8]) {
        assert!(offset + into.len() as u64 <= self.page_bytes, "a read leaves its page");
        self.mapping.read(self.at(page, offset), into);
    }

    #[inline]
    fn write(&self, page: PhysicalPage, offset: u64, from: &[u8]) {
        assert!(offset + from.len() as u64 <= self.page_bytes, "a write leaves its page");
        self.mapping.write(self.at(page, offset), from);
    }

    #[inline]
    fn atomic(&self, page: PhysicalPage, offset: u64, operation: AtomicOperation) -> u64 {
        self.mapping.update_u64(self.at(page, offset), |old| operation.apply(old))
    }
}

impl PageSource for Memory {
    #[inline]
    fn take(&self) -> Option<PhysicalPage> {
        self.zeroed.pop()
    }

    fn give_back(&self, page: PhysicalPage) {
        self.zeroed.push(page).expect("there is room for all that the slow path puts in and threads bring back");
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
    use yonder_board::Memory as _;

    use super::*;

    const PAGE_BYTES: u64 = 64 << 10;

    fn memory() -> Memory {
        Memory::new(4, PageSize::new(PAGE_BYTES).unwrap(), 2).unwrap()
    }

    #[test]
    fn a_zeroed_page_returns_to_the_machine_and_reads_as_zeros() {
        let memory = memory();
        assert_eq!((memory.bytes(), memory.backed_bytes()), (4 * PAGE_BYTES, 0));
        memory.write(PhysicalPage(2), 100, &[7; 100]);
        memory.write(PhysicalPage(3), 0, &[8; 100]);
        assert_eq!(memory.backed_bytes(), 2 * 4096);
        memory.zero(PhysicalPage(2));
        // Asked before the read, for which the kernel makes a page of zeros.
        assert_eq!(memory.backed_bytes(), 4096);
        let mut bytes = [1; 100];
        memory.read(PhysicalPage(2), 100, &mut bytes);
        assert_eq!(bytes, [0; 100]);
        memory.read(PhysicalPage(3), 0, &mut bytes);
        assert_eq!(bytes, [8; 100]);
    }

    #[test]
    fn the_ring_wants_pages_only_while_there_are_some_elsewhere() {
        let memory = memory();
        assert!(memory.ring_wants(4) && memory.ring_wants(1) && !memory.ring_wants(0));
        memory.give_back(PhysicalPage(0));
        assert!(memory.ring_wants(2) && !memory.ring_wants(1));
        memory.give_back(PhysicalPage(1));
        assert!(!memory.ring_wants(4), "it is half full");
    }

    #[test]
    fn a_page_that_was_not_used_has_its_place_in_a_ring_that_was_filled_again() {
        let memory = memory();
        let fill = |first: u32| {
            for page in (first..).take_while(|_| !memory.ring_is_full()) {
                memory.give_back(PhysicalPage(page));
            }
        };
        fill(0);
        let taken = [memory.take().unwrap(), memory.take().unwrap()];
        fill(4);
        taken.into_iter().for_each(|page| memory.give_back(page));
        assert!(memory.ring_is_full());
        let mut pages: Vec<u32> = std::iter::from_fn(|| memory.take()).map(|page| page.0).collect();
        pages.sort_unstable();
        assert_eq!(pages, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    #[should_panic(expected = "leaves its page")]
    fn a_write_stays_in_its_page() {
        memory().write(PhysicalPage(0), PAGE_BYTES - 8, &[1; 9]);
    }

    #[test]
    fn the_file_cannot_be_shrunk() {
        assert!(rustix::fs::ftruncate(memory().file(), 0).is_err());
    }
}
