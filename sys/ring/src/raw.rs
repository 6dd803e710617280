//! The kernel's side of io_uring: its structures, and its three system calls.
//!
//! The calls go through [`yonder_intercept::issue`], because a filter of system calls that a program lives with must
//! let them through.
//!
//! UNSAFETY: system calls whose arguments are addresses.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use yonder_intercept::{Call, issue};

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SubmissionOffsets {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) ring_mask: u32,
    pub(crate) ring_entries: u32,
    pub(crate) flags: u32,
    pub(crate) dropped: u32,
    pub(crate) array: u32,
    _reserved: u32,
    _user_address: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct CompletionOffsets {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) ring_mask: u32,
    pub(crate) ring_entries: u32,
    pub(crate) overflow: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
    _reserved: u32,
    _user_address: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Params {
    pub(crate) submission_entries: u32,
    pub(crate) completion_entries: u32,
    pub(crate) flags: u32,
    _thread_cpu: u32,
    pub(crate) thread_idle_ms: u32,
    pub(crate) features: u32,
    pub(crate) other_ring: u32,
    _reserved: [u32; 3],
    pub(crate) submission: SubmissionOffsets,
    pub(crate) completion: CompletionOffsets,
}

impl Params {
    pub(crate) fn with(flags: u32) -> Self {
        Self { flags, ..Self::default() }
    }

    /// Of a ring whose submissions a thread of the kernel takes by itself: that of `other` where there is one, which
    /// sleeps if none of its rings has had any for this long.
    pub(crate) fn polled(thread_idle_ms: u32, other: Option<RawFd>) -> Self {
        let flags = POLLED | if other.is_some() { SHARED_THREAD } else { 0 };
        Self { flags, thread_idle_ms, other_ring: other.unwrap_or(0).cast_unsigned(), ..Self::default() }
    }
}

/// `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Submission {
    pub(crate) operation: u8,
    pub(crate) flags: u8,
    pub(crate) priority: u16,
    pub(crate) fd: i32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) operation_flags: u32,
    pub(crate) user_data: u64,
    pub(crate) buffer: u16,
    pub(crate) personality: u16,
    pub(crate) other_fd: i32,
    pub(crate) _rest: [u64; 2],
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) user_data: u64,
    /// Bytes, or an errno with its sign changed.
    pub(crate) result: i32,
    pub(crate) flags: u32,
}

const _: () = assert!(size_of::<SubmissionOffsets>() == 40 && size_of::<CompletionOffsets>() == 40);
const _: () = assert!(size_of::<Params>() == 120 && std::mem::offset_of!(Params, submission) == 40);
const _: () = assert!(size_of::<Submission>() == 64 && std::mem::offset_of!(Submission, user_data) == 32);
const _: () = assert!(size_of::<Completion>() == 16);

/// `IORING_OP_*`.
pub(crate) const READ_FIXED: u8 = 4;
pub(crate) const WRITE_FIXED: u8 = 5;
pub(crate) const READ: u8 = 22;
pub(crate) const WRITE: u8 = 23;
#[cfg(test)]
pub(crate) const NOP: u8 = 0;
/// `IOSQE_FIXED_FILE`: the descriptor is the number of a registered file.
pub(crate) const FIXED_FILE: u8 = 1;
/// `IOSQE_ASYNC`: a thread of the kernel begins it, and not the one that hands it over.
pub(crate) const ELSEWHERE: u8 = 1 << 4;

/// `IORING_SETUP_*`: work for a thread waits until it is in the kernel anyway, and a flag says that there is some.
pub(crate) const COOPERATIVE: u32 = 1 << 8;
pub(crate) const FLAGS_WORK: u32 = 1 << 9;
/// A thread of the kernel takes submissions; it is another ring's.
pub(crate) const POLLED: u32 = 1 << 1;
const SHARED_THREAD: u32 = 1 << 5;
/// `IORING_FEAT_*`: both queues are in one mapping; no completion is dropped.
pub(crate) const ONE_MAPPING: u32 = 1 << 0;
pub(crate) const NO_DROP: u32 = 1 << 1;
/// `IORING_SQ_*`: flags of the submission queue.
pub(crate) const SLEEPS: u32 = 1 << 0;
pub(crate) const HAS_OVERFLOWN: u32 = 1 << 1;
pub(crate) const HAS_WORK: u32 = 1 << 2;
/// `IORING_ENTER_*`.
pub(crate) const GET_EVENTS: u32 = 1 << 0;
pub(crate) const WAKE: u32 = 1 << 1;
/// `IORING_OFF_*`: what a mapping of the descriptor is of.
pub(crate) const QUEUES_OFFSET: u64 = 0;
pub(crate) const SUBMISSIONS_OFFSET: u64 = 0x1000_0000;

