//! [`SendBatch`]: some datagrams, sent with one system call.
//!
//! Datagrams of one length that follow one another to one address go through the kernel as one *train* (segmentation
//! offload), which costs about as much as one of them; the last may be shorter. Where the kernel or the device refuses
//! trains, every datagram goes by itself.
//!
//! UNSAFETY: the headers hold pointers into the boxes of the same batch, which never move or shrink while it lives.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::Address;
use crate::{BATCH_MAX, Control, DATAGRAM_BYTES_MAX};

/// Most datagrams of a train that every kernel takes.
const TRAIN_DATAGRAMS_MAX: usize = 64;

/// Datagrams that wait to be sent, in order.
pub struct SendBatch {
    buffer: Box<[u8]>,
    slot_bytes: usize,
    addresses: Box<[Address]>,
    slices: Box<[libc::iovec]>,
    /// One for each datagram, and those of a call: one for each train, with as many slices as datagrams.
    headers: Box<[libc::mmsghdr]>,
    trains: Box<[libc::mmsghdr]>,
    controls: Box<[Control]>,
    filled: usize,
    /// Datagrams at the front that the kernel has taken.
    sent: usize,
    /// Most datagrams of a train: one, once trains were refused.
    train_max: usize,
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
        let headers: Box<[libc::mmsghdr]> = slices
            .iter_mut()
            .map(|slice| {
                // SAFETY: a header of zeros is valid: it has no address, no data and no control part.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                header.msg_hdr.msg_iov = slice;
                header.msg_hdr.msg_iovlen = 1;
                header
            })
            .collect();
        let (trains, controls) = (headers.clone(), vec![Control::NONE; slots].into_boxed_slice());
        let train_max = TRAIN_DATAGRAMS_MAX;
        Self { buffer, slot_bytes, addresses, slices, headers, trains, controls, filled: 0, sent: 0, train_max }
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

    /// Whether there is no room for another datagram.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filled == self.slices.len()
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
            let count = libc::c_uint::try_from(self.make_up_trains()).expect("a batch has few trains");
            // SAFETY: each of the headers points at an address, slices and a control part of this batch, which outlive
            // the call.
            let taken = unsafe {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                libc::sendmmsg(socket.as_raw_fd(), self.trains.as_mut_ptr(), count, flags)
            };
            if let Ok(taken) = usize::try_from(taken) {
                let datagrams: usize = self.trains[..taken].iter().map(|train| train.msg_hdr.msg_iovlen).sum();
                (self.sent, delivered) = (self.sent + datagrams, delivered + datagrams);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) => return Ok(delivered),
                Some(libc::ECONNREFUSED) => return Err(error),
                // The device cannot cut trains, or a datagram is too long for one: they go one by one from now on.
                _ if self.trains[0].msg_hdr.msg_iovlen > 1 => self.train_max = 1,
                _ => self.sent += 1,
            }
        }
        (self.sent, self.filled) = (0, 0);
        Ok(delivered)
    }

    /// Makes up trains of what waits, in order, and returns how many there are.
    fn make_up_trains(&mut self) -> usize {
        let (mut trains, mut first) = (0, self.sent);
        while first < self.filled {
            let datagrams = self.train_from(first);
            let (train, control) = (&mut self.trains[trains].msg_hdr, &mut self.controls[trains]);
            *train = self.headers[first].msg_hdr;
            train.msg_iov = &raw mut self.slices[first];
            train.msg_iovlen = datagrams;
            if datagrams > 1 {
                control.set_segment(self.slices[first].iov_len);
                (train.msg_control, train.msg_controllen) = (control.as_mut_ptr(), Control::SEGMENT_BYTES);
            }
            trains += 1;
            first += datagrams;
        }
        trains
    }

    /// How many datagrams from `first` on can go as one.
    fn train_from(&self, first: usize) -> usize {
        let length = self.slices[first].iov_len;
        let to = |index: usize| (self.headers[index].msg_hdr.msg_namelen, &self.addresses[index]);
        let (mut datagrams, mut bytes) = (1, length);
        while length > 0 && datagrams < self.train_max && first + datagrams < self.filled {
            let next = first + datagrams;
            let next_length = self.slices[next].iov_len;
            let same_peer = match (to(first), to(next)) {
                ((0, _), (0, _)) => true,
                (one, other) => one == other,
            };
            if !same_peer || next_length == 0 || next_length > length || bytes + next_length > DATAGRAM_BYTES_MAX {
                break;
            }
            datagrams += 1;
            bytes += next_length;
            if next_length < length {
                break;
            }
        }
        datagrams
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SendBatch").field("waiting", &(self.filled - self.sent)).finish()
    }
}
