//! [`RawBuffer`]: the caller's memory that an asynchronous operation reads from or into.
//!
//! Invariant: it is touched only inside calls on the thread of its operation, from the call that begins it to the one
//! that tells its result.
//!
//! UNSAFETY: the memory is C's, which keeps it alive by contract; no lifetime can say so.

use std::ptr;

use yonder::clib::Buffer;

use crate::arguments::{TRANSFER_BYTES_MAX, check_range};
use crate::failure::Failure;

/// Memory of the caller's.
#[derive(Debug)]
pub(crate) struct RawBuffer {
    bytes: Direction,
    length: usize,
}

/// What the operation does with the memory.
#[derive(Debug)]
enum Direction {
    /// It is filled with what is read.
    Into(*mut u8),
    /// It is what is written.
    From(*const u8),
}

impl RawBuffer {
    /// Memory for a read.
    ///
    /// # Safety
    /// `into` is NULL, or `length` bytes there may be written, and are touched by nothing else, until the buffer is
    /// dropped.
    pub(crate) unsafe fn into(into: *mut u8, length: usize) -> Result<Self, Failure> {
        check_range(into, length, TRANSFER_BYTES_MAX, "into")?;
        Ok(Self { bytes: Direction::Into(into), length })
    }

    /// Memory for a write.
    ///
    /// # Safety
    /// `from` is NULL, or `length` bytes there may be read, and do not change, until the buffer is dropped.
    pub(crate) unsafe fn from(from: *const u8, length: usize) -> Result<Self, Failure> {
        check_range(from, length, TRANSFER_BYTES_MAX, "from")?;
        Ok(Self { bytes: Direction::From(from), length })
    }

    /// Panics where a slice would.
    fn check(&self, offset: usize, length: usize) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes from {offset} are not in a buffer of {}",
            self.length
        );
    }
}

impl Buffer for RawBuffer {
    fn len(&self) -> usize {
        self.length
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        let Direction::From(from) = self.bytes else { panic!("a read sends nothing") };
        // SAFETY: the range is inside the buffer, as was just checked, which may be read as long as `self` is, as was
        // promised when it was made. It is C's, so `into`, which is ours, does not overlap it.
        unsafe { ptr::copy_nonoverlapping(from.add(offset), into.as_mut_ptr(), into.len()) };
    }

    fn copy_in(&mut self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        let Direction::Into(into) = self.bytes else { panic!("a write receives nothing") };
        // SAFETY: as above; it may be written.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.add(offset), from.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_where_they_belong_and_nowhere_else() {
        let (mut memory, source) = ([0u8; 6], [1u8, 2, 3, 4]);
        // SAFETY: the arrays outlive the buffers and are not touched meanwhile.
        let (mut into, from) =
            unsafe { (RawBuffer::into(memory.as_mut_ptr(), 5).unwrap(), RawBuffer::from(source.as_ptr(), 4).unwrap()) };
        let mut piece = [0; 2];
        from.copy_out(1, &mut piece);
        into.copy_in(3, &piece);
        for (offset, length) in [(4, 2), (6, 0), (usize::MAX, 2)] {
            let bytes = vec![9; length];
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| into.copy_in(offset, &bytes)));
            assert!(refused.is_err(), "{length} bytes from {offset}");
        }
        assert_eq!((into.len(), from.len()), (5, 4));
        assert_eq!(memory, [0, 0, 0, 2, 3, 0]);
    }

    #[test]
    fn no_bytes_need_no_memory() {
        // SAFETY: there is no memory.
        let made = unsafe { [RawBuffer::into(ptr::null_mut(), 0), RawBuffer::from(ptr::null(), 1)] };
        assert!(made[0].as_ref().is_ok_and(Buffer::is_empty) && made[1].is_err());
    }
}
