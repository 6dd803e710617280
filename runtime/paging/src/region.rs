//! [`Region`]: a range of far memory that code reads and writes.

mod faults;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use yonder_mapping::Mapping;
use yonder_pager::pagetable::State;
use yonder_pager::{FaultObserver, HeldBlocks, Liveness, PagingCause, PagingError, RemoteAddress};
use yonder_trap::{RegisterError, Registration};
use yonder_units::{FreeRanges, Narrow, PAGE_BYTES, PageIndex};

use self::faults::RegionFaults;
use crate::error::FarError;
use crate::far_memory::FarMemory;
use crate::kernel::RegionCore;

/// How accesses of [`Region`] find out that a page is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// They look at the page table first and fetch without a trap.
    Probe,
    /// They touch the page and trap if it is missing, as code without knowledge of far memory does.
    Trap,
}

/// A range of far memory. Offsets are in bytes from its start.
///
/// Every access may find its page missing: on a unithread of a bound worker the access yields to the worker's
/// scheduler, elsewhere it waits inline. An access that cannot have its page before the deadline fails; it may have
/// been done in part then. Concurrent accesses to the same bytes are allowed, and are ordered as the processor orders
/// plain loads and stores (x86-64: loads are not overtaken by later loads, nor stores by later stores). A read may be
/// answered from the frame in which its page stands; that is what the page held at some moment of the call. So versions
/// in local memory, read before and after, tell whether what was read in between is consistent.
pub struct Region {
    pub(crate) core: Arc<RegionCore>,
    free: Mutex<FreeRanges>,
    access: Access,
    /// Dropped before the far memory it pages from.
    registration: Option<Registration>,
    far: FarMemory,
}

impl Region {
    /// A region whose faults are not handled yet.
    pub(crate) fn new(far: FarMemory, core: Arc<RegionCore>) -> Self {
        let free = Mutex::new(FreeRanges::new(core.memory().len() as u64));
        Self { core, free, access: Access::Probe, registration: None, far }
    }

    /// From now on faults bring pages.
    pub(crate) fn handle_faults(&mut self) -> Result<(), RegisterError> {
        let (mapping, faults) = (self.core.memory(), Box::new(RegionFaults(Arc::clone(&self.core))));
        self.registration = Some(yonder_trap::register(mapping.address(), mapping.len(), faults)?);
        Ok(())
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.core.memory().len() as u64
    }

    /// Address of the first byte, for code that touches far memory by pointer.
    #[must_use]
    pub fn address(&self) -> usize {
        self.core.memory().address()
    }

    /// Where the byte at `offset` lies on the node.
    #[must_use]
    pub fn remote_address(&self, offset: u64) -> RemoteAddress {
        RemoteAddress(self.core.remote_address(PageIndex::containing(offset)).0 + offset % PAGE_BYTES as u64)
    }

    /// The far memory that the region belongs to.
    #[must_use]
    pub fn far(&self) -> &FarMemory {
        &self.far
    }

    /// The same region with accesses of another kind. [`Access::Probe`] is the default.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Copies the bytes at `offset` out.
    #[inline]
    pub fn read(&self, offset: u64, mut into: &mut [u8]) -> Result<(), PagingError> {
        self.assert_within(offset, into.len());
        if self.access == Access::Trap {
            return self.core.memory().try_read(offset, into).map_err(|code| self.failure(offset, code));
        }
        let mut at = offset;
        while !into.is_empty() {
            let bytes = (PAGE_BYTES - at.narrow_usize() % PAGE_BYTES).min(into.len());
            let (here, behind) = into.split_at_mut(bytes);
            let read = |here: &mut [u8], mapping: &Mapping, at| mapping.try_read(at, here);
            self.core.look(at, here, read, |here| here.fill(0)).map_err(|cause| self.core.error(at, cause))?;
            (at, into) = (at + bytes as u64, behind);
        }
        Ok(())
    }

