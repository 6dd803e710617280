//! [`LockedBox`]: a secret in memory of its own, which is never written to a disk and reads as zeros once it is no more
//! used.
//!
//! UNSAFETY: maps pages for one value, which this type owns, and wipes them.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use yonder_units::PAGE_BYTES;
use zeroize::Zeroize as _;

use crate::{Inherited, MapError};

/// A value on pages that nothing else is on: out of swap, as far as the limit of locked memory allows
/// ([`LockedBox::is_locked`]), and out of core dumps. When it is dropped, its pages are wiped.
///
/// A value that was made elsewhere leaves there what it was moved from: a key is best drawn, or read, into a box of
/// zeros. For keys that live as long as the process, not for those of which there are many: each takes a page.
pub struct LockedBox<T> {
    value: NonNull<T>,
    is_locked: bool,
}

// SAFETY: the box owns its value, as the standard library's does.
unsafe impl<T: Send> Send for LockedBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LockedBox<T> {}

impl<T> LockedBox<T> {
    const BYTES: usize = {
        assert!(align_of::<T>() <= PAGE_BYTES);
        let pages = size_of::<T>().div_ceil(PAGE_BYTES);
        (if pages == 0 { 1 } else { pages }) * PAGE_BYTES
    };

    /// Puts a value into memory of its own, and says what a forked child has of it.
    ///
    /// # Errors
    /// If the kernel has no memory, or does not leave it out of core dumps.
    pub fn new(value: T, inherited: Inherited) -> Result<Self, MapError> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(MapError::last("mmap", Self::BYTES));
        }
        let pages = Pages { base, bytes: Self::BYTES };
        pages.advise(libc::MADV_DONTDUMP)?;
        if inherited == Inherited::Missing {
            pages.advise(libc::MADV_DONTFORK)?;
        }
        // SAFETY: the pages were just mapped; locking changes nothing that they have.
        let is_locked = unsafe { libc::mlock(base, Self::BYTES) } == 0;
        let place = NonNull::new(base.cast::<T>()).expect("the kernel never maps address zero unasked");
        // SAFETY: the pages are large enough for the value and aligned to more than it needs, and nothing refers to
        // them.
        unsafe { place.write(value) };
        mem::forget(pages);
        Ok(Self { value: place, is_locked })
    }

    /// Whether the memory stays out of swap: it does not where the limit of locked memory is reached.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }
}

impl<T> Deref for LockedBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value was written when the box was made, and lives until it is dropped.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for LockedBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the box is borrowed for as long.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for LockedBox<T> {
    fn drop(&mut self) {
        let pages = Pages { base: self.value.as_ptr().cast(), bytes: Self::BYTES };
        // SAFETY: the value is dropped once, and not used afterwards.
        unsafe { self.value.drop_in_place() };
        pages.wipe();
    }
}

impl<T> fmt::Debug for LockedBox<T> {
    /// Without the value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LockedBox")
    }
}

/// Pages of a box, which are unmapped, and by that unlocked, when they are dropped.
struct Pages {
    base: *mut libc::c_void,
    bytes: usize,
}

impl Pages {
    fn advise(&self, advice: libc::c_int) -> Result<(), MapError> {
        // SAFETY: the range is the box's own, and neither advice changes what is in it.
        match unsafe { libc::madvise(self.base, self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(MapError::last("madvise", self.bytes)),
        }
    }

    /// Overwrites all bytes, which the compiler may not leave out.
    fn wipe(&self) {
        // SAFETY: the pages are mapped and writable, nothing refers to them, and bytes of any value may be zero.
        unsafe { std::slice::from_raw_parts_mut(self.base.cast::<u8>(), self.bytes) }.zeroize();
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are the box's own, and nothing refers to them any more.
        unsafe { libc::munmap(self.base, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// The kernel's flags of the memory that a value is in.
    fn flags<T>(value: &T) -> Vec<String> {
        let address = ptr::from_ref(value) as usize;
        let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let holds = |line: &&str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = ends.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
            matches!(ends, Some((Ok(start), Ok(end))) if (start..end).contains(&address))
        };
        let mut lines = all.lines().skip_while(|line| !holds(line));
        let found = lines.find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        found.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_secret_is_on_pages_of_its_own_out_of_swap_and_dumps() {
        let mut secret = LockedBox::new([0_u8; 16], Inherited::Copied).unwrap();
        secret.copy_from_slice(b"sixteen bytes...");
        assert_eq!(&*secret, b"sixteen bytes...");
        let found = flags(&*secret);
        let has = |flag: &str| found.iter().any(|found| found == flag);
        // Locked, not dumped, copied by forks.
        assert!(has("lo") == secret.is_locked() && has("dd") && !has("dc"), "{found:?}");
        assert!(ptr::from_ref(&*secret).addr().is_multiple_of(PAGE_BYTES));
        let alone = LockedBox::new([1_u8; 16], Inherited::Missing).unwrap();
        assert!(flags(&*alone).iter().any(|flag| flag == "dc"));
        assert_eq!(format!("{alone:?}"), "LockedBox");
    }

    #[test]
    fn a_value_is_dropped_once_and_then_wiped() {
        static DROPPED: AtomicBool = AtomicBool::new(false);
        struct Secret([u8; 5000]);
        impl Drop for Secret {
            fn drop(&mut self) {
                assert!(self.0.iter().all(|byte| *byte == 7) && !DROPPED.swap(true, Ordering::Relaxed));
            }
        }
        let secret = LockedBox::new(Secret([7; 5000]), Inherited::Copied).unwrap();
        assert_eq!(LockedBox::<Secret>::BYTES, 2 * PAGE_BYTES);
        drop(secret);
        assert!(DROPPED.load(Ordering::Relaxed));
        let mut bytes = [7_u8; 2 * PAGE_BYTES];
        let pages = Pages { base: bytes.as_mut_ptr().cast(), bytes: bytes.len() };
        pages.wipe();
        // They are this thread's stack.
        mem::forget(pages);
        assert_eq!(bytes, [0; 2 * PAGE_BYTES]);
    }
}
