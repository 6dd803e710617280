//! Parts of a registered range that are left to the kernel for a time: it maps their pages as it does for any program.
//!
//! What it has mapped meanwhile it tells in `/proc/self/pagemap`, which a process may read of itself unless it was made
//! undumpable before.
//!
//! UNSAFETY: reads a descriptor of its own into memory of its own.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use yonder_intercept::Kept;
use yonder_mapping::Mapping;
use yonder_units::PAGE_BYTES;

use crate::descriptor::{Uffd, UffdError, range_address};
use crate::raw;

/// Bytes that are said of a page.
const WORD_BYTES: usize = size_of::<u64>();
/// Pages that are asked for with one call.
const ASKED_PAGES: usize = 512;
/// Tries to change the registration of a range whose mappings the kernel has no room for.
const TRIES_MAX: usize = 1_000;
/// A page has memory, or is in swap: either way it is not missing.
const IS_HERE: u64 = 1 << 63 | 1 << 62;

pub(crate) fn open_pagemap() -> Option<Kept> {
    File::open("/proc/self/pagemap").ok().map(|file| Kept::new(file.into()))
}

impl Uffd {
    /// Whether [`Uffd::recall`] can find out what is mapped.
    #[must_use]
    pub fn can_lend(&self) -> bool {
        self.pagemap.is_some()
    }

    /// Leaves `pages` pages from `offset` of `region` on to the kernel. None of them is mapped, or write-protected.
    /// After an error some of them may be left to it and others not: they are to be recalled.
    pub fn lend(&self, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        let (address, bytes) = (range_address(region, offset, pages), pages * PAGE_BYTES);
        let mut request = raw::Range { start: address as u64, len: bytes as u64 };
        self.ioctl(raw::IOCTL_UNREGISTER, &mut request).map_err(|source| UffdError {
            operation: "UFFDIO_UNREGISTER",
            address,
            bytes,
            source,
        })
    }

    /// Delivers the faults of lent pages again, and names those that the kernel has mapped to `is_here`, by their place
    /// in the range: no other can have been mapped when this returns. After an error all of them are left to the
    /// kernel.
    pub fn recall(
        &self,
        region: &Mapping,
        offset: u64,
        pages: usize,
        is_here: &mut dyn FnMut(usize),
    ) -> Result<(), UffdError> {
        self.register_or_leave(region, offset, pages)?;
        let first = range_address(region, offset, pages) / PAGE_BYTES;
        let mut words = [0u64; ASKED_PAGES];
        let mut asked = 0;
        while asked < pages {
            let words = &mut words[..(pages - asked).min(ASKED_PAGES)];
            if let Err(source) = self.read_pagemap(first + asked, words) {
                self.lend(region, offset, pages).expect("what was lent can be lent again");
                let (address, bytes) = ((first + asked) * PAGE_BYTES, pages * PAGE_BYTES);
                return Err(UffdError { operation: "reading /proc/self/pagemap", address, bytes, source });
            }
            let here = words.iter().enumerate().filter(|(_, word)| **word & IS_HERE != 0);
            here.for_each(|(place, _)| is_here(asked + place));
            asked += words.len();
        }
        Ok(())
    }

    /// Registers lent pages again, or, if that is refused, leaves all of them to the kernel. Where there are several
    /// mappings, each may need one that another thread has just taken, so both are tried until one works.
    fn register_or_leave(&self, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        for _ in 0..TRIES_MAX {
            let Err(error) = self.register_part(region, offset, pages) else { return Ok(()) };
            if self.lend(region, offset, pages).is_ok() {
                return Err(error);
            }
            std::thread::yield_now();
        }
        panic!("{pages} pages at {offset:#x} of far memory can neither be registered nor left to the kernel");
    }

