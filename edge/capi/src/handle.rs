//! What the functions of `yonder_threads.h` have in common whose first argument is a pointer that was handed out.
//!
//! UNSAFETY: it hands out boxes as pointers and takes them back.

use std::ffi::c_int;

use crate::arguments::reference;
use crate::failure::{Failure, answer};

/// Hands out `value`, until [`free`].
pub(crate) fn new<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Does `work` with what was handed out, and answers with what it returns.
///
/// # Safety
/// `pointer` is NULL, or was handed out by [`new`], and nobody frees it meanwhile.
pub(crate) unsafe fn on<T: Sync>(
    pointer: *const T,
    name: &str,
    work: impl FnOnce(&T) -> Result<c_int, Failure>,
) -> c_int {
    // SAFETY: as the caller promises; several may have references at a time.
    answer(|| work(unsafe { reference(pointer, name)? }))
}

/// Frees what was handed out.
///
/// # Safety
/// `pointer` is NULL, or was handed out by [`new`], and nobody uses it any more.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(pointer) });
    }
}
