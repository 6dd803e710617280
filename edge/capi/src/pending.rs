//! Asynchronous operations, and the [`Names`] by which C knows them.
//!
//! A name is the place of an operation and how often the place was used before, so that a name that was used up is
//! never taken for another operation.
//!
//! UNSAFETY: it exports functions that read C's pointers, and keeps those to addresses until results are told.

use std::ffi::{c_int, c_uint, c_void};

use yonder::clib::{ClibError, Pending, PendingAllocation, PendingFree, Thread};

use crate::arguments::Out;
use crate::buffer::RawBuffer;
use crate::failure::Failure;
use crate::thread::{Inside, YonderThread, allocation, with};

/// The asynchronous operations of a thread whose results were not told. There are as many places as operations were
/// ever pending at once, which `yonder::clib` limits.
#[derive(Debug)]
pub(crate) struct Names<P = Operation> {
    places: Vec<Place<P>>,
    free: Vec<u32>,
}

/// An operation that was begun.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A read or write.
    Transfer(Pending<RawBuffer>),
    /// An allocation, and where C wants the address.
    Allocation(PendingAllocation, Out<u64>),
    /// A release.
    Free(PendingFree),
}

#[derive(Debug)]
struct Place<P> {
    /// How many operations have had the place; at least 1 where one has it, so that no name is 0.
    uses: u32,
    pending: Option<P>,
}

impl<P> Default for Names<P> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<P> Names<P> {
    /// Names an operation.
    fn insert(&mut self, pending: P) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { uses: 0, pending: None });
            u32::try_from(self.places.len() - 1).expect("far fewer operations are pending")
        });
        let place = &mut self.places[index as usize];
        place.uses = place.uses.checked_add(1).unwrap_or(1);
        place.pending = Some(pending);
        u64::from(place.uses) << 32 | u64::from(index)
    }

    /// Takes an operation; its name is used up, unless it is put back.
    fn take(&mut self, name: u64) -> Result<P, Failure> {
        let (uses, index) = ((name >> 32) as u32, name as u32);
        let place = self.places.get_mut(index as usize).filter(|place| place.uses == uses);
        let Some(pending) = place.and_then(|place| place.pending.take()) else {
            let message =
                format!("{name:#x} is no pending operation of this thread: its result was told, or it never was");
            return Err(Failure::new(libc::EBADF, message));
        };
        self.free.push(index);
        Ok(pending)
    }

    /// Undoes the last [`Names::take`], which took this name.
    fn put_back(&mut self, name: u64, pending: P) {
        let index = self.free.pop();
        assert_eq!(index, Some(name as u32), "only what was just taken is put back");
        self.places[name as u32 as usize].pending = Some(pending);
    }
}

/// `yonder_rread_async` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rread_async(
    thread: *mut YonderThread,
    address: u64,
    into: *mut c_void,
    length: usize,
    pending: *mut u64,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises: the buffer is dropped when the result is told or the thread is closed.
        let (out, buffer) = unsafe { (Out::required(pending, "pending")?, RawBuffer::into(into.cast(), length)?) };
        let begun = inside.thread.rread_async(address, buffer)?;
        out.set(inside.names.insert(Operation::Transfer(begun)));
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rwrite_async` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rwrite_async(
    thread: *mut YonderThread,
    address: u64,
    from: *const c_void,
    length: usize,
    pending: *mut u64,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises: the buffer is dropped when the result is told or the thread is closed.
        let (out, buffer) = unsafe { (Out::required(pending, "pending")?, RawBuffer::from(from.cast(), length)?) };
        let begun = inside.thread.rwrite_async(address, buffer)?;
        out.set(inside.names.insert(Operation::Transfer(begun)));
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_ralloc_async` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_ralloc_async(
    thread: *mut YonderThread,
    bytes: u64,
    flags: c_uint,
    address: *mut u64,
    pending: *mut u64,
) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises: the address is written when the result is told, and never after that.
        let (out, address) = unsafe { (Out::required(pending, "pending")?, Out::required(address, "address")?) };
        let (permission, backing) = allocation(bytes, flags)?;
        let begun = inside.thread.ralloc_with_async(bytes, permission, backing)?;
        out.set(inside.names.insert(Operation::Allocation(begun, address)));
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rfree_async` of `yonder.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rfree_async(thread: *mut YonderThread, address: u64, pending: *mut u64) -> c_int {
    let work = |inside: &mut Inside| {
        // SAFETY: as the caller promises.
        let out = unsafe { Out::required(pending, "pending")? };
        let begun = inside.thread.rfree_async(address)?;
        out.set(inside.names.insert(Operation::Free(begun)));
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rpoll` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rpoll(thread: *mut YonderThread, pending: u64) -> c_int {
    let work = |inside: &mut Inside| {
        let operation = inside.names.take(pending)?;
        match polled(&mut inside.thread, operation) {
            Ok(done) => Ok(done.map(|()| 1)?),
            Err(still) => {
                inside.names.put_back(pending, still);
                Ok(0)
            }
        }
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rwait` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rwait(thread: *mut YonderThread, pending: u64) -> c_int {
    let work = |inside: &mut Inside| {
        match inside.names.take(pending)? {
            Operation::Transfer(begun) => inside.thread.rwait(begun).result?,
            Operation::Allocation(begun, address) => address.set(inside.thread.rwait(begun)?),
            Operation::Free(begun) => inside.thread.rwait(begun)?,
        }
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// What an operation has come to, with its results where C wants them; or the operation, if it has not ended.
fn polled(thread: &mut Thread<RawBuffer>, operation: Operation) -> Result<Result<(), ClibError>, Operation> {
    match operation {
        Operation::Transfer(begun) => {
            thread.rpoll(begun).map(|completed| completed.result).map_err(Operation::Transfer)
        }
        Operation::Allocation(begun, address) => match thread.rpoll(begun) {
            Ok(result) => Ok(result.map(|allocated| address.set(allocated))),
            Err(still) => Err(Operation::Allocation(still, address)),
        },
        Operation::Free(begun) => thread.rpoll(begun).map_err(Operation::Free),
    }
}

/// `yonder_rrelease` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rrelease(thread: *mut YonderThread) -> c_int {
    let work = |inside: &mut Inside| {
        inside.thread.rrelease();
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

/// `yonder_rfence` of `yonder.h`.
///
/// # Safety
/// The pointer is what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_rfence(thread: *mut YonderThread) -> c_int {
    let work = |inside: &mut Inside| {
        inside.thread.rfence()?;
        Ok(0)
    };
    // SAFETY: as the caller promises.
    unsafe { with(thread, work) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_once_and_never_zero() {
        let mut names = Names::default();
        let (first, second) = (names.insert('a'), names.insert('b'));
        assert!(first != 0 && second != 0 && first != second);
        assert_eq!(names.take(first), Ok('a'));
        names.put_back(first, 'a');
        assert_eq!(names.take(first), Ok('a'));
        let third = names.insert('c');
        assert_ne!(third, first, "the place is the same, the name is not");
        for bad in [first, 0, u64::MAX, 1, third + 7] {
            assert!(names.take(bad).is_err(), "{bad:#x}");
        }
        assert_eq!((names.take(third), names.take(second)), (Ok('c'), Ok('b')));
        assert_eq!(names.places.len(), 2);
    }

    #[test]
    fn a_place_that_was_used_very_often_starts_again() {
        let mut names = Names::default();
        names.places.push(Place { uses: u32::MAX, pending: None });
        names.free.push(0);
        assert_eq!(names.insert('a'), 1 << 32);
    }
}
