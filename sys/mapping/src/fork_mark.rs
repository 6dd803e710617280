//! [`ForkMark`]: tells by one load whether this is still the process that made it.
//!
//! UNSAFETY: maps a page for one byte, which this type owns.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use yonder_units::PAGE_BYTES;

use crate::MapError;

/// What the byte is in the process that made the mark; in all others it is zero.
const HERE: u8 = 1;

/// A mark that a forked child does not have: the kernel clears its page there. For what two processes must not both do,
/// such as to seal under the same numbers. A child that shares memory with its parent (`vfork`) is the same process.
pub struct ForkMark(NonNull<AtomicU8>);

// SAFETY: the byte is an atomic one, and its page belongs to the mark until that is dropped.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// The mark of this process.
    ///
    /// # Errors
    /// If the kernel has no memory, or is older than 4.14 and copies all pages.
    pub fn new() -> Result<Self, MapError> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, prot, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(MapError::last("mmap", PAGE_BYTES));
        }
        // From here on it is unmapped if something fails. Its bytes are zeros, which are good atomics.
        let mark = Self(NonNull::new(page.cast::<AtomicU8>()).expect("the kernel never maps address zero unasked"));
        // SAFETY: the page was just mapped, and is private and of no file, as the advice wants it.
        if unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_WIPEONFORK) } != 0 {
            return Err(MapError::last("madvise", PAGE_BYTES));
        }
        mark.byte().store(HERE, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether this is the process that made it, and it was not erased.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.byte().load(Ordering::Relaxed) == HERE
    }

    /// Makes it what it is in a child, here too. Tests of what holds a mark need no child then.
    pub fn erase(&self) {
        self.byte().store(0, Ordering::Relaxed);
    }

    fn byte(&self) -> &AtomicU8 {
        // SAFETY: the page is mapped and readable and writable until the mark is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the page is the mark's own, and no reference to it outlives the mark.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

impl fmt::Debug for ForkMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ForkMark").field(&self.is_here()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_have_its_parents_mark() {
        let mark = ForkMark::new().unwrap();
        assert!(mark.is_here());
        // SAFETY: the child makes two system calls and reads memory that is its own, whatever locks others had.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(mark.is_here());
            // SAFETY: ends the child without anything of its parent's exit.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: the child is this process's own, and the status a number.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0), "the child takes itself for its parent");
        assert!(mark.is_here(), "the parent is what it was");
        mark.erase();
        assert!(!mark.is_here());
    }
}