    /// Copies `from` to `offset`.
    ///
    /// # Panics
    /// If the region is sealed.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), PagingError> {
        self.assert_writable();
        self.probe_all(offset, from.len())?;
        self.core.memory().try_write(offset, from).map_err(|code| self.failure(offset, code))
    }

    /// Loads the aligned word at `offset`.
    #[inline]
    pub fn read_u64(&self, offset: u64) -> Result<u64, PagingError> {
        self.assert_within(offset, 8);
        if self.access == Access::Trap {
            return self.core.memory().try_read_u64(offset).map_err(|code| self.failure(offset, code));
        }
        let mut word = 0;
        let read = |word: &mut u64, mapping: &Mapping, at| mapping.try_read_u64(at).map(|read| *word = read);
        self.core.look(offset, &mut word, read, |word| *word = 0).map_err(|cause| self.core.error(offset, cause))?;
        Ok(word)
    }

    /// Stores `value` to the aligned word at `offset`.
    ///
    /// # Panics
    /// If the region is sealed.
    #[inline]
    pub fn write_u64(&self, offset: u64, value: u64) -> Result<(), PagingError> {
        self.assert_writable();
        self.probe_all(offset, 8)?;
        self.core.memory().try_write_u64(offset, value).map_err(|code| self.failure(offset, code))
    }

    /// Whether the bytes at `offset` equal `bytes`.
    pub fn matches(&self, offset: u64, bytes: &[u8]) -> Result<bool, PagingError> {
        let mut buffer = [0; 256];
        let mut at = offset;
        for part in bytes.chunks(buffer.len()) {
            let here = &mut buffer[..part.len()];
            self.read(at, here)?;
            if here != part {
                return Ok(false);
            }
            at += part.len() as u64;
        }
        Ok(true)
    }

    /// Makes the page at `offset` resident without a trap, if it is not. It may be taken away again at any time.
    #[inline]
    pub fn probe(&self, offset: u64) -> Result<(), PagingError> {
        let page = PageIndex::containing(offset);
        if self.core.is_resident(page) {
            return Ok(());
        }
        self.core.bring(offset).map_err(|cause| self.core.error(offset, cause))
    }

    /// Makes the pages of `bytes` at `offset` resident without traps, and fetches those that are far together: for a
    /// copy that is about to be made. Each may be taken away again at any time, so bring no more than is copied at
    /// once.
    pub fn bring(&self, offset: u64, bytes: usize) -> Result<(), PagingError> {
        self.assert_within(offset, bytes);
        if bytes == 0 {
            return Ok(());
        }
        self.core.bring_all(offset, bytes).map_err(|(at, cause)| self.core.error(at, cause))
    }

    /// Whether all pages of `bytes` at `offset` are resident now.
    #[must_use]
    pub fn is_all_resident(&self, offset: u64, bytes: usize) -> bool {
        let end = self.assert_within(offset, bytes);
        (PageIndex::containing(offset).0..PageIndex::containing(end + PAGE_BYTES as u64 - 1).0)
            .all(|page| self.core.is_resident(PageIndex(page)))
    }

    /// Whether somebody is told of its faults ([`Region::observe_faults`]).
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.core.is_observed()
    }

    /// Whether the page at `offset` is resident now.
    #[must_use]
    pub fn is_resident(&self, offset: u64) -> bool {
        self.core.is_resident(PageIndex::containing(offset))
    }

    /// Does to the page at `offset` what an uncorrectable error in the memory under it does, for tests of what becomes
    /// of programs. Whether the page was mapped, and is lost now.
    pub fn inject_damage(&self, offset: u64) -> bool {
        let page = PageIndex::containing(offset);
        while self.core.is_resident(page) {
            let is_lost = self.core.find_damage(page).is_err();
            if is_lost && matches!(self.core.state(page), State::Poisoned(_)) {
                return true;
            }
            // A sweep of the block is going on, and has not taken the page.
            std::thread::yield_now();
        }
        false
    }

    /// As [`Region::inject_damage`], by the kernel: its own injection of memory errors, where it has one and the user
    /// may. The page must be resident; the memory under it is lost to the machine until it restarts.
    pub fn inject_damage_by_kernel(&self, offset: u64) -> Result<(), FarError> {
        Ok(self.core.memory().damage(offset)?)
    }

    /// How many of the region's pages the kernel has mapped, by its own account. For checks of the accounting.
    pub fn mapped_pages(&self) -> Result<usize, FarError> {
        Ok(self.core.memory().resident_pages()?)
    }

    /// Makes the pages of `bytes` at `offset` resident and keeps them so until the hold is dropped: for memory that a
    /// system call or a device uses. Their blocks are not swept meanwhile, so hold little and briefly.
    pub fn hold(&self, offset: u64, bytes: usize) -> Result<Hold<'_>, PagingError> {
        assert!(bytes > 0 && offset + bytes as u64 <= self.bytes(), "{bytes} bytes at {offset}");
        let blocks = self.core.hold(offset, bytes).map_err(|(at, cause)| self.core.error(at, cause))?;
        Ok(Hold { region: self, blocks })
    }

    /// As [`Region::hold`], if there is nothing to wait for: `None` if a page is not resident now, or is about to
    /// leave. Neither waits nor yields, and while the hold lasts neither do accesses to its pages.
    #[must_use]
    pub fn try_hold(&self, offset: u64, bytes: usize) -> Option<Hold<'_>> {
        assert!(bytes > 0 && offset + bytes as u64 <= self.bytes(), "{bytes} bytes at {offset}");
        self.core.try_hold(offset, bytes).map(|blocks| Hold { region: self, blocks })
    }

    /// Lets go of what is local of whole pages, and leaves them alone from now on: for memory that is about to be
    /// protected against reading, which not even whoever sweeps it could read then. What is held, and what comes there
    /// all the same, stays local. Blocks until the pages have left, for as long as a fault would wait at most.
    ///
    /// # Panics
    /// If `offset` or `bytes` is no multiple of a page, or the range is not of the region.
    pub fn mark_unreadable(&self, offset: u64, bytes: u64) {
        let pages = self.whole_pages(offset, bytes);
        self.core.pager().mark_unreadable(&self.core, pages);
    }

    /// Ends what [`Region::mark_unreadable`] has begun, for whole pages that can be read again.
    ///
    /// # Panics
    /// If `offset` or `bytes` is no multiple of a page, or the range is not of the region.
    pub fn mark_readable(&self, offset: u64, bytes: u64) {
        self.core.mark_readable(self.whole_pages(offset, bytes));
    }

    /// Which pages a range is.
    fn whole_pages(&self, offset: u64, bytes: u64) -> std::ops::Range<u32> {
        let page = PAGE_BYTES as u64;
        assert!(
            offset.is_multiple_of(page) && bytes.is_multiple_of(page),
            "{bytes} bytes at {offset} are not whole pages"
        );
        assert!(offset + bytes <= self.bytes(), "{bytes} bytes at {offset} of a region of {}", self.bytes());
        PageIndex::containing(offset).0..PageIndex::containing(offset + bytes).0
    }

    /// From now on only what `liveness` says is live of a page is kept when the page leaves local memory: all other
    /// bytes of it may read as anything then.
    ///
    /// # Panics
    /// If the paging of the region is guided already.
    pub fn guide_paging(&self, liveness: Arc<dyn Liveness>) {
        self.core.pager().guide_paging(&self.core, liveness);
    }

    /// From now on `observer` is told of every fault that comes by a signal.
    ///
    /// # Panics
    /// If the region is observed already.
    pub fn observe_faults(&self, observer: Arc<dyn FaultObserver>) {
        assert!(self.core.observe_faults(observer), "the faults of the region are observed already");
    }

    /// Puts what is mapped of whole pages on standby, though memory does not press, so that whoever observes the region
    /// sees when they are touched next. What somebody is just using may stay. How many pages were put there.
    ///
    /// # Panics
    /// If `offset` or `bytes` is no multiple of a page, or the range is not of the region.
    pub fn set_aside(&self, offset: u64, bytes: u64) -> usize {
        self.core.pager().set_aside(&self.core, self.whole_pages(offset, bytes))
    }

    /// Makes the region read-only for good: from now on its pages are dropped without a copy, unless its paging is
    /// guided. What is local is written to the node first, so this takes as long as that.
    pub fn seal(&mut self) -> Result<(), FarError> {
        self.core.pager().seal(&self.core)
    }

    /// Whether the region is sealed.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.core.is_sealed()
    }

    /// Reserves `bytes` of the region, rounded up to pages, and returns their offset; `None` if no gap is that long.
    /// The memory reads as zeros.
    #[must_use]
    pub fn alloc(&self, bytes: u64) -> Option<u64> {
        self.free.lock().expect("no code panics while it holds the free ranges").take(whole_pages(bytes))
    }

    /// Gives a range that [`Region::alloc`] returned back, here and on the node. Nothing may touch it any more. Blocks
    /// until writes of its pages that are in flight have ended. After an error the range is still the caller's, who may
    /// try again.
    pub fn free(&self, offset: u64, bytes: u64) -> Result<(), FarError> {
        let bytes = whole_pages(bytes);
        self.core.pager().release(&self.core, offset, bytes)?;
        self.free.lock().expect("no code panics while it holds the free ranges").give(offset, bytes);
        Ok(())
    }

    /// Forgets the content of whole pages, here and on the node: they read as zeros. Nothing may touch them meanwhile.
    /// Blocks until writes of theirs that are in flight have ended. A hold of other pages does not stand in the way;
    /// one of these pages ends for them, and goes on keeping what comes there next.
    ///
    /// After an error it is not known whether the node will still do it. Until that is known
    /// ([`Region::is_discard_confirmed`]) nothing of the pages is written to the node, so nothing is undone later; they
    /// can be used meanwhile. The node is asked again in the background, and by another call.
    ///
    /// # Panics
    /// If `offset` or `bytes` is no multiple of a page.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<(), FarError> {
        self.whole_pages(offset, bytes);
        self.core.pager().release(&self.core, offset, bytes)
    }

    /// Whether no discard of whole pages is left whose end at the node is not known. A range that is given out again
    /// waits for it.
    ///
    /// # Panics
    /// If `offset` or `bytes` is no multiple of a page.
    #[must_use]
    pub fn is_discard_confirmed(&self, offset: u64, bytes: u64) -> bool {
        self.core.is_discard_confirmed(self.whole_pages(offset, bytes))
    }

    /// With [`Access::Probe`], makes the pages of an access that is about to happen resident.
    #[inline]
    fn probe_all(&self, offset: u64, bytes: usize) -> Result<(), PagingError> {
        let end = self.assert_within(offset, bytes);
        if self.access == Access::Probe && bytes > 0 {
            let mut at = offset;
            while at < end {
                self.probe(at)?;
                at = PageIndex(PageIndex::containing(at).0 + 1).offset();
            }
        }
        Ok(())
    }

    /// The end of an access.
    #[inline]
    fn assert_within(&self, offset: u64, bytes: usize) -> u64 {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.bytes());
        end.unwrap_or_else(|| panic!("{bytes} bytes at {offset} of a region of {}", self.bytes()))
    }

    #[inline]
    fn assert_writable(&self) {
        assert!(!self.core.is_sealed(), "a sealed region was written to");
    }

    #[cold]
    fn failure(&self, offset: u64, code: NonZeroU32) -> PagingError {
        self.core.error(offset, PagingCause::from_code(code))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Nobody can touch the region any more: `self` is gone, and pages in flight are waited for.
        self.core.pager().end_region(&self.core);
        self.registration = None;
    }
}

/// Pages that stay resident. See [`Region::hold`].
pub struct Hold<'a> {
    region: &'a Region,
    blocks: HeldBlocks,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.region.core.unhold(self.blocks.clone());
    }
}

/// `bytes`, at least one, rounded up to pages.
const fn whole_pages(bytes: u64) -> u64 {
    (if bytes == 0 { 1 } else { bytes }).next_multiple_of(PAGE_BYTES as u64)
}
