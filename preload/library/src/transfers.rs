//! The C library's functions that pass buffers to the kernel and are called often.
//!
//! Without these, a system call on far memory would come back by a signal, which works for all of them and costs more
//! than a microsecond. Those that take lists of buffers must be here: the kernel's filter sees the list and not what it
//! points to.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::{epoll_event, iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use yonder_intercept::Call;

use crate::calls;
use crate::far::is_far;
use crate::libc_own::{as_c, in_front};

/// An argument of a system call, as the kernel gets it.
trait Word {
    fn word(self) -> u64;
}

macro_rules! words {
    ($($type:ty),*) => {$(
        impl Word for $type {
            #[inline]
            fn word(self) -> u64 {
                self as u64
            }
        }
    )*};
}

words!(c_int, c_uint, c_long, usize);

impl<T> Word for *const T {
    #[inline]
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Word for *mut T {
    #[inline]
    fn word(self) -> u64 {
        self as u64
    }
}

/// The C library's answer of a system call with these arguments.
macro_rules! answer {
    ($number:ident, $($argument:expr),*) => {{
        let mut arguments = [0u64; 6];
        let given = [$($argument.word()),*];
        arguments[..given.len()].copy_from_slice(&given);
        as_c(calls::answer(&Call { number: libc::$number, arguments }))
    }};
}

/// Functions that are their system call, with one argument that is a buffer.
macro_rules! transfers {
    ($($name:ident = $number:ident, $buffer:ident, ($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        in_front! {$(
            $name($($argument: $type),*) -> $result,
                if is_far($buffer as usize) => answer!($number, $($argument),*) as $result;
        )*}
    };
}

transfers! {
    read = SYS_read, into, (fd: c_int, into: *mut c_void, bytes: size_t) -> ssize_t;
    write = SYS_write, from, (fd: c_int, from: *const c_void, bytes: size_t) -> ssize_t;
    pread = SYS_pread64, into, (fd: c_int, into: *mut c_void, bytes: size_t, at: off64_t) -> ssize_t;
    pread64 = SYS_pread64, into, (fd: c_int, into: *mut c_void, bytes: size_t, at: off64_t) -> ssize_t;
    pwrite = SYS_pwrite64, from, (fd: c_int, from: *const c_void, bytes: size_t, at: off64_t) -> ssize_t;
    pwrite64 = SYS_pwrite64, from, (fd: c_int, from: *const c_void, bytes: size_t, at: off64_t) -> ssize_t;
    recvfrom = SYS_recvfrom, into,
        (fd: c_int, into: *mut c_void, bytes: size_t, flags: c_int, name: *mut sockaddr, len: *mut socklen_t) -> ssize_t;
    sendto = SYS_sendto, from,
        (fd: c_int, from: *const c_void, bytes: size_t, flags: c_int, name: *const sockaddr, len: socklen_t) -> ssize_t;
    epoll_wait = SYS_epoll_wait, events,
        (fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int;
}

/// `recv`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn recv(fd: c_int, into: *mut c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's: without a name, `recvfrom` is `recv`.
    unsafe { recvfrom(fd, into, bytes, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// `send`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn send(fd: c_int, from: *const c_void, bytes: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's: without a name, `sendto` is `send`.
    unsafe { sendto(fd, from, bytes, flags, std::ptr::null(), 0) }
}

// Those with an argument that is a list of buffers. The kernel takes the offset of `preadv` and its kin in two words,
// of which the first one is enough here.
in_front! {
    readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_readv, fd, list, count) as ssize_t;
    writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_writev, fd, list, count) as ssize_t;
    preadv(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_preadv, fd, list, count, at) as ssize_t;
    preadv64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_preadv, fd, list, count, at) as ssize_t;
    pwritev(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_pwritev, fd, list, count, at) as ssize_t;
    pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off64_t) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_pwritev, fd, list, count, at) as ssize_t;
    preadv2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_preadv2, fd, list, count, at, 0usize, flags) as ssize_t;
    preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_preadv2, fd, list, count, at, 0usize, flags) as ssize_t;
    pwritev2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_pwritev2, fd, list, count, at, 0usize, flags) as ssize_t;
    pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t,
        if any_far(list, count as usize) => answer!(SYS_pwritev2, fd, list, count, at, 0usize, flags) as ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t,
        if message_is_far(message) => answer!(SYS_recvmsg, fd, message, flags) as ssize_t;
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t,
        if message_is_far(message) => answer!(SYS_sendmsg, fd, message, flags) as ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int,
        if messages_are_far(messages, count) => answer!(SYS_recvmmsg, fd, messages, count, flags, timeout) as c_int;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int,
        if messages_are_far(messages, count) => answer!(SYS_sendmmsg, fd, messages, count, flags) as c_int;
}

/// Whether a list of buffers, or one of them, is far.
///
/// # Safety
/// `list` has `count` elements if that is a number of elements that the kernel takes.
unsafe fn any_far(list: *const iovec, count: usize) -> bool {
    if is_far(list as usize) {
        return true;
    }
    let count = if list.is_null() || count > libc::UIO_MAXIOV as usize { 0 } else { count };
    // SAFETY: the caller's.
    (0..count).any(|index| is_far(unsafe { (*list.add(index)).iov_base } as usize))
}

/// Whether a message or any part of it is far.
///
/// # Safety
/// `message` is null or a message.
unsafe fn message_is_far(message: *const msghdr) -> bool {
    if is_far(message as usize) {
        return true;
    }
    // SAFETY: the caller's.
    unsafe {
        message.as_ref().is_some_and(|message| {
            is_far(message.msg_name as usize)
                || is_far(message.msg_control as usize)
                || any_far(message.msg_iov, message.msg_iovlen)
        })
    }
}

/// Whether messages or any part of them are far.
///
/// # Safety
/// `messages` has `count` elements.
unsafe fn messages_are_far(messages: *const mmsghdr, count: c_uint) -> bool {
    // SAFETY: the caller's.
    is_far(messages as usize)
        || (0..count as usize).any(|index| unsafe { message_is_far(&raw const (*messages.add(index)).msg_hdr) })
}
