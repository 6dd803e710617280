//! The memory of a pool: [`StackMemory`], one mapping cut into equal slots, each above a guard of its own.
//!
//! Pages are zero and take no memory until they are touched; huge pages are off, so that a slot costs what it uses.
//! Guards are installed as page-table markers (Linux 6.13), which keeps the pool a single mapping; older kernels get
//! `PROT_NONE` pages, which cost two of the process's mappings for each slot. A larger guard costs address space, and a
//! marker of eight bytes for each page of it.
//!
//! Neighbours: `pool.rs` owns one; nothing here knows what a slot holds.

// UNSAFETY: mmap, madvise and munmap.

use std::io;
use std::ptr::NonNull;

/// Bytes in a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Signal frames are this large where the kernel does not say (before Linux 5.14): AMX state fits.
const SIGNAL_FRAME_BYTES_ASSUMED: usize = 12 << 10;
/// Room on the smallest stack for the code between a signal frame and the switch, and for the body around it.
const STACK_MARGIN_BYTES: usize = 8 << 10;
/// `MADV_GUARD_INSTALL`, not yet in the `libc` crate.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// The smallest stack that a pool accepts, in bytes: on a universal stack the kernel pushes its signal frame onto it,
/// up to 12 KiB with AMX state, and the fault handler runs below that.
#[must_use]
pub fn stack_bytes_min() -> usize {
    (signal_frame_bytes() + STACK_MARGIN_BYTES).next_multiple_of(PAGE_BYTES)
}

/// Bytes that the kernel pushes onto a stack for a signal, at most. Safe to ask in a signal handler.
pub(crate) fn signal_frame_bytes() -> usize {
    // SAFETY: `getauxval` only reads what the kernel passed to the process.
    let told = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    if told == 0 { SIGNAL_FRAME_BYTES_ASSUMED } else { usize::try_from(told).expect("a few pages") }
}

/// How a guard is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Guard {
    /// Markers in the page table; the mapping stays whole.
    Marker,
    /// Pages without permissions; the mapping is split around them.
    NoAccess,
}

/// Where one slot lies.
#[derive(Clone, Copy)]
pub(crate) struct SlotMemory {
    guard: NonNull<u8>,
    /// The first byte above the guard.
    pub(crate) lowest_usable: NonNull<u8>,
    /// One past the last byte.
    pub(crate) end: NonNull<u8>,
}

/// Memory for `slots` slots of `slot_bytes` each, the lowest `guard_bytes` of each being its guard.
#[derive(Debug)]
pub(crate) struct StackMemory {
    base: NonNull<u8>,
    slots: usize,
    slot_bytes: usize,
    guard_bytes: usize,
}

// SAFETY: it owns plain memory, which any thread may use or unmap.
unsafe impl Send for StackMemory {}
// SAFETY: shared access only computes addresses.
unsafe impl Sync for StackMemory {}

impl StackMemory {
    /// Maps the memory. `slot_bytes`, guard included, and `guard_bytes` are whole numbers of pages.
    pub(crate) fn map(slots: usize, slot_bytes: usize, guard_bytes: usize) -> io::Result<Self> {
        let map = |guard| Self::map_guarded(slots, slot_bytes, guard_bytes, guard);
        map(Guard::Marker).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => map(Guard::NoAccess),
            _ => Err(error),
        })
    }

    fn map_guarded(slots: usize, slot_bytes: usize, guard_bytes: usize, guard: Guard) -> io::Result<Self> {
        assert!(slots > 0 && guard_bytes > 0 && slot_bytes > guard_bytes);
        assert!(slot_bytes.is_multiple_of(PAGE_BYTES) && guard_bytes.is_multiple_of(PAGE_BYTES));
        let bytes = slots.checked_mul(slot_bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a fresh anonymous mapping at an address that the kernel picks touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero unless asked");
        let memory = Self { base, slots, slot_bytes, guard_bytes };
        // SAFETY: the range is our own mapping. EINVAL means a kernel without huge pages, which is what is wanted.
        unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        for slot in 0..slots {
            memory.install_guard(slot, guard)?;
        }
        Ok(memory)
    }

    fn install_guard(&self, slot: usize, guard: Guard) -> io::Result<()> {
        let pages = self.slot(slot).guard.as_ptr().cast();
        // SAFETY: the pages are the lowest of a slot of our own mapping, in which nothing has been stored yet.
        let result = unsafe {
            match guard {
                Guard::Marker => libc::madvise(pages, self.guard_bytes, MADV_GUARD_INSTALL),
                Guard::NoAccess => libc::mprotect(pages, self.guard_bytes, libc::PROT_NONE),
            }
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Bytes of the guard below each slot's stack.
    pub(crate) fn guard_bytes(&self) -> usize {
        self.guard_bytes
    }

    /// The memory of one slot.
    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> SlotMemory {
        assert!(slot < self.slots);
        // SAFETY: a slot lies within the mapping, its guard lies within it, and it ends there or one past.
        unsafe {
            let guard = self.base.add(slot * self.slot_bytes);
            SlotMemory { guard, lowest_usable: guard.add(self.guard_bytes), end: guard.add(self.slot_bytes) }
        }
    }
}

impl Drop for StackMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever owned this value vouched that no slot is in use.
        let result = unsafe { libc::munmap(self.base.as_ptr().cast(), self.slots * self.slot_bytes) };
        assert!(result == 0, "unmapping a pool: {}", io::Error::last_os_error());
    }
}

/// Whether the kernel can read the byte at `address`, asked without touching it from here.
#[cfg(test)]
pub(crate) fn readable(address: *const u8) -> bool {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: 1 };
    // SAFETY: copies one byte into `byte`; a bad source address is reported as EFAULT.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_guards(guard: Guard, guard_bytes: usize) {
        const SLOTS: usize = 3;
        let memory = match StackMemory::map_guarded(SLOTS, 3 * PAGE_BYTES + guard_bytes, guard_bytes, guard) {
            Err(error) if guard == Guard::Marker && error.raw_os_error() == Some(libc::EINVAL) => {
                println!("SKIP: this kernel has no MADV_GUARD_INSTALL (Linux 6.13)");
                return;
            }
            result => result.unwrap(),
        };
        for slot in 0..SLOTS {
            let SlotMemory { guard: start, lowest_usable, end } = memory.slot(slot);
            let guarded = (0..guard_bytes).step_by(PAGE_BYTES).map(|offset| start.as_ptr().wrapping_add(offset));
            assert!(guarded.clone().all(|page| !readable(page)), "slot {slot} has no {guard:?}");
            assert!(!readable(lowest_usable.as_ptr().wrapping_sub(1)), "the {guard:?} of slot {slot} is too small");
            assert_eq!(lowest_usable.as_ptr().addr() - start.as_ptr().addr(), guarded.len() * PAGE_BYTES);
            assert!(readable(lowest_usable.as_ptr()) && readable(end.as_ptr().wrapping_sub(1)));
        }
    }

    #[test]
    fn every_slot_lies_above_a_guard() {
        for guard_bytes in [PAGE_BYTES, 16 * PAGE_BYTES] {
            check_guards(Guard::Marker, guard_bytes);
            check_guards(Guard::NoAccess, guard_bytes);
        }
    }

    #[test]
    fn the_smallest_stack_holds_a_signal_frame() {
        assert!(stack_bytes_min() >= libc::MINSIGSTKSZ + STACK_MARGIN_BYTES);
        assert!(stack_bytes_min() <= crate::STACK_BYTES_DEFAULT, "the default must suit every machine");
    }
}
