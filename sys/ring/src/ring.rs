//! [`Ring`]: transfers between a file and buffers.
//!
//! UNSAFETY: see the crate.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use yonder_mapping::{MapError, Mapping};

use crate::DirectFile;
use crate::queues::{Entered, Queues};
use crate::raw::{self, Submission};

/// The only buffer and the only file that the kernel is told of beforehand.
const REGISTERED: u16 = 0;

/// Why there is no ring. The texts say what mends it.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel has no io_uring, or this process may not use it.
    #[error(
        "io_uring is not to be had ({0}): use Linux 5.11 or later, outside a sandbox that filters it, or run `sudo sysctl kernel.io_uring_disabled=0`"
    )]
    Unsupported(io::Error),
    /// There is no memory for the buffers.
    #[error(transparent)]
    Memory(#[from] MapError),
}

/// Whether this process may use io_uring.
pub fn probe() -> Result<(), RingError> {
    Queues::new(1, raw::enter).map(drop).map_err(RingError::Unsupported)
}

/// The end of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its buffer, which is the ring's user's again.
    pub buffer: u16,
    /// Whether all of it was transferred.
    pub is_done: bool,
}

/// Transfers between a file and buffers, all of one size.
pub struct Ring {
    queues: Queues,
    file: Arc<DirectFile>,
    /// Given back when the kernel is done with it.
    buffers: ManuallyDrop<Mapping>,
    buffer_bytes: usize,
    /// Bytes that the kernel is to transfer, by buffer; 0 if it has no transfer.
    in_flight: Box<[u32]>,
    transfers: usize,
    /// Whether the kernel has pinned the buffers: it may not, if this user's locked memory is limited.
    is_registered: bool,
}

impl Ring {
    /// A ring for `file` with `buffers` buffers of `buffer_bytes`, whole pages.
    pub fn new(file: Arc<DirectFile>, buffers: u16, buffer_bytes: usize) -> Result<Self, RingError> {
        Self::with(file, buffers, buffer_bytes, Queues::new(u32::from(buffers), raw::enter))
    }

    /// As [`Ring::new`], of a ring whose thread may go elsewhere while it has transfers, without notice of their ends
    /// there.
    pub fn unattended(file: Arc<DirectFile>, buffers: u16, buffer_bytes: usize) -> Result<Self, RingError> {
        Self::with(file, buffers, buffer_bytes, Queues::unattended(u32::from(buffers), raw::enter))
    }

    /// As [`Ring::new`], with these queues.
    pub(crate) fn with(
        file: Arc<DirectFile>,
        buffers: u16,
        buffer_bytes: usize,
        queues: io::Result<Queues>,
    ) -> Result<Self, RingError> {
        let queues = queues.map_err(RingError::Unsupported)?;
        raw::register_file(queues.fd(), file.fd()).map_err(RingError::Unsupported)?;
        let mapping = Mapping::anonymous(usize::from(buffers) * buffer_bytes)?;
        let is_registered = raw::register_buffer(queues.fd(), mapping.address(), mapping.len()).is_ok();
        let (buffers, in_flight) = (ManuallyDrop::new(mapping), (0..buffers).map(|_| 0).collect());
        Ok(Self { queues, file, buffers, buffer_bytes, in_flight, transfers: 0, is_registered })
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<DirectFile> {
        &self.file
    }

    /// Begins to read `bytes` at `offset` of the file into a buffer.
    pub fn read(&mut self, buffer: u16, offset: u64, bytes: usize) {
        let operation = if self.is_registered { raw::READ_FIXED } else { raw::READ };
        self.begin(operation, false, buffer, offset, bytes);
    }

    /// Begins to write `bytes` from a buffer to `offset` of the file.
    pub fn write(&mut self, buffer: u16, offset: u64, bytes: usize) {
        let operation = if self.is_registered { raw::WRITE_FIXED } else { raw::WRITE };
        self.begin(operation, true, buffer, offset, bytes);
    }

    /// Transfers that were begun and not handed to the kernel, as far as it has told.
    #[must_use]
    pub fn begun(&self) -> usize {
        // A thread of the kernel tells what it took after it took several, and the first of them may have ended by
        // then.
        self.transfers.min(self.queues.pushed() as usize)
    }

    /// Whether the kernel has ends of transfers that it tells only when it is asked: [`Ring::submit`] asks.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.queues.has_news()
    }