    /// What the kernel says of pages from number `first` on.
    fn read_pagemap(&self, first: usize, words: &mut [u64]) -> io::Result<()> {
        let pagemap = self.pagemap.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let (bytes, at) = (size_of_val(words), first * WORD_BYTES);
        // SAFETY: the words are as long as the call is told, and any bytes are valid ones.
        let read = unsafe {
            libc::pread(pagemap.as_raw_fd(), words.as_mut_ptr().cast(), bytes, at.cast_signed() as libc::off_t)
        };
        match usize::try_from(read) {
            Ok(read) if read == bytes => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_units::BLOCK_BYTES;

    use super::*;
    use crate::descriptor::CopyOutcome;

    const PAGES: usize = 1200;

    #[test]
    fn what_the_kernel_has_mapped_is_named_and_all_else_is_missing_again() {
        let uffd = match Uffd::open() {
            Ok(uffd) => uffd,
            Err(error) => return println!("SKIP: {error}"),
        };
        if !uffd.can_lend() {
            return println!("SKIP: /proc/self/pagemap cannot be read");
        }
        let region = Mapping::region(PAGES * PAGE_BYTES).unwrap();
        uffd.register(&region).unwrap();
        let lent = 100..1100;
        let (offset, pages) = ((lent.start * PAGE_BYTES) as u64, lent.len());
        uffd.lend(&region, offset, pages).unwrap();
        let touched = [100, 101, 611, 612, 613, 1099];
        for page in touched {
            region.write((page * PAGE_BYTES) as u64, b"touched");
        }
        // A page that was read only has memory too: the page of zeros.
        let mut zero = [1];
        region.read((200 * PAGE_BYTES) as u64, &mut zero);
        assert_eq!(zero, [0]);
        let mut here = Vec::new();
        uffd.recall(&region, offset, pages, &mut |place| here.push(lent.start + place)).unwrap();
        assert_eq!(here, [100, 101, 200, 611, 612, 613, 1099]);
        for page in [99, 102, 610, 1098, 1100] {
            assert_eq!(uffd.zero_page(&region, (page * PAGE_BYTES) as u64).unwrap(), CopyOutcome::Installed);
        }
        let mut back = [0; 7];
        for page in touched {
            assert_eq!(uffd.zero_page(&region, (page * PAGE_BYTES) as u64).unwrap(), CopyOutcome::Exists);
            region.read((page * PAGE_BYTES) as u64, &mut back);
            assert_eq!(&back, b"touched");
        }
    }

    /// The kernel's mappings of a region.
    fn mappings(region: &Mapping) -> usize {
        let (start, end) = (region.address(), region.address() + region.len());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let range = |line: &str| {
            let mut ends =
                line.split(' ').next().unwrap().split('-').map(|end| usize::from_str_radix(end, 16).unwrap());
            ends.next().unwrap()..ends.next().unwrap()
        };
        maps.lines().map(range).filter(|range| range.start < end && start < range.end).count()
    }

    #[test]
    fn what_was_lent_here_and_there_is_one_mapping_again_once_it_is_recalled() {
        const BLOCKS: usize = 40;
        const PAGES: usize = BLOCK_BYTES / PAGE_BYTES;
        let uffd = match Uffd::open() {
            Ok(uffd) => uffd,
            Err(error) => return println!("SKIP: {error}"),
        };
        if !uffd.can_lend() {
            return println!("SKIP: /proc/self/pagemap cannot be read");
        }
        // Where no other mapping is near: the region could be a part of it, and have had memory by that.
        let region = Mapping::region_at(0x1000_0000_0000, BLOCKS * BLOCK_BYTES).unwrap();
        uffd.register(&region).unwrap();
        assert_eq!(mappings(&region), 1);
        let offset = |block: usize| (block * BLOCK_BYTES) as u64;
        for block in (0..BLOCKS).step_by(2) {
            uffd.lend(&region, offset(block), PAGES).unwrap();
            region.write(offset(block), b"touched");
        }
        for block in (1..BLOCKS).step_by(2) {
            assert_eq!(uffd.zero_page(&region, offset(block)).unwrap(), CopyOutcome::Installed);
        }
        assert_eq!(mappings(&region), BLOCKS);
        for block in (0..BLOCKS).step_by(2).rev() {
            uffd.recall(&region, offset(block), PAGES, &mut |_| ()).unwrap();
        }
        assert_eq!(mappings(&region), 1);
    }
}