/// `IORING_REGISTER_*`.
const REGISTER_BUFFERS: u64 = 0;
const REGISTER_FILES: u64 = 2;

/// The number of a descriptor, as a system call takes it.
fn number_of(descriptor: BorrowedFd<'_>) -> u64 {
    u64::from(descriptor.as_raw_fd().cast_unsigned())
}

#[expect(clippy::cast_possible_truncation, reason = "an errno is less than 4096")]
fn checked(answer: i64) -> io::Result<i64> {
    if answer < 0 { Err(io::Error::from_raw_os_error(-answer as i32)) } else { Ok(answer) }
}

/// `io_uring_setup`, with room for `entries` submissions at least.
#[expect(clippy::cast_possible_truncation, reason = "a descriptor is an int")]
pub(crate) fn setup(entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
    let arguments = [u64::from(entries), (&raw mut *params) as u64, 0, 0, 0, 0];
    // SAFETY: the kernel writes into the structure, which is as long as it says and lives through the call.
    let fd = checked(unsafe { issue(&Call { number: libc::SYS_io_uring_setup, arguments }) })?;
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// How [`enter`] is called: tests have one that refuses.
pub(crate) type Enter = fn(BorrowedFd<'_>, u32, u32, u32) -> i64;

/// `io_uring_enter`: hands `to_submit` entries over and waits for `least` completions. How many were taken, or an errno
/// with its sign changed.
pub(crate) fn enter(ring: BorrowedFd<'_>, to_submit: u32, least: u32, flags: u32) -> i64 {
    let arguments = [number_of(ring), u64::from(to_submit), u64::from(least), u64::from(flags), 0, 0];
    // SAFETY: no argument is an address. What entries name is for who has pushed them to answer.
    unsafe { issue(&Call { number: libc::SYS_io_uring_enter, arguments }) }
}

/// Registers the only buffer of a ring. The kernel keeps its pages, wherever they are mapped.
pub(crate) fn register_buffer(ring: BorrowedFd<'_>, address: usize, bytes: usize) -> io::Result<()> {
    let buffer = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: bytes };
    register(ring, REGISTER_BUFFERS, (&raw const buffer) as u64)
}

/// Registers the only file of a ring.
pub(crate) fn register_file(ring: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    let fd = file.as_raw_fd();
    register(ring, REGISTER_FILES, (&raw const fd) as u64)
}

/// `io_uring_register` of the one thing at `address`.
fn register(ring: BorrowedFd<'_>, what: u64, address: u64) -> io::Result<()> {
    let arguments = [number_of(ring), what, address, 1, 0, 0];
    // SAFETY: the kernel reads one structure of the kind that `what` says, which lives through the call.
    checked(unsafe { issue(&Call { number: libc::SYS_io_uring_register, arguments }) }).map(drop)
}

/// Memory of a ring that the kernel shares with its user. A forked child has none of it.
pub(crate) struct Shared {
    start: *mut u8,
    bytes: usize,
}

impl Shared {
    /// `bytes` at `offset` of a ring.
    pub(crate) fn map(ring: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        const PROT: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        const FLAGS: u64 = (libc::MAP_SHARED | libc::MAP_POPULATE) as u64;
        let arguments = [0, bytes as u64, PROT, FLAGS, number_of(ring), offset];
        // SAFETY: a new mapping that replaces nothing.
        let start = checked(unsafe { issue(&Call { number: libc::SYS_mmap, arguments }) })?;
        let start = usize::try_from(start).expect("an address of user space");
        let shared = Self { start: std::ptr::with_exposed_provenance_mut(start), bytes };
        let arguments = [start as u64, bytes as u64, libc::MADV_DONTFORK as u64, 0, 0, 0];
        // SAFETY: the mapping is this structure's alone.
        checked(unsafe { issue(&Call { number: libc::SYS_madvise, arguments }) })?;
        Ok(shared)
    }

    /// Where the `count` values of type `T` at `offset` begin.
    ///
    /// # Panics
    /// If they are not all in the mapping, or not aligned.
    pub(crate) fn at<T>(&self, offset: u32, count: u32) -> *mut T {
        let (offset, bytes) = (offset as usize, count as usize * size_of::<T>());
        assert!(
            offset + bytes <= self.bytes && offset.is_multiple_of(align_of::<T>()),
            "the kernel's queues are elsewhere"
        );
        self.start.wrapping_add(offset).cast()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let arguments = [self.start as u64, self.bytes as u64, 0, 0, 0, 0];
        // SAFETY: the mapping is this structure's alone, and whoever has addresses in it goes with it.
        let _ = unsafe { issue(&Call { number: libc::SYS_munmap, arguments }) };
    }
}
