//! Copies between far memory and what the kernel gets in its place: as the program itself could copy, and without a
//! trap for each page that is missing.
//!
//! UNSAFETY: memory of the program at the addresses that it gives the kernel.

use std::ffi::c_int;
use std::ops::Range;

use yonder_preload_protocol::WINDOW;

use crate::calls::{EFAULT, pointer, pointer_mut};
use crate::far::{Far, is_far};
use crate::libc_own::{errno, set_errno};
use crate::mapped::is_allowed;

/// Longest text that the kernel takes: a path.
const TEXT_BYTES_MAX: usize = libc::PATH_MAX as usize;
/// Bytes that are brought, and then copied, at a time: as many as a window of the prefetcher has, few enough to be here
/// still when they are copied.
const BROUGHT_BYTES: usize = 128 << 10;

impl Far {
    /// Copies from far memory, if the program could.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), i64> {
        self.check(offset, into.len(), libc::PROT_READ)?;
        for (part, at) in into.chunks_mut(BROUGHT_BYTES).zip((offset..).step_by(BROUGHT_BYTES)) {
            self.bring(at, part.len())?;
            self.region().read(at, part).map_err(|_| EFAULT)?;
        }
        Ok(())
    }

    /// Copies to far memory, if the program could.
    pub(crate) fn write(&self, offset: u64, from: &[u8]) -> Result<(), i64> {
        self.check(offset, from.len(), libc::PROT_WRITE)?;
        for (part, at) in from.chunks(BROUGHT_BYTES).zip((offset..).step_by(BROUGHT_BYTES)) {
            self.bring(at, part.len())?;
            self.region().write(at, part).map_err(|_| EFAULT)?;
        }
        Ok(())
    }

    /// Brings what is missing of memory that is about to be copied: no page of it costs a trap then, and all are
    /// fetched together. What is taken away again meanwhile the copy brings. Whoever observes faults sees those of
    /// copies too, and a forked child's memory is mapped already, whatever its parent's page table says.
    fn bring(&self, offset: u64, bytes: usize) -> Result<(), i64> {
        let region = self.region();
        if region.is_all_resident(offset, bytes) || region.is_observed() || self.is_of_parent() {
            return Ok(());
        }
        // In the middle of the pager nothing may fault, as a stack in far memory could.
        let on_stack = 0u8;
        if is_far((&raw const on_stack).addr()) {
            return Ok(());
        }
        let error = errno();
        let brought = yonder_trap::hold_back(|| region.bring(offset, bytes));
        set_errno(error);
        brought.map_err(|_| EFAULT)
    }

    /// Puts back what has come of the descriptors of a `poll`: of each eight bytes the kernel stores the last two,
    /// while other threads may change the others.
    pub(crate) fn put_events(&self, offset: u64, polled: &[u8]) -> Result<(), i64> {
        const COME: Range<usize> = 6..8;
        let mut now = [0; size_of::<libc::pollfd>()];
        for (each, at) in polled.chunks_exact(now.len()).zip((offset..).step_by(now.len())) {
            self.read(at, &mut now)?;
            if now[COME] != each[COME] {
                self.write(at + COME.start as u64, &each[COME])?;
            }
        }
        Ok(())
    }

    /// Whether anything can be stored at an address. To be asked before the kernel takes it from where it is; how much
    /// it is shows later.
    pub(crate) fn check_first(&self, address: usize) -> Result<(), i64> {
        self.offset(address).map_or(Ok(()), |offset| self.check(offset, 1, libc::PROT_WRITE))
    }

    /// A copy on the program's behalf meets its protection as the kernel's would, and not as a fault.
    pub(crate) fn check(&self, offset: u64, bytes: usize, prot: c_int) -> Result<(), i64> {
        let start = WINDOW.start + offset as usize;
        if is_allowed(start..start + bytes, prot) { Ok(()) } else { Err(EFAULT) }
    }

    /// Where in far memory so many bytes are; `None` if they are local, or none.
    fn far_offset(&self, address: usize, bytes: usize) -> Result<Option<u64>, i64> {
        if !is_far(address) || bytes == 0 {
            return Ok(None);
        }
        self.offset(address + bytes - 1).ok_or(EFAULT)?;
        self.offset(address).ok_or(EFAULT).map(Some)
    }

    /// Copies what the program has at an address, wherever that is.
    pub(crate) fn get<T>(&self, address: usize, into: &mut [T]) -> Result<(), i64> {
        // SAFETY: any bytes are valid in the structures of the kernel that this is used for; the slice is as long.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        if let Some(offset) = self.far_offset(address, bytes.len())? {
            return self.read(offset, bytes);
        }
        // SAFETY: the program says that so much is there, and the slice is ours.
        unsafe { pointer::<u8>(address).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies to where the program has memory, wherever that is.
    pub(crate) fn put<T>(&self, address: usize, from: &[T]) -> Result<(), i64> {
        // SAFETY: the slice is as long; what is copied are structures of the kernel and bytes.
        let bytes = unsafe { std::slice::from_raw_parts(from.as_ptr().cast::<u8>(), size_of_val(from)) };
        if let Some(offset) = self.far_offset(address, bytes.len())? {
            return self.write(offset, bytes);
        }
        // SAFETY: the program says that so much is there, and the slice is ours.
        unsafe { pointer_mut::<u8>(address).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// The 32 bits at an address, zeros if that is null.
    pub(crate) fn word(&self, address: usize) -> Result<u32, i64> {
        let mut word = [0];
        if address != 0 {
            self.get(address, &mut word)?;
        }
        Ok(word[0])
    }

    /// Bytes of a text, with the zero at its end.
    pub(crate) fn text_bytes(&self, address: usize) -> Result<u64, i64> {
        const STEP: usize = 64;
        let mut bytes = 0;
        while bytes < TEXT_BYTES_MAX {
            // Up to a multiple of the step, so that no page behind the text is touched.
            let step = STEP - (address + bytes) % STEP;
            let mut part = [0; STEP];
            let offset = self.offset(address + bytes).ok_or(EFAULT)?;
            self.read(offset, &mut part[..step])?;
            if let Some(zero) = part[..step].iter().position(|byte| *byte == 0) {
                return Ok((bytes + zero + 1) as u64);
            }
            bytes += step;
        }
        Err(-i64::from(libc::ENAMETOOLONG))
    }
}
