//! [`path_mtu`]: how long a packet may be.
//!
//! UNSAFETY: a system call that writes one integer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::length_of;

/// Most bytes of an IP packet, headers included, on the way to where `socket` is connected to, as far as the kernel
/// knows.
pub fn path_mtu(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let option = |level, name| {
        let mut mtu: libc::c_int = 0;
        let mut length = length_of::<libc::c_int>();
        // SAFETY: the kernel writes at most `length` bytes to an integer that is as long.
        let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut mtu).cast(), &raw mut length) };
        if done == 0 { Ok(usize::try_from(mtu).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
    };
    option(libc::IPPROTO_IP, libc::IP_MTU).or_else(|_| option(libc::IPPROTO_IPV6, libc::IPV6_MTU))
}
