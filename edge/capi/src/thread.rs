//! [`YonderThread`]: `yonder_thread` of `yonder.h`, and its memory: allocation, reads and writes.
//!
//! UNSAFETY: it exports functions that read C's pointers, and hands out boxes as pointers.

use std::ffi::{c_int, c_uint, c_void};

use yonder::clib::{Backing, Permission, Thread};

use crate::arguments::{Out, TRANSFER_BYTES_MAX, bytes, bytes_mut, reference};
use crate::buffer::RawBuffer;
use crate::failure::{Failure, answer};
use crate::pending::Names;
use crate::process::YonderProcess;
use crate::turn::Turn;

/// `yonder_thread`.
pub struct YonderThread {
    turn: Turn<Inside>,
}

/// What one thread uses at a time.
pub(crate) struct Inside {
    pub(crate) thread: Thread<RawBuffer>,
    pub(crate) names: Names,
}

/// YONDER_READ, YONDER_WRITE and YONDER_BACKED.
const READ: c_uint = 1;
const WRITE: c_uint = 2;
const BACKED: c_uint = 4;

/// Does `work` with `thread`, and answers with what it returns.
///
/// # Safety
/// `thread` is NULL or open.
pub(crate) unsafe fn with(
    thread: *mut YonderThread,
    work: impl FnOnce(&mut Inside) -> Result<c_int, Failure>,
) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises; what changes is behind `Turn`.
        let thread = unsafe { reference(thread, "thread")? };
        thread.turn.use_it(work)
    })
}

/// `yonder_thread_open` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_thread_open(process: *mut YonderProcess, thread: *mut *mut YonderThread) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (process, out) = unsafe { (reference(process, "process")?, Out::required(thread, "thread")?) };
        let inside = Inside { thread: process.process.thread_with()?, names: Names::default() };
        out.set(Box::into_raw(Box::new(YonderThread { turn: Turn::new(inside) })));
        Ok(0)
    })
}

/// `yonder_thread_close` of `yonder.h`.
///
/// # Safety
/// `thread` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_thread_close(thread: *mut YonderThread) {
    answer(|| {
        // SAFETY: as the caller promises.
        let Some(open) = (unsafe { thread.as_ref() }) else { return Ok(0) };
        if !open.turn.is_idle() {
            // Memory that is lost is better than memory that is used after it was freed.
            return Err(Failure::new(libc::EBUSY, "the yonder_thread is in use by another thread, and stays open"));
        }
        // SAFETY: it came from a box, and nobody is in a call with it or will be, says the caller.
        drop(unsafe { Box::from_raw(thread) });
        Ok(0)
    });
}

/// `yonder_ralloc` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_ralloc(
    thread: *mut YonderThread,
    bytes: u64,
    flags: c_uint,
    address: *mut u64,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::required(address, "address")? };
        let (permission, backing) = allocation(bytes, flags)?;
        out.set(inside.thread.ralloc_with(bytes, permission, backing)?.0);
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// What `flags` ask for, if they and the length can be.
pub(crate) fn allocation(bytes: u64, flags: c_uint) -> Result<(Permission, Backing), Failure> {
    if flags & READ == 0 || flags & !(READ | WRITE | BACKED) != 0 {
        let message = format!(
            "the flags {flags:#x} are not valid: give YONDER_READ, and what else is needed of YONDER_WRITE and YONDER_BACKED"
        );
        return Err(Failure::invalid(message));
    }
    if bytes == 0 {
        return Err(Failure::invalid("an allocation of 0 bytes: ask for one at least"));
    }
    let permission = if flags & WRITE == 0 { Permission::Read } else { Permission::ReadWrite };
    let backing = if flags & BACKED == 0 { Backing::OnDemand } else { Backing::Now };
    Ok((permission, backing))
}

/// `yonder_rfree` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rfree(thread: *mut YonderThread, address: u64) -> c_int {
    let work = |inside: &mut Inside| {
        inside.thread.rfree(address)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rread` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rread(
    thread: *mut YonderThread,
    address: u64,
    into: *mut c_void,
    length: usize,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises.
        let into = unsafe { bytes_mut(into.cast(), length, TRANSFER_BYTES_MAX, "into")? };
        inside.thread.rread(address, into)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rwrite` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rwrite(
    thread: *mut YonderThread,
    address: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises.
        let from = unsafe { bytes(from.cast(), length, TRANSFER_BYTES_MAX, "from")? };
        inside.thread.rwrite(address, from)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_of_the_header() {
        let header = include_str!("../include/yonder.h");
        for (name, flag) in [("READ", READ), ("WRITE", WRITE), ("BACKED", BACKED)] {
            assert!(header.contains(&format!("#define YONDER_{name} {flag}u ")), "{name}");
        }
        assert_eq!(allocation(1, READ | BACKED), Ok((Permission::Read, Backing::Now)));
        assert_eq!(allocation(1, READ | WRITE), Ok((Permission::ReadWrite, Backing::OnDemand)));
        for bad in [0, WRITE, BACKED, READ | 8, c_uint::MAX] {
            assert!(allocation(1, bad).is_err(), "{bad}");
        }
    }
}
