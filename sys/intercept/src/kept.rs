//! [`Kept`]: descriptors that far memory needs, in a program that does not know of them.
//!
//! A program that closes whatever it has not opened itself, or puts a descriptor to a number that it takes for free,
//! would take its own memory away. So these descriptors go to numbers that programs rarely choose, and whoever answers
//! for the program's system calls asks [`is_kept`] before one is closed or replaced. They are gone in a program that it
//! executes.
//!
//! Who touches what: a bit of [`KEPT`] is its descriptor's owner's to change; anybody may look.
//!
//! UNSAFETY: a system call that makes a descriptor.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Call, has_stub, issue};

/// Numbers that a descriptor can be kept at.
const NUMBERS_MAX: usize = 1 << 16;
/// Where numbers begin that few programs choose: below the usual limit of 1024, and above what shells and servers use.
const HIGH: RawFd = 640;

static KEPT: [AtomicU64; NUMBERS_MAX / 64] = [const { AtomicU64::new(0) }; NUMBERS_MAX / 64];

/// The word of a descriptor's number, and its bit there.
fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((KEPT.get(number / 64)?, 1 << (number % 64)))
}

/// Whether the program must leave a descriptor alone.
#[must_use]
pub fn is_kept(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// The first descriptor from `first` to `last` that is kept.
#[must_use]
pub fn next_kept(first: RawFd, last: RawFd) -> Option<RawFd> {
    let end = RawFd::try_from(NUMBERS_MAX).unwrap_or(RawFd::MAX);
    (first.max(0)..=last.min(end - 1)).find(|fd| is_kept(*fd))
}

/// A descriptor that is kept until this is dropped.
#[derive(Debug)]
pub struct Kept {
    /// None once it is dropped.
    fd: Option<OwnedFd>,
}

impl Kept {
    /// Keeps `fd`. Where the system calls of a program are filtered it gets a high number, if the process may have one.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        let fd = if has_stub() { high(fd) } else { fd };
        if let Some((word, bit)) = place(fd.as_raw_fd()) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        Self { fd: Some(fd) }
    }
}

/// The same descriptor at another number, or at its own.
fn high(fd: OwnedFd) -> OwnedFd {
    let arguments = [u64::from(fd.as_raw_fd().cast_unsigned()), libc::F_DUPFD_CLOEXEC as u64, HIGH as u64, 0, 0, 0];
    // SAFETY: no argument is an address.
    let answer = unsafe { issue(&Call { number: libc::SYS_fcntl, arguments }) };
    match RawFd::try_from(answer) {
        // SAFETY: a new descriptor, which nobody else has.
        Ok(number) if number >= 0 => unsafe { OwnedFd::from_raw_fd(number) },
        _ => fd,
    }
}

impl AsFd for Kept {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("it is there until it is dropped").as_fd()
    }
}

impl AsRawFd for Kept {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let fd = self.fd.take();
        // Before it is closed: then the number may be the program's at once.
        if let Some((word, bit)) = fd.as_ref().and_then(|fd| place(fd.as_raw_fd())) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_kept_as_long_as_its_owner_is_there() {
        let [first, second] = [0, 1].map(|_| Kept::new(std::fs::File::open("/dev/null").unwrap().into()));
        let numbers = [&first, &second].map(AsRawFd::as_raw_fd);
        assert!(numbers.iter().all(|number| is_kept(*number)));
        let (low, high) = (numbers[0].min(numbers[1]), numbers[0].max(numbers[1]));
        assert_eq!(
            (next_kept(low, high), next_kept(low + 1, high), next_kept(low, low - 1)),
            (Some(low), Some(high), None)
        );
        drop(first);
        assert!(!is_kept(numbers[0]) && is_kept(numbers[1]));
        assert_eq!(next_kept(low, high), Some(numbers[1]));
        assert!(!is_kept(-1) && !is_kept(RawFd::MAX) && next_kept(high + 1, RawFd::MAX).is_none());
    }
}
