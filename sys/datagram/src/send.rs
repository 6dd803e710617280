//! [`SendBatch`]: some datagrams, sent with one system call.
//!
//! UNSAFETY: the headers hold pointers into the boxes of the same batch, which never move or shrink while it lives.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::BATCH_MAX;
use crate::address::Address;

/// Datagrams that wait to be sent, in order.
pub struct SendBatch {
    buffer: Box<[u8]>,
    slot_bytes: usize,
    addresses: Box<[Address]>,
    slices: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
    /// Datagrams at the front that the kernel has taken.
    sent: usize,
}

// SAFETY: the pointers in the headers lead to memory that the batch owns, not to that of a thread.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `slots` datagrams of at most `slot_bytes` each.
    ///
    /// # Panics
    /// If `slots` is 0 or above [`BATCH_MAX`].
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        assert!((1..=BATCH_MAX).contains(&slots), "a batch of {slots} datagrams");
        let mut buffer = vec![0u8; slots * slot_bytes].into_boxed_slice();
        let addresses = vec![Address::NONE; slots].into_boxed_slice();
        let mut slices: Box<[libc::iovec]> = buffer
            .chunks_exact_mut(slot_bytes)
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: 0 })
            .collect();
        let headers = slices
            .iter_mut()
            .map(|slice| {
                // SAFETY: a header of zeros is valid: it has no address, no data and no control part.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = slice;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        Self { buffer, slot_bytes, addresses, slices, headers, filled: 0, sent: 0 }
    }

    /// Room for the next datagram; `None` if the batch is full.
    #[inline]
    pub fn room(&mut self) -> Option<&mut [u8]> {
        let start = self.filled * self.slot_bytes;
        self.buffer.get_mut(start..start + self.slot_bytes)
    }

    /// Makes the first `bytes` of [`SendBatch::room`] a datagram for `to`; a connected socket needs no address.
    ///
    /// # Panics
    /// If there was no room for it.
    #[inline]
    pub fn push(&mut self, bytes: usize, to: Option<&Address>) {
        assert!(bytes <= self.slot_bytes, "{bytes} bytes composed in room for {}", self.slot_bytes);
        let index = self.filled;
        self.slices[index].iov_len = bytes;
        let header = &mut self.headers[index].msg_hdr;
        match to {
            Some(to) => {
                self.addresses[index] = *to;
                header.msg_name = self.addresses[index].as_mut_ptr();
                header.msg_namelen = to.length();
            }
            None => (header.msg_name, header.msg_namelen) = (std::ptr::null_mut(), 0),
        }
        self.filled += 1;
    }

    /// Whether nothing waits to be sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sent == self.filled
    }

    /// Sends what waits, as far as the socket takes it without waiting; the rest stays. Returns how many were sent. A
    /// datagram that cannot be sent, such as one that is too long for the network, is dropped: the network loses some
    /// anyway. An error of the socket itself that concerns no datagram, such as a refused earlier one, is returned, and
    /// nothing is lost by it.
    pub fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut delivered = 0;
        while self.sent < self.filled {
            let waiting = &mut self.headers[self.sent..self.filled];
            // SAFETY: each of the headers points at an address and a slice of this batch, which outlive the call.
            let taken = unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                libc::sendmmsg(socket.as_raw_fd(), waiting.as_mut_ptr(), waiting.len() as libc::c_uint, flags)
            };
            if taken >= 0 {
                (self.sent, delivered) = (self.sent + taken as usize, delivered + taken as usize);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => return Ok(delivered),
                Some(libc::ECONNREFUSED) => return Err(error),
                _ => self.sent += 1,
            }
        }
        (self.sent, self.filled) = (0, 0);
        Ok(delivered)
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SendBatch").field("waiting", &(self.filled - self.sent)).finish()
    }
}
