//! [`Mapping`]: one mmap, its bounds, and the copies in and out of it.
//!
//! UNSAFETY: system calls on memory this type owns, and raw copies within checked bounds.

use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

use yonder_trap::access;
use yonder_units::{BLOCK_BYTES, Narrow as _, PAGE_BYTES};

use crate::ours;

/// The kernel refused a mapping or an advice about one.
#[derive(Debug, thiserror::Error)]
#[error("{what} of {bytes} bytes: {source}")]
pub struct MapError {
    what: &'static str,
    bytes: usize,
    source: io::Error,
}

impl MapError {
    /// The operating system's error, errno kept.
    #[must_use]
    pub fn os_error(&self) -> &io::Error {
        &self.source
    }

    pub(crate) fn last(what: &'static str, bytes: usize) -> Self {
        Self { what, bytes, source: io::Error::last_os_error() }
    }
}

/// An owned range of memory, page-aligned, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    backing: Backing,
}

/// What a forked child has of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherited {
    /// Its content at the time of the fork.
    Copied,
    /// Nothing: a touch ends the child.
    Missing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backing {
    Anonymous,
    Shared,
}

// SAFETY: the memory belongs to the mapping, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: every access is a raw copy or a single load or store; concurrent ones may tear between words but are made in
// assembly or by the C library on memory that no Rust reference covers.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of private zero memory, without huge pages: the frame pool and emulated far memory. No core dump
    /// has it.
    pub fn anonymous(bytes: usize) -> Result<Self, MapError> {
        Self::map_anonymous(bytes)?.advised([libc::MADV_NOHUGEPAGE, libc::MADV_DONTDUMP])
    }

    /// Begins to bring the page at `offset` into the cache, so that a copy of it soon after does not wait for memory.
    #[inline]
    pub fn prefetch_page(&self, offset: u64) {
        const CACHE_LINE: usize = 64;
        let page = self.checked(offset, PAGE_BYTES);
        for line in (0..PAGE_BYTES).step_by(CACHE_LINE) {
            // SAFETY: a prefetch has no effect that a program can see, and the address is in bounds.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(page.add(line).cast());
            }
        }
    }

    /// Maps `bytes` for a far region: private and anonymous (dropping pages of a shared mapping is a hundred times
    /// slower), block-aligned, without huge pages, and not inherited by children, which would have no userfaultfd. No
    /// core dump has it.
    pub fn region(bytes: usize) -> Result<Self, MapError> {
        Self::map_anonymous(bytes)?.for_region()
    }

    /// As [`Mapping::region`], at `address`, which is a multiple of a block and where nothing is mapped.
    pub fn region_at(address: usize, bytes: usize) -> Result<Self, MapError> {
        assert!(address.is_multiple_of(BLOCK_BYTES) && bytes > 0 && bytes.is_multiple_of(PAGE_BYTES));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let wanted = ptr::without_provenance_mut(address);
        // SAFETY: a new mapping that replaces nothing.
        let base = unsafe { libc::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let mapping = Self::from_mmap(base, bytes, Backing::Anonymous)?;
        assert!(base == wanted, "the kernel is too old for MAP_FIXED_NOREPLACE");
        mapping.for_region()
    }

    fn for_region(self) -> Result<Self, MapError> {
        let region = self.advised([libc::MADV_NOHUGEPAGE, libc::MADV_DONTFORK, libc::MADV_DONTDUMP])?;
        // A mapping that has had memory once can be cut and made whole again as often as one likes. Cut before, each
        // piece gets a record of its own in the kernel (`anon_vma`), and such pieces stay apart for good.
        let first = region.checked(0, PAGE_BYTES);
        for advice in [libc::MADV_POPULATE_WRITE, libc::MADV_DONTNEED] {
            // SAFETY: the page is a part of a new mapping that nobody has stored to.
            if unsafe { libc::madvise(first.cast(), PAGE_BYTES, advice) } != 0 {
                return Err(MapError::last("madvise", PAGE_BYTES));
            }
        }
        Ok(region)
    }

    /// Maps the first `bytes` of `fd`, a memfd or a file, which others may map too. A touch beyond its end ends the
    /// process.
    pub fn shared(fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, MapError> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, fd.as_raw_fd(), 0) };
        Self::from_mmap(base, bytes, Backing::Shared)
    }

    /// Reserves `bytes` of addresses without memory behind them: [`Mapping::map_file`] puts some there. Until then the
    /// range must not be touched.
    pub fn reserved(bytes: usize) -> Result<Self, MapError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        Self::from_mmap(base, bytes, Backing::Shared)
    }

    /// Puts `bytes` of `fd` from `file_offset`, whole pages, at `offset` of a reserved mapping. No core dump has them.
    pub fn map_file(&self, offset: u64, fd: BorrowedFd<'_>, file_offset: u64, bytes: usize) -> Result<(), MapError> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        self.remap(offset, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, Some((fd, file_offset)))?;
        self.keep_part_out_of_core_dumps(offset, bytes)
    }

    /// Takes what is at `offset` of a reserved mapping away again: `bytes`, whole pages.
    pub fn unmap_file(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.remap(offset, bytes, libc::PROT_NONE, flags, None)
    }

    fn remap(
        &self,
        offset: u64,
        bytes: usize,
        prot: libc::c_int,
        flags: libc::c_int,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<(), MapError> {
        assert!(self.backing == Backing::Shared, "only a reserved mapping can be changed");
        let start = self.checked(offset, bytes);
        let (fd, file_offset) = file.map_or((-1, 0), |(fd, file_offset)| (fd.as_raw_fd(), file_offset));
        let fixed = flags | libc::MAP_FIXED;
        // SAFETY: the range lies in this mapping, which this type owns and no Rust reference covers.
        let mapped = unsafe { libc::mmap(start.cast(), bytes, prot, fixed, fd, file_offset.cast_signed()) };
        if mapped == libc::MAP_FAILED { Err(MapError::last("mmap", bytes)) } else { Ok(()) }
    }

    /// Address of the first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the mapping is empty; it never is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies the bytes at `offset` out. Not for far regions: see [`Mapping::try_read`].
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let from = self.checked(offset, into.len());
        // SAFETY: `checked` bounds the source, the slice bounds the target, and a caller's slice never overlaps memory
        // that is only reachable through a mapping.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `from` to `offset`. Not for far regions: see [`Mapping::try_write`].
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) {
        let to = self.checked(offset, from.len());
        // SAFETY: as for `read`, with the directions exchanged.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// Copies `bytes` from `source` at `source_offset` to `offset`. The two are different mappings.
    #[inline]
    pub fn copy_from(&self, offset: u64, source: &Self, source_offset: u64, bytes: usize) {
        assert!(self.base != source.base, "copy within one mapping");
        let (to, from) = (self.checked(offset, bytes), source.checked(source_offset, bytes));
        // SAFETY: both ranges are in bounds, and different mappings do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }

    /// As [`Mapping::copy_from`], from a far region. Fails with the fault handler's code; a part may be copied.
    #[inline]
    pub fn try_copy_from(
        &self,
        offset: u64,
        source: &Self,
        source_offset: u64,
        bytes: usize,
    ) -> Result<(), NonZeroU32> {
        assert!(self.base != source.base, "copy within one mapping");
        let (to, from) = (self.checked(offset, bytes), source.checked(source_offset, bytes));
        // SAFETY: both ranges are in bounds, different mappings do not overlap, and the faults of the source are
        // handled.
        unsafe { access::try_copy(to, from, bytes) }
    }

    /// Calls `visit` with the page at `offset`, which must not change meanwhile: a frame that its caller owns, or a
    /// page that is write-protected.
    #[inline]
    pub fn with_page<T>(&self, offset: u64, visit: impl FnOnce(&[u8; PAGE_BYTES]) -> T) -> T {
        let page = self.checked(offset, PAGE_BYTES).cast::<[u8; PAGE_BYTES]>();
        // SAFETY: in bounds, readable, and by this method's contract not written while `visit` runs.
        visit(unsafe { &*page })
    }

    /// Copies the bytes at `offset` of a far region out. Fails with the fault handler's code; a part may be copied.
    #[inline]
    pub fn try_read(&self, offset: u64, into: &mut [u8]) -> Result<(), NonZeroU32> {
        let from = self.checked(offset, into.len());
        // SAFETY: the source is in bounds of a mapping whose faults are handled, the target is a live slice.
        unsafe { access::try_copy(into.as_mut_ptr(), from, into.len()) }
    }

    /// Copies `from` to `offset` of a far region. Fails with the fault handler's code; a part may be copied.
    #[inline]
    pub fn try_write(&self, offset: u64, from: &[u8]) -> Result<(), NonZeroU32> {
        let to = self.checked(offset, from.len());
        // SAFETY: as for `try_read`, with the directions exchanged.
        unsafe { access::try_copy(to, from.as_ptr(), from.len()) }
    }

    /// Loads the aligned word at `offset` of a far region.
    #[inline]
    pub fn try_read_u64(&self, offset: u64) -> Result<u64, NonZeroU32> {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        // SAFETY: in bounds and aligned, and the region's faults are handled.
        unsafe { access::try_load(self.checked(offset, 8).cast()) }
    }

    /// Stores `value` to the aligned word at `offset` of a far region.
    #[inline]
    pub fn try_write_u64(&self, offset: u64, value: u64) -> Result<(), NonZeroU32> {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        // SAFETY: in bounds and aligned, and the region's faults are handled.
        unsafe { access::try_store(self.checked(offset, 8).cast(), value) }
    }

    /// Replaces the aligned word at `offset` by what `change` makes of it, as one step among all other changes of this
    /// kind by any process that maps the memory, and returns what it was. `change` may be called more than once. Not
    /// for far regions.
    #[inline]
    pub fn update_u64(&self, offset: u64, mut change: impl FnMut(u64) -> u64) -> u64 {
        match self.word(offset).fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old))) {
            Ok(old) | Err(old) => old,
        }
    }

    /// Adds to the aligned word at `offset`, as one step among all changes by any process that maps the memory, and in
    /// no order with changes of other words. Not for far regions.
    #[inline]
    pub fn add_u64(&self, offset: u64, count: u64) {
        self.word(offset).fetch_add(count, Ordering::Relaxed);
    }

    /// The aligned word at `offset`, in no order with other words. Not for far regions.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: u64) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "offset {offset} is not a multiple of 8");
        // SAFETY: in bounds and aligned, and the mapping outlives the reference; memory that others change may be
        // behind one to an atomic word.
        unsafe { AtomicU64::from_ptr(self.checked(offset, 8).cast()) }
    }

    /// Asks for huge pages where the kernel gives them to memory of this kind; where it does not, nothing changes.
    pub fn prefer_huge_pages(&self) {
        // A kernel without huge pages for shared memory refuses the advice, and small pages are right then.
        let _ = self.advise(libc::MADV_HUGEPAGE);
    }

    /// Says that pages will be touched in no order, so that the kernel reads no neighbours from the file behind the
    /// mapping.
    pub fn expect_random_order(&self) -> Result<(), MapError> {
        self.advise(libc::MADV_RANDOM)
    }

    /// Whether children that are forked from now on get a copy of the mapping.
    pub fn inherit(&self, inherited: Inherited) {
        let advice = if inherited == Inherited::Copied { libc::MADV_DOFORK } else { libc::MADV_DONTFORK };
        self.advise(advice).expect("whether a mapping is inherited can be changed");
    }

    /// Backs every page now, so that later accesses do not enter the kernel.
    pub fn populate(&self) -> Result<(), MapError> {
        self.advise(libc::MADV_POPULATE_WRITE)
    }

    /// How many of the mapping's pages the kernel has backed. For tests of the accounting.
    pub fn resident_pages(&self) -> Result<usize, MapError> {
        let mut present = vec![0u8; self.bytes.div_ceil(PAGE_BYTES)];
        // SAFETY: the vector has one byte for each page of the mapping.
        if unsafe { libc::mincore(self.base.as_ptr().cast(), self.bytes, present.as_mut_ptr()) } != 0 {
            return Err(MapError::last("mincore", self.bytes));
        }
        Ok(present.iter().filter(|byte| **byte & 1 != 0).count())
    }

    /// Gives the backing of `bytes` at `offset` back to the kernel: it reads as zeros again.
    pub fn discard(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let start = self.checked(offset, bytes);
        // Only MADV_REMOVE frees the pages of a shared mapping for every process that maps them.
        let advice = if self.backing == Backing::Shared { libc::MADV_REMOVE } else { libc::MADV_DONTNEED };
        // SAFETY: the range is in bounds and no Rust reference covers it.
        if unsafe { libc::madvise(start.cast(), bytes, advice) } != 0 {
            return Err(MapError::last("madvise", bytes));
        }
        Ok(())
    }

    /// The address of `bytes` at `offset`, which must be inside.
    #[inline]
    pub(crate) fn checked(&self, offset: u64, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes as u64);
        assert!(end.is_some_and(|end| end <= self.bytes as u64), "{bytes} bytes at {offset} of {}", self.bytes);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.base.as_ptr().add(offset.narrow_usize()) }
    }

    /// Maps with block alignment by mapping one block more and giving the ends back.
    pub(crate) fn map_anonymous(bytes: usize) -> Result<Self, MapError> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES), "{bytes} bytes are not whole pages");
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        let padded = bytes + BLOCK_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), padded, prot, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(MapError::last("mmap", bytes));
        }
        let head = (start as usize).next_multiple_of(BLOCK_BYTES) - start as usize;
        let tail = padded - head - bytes;
        // SAFETY: both ends lie in the mapping just made, outside the part that is kept.
        unsafe {
            let base = start.cast::<u8>().add(head);
            if head > 0 {
                libc::munmap(start, head);
            }
            if tail > 0 {
                libc::munmap(base.add(bytes).cast(), tail);
            }
            Self::from_mmap(base.cast(), bytes, Backing::Anonymous)
        }
    }

    fn from_mmap(base: *mut libc::c_void, bytes: usize, backing: Backing) -> Result<Self, MapError> {
        if base == libc::MAP_FAILED {
            return Err(MapError::last("mmap", bytes));
        }
        let base = NonNull::new(base.cast()).expect("the kernel never maps address zero unasked");
        ours::add(base.as_ptr() as usize, bytes);
        Ok(Self { base, bytes, backing })
    }

    pub(crate) fn advise(&self, advice: libc::c_int) -> Result<(), MapError> {
        // SAFETY: the range is this mapping, and the advice changes no content that Rust code refers to.
        if unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) } == 0 {
            return Ok(());
        }
        let error = MapError::last("madvise", self.bytes);
        // A kernel built without huge pages knows neither the advice to avoid them nor that to use them.
        let about_huge_pages = matches!(advice, libc::MADV_NOHUGEPAGE | libc::MADV_HUGEPAGE);
        let harmless = about_huge_pages && error.source.raw_os_error() == Some(libc::EINVAL);
        if harmless { Ok(()) } else { Err(error) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First: its addresses can be somebody else's at once.
        ours::remove(self.address());
        // SAFETY: the mapping is owned and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::create_memfd;

    #[test]
    fn copies_and_discard() {
        let mapping = Mapping::anonymous(4 * PAGE_BYTES).unwrap();
        assert_eq!(mapping.address() % BLOCK_BYTES, 0);
        mapping.write(4090, b"across a page edge");
        let mut back = [0; 18];
        mapping.read(4090, &mut back);
        assert_eq!(&back, b"across a page edge");
        assert_eq!(mapping.resident_pages().unwrap(), 2);
        mapping.discard(0, PAGE_BYTES).unwrap();
        mapping.read(4090, &mut back);
        assert_eq!(&back, b"\0\0\0\0\0\0 a page edge");
    }

    #[test]
    fn shared_memory_is_shared_and_discarded_for_all() {
        let fd = create_memfd(c"yonder-test", 2 * PAGE_BYTES).unwrap();
        let (one, two) = (
            Mapping::shared(fd.as_fd(), 2 * PAGE_BYTES).unwrap(),
            Mapping::shared(fd.as_fd(), 2 * PAGE_BYTES).unwrap(),
        );
        one.write(5000, b"seen");
        let mut back = [0; 4];
        two.read(5000, &mut back);
        assert_eq!(&back, b"seen");
        one.discard(PAGE_BYTES as u64, PAGE_BYTES).unwrap();
        two.read(5000, &mut back);
        assert_eq!(back, [0; 4]);
    }

    #[test]
    fn pieces_of_a_file_lie_where_they_are_put() {
        let fd = create_memfd(c"yonder-test", 4 * PAGE_BYTES).unwrap();
        let whole = Mapping::shared(fd.as_fd(), 4 * PAGE_BYTES).unwrap();
        let pieces = Mapping::reserved(8 * PAGE_BYTES).unwrap();
        let page = PAGE_BYTES as u64;
        pieces.map_file(6 * page, fd.as_fd(), page, PAGE_BYTES).unwrap();
        pieces.map_file(7 * page, fd.as_fd(), 0, PAGE_BYTES).unwrap();
        pieces.write(7 * page - 2, b"abcd");
        let mut back = [0; 2];
        whole.read(2 * page - 2, &mut back);
        assert_eq!(&back, b"ab");
        whole.read(0, &mut back);
        assert_eq!(&back, b"cd");
        pieces.unmap_file(6 * page, PAGE_BYTES).unwrap();
        assert!(pieces.map_file(0, fd.as_fd(), 1, PAGE_BYTES).is_err(), "a file is mapped by pages");
    }

    #[test]
    #[should_panic(expected = "bytes at 8190 of 8192")]
    fn out_of_bounds_is_refused() {
        Mapping::anonymous(2 * PAGE_BYTES).unwrap().write(8190, b"abc");
    }

    #[test]
    fn updates_of_one_word_are_steps() {
        let mapping = Mapping::anonymous(PAGE_BYTES).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        mapping.update_u64(8, |old| old + 1);
                    }
                });
            }
        });
        assert_eq!(mapping.load_u64(8), 4000);
        assert_eq!(mapping.update_u64(8, |_| 0), 4000);
    }

    #[test]
    fn try_accessors_work_on_present_memory() {
        let mapping = Mapping::region(PAGE_BYTES).unwrap();
        mapping.try_write(3, b"hello").unwrap();
        mapping.try_write_u64(16, 0xfeed).unwrap();
        let mut back = [0; 5];
        mapping.try_read(3, &mut back).unwrap();
        assert_eq!((&back, mapping.try_read_u64(16)), (b"hello", Ok(0xfeed)));
    }
}
