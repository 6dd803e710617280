//! Descriptors: the program may close and replace its own, and not those that its memory needs.
//!
//! Programs close what they have not opened before they become servers, and before they execute others. In a forked
//! child ours may stay open as well, because they end with `exec`.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{c_int, c_uint};

use yonder_intercept::{is_kept, next_kept};

use crate::libc_own::{failed, in_front, own};

in_front! {
    close(fd: c_int) -> c_int, if is_kept(fd) => failed(libc::EBADF);
    dup2(fd: c_int, to: c_int) -> c_int, if is_kept(to) => failed(libc::EBUSY);
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int, if is_kept(to) => failed(libc::EBUSY);
}

/// `close_range`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let own = own!(close_range: fn(c_uint, c_uint, c_int) -> c_int);
    let mut first = first;
    // One range before each of ours, and one behind the last. What is wrong with the arguments, the C library says.
    while first <= last
        && let Some(kept) = next_kept(as_fd(first), as_fd(last))
    {
        // SAFETY: the caller's.
        if first < kept as c_uint && unsafe { own(first, kept as c_uint - 1, flags) } != 0 {
            return -1;
        }
        first = kept as c_uint + 1;
        if first > last {
            return 0;
        }
    }
    // SAFETY: the caller's.
    unsafe { own(first, last, flags) }
}

/// `closefrom`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn closefrom(first: c_int) {
    // SAFETY: the caller's.
    let _ = unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// A descriptor of a range, which may go beyond those that there can be.
fn as_fd(number: c_uint) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}
