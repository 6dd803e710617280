//! [`Control`]: the control part of a message that says how long the datagrams of a train are.
//!
//! UNSAFETY: one control message at the start of a buffer that is large and aligned enough for it.

use libc::{c_int, c_void};

/// Room for one control message with an integer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Control {
    header: libc::cmsghdr,
    value: c_int,
    padding: c_int,
}

impl Control {
    /// Nothing said.
    pub(crate) const NONE: Self =
        Self { header: libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 }, value: 0, padding: 0 };
    /// Bytes of the control part of a train that is sent.
    pub(crate) const SEGMENT_BYTES: usize = size_of::<libc::cmsghdr>() + size_of::<u64>();
    /// Bytes of the control part of a message that is received.
    pub(crate) const BYTES: usize = size_of::<Self>();

    /// Where the kernel reads and writes it.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }

    /// Says that a train consists of datagrams of `bytes`.
    pub(crate) fn set_segment(&mut self, bytes: usize) {
        let bytes = u16::try_from(bytes).expect("a datagram is shorter than 64 KiB");
        self.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<u16>();
        (self.header.cmsg_level, self.header.cmsg_type) = (libc::SOL_UDP, libc::UDP_SEGMENT);
        // The kernel reads the first two bytes.
        self.value = c_int::from_ne_bytes({
            let [low, high] = bytes.to_ne_bytes();
            [low, high, 0, 0]
        });
    }

    /// How long the datagrams of a received train are, if the kernel has said so in `bytes` bytes of control part.
    pub(crate) fn segment(&self, bytes: usize) -> Option<usize> {
        let is_there = bytes >= size_of::<libc::cmsghdr>() + size_of::<c_int>();
        let says_it = (self.header.cmsg_level, self.header.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO);
        usize::try_from(self.value).ok().filter(|length| is_there && says_it && *length > 0)
    }
}

const _: () = assert!(std::mem::offset_of!(Control, value) == size_of::<libc::cmsghdr>());
const _: () = assert!(Control::SEGMENT_BYTES <= Control::BYTES);