    /// Hands what was begun to the kernel, and lets it finish what has ended: one system call, or none if there is
    /// neither.
    pub fn submit(&mut self) {
        if self.begun() > 0 || self.has_news() {
            // What the kernel has not taken is handed over the next time.
            let _ = self.queues.enter(0);
        }
    }

    /// Hands over what was begun, and sleeps until a transfer has ended, if there is one. It may return before, as when
    /// a signal has come: the caller asks again.
    pub fn wait(&mut self) {
        if self.transfers > 0 && !self.queues.has_completion() {
            let _ = self.queues.enter(1);
        }
    }

    /// The next transfer that has ended.
    pub fn ended(&mut self) -> Option<Ended> {
        let completion = self.queues.take()?;
        let buffer = u16::try_from(completion.user_data).expect("the number of a buffer was given");
        let bytes = std::mem::take(&mut self.in_flight[usize::from(buffer)]);
        assert!(bytes > 0, "the end of a transfer that was not begun");
        self.transfers -= 1;
        Some(Ended { buffer, is_done: u32::try_from(completion.result) == Ok(bytes) })
    }

    /// Transfers that have not ended.
    #[must_use]
    pub fn transfers(&self) -> usize {
        self.transfers
    }

    /// The content of a buffer without a transfer.
    #[inline]
    pub fn buffer(&mut self, buffer: u16) -> &mut [u8] {
        let start = self.idle(buffer);
        // SAFETY: the range is in the mapping, which is the ring's alone; the kernel has no transfer there, and the
        // slice borrows the ring, so that none begins.
        unsafe { std::slice::from_raw_parts_mut(start, self.buffer_bytes) }
    }

    /// Copies `bytes` at `start` of a buffer to `to_start` of another one; neither has a transfer.
    pub fn copy(&mut self, from: u16, start: usize, to: u16, to_start: usize, bytes: usize) {
        assert!(from != to, "a copy within a buffer");
        assert!(start + bytes <= self.buffer_bytes && to_start + bytes <= self.buffer_bytes, "a copy beyond a buffer");
        let (from, to) = (self.idle(from), self.idle(to));
        // SAFETY: both ranges are in buffers of the ring, which do not overlap, and which the kernel does not use now.
        unsafe { std::ptr::copy_nonoverlapping(from.add(start), to.add(to_start), bytes) };
    }

    /// The address of a buffer without a transfer.
    #[inline]
    fn idle(&self, buffer: u16) -> *mut u8 {
        assert!(self.in_flight[usize::from(buffer)] == 0, "buffer {buffer} has a transfer");
        (self.buffers.address() + usize::from(buffer) * self.buffer_bytes) as *mut u8
    }

    #[expect(clippy::cast_possible_truncation, reason = "a buffer is smaller than 4 GiB")]
    fn begin(&mut self, operation: u8, is_write: bool, buffer: u16, offset: u64, bytes: usize) {
        assert!((1..=self.buffer_bytes).contains(&bytes), "{bytes} bytes of a buffer");
        let address = self.idle(buffer) as u64;
        // A file system looks for where a write goes in the thread that begins it, and waits there for its journal,
        // which a busy disk can hold up for seconds: so threads of the kernel begin writes, and nobody else waits.
        let flags = if is_write { raw::FIXED_FILE | raw::ELSEWHERE } else { raw::FIXED_FILE };
        let entry = Submission {
            operation,
            flags,
            fd: i32::from(REGISTERED),
            offset,
            address,
            bytes: bytes as u32,
            user_data: u64::from(buffer),
            buffer: REGISTERED,
            ..Submission::default()
        };
        // SAFETY: the memory is a buffer of this ring that nothing else uses until the transfer has ended, and stays
        // mapped until then; the file is registered.
        unsafe { self.queues.push(entry) };
        // What could not be pushed never ends, and nobody waits for it.
        self.in_flight[usize::from(buffer)] = bytes as u32;
        self.transfers += 1;
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.transfers > 0 {
            if !self.queues.has_completion() && self.queues.enter(1) == Entered::Gone {
                // Nobody will know when the kernel is done with the buffers: they stay.
                return;
            }
            while self.ended().is_some() {}
        }
        // SAFETY: nothing uses it after this, and the kernel has no transfer.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

#[cfg(test)]
mod tests;
