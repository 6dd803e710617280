//! [`ReceiveBatch`]: room for some datagrams, filled with one system call.
//!
//! A socket that accepts trains is given those that arrive together as one, and [`ReceiveBatch::datagrams`] cuts them.
//!
//! UNSAFETY: the headers hold pointers into the boxes of the same batch, which never move or shrink while it lives.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::{ADDRESS_BYTES_MAX, Address, length_of};
use crate::{BATCH_MAX, Control, DATAGRAM_BYTES_MAX};

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

/// One received datagram, to be changed where it is.
#[derive(Debug)]
pub struct ReceivedMut<'a> {
    /// Its bytes, as far as there was room.
    pub bytes: &'a mut [u8],
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
    controls: Box<[Control]>,
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
        let mut controls = vec![Control::NONE; slots].into_boxed_slice();
        let parts = slices.iter_mut().zip(&mut addresses).zip(&mut controls);
        let headers = parts.map(|((slice, address), control)| header(slice, address, control)).collect();
        Self { buffer, slot_bytes, addresses, slices, headers, controls, filled: 0 }
    }

    /// Lets the kernel give datagrams of `socket` that arrive together as one; they are cut again here. Does nothing
    /// where the kernel cannot.
    ///
    /// # Panics
    /// If the room for a datagram is too short for the longest train.
    pub fn accept_trains(&self, socket: BorrowedFd<'_>) {
        assert!(self.slot_bytes >= DATAGRAM_BYTES_MAX, "a train does not fit into {} bytes", self.slot_bytes);
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads one integer. A kernel that does not know the option refuses it, and sends no trains.
        unsafe {
            let length = length_of::<libc::c_int>();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const on).cast(), length);
        }
    }

    /// Receives what is there, as far as there is room, after waiting as `wait` says. How much of the room is taken, 0
    /// if there was nothing; a train takes as much as a datagram. What was received before is forgotten.
    pub fn receive(&mut self, socket: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        for header in &mut self.headers[..self.filled] {
            header.msg_hdr.msg_namelen = length_of::<[u8; ADDRESS_BYTES_MAX]>();
            header.msg_hdr.msg_controllen = Control::BYTES;
            header.msg_hdr.msg_flags = 0;
        }
        self.filled = 0;
        let flags = match wait {
            Wait::Never => libc::MSG_DONTWAIT,
            Wait::ForOne => libc::MSG_WAITFORONE,
        };
        let slots = libc::c_uint::try_from(self.slices.len()).expect("a batch has few datagrams");
        // SAFETY: each of the headers points at an address and a slice of this batch, which outlive the call and which
        // no reference covers meanwhile, because `self` is borrowed mutably.
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
        self.filled = usize::try_from(received).expect("it is not negative");
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
        let slots = self.buffer.chunks_exact(self.slot_bytes).zip(&self.addresses).zip(&self.controls);
        slots.zip(&self.headers[..self.filled]).flat_map(|(((slot, from), control), header)| {
            let bytes = &slot[..(header.msg_len as usize).min(slot.len())];
            let is_cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let segment = control.segment(header.msg_hdr.msg_controllen).unwrap_or(bytes.len()).max(1);
            // An empty datagram is one datagram.
            let empty = bytes.is_empty().then_some(bytes);
            empty.into_iter().chain(bytes.chunks(segment)).map(move |bytes| Received { bytes, from, is_cut })
        })
    }
}

impl ReceiveBatch {
    /// What the last call received, to be changed where it is.
    pub fn datagrams_mut(&mut self) -> impl Iterator<Item = ReceivedMut<'_>> {
        let slots = self.buffer.chunks_exact_mut(self.slot_bytes).zip(&self.addresses).zip(&self.controls);
        slots.zip(&self.headers[..self.filled]).flat_map(|(((slot, from), control), header)| {
            let length = (header.msg_len as usize).min(slot.len());
            let bytes = &mut slot[..length];
            let is_cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let segment = control.segment(header.msg_hdr.msg_controllen).unwrap_or(length).max(1);
            // An empty datagram is one datagram.
            let empty = bytes.is_empty().then_some(&mut [][..]);
            empty.into_iter().chain(bytes.chunks_mut(segment)).map(move |bytes| ReceivedMut { bytes, from, is_cut })
        })
    }
}

fn header(slice: &mut libc::iovec, address: &mut Address, control: &mut Control) -> libc::mmsghdr {
    // SAFETY: a header of zeros is valid: it has no address, no data and no control part.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = address.as_mut_ptr();
    header.msg_hdr.msg_namelen = length_of::<[u8; ADDRESS_BYTES_MAX]>();
    header.msg_hdr.msg_iov = slice;
    header.msg_hdr.msg_iovlen = 1;
    (header.msg_hdr.msg_control, header.msg_hdr.msg_controllen) = (control.as_mut_ptr(), Control::BYTES);
    header
}

impl std::fmt::Debug for ReceiveBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ReceiveBatch").field("slots", &self.slots()).field("filled", &self.filled).finish()
    }
}
