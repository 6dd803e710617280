//! Write protection of ranges.
//!
//! A range may be in several mappings of the kernel: a program's `mprotect`, `mlock` or `madvise` of a part cuts one.
//! Kernels before 6.4 or so protect one of theirs with a call and answer ENOENT for a range of several, and each does
//! so where a part is not registered.
//!
//! UNSAFETY: the tests do to ranges of their own what a program may do.

use yonder_mapping::Mapping;
use yonder_units::PAGE_BYTES;

use crate::descriptor::{Uffd, UffdError, range_address};
use crate::raw;

impl Uffd {
    /// Write-protects `pages` from `offset` of `region`: writers fault, readers go on. One TLB flush for the whole
    /// call, if the kernel takes the range as it is; else its halves are tried, and theirs. Pages that cannot be
    /// protected are named to `refused`, by their place in the range, the first first; all others are protected then.
    pub fn write_protect(
        &self,
        region: &Mapping,
        offset: u64,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), UffdError> {
        self.protect_part(region, offset, 0, pages, refused)
    }

    /// Takes the write protection of `pages` from `offset` of `region` away.
    pub fn unprotect(&self, region: &Mapping, offset: u64, pages: usize) -> Result<(), UffdError> {
        self.set_protection(region, offset, pages, 0)
    }

    /// As [`Uffd::write_protect`], of the part of `pages` from the page at `place` on.
    fn protect_part(
        &self,
        region: &Mapping,
        offset: u64,
        place: usize,
        pages: usize,
        refused: &mut dyn FnMut(usize),
    ) -> Result<(), UffdError> {
        let from = offset + (place * PAGE_BYTES) as u64;
        match self.set_protection(region, from, pages, raw::WRITEPROTECT_MODE_WP) {
            Err(error) if error.source.raw_os_error() == Some(libc::ENOENT) => {
                if pages == 1 {
                    refused(place);
                    return Ok(());
                }
                let half = pages / 2;
                self.protect_part(region, offset, place, half, refused)?;
                self.protect_part(region, offset, place + half, pages - half, refused)
            }
            result => result,
        }
    }

    fn set_protection(&self, region: &Mapping, offset: u64, pages: usize, mode: u64) -> Result<(), UffdError> {
        let (address, bytes) = (range_address(region, offset, pages), pages * PAGE_BYTES);
        let range = raw::Range { start: address as u64, len: bytes as u64 };
        let mut request = raw::Writeprotect { range, mode };
        loop {
            match self.ioctl(raw::IOCTL_WRITEPROTECT, &mut request) {
                // The address space was changing; the call has no effect that could be partial.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                result => {
                    return result.map_err(|source| UffdError {
                        operation: "UFFDIO_WRITEPROTECT",
                        address,
                        bytes,
                        source,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::CopyOutcome;

    const PAGES: usize = 16;

    /// A registered range whose pages are mapped, or `None` (and a line that says so) where userfaultfd is missing.
    fn mapped() -> Option<(Uffd, Mapping)> {
        let uffd = Uffd::open().inspect_err(|error| println!("SKIP: {error}")).ok()?;
        let (region, source) = (Mapping::region(PAGES * PAGE_BYTES).unwrap(), Mapping::anonymous(PAGE_BYTES).unwrap());
        uffd.register(&region).unwrap();
        source.write(0, b"content");
        for page in 0..PAGES {
            let copied = uffd.copy_page(&region, (page * PAGE_BYTES) as u64, &source, 0).unwrap();
            assert_eq!(copied, CopyOutcome::Installed);
        }
        Some((uffd, region))
    }

    /// Pages that userfaultfd says are write-protected: the kernel's own account of them.
    fn protected(region: &Mapping) -> Vec<usize> {
        const WRITE_PROTECTED: u64 = 1 << 57;
        let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
        let is_protected = |page: &usize| {
            let mut entry = [0; 8];
            let at = ((region.address() / PAGE_BYTES + page) * entry.len()) as u64;
            std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut entry, at).unwrap();
            u64::from_ne_bytes(entry) & WRITE_PROTECTED != 0
        };
        (0..PAGES).filter(is_protected).collect()
    }

    #[test]
    fn a_range_that_is_cut_into_several_mappings_is_protected() {
        let Some((uffd, region)) = mapped() else { return };
        for (page, protection) in [(3, libc::PROT_READ), (4, libc::PROT_READ | libc::PROT_WRITE), (9, libc::PROT_READ)]
        {
            let address = region.address() + page * PAGE_BYTES;
            // SAFETY: the page is one of the mapping's, to which nothing refers.
            assert_eq!(unsafe { libc::mprotect(address as *mut _, PAGE_BYTES, protection) }, 0);
        }
        // SAFETY: as above.
        let locked = unsafe { libc::mlock((region.address() + 12 * PAGE_BYTES) as *const _, PAGE_BYTES) };
        println!("a part is locked: {}", locked == 0);
        uffd.write_protect(&region, PAGE_BYTES as u64, PAGES - 2, &mut |page| panic!("page {page} is refused"))
            .unwrap();
        assert_eq!(protected(&region), (1..PAGES - 1).collect::<Vec<_>>());
        uffd.unprotect(&region, PAGE_BYTES as u64, 2).unwrap();
        assert_eq!(protected(&region), (3..PAGES - 1).collect::<Vec<_>>());
    }

    /// A program has put something else where pages of the range were.
    #[test]
    fn what_cannot_be_protected_is_named_and_all_else_is_protected() {
        const FOREIGN: [usize; 3] = [2, 7, 8];
        let Some((uffd, region)) = mapped() else { return };
        for page in FOREIGN {
            let address = (region.address() + page * PAGE_BYTES) as *mut _;
            let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: the page is one of the mapping's, to which nothing refers, and is unmapped with it.
            let placed = unsafe { libc::mmap(address, PAGE_BYTES, protection, flags, -1, 0) };
            assert_eq!(placed, address);
        }
        let mut refused = Vec::new();
        uffd.write_protect(&region, 0, PAGES, &mut |page| refused.push(page)).unwrap();
        assert_eq!(refused, FOREIGN);
        let others: Vec<usize> = (0..PAGES).filter(|page| !FOREIGN.contains(page)).collect();
        assert_eq!(protected(&region), others);
        // A range of nothing else.
        refused.clear();
        uffd.write_protect(&region, 7 * PAGE_BYTES as u64, 2, &mut |page| refused.push(page)).unwrap();
        assert_eq!(refused, [0, 1]);
    }
}
