//! Memory errors on request: the kernel's own injection, for tests of what becomes of programs.
//!
//! UNSAFETY: a system call on a page inside a mapping this crate owns.

use yonder_units::PAGE_BYTES;

use crate::{MapError, Mapping};

impl Mapping {
    /// Has the kernel treat the memory under the page at `offset` as damaged, and never use it again. Needs CAP_SYS_ADMIN and
    /// a kernel that is built with CONFIG_MEMORY_FAILURE.
    pub fn damage(&self, offset: u64) -> Result<(), MapError> {
        let page = self.checked(offset / PAGE_BYTES as u64 * PAGE_BYTES as u64, PAGE_BYTES);
        // SAFETY: the page is in bounds, and no Rust reference covers it.
        if unsafe { libc::madvise(page.cast(), PAGE_BYTES, libc::MADV_HWPOISON) } != 0 {
            return Err(MapError::last("madvise(MADV_HWPOISON)", PAGE_BYTES));
        }
        Ok(())
    }
}
