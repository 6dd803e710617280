//! What C gives: texts, references, places for results and ranges of bytes, checked as far as they can be.
//!
//! A NULL is refused with the name of the argument; that other pointers are good is what each function of the interface
//! asks of its caller.
//!
//! UNSAFETY: it makes references and slices of C's pointers.

use std::ffi::{CStr, c_char};
use std::slice;

use yonder_wire::PAYLOAD_BYTES_MAX;

use crate::failure::Failure;

/// Most bytes of one read or write: YONDER_TRANSFER_BYTES_MAX.
pub(crate) const TRANSFER_BYTES_MAX: usize = u32::MAX as usize;
/// Most bytes of the arguments of a call: YONDER_CALL_BYTES_MAX.
pub(crate) const CALL_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;

const _: () = assert!(TRANSFER_BYTES_MAX < isize::MAX as usize);

fn null(name: &str) -> Failure {
    Failure::invalid(format!("the argument '{name}' is NULL"))
}

/// What `pointer` points to.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that stays as it is, but for what may change behind a shared reference, as
/// long as `'a` is.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: it is NULL or good, says the caller.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// A text that ends with NUL.
///
/// # Safety
/// `pointer` is NULL, or points to bytes that end with NUL and do not change as long as `'a` is.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so it is good, says the caller.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::invalid(format!("the argument '{name}' is no text in UTF-8")))
}

/// A place for a result.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// A place that must be there.
    ///
    /// # Safety
    /// `pointer` is NULL, or may be written as long as the place is there.
    pub(crate) unsafe fn required(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        if pointer.is_null() { Err(null(name)) } else { Ok(Self(pointer)) }
    }

    /// A place that may be missing: NULL.
    ///
    /// # Safety
    /// As for [`Out::required`].
    pub(crate) unsafe fn optional(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Puts the result there.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it may be written, as was promised when `self` was made. Nothing is dropped: what C has there is
            // no value of ours.
            unsafe { self.0.write(value) };
        }
    }
}

/// Bytes that are only read.
///
/// # Safety
/// `pointer` is NULL, or points to `length` bytes that do not change as long as `'a` is.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const u8,
    length: usize,
    length_max: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    check_range(pointer, length, length_max, name)?;
    if length == 0 {
        return Ok(&[]);
    }
    // SAFETY: the pointer is not NULL, so there are `length` bytes, says the caller; they are not too many for a slice.
    Ok(unsafe { slice::from_raw_parts(pointer, length) })
}

/// Bytes that are written.
///
/// # Safety
/// `pointer` is NULL, or points to `length` bytes that nothing else touches as long as `'a` is.
pub(crate) unsafe fn bytes_mut<'a>(
    pointer: *mut u8,
    length: usize,
    length_max: usize,
    name: &str,
) -> Result<&'a mut [u8], Failure> {
    check_range(pointer, length, length_max, name)?;
    if length == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as for `bytes`, and nothing else touches them. They may never have been written in C's eyes; what the
    // compiler of this side cannot see into holds some value, and every value is a byte.
    Ok(unsafe { slice::from_raw_parts_mut(pointer, length) })
}

/// Refuses NULL, but with no bytes, and more bytes than may be.
pub(crate) fn check_range(pointer: *const u8, length: usize, length_max: usize, name: &str) -> Result<(), Failure> {
    if pointer.is_null() && length > 0 {
        return Err(null(name));
    }
    if length > length_max {
        let message = format!("{length} bytes are too many for '{name}': give at most {length_max} in one call");
        return Err(Failure::invalid(message));
    }
    Ok(())
}
