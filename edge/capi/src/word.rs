//! Locks and atomics on words of far memory.
//!
//! UNSAFETY: it exports functions that read C's pointers.

use std::ffi::c_int;

use yonder::clib::{ClibError, Thread};

use crate::arguments::Out;
use crate::buffer::RawBuffer;
use crate::thread::{Inside, YonderThread, with};

/// `yonder_rlock` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rlock(thread: *mut YonderThread, address: u64) -> c_int {
    let work = |inside: &mut Inside| {
        inside.thread.rlock(address)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_runlock` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_runlock(thread: *mut YonderThread, address: u64) -> c_int {
    let work = |inside: &mut Inside| {
        inside.thread.runlock(address)?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_test_and_set` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_test_and_set(thread: *mut YonderThread, address: u64, old: *mut u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { change(thread, old, |thread| thread.test_and_set(address)) }
}

/// `yonder_fetch_add` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_fetch_add(thread: *mut YonderThread, address: u64, more: u64, old: *mut u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { change(thread, old, |thread| thread.fetch_add(address, more)) }
}

/// `yonder_compare_and_swap` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_compare_and_swap(
    thread: *mut YonderThread,
    address: u64,
    expected: u64,
    desired: u64,
    old: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { change(thread, old, |thread| thread.compare_and_swap(address, expected, desired)) }
}

/// Changes a word, and tells what it was.
///
/// # Safety
/// `thread` is NULL or open; `old` is NULL or may be written.
unsafe fn change(
    thread: *mut YonderThread,
    old: *mut u64,
    operation: impl FnOnce(&mut Thread<RawBuffer>) -> Result<u64, ClibError>,
) -> c_int {
    let work = |inside: &mut Inside| {
        let was = operation(&mut inside.thread)?;
        // SAFETY: as the caller promises.
        unsafe { Out::optional(old) }.set(was);
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}
