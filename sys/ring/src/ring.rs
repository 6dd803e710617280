//! [`Ring`]: transfers between a file and buffers.
//!
//! UNSAFETY: see the crate.

use std::io;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use yonder_mapping::{MapError, Mapping};

use crate::DirectFile;

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
    ring: IoUring,
    file: Arc<DirectFile>,
    buffers: Mapping,
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
        let ring = Self::set_up(u32::from(buffers)).map_err(RingError::Unsupported)?;
        let mapping = Mapping::anonymous(usize::from(buffers) * buffer_bytes)?;
        let all = libc::iovec { iov_base: mapping.address() as *mut libc::c_void, iov_len: mapping.len() };
        // SAFETY: the memory stays mapped until the ring is gone, see the order of the fields and `drop`.
        let is_registered = unsafe { ring.submitter().register_buffers(&[all]) }.is_ok();
        ring.submitter().register_files(&[file.raw()]).map_err(RingError::Unsupported)?;
        let in_flight = (0..buffers).map(|_| 0).collect();
        Ok(Self { ring, file, buffers: mapping, buffer_bytes, in_flight, transfers: 0, is_registered })
    }

    /// A ring that does not interrupt its thread when something ends, where the kernel can do so.
    fn set_up(entries: u32) -> io::Result<IoUring> {
        let quiet = IoUring::builder().dontfork().setup_coop_taskrun().setup_taskrun_flag().build(entries);
        quiet.or_else(|_| IoUring::builder().dontfork().build(entries))
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Arc<DirectFile> {
        &self.file
    }

    /// Begins to read `bytes` at `offset` of the file into a buffer.
    pub fn read(&mut self, buffer: u16, offset: u64, bytes: usize) {
        let address = self.lend(buffer, bytes);
        let (fd, length) = (types::Fixed(u32::from(REGISTERED)), bytes as u32);
        let entry = if self.is_registered {
            opcode::ReadFixed::new(fd, address, length, REGISTERED).offset(offset).build()
        } else {
            opcode::Read::new(fd, address, length).offset(offset).build()
        };
        self.push(buffer, entry);
    }

    /// Begins to write `bytes` from a buffer to `offset` of the file.
    pub fn write(&mut self, buffer: u16, offset: u64, bytes: usize) {
        let address = self.lend(buffer, bytes);
        let (fd, length) = (types::Fixed(u32::from(REGISTERED)), bytes as u32);
        let entry = if self.is_registered {
            opcode::WriteFixed::new(fd, address, length, REGISTERED).offset(offset).build()
        } else {
            opcode::Write::new(fd, address, length).offset(offset).build()
        };
        self.push(buffer, entry);
    }

    /// Transfers that were begun and not handed to the kernel.
    #[must_use]
    pub fn begun(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Whether the kernel has ends of transfers that it tells only when it is asked: [`Ring::submit`] asks.
    #[must_use]
    pub fn has_news(&mut self) -> bool {
        let submission = self.ring.submission();
        submission.taskrun() || submission.cq_overflow()
    }

    /// Hands what was begun to the kernel, and lets it finish what has ended: one system call, or none if there is neither.
    pub fn submit(&mut self) {
        let submission = self.ring.submission();
        if submission.is_empty() && !submission.taskrun() && !submission.cq_overflow() {
            return;
        }
        drop(submission);
        // What the kernel did not take is handed over the next time.
        let _ = self.ring.submit();
    }

    /// Hands over what was begun, and sleeps until a transfer has ended, if there is one.
    pub fn wait(&mut self) {
        if self.transfers > 0 && self.ring.completion().is_empty() {
            // Interrupted or refused for now, it is for the caller to ask again.
            let _ = self.ring.submit_and_wait(1);
        }
    }

    /// The next transfer that has ended.
    pub fn ended(&mut self) -> Option<Ended> {
        let entry = self.ring.completion().next()?;
        let buffer = entry.user_data() as u16;
        let bytes = std::mem::take(&mut self.in_flight[usize::from(buffer)]);
        assert!(bytes > 0, "the end of a transfer that was not begun");
        self.transfers -= 1;
        Some(Ended { buffer, is_done: u32::try_from(entry.result()) == Ok(bytes) })
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
        // SAFETY: the range is in the mapping, which is the ring's alone; the kernel has no transfer there, and the slice
        // borrows the ring, so that none begins.
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

    /// The address of a buffer that gets a transfer of `bytes`.
    fn lend(&mut self, buffer: u16, bytes: usize) -> *mut u8 {
        assert!((1..=self.buffer_bytes).contains(&bytes), "{bytes} bytes of a buffer");
        let address = self.idle(buffer);
        self.in_flight[usize::from(buffer)] = bytes as u32;
        self.transfers += 1;
        address
    }

    fn push(&mut self, buffer: u16, entry: squeue::Entry) {
        let entry = entry.user_data(u64::from(buffer));
        // SAFETY: the memory is a buffer of this ring that nothing else uses until the transfer has ended, and stays mapped
        // until then; the descriptor is registered.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there is an entry for each buffer");
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.transfers > 0 {
            self.wait();
            while self.ended().is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenError;

    const BYTES: usize = 8192;

    fn ring(folder: &tempfile::TempDir, buffers: u16) -> Option<Ring> {
        let file = DirectFile::open(&folder.path().join("disk")).unwrap();
        file.reserve(64 * BYTES as u64).unwrap();
        match Ring::new(Arc::new(file), buffers, BYTES) {
            Ok(ring) => Some(ring),
            Err(error) => {
                println!("SKIP: {error}");
                None
            }
        }
    }

    fn finish(ring: &mut Ring) -> Vec<Ended> {
        let mut all = Vec::new();
        while ring.transfers() > 0 {
            ring.wait();
            all.extend(std::iter::from_fn(|| ring.ended()));
        }
        all.sort_by_key(|ended| ended.buffer);
        all
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut ring) = ring(&folder, 8) else { return };
        for buffer in 0..8 {
            ring.buffer(buffer).fill(buffer as u8 + 1);
            ring.write(buffer, u64::from(buffer) * BYTES as u64, BYTES);
        }
        assert_eq!(finish(&mut ring), [0, 1, 2, 3, 4, 5, 6, 7].map(|buffer| Ended { buffer, is_done: true }));
        for buffer in 0..8 {
            ring.read(buffer, u64::from(7 - buffer) * BYTES as u64 + 4096, 4096);
        }
        assert_eq!(finish(&mut ring).len(), 8);
        for buffer in 0..8 {
            let (read, kept) = ring.buffer(buffer).split_at(4096);
            assert!(read.iter().all(|byte| *byte == 8 - buffer as u8));
            assert!(kept.iter().all(|byte| *byte == buffer as u8 + 1));
        }
        ring.copy(0, 0, 1, 4096, 4096);
        assert!(ring.buffer(1)[4096..].iter().all(|byte| *byte == 8));
    }

    #[test]
    fn what_is_not_there_is_not_done() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut ring) = ring(&folder, 2) else { return };
        ring.read(0, 64 * BYTES as u64 - 4096, BYTES);
        ring.read(1, 1 << 40, 4096);
        assert_eq!(finish(&mut ring), [0, 1].map(|buffer| Ended { buffer, is_done: false }));
    }

    #[test]
    #[should_panic(expected = "buffer 0 has a transfer")]
    fn a_buffer_is_the_kernels_while_it_has_a_transfer() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = ring(&folder, 1).unwrap_or_else(|| panic!("buffer 0 has a transfer, or would have"));
        ring.read(0, 0, 4096);
        ring.buffer(0);
    }

    #[test]
    fn a_file_is_one_process_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let first = DirectFile::open(&path).unwrap();
        assert!(matches!(DirectFile::open(&path), Err(OpenError::InUse)));
        drop(first);
        DirectFile::open(&path).unwrap();
    }
}
