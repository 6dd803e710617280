//! [`ReceiveBatch`]: room for some datagrams, filled with one system call.
//!
//! UNSAFETY: the headers hold pointers into the boxes of the same batch, which never move or shrink while it lives.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::BATCH_MAX;
use crate::address::{ADDRESS_BYTES_MAX, Address};

/// Whether to wait for a datagram if there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until there is one, or the socket's receive timeout is over.
    ForOne,
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Its bytes, as far as there was room.
    pub bytes: &'a [u8],
    /// Who sent it.
    pub from: &'a Address,
    /// Whether it was longer than the room.
    pub is_cut: bool,
}

/// Room for datagrams.
pub struct ReceiveBatch {
    buffer: Box<[u8]>,
    slot_bytes: usize,
    addresses: Box<[Address]>,
    /// One for each slot of the buffer. The headers point at them.
    slices: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    filled: usize,
}

// SAFETY: the pointers in the headers lead to memory that the batch owns, not to that of a thread.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Room for `slots` datagrams of at most `slot_bytes` each.
    ///
    /// # Panics
    /// If `slots` is 0 or above [`BATCH_MAX`].
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        assert!((1..=BATCH_MAX).contains(&slots), "a batch of {slots} datagrams");
        let mut buffer = vec![0u8; slots * slot_bytes].into_boxed_slice();
        let mut addresses = vec![Address::NONE; slots].into_boxed_slice();
        let mut slices: Box<[libc::iovec]> = buffer
            .chunks_exact_mut(slot_bytes)
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot_bytes })
            .collect();
        let headers =
            std::iter::zip(&mut slices, &mut addresses).map(|(slice, address)| header(slice, address)).collect();
        Self { buffer, slot_bytes, addresses, slices, headers, filled: 0 }
    }

    /// Receives what is there, as far as there is room, after waiting as `wait` says. The number of datagrams, 0 if there
    /// were none. What was received before is forgotten.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        for header in &mut self.headers[..self.filled] {
            header.msg_hdr.msg_namelen = ADDRESS_BYTES_MAX as libc::socklen_t;
            header.msg_hdr.msg_flags = 0;
        }
        self.filled = 0;
        let flags = match wait {
            Wait::Never => libc::MSG_DONTWAIT,
            Wait::ForOne => libc::MSG_WAITFORONE,
        };
        let slots = self.slices.len() as libc::c_uint;
        // SAFETY: each of the headers points at an address and a slice of this batch, which outlive the call and which no
        // reference covers meanwhile, because `self` is borrowed mutably.
        let received = unsafe {
            libc::recvmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), slots, flags, std::ptr::null_mut())
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        self.filled = received as usize;
        for (header, address) in std::iter::zip(&self.headers[..self.filled], &mut self.addresses) {
            address.set_length(header.msg_hdr.msg_namelen);
        }
        Ok(self.filled)
    }

    /// How many datagrams fit.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slices.len()
    }

    /// What the last call received.
    pub fn datagrams(&self) -> impl Iterator<Item = Received<'_>> {
        let slots = self.buffer.chunks_exact(self.slot_bytes);
        slots.zip(&self.addresses).zip(&self.headers[..self.filled]).map(|((slot, from), header)| Received {
            bytes: &slot[..(header.msg_len as usize).min(slot.len())],
            from,
            is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        })
    }
}

fn header(slice: &mut libc::iovec, address: &mut Address) -> libc::mmsghdr {
    // SAFETY: a header of zeros is valid: it has no address, no data and no control part.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = address.as_mut_ptr();
    header.msg_hdr.msg_namelen = ADDRESS_BYTES_MAX as libc::socklen_t;
    header.msg_hdr.msg_iov = slice;
    header.msg_hdr.msg_iovlen = 1;
    header
}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReceiveBatch").field("slots", &self.slots()).field("filled", &self.filled).finish()
    }
}
