//! What a program or the hardware does to memory, on request: for tests of what becomes of that.
//!
//! UNSAFETY: system calls on pages inside a mapping this crate owns.

use yonder_units::PAGE_BYTES;

use crate::{MapError, Mapping};

impl Mapping {
    /// Has the kernel treat the memory under the page at `offset` as damaged, and never use it again. Needs
    /// CAP_SYS_ADMIN and a kernel that is built with CONFIG_MEMORY_FAILURE.
    pub fn damage(&self, offset: u64) -> Result<(), MapError> {
        let page = self.checked(offset / PAGE_BYTES as u64 * PAGE_BYTES as u64, PAGE_BYTES);
        // SAFETY: the page is in bounds, and no Rust reference covers it.
        if unsafe { libc::madvise(page.cast(), PAGE_BYTES, libc::MADV_HWPOISON) } != 0 {
            return Err(MapError::last("madvise(MADV_HWPOISON)", PAGE_BYTES));
        }
        Ok(())
    }

    /// Locks the pages that are mapped of a range, as a program may: the kernel does not drop them then.
    pub fn lock_mapped(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let start = self.checked(offset, bytes);
        // SAFETY: the range is in bounds, and its content stays as it is.
        if unsafe { libc::mlock2(start.cast(), bytes, libc::MLOCK_ONFAULT) } != 0 {
            return Err(MapError::last("mlock2", bytes));
        }
        Ok(())
    }

    /// Ends what [`Mapping::lock_mapped`] has begun.
    pub fn unlock(&self, offset: u64, bytes: usize) -> Result<(), MapError> {
        let start = self.checked(offset, bytes);
        // SAFETY: as above.
        if unsafe { libc::munlock(start.cast(), bytes) } != 0 {
            return Err(MapError::last("munlock", bytes));
        }
        Ok(())
    }
}
