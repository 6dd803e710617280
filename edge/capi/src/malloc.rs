//! `yonder_malloc` of `yonder.h` and its kin.
//!
//! They answer as the C library's functions do: with NULL and an errno, and with an end of the process where a program
//! frees what it has not.
//!
//! UNSAFETY: it exports functions that read C's pointers, and copies what moves.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use yonder_paging::far_heap::{FarHeap, Magazine, Misuse};

use crate::failure::{Failure, remember};
use crate::memory::{not_open, with_heap};

/// What any object of C may need.
const ALIGN: usize = 16;

/// NULL, and why.
#[cold]
fn none(failure: &Failure) -> *mut c_void {
    remember(failure.message());
    set_errno(failure.errno());
    std::ptr::null_mut()
}

#[cold]
fn full(bytes: usize) -> *mut c_void {
    none(&Failure::new(libc::ENOMEM, format!("far memory has no room for {bytes} bytes")))
}

fn set_errno(errno: c_int) {
    // SAFETY: the C library's own place of this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// The pointer to what was given out: `None` if there was no room, nothing at all if no far memory is open.
#[inline]
fn given(address: Option<Option<usize>>, bytes: usize) -> *mut c_void {
    match address {
        Some(Some(address)) => std::ptr::with_exposed_provenance_mut(address),
        Some(None) => full(bytes),
        None => none(&not_open()),
    }
}

/// What a function that was given `block` has of it. Ends the process if nothing is allocated there.
#[inline]
fn of_block<T>(block: *mut c_void, work: impl Fn(&FarHeap, &mut Magazine, usize) -> Result<T, Misuse>) -> T {
    let address = block as usize;
    match with_heap(|heap, magazine| work(heap, magazine, address)) {
        Some(Ok(done)) => done,
        Some(Err(misuse)) => misuse.die(),
        None => Misuse { address }.die(),
    }
}

/// `yonder_malloc` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_malloc(bytes: usize) -> *mut c_void {
    given(with_heap(|heap, magazine| heap.alloc(magazine, bytes, ALIGN)), bytes)
}

/// `yonder_calloc` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return full(usize::MAX) };
    // The writes wait for pages, and a light thread may be left then: not within `with_heap`.
    let address = with_heap(|heap, magazine| Some((heap.alloc(magazine, all, ALIGN)?, Arc::clone(heap))));
    let zeros = address.map(|found| {
        let (address, heap) = found?;
        if heap.zero(address).is_err() {
            // The node does not answer: there is no memory.
            of_block(std::ptr::with_exposed_provenance_mut(address), |heap, magazine, address| {
                heap.free(magazine, address)
            });
            return None;
        }
        Some(address)
    });
    given(zeros, all)
}

/// `yonder_memalign` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_memalign(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return none(&Failure::invalid(format!("an alignment of {align} bytes: give a power of two")));
    }
    given(with_heap(|heap, magazine| heap.alloc(magazine, bytes, align.max(ALIGN))), bytes)
}

/// `yonder_realloc` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return yonder_malloc(bytes);
    }
    if bytes == 0 {
        // SAFETY: the caller gives it up.
        unsafe { yonder_free(block) };
        return std::ptr::null_mut();
    }
    let before = of_block(block, |heap, _, address| {
        let before = heap.size_of(address)?;
        Ok((!heap.resize_in_place(address, bytes)?).then_some(before))
    });
    // The bytes that have to move, if any.
    let Some(before) = before else { return block };
    let new = yonder_malloc(bytes);
    if !new.is_null() {
        // SAFETY: both are as long, and new memory does not overlap old, which the caller gives up.
        unsafe {
            std::ptr::copy_nonoverlapping(block.cast::<u8>(), new.cast(), before.min(bytes));
            yonder_free(block);
        }
    }
    new
}

/// `yonder_free` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_free(block: *mut c_void) {
    if !block.is_null() {
        of_block(block, |heap, magazine, address| heap.free(magazine, address));
    }
}

/// `yonder_malloc_usable_size` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() { 0 } else { of_block(block, |heap, _, address| heap.size_of(address)) }
}
