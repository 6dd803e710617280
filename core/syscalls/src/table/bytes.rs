//! Reading and writing: files by bytes, vectors, transfers between files, asynchronous input and output.
//!
//! A write that answers EFAULT has taken nothing: all kinds of files take what they can reach and answer EFAULT only if
//! that is nothing. A read may have taken a datagram or a counter.

use super::row::{again, fills, once, pass, reads, refuse, updates, writes};
use crate::rule::Extent::{Argpack, AtLeast, Bytes, Count, CountInt, Elements, Iovec};
use crate::rule::{Errno, Syscall};

pub(super) const ROWS: &[Syscall] = &[
    once(0, "read", &[fills(1, Count(2))]),
    again(1, "write", &[reads(1, Count(2))]),
    pass(3, "close"),
    pass(8, "lseek"),
    again(17, "pread64", &[fills(1, Count(2))]),
    again(18, "pwrite64", &[reads(1, Count(2))]),
    once(19, "readv", &[fills(1, Iovec(2))]),
    again(20, "writev", &[reads(1, Iovec(2))]),
    again(22, "pipe", &[writes(0, Bytes(8))]),
    pass(32, "dup"),
    pass(33, "dup2"),
    once(40, "sendfile", &[updates(2, Bytes(8))]),
    pass(73, "flock"),
    pass(74, "fsync"),
    pass(75, "fdatasync"),
    pass(77, "ftruncate"),
    once(78, "getdents", &[fills(1, CountInt(2))]),
    pass(162, "sync"),
    pass(187, "readahead"),
    // The kernel would read and write buffers after the call. All who use it do without where it is missing.
    refuse(206, "io_setup", Errno::ENOSYS),
    pass(207, "io_destroy"),
    once(208, "io_getevents", &[fills(3, Elements { count: 2, each: 32 }), reads(4, Bytes(16))]),
    refuse(209, "io_submit", Errno::ENOSYS),
    // It finds the request by its address.
    once(210, "io_cancel", &[reads(1, AtLeast(64)), writes(2, Bytes(32))]),
    once(217, "getdents64", &[fills(1, CountInt(2))]),
    pass(221, "fadvise64"),
    once(275, "splice", &[updates(1, Bytes(8)), updates(3, Bytes(8))]),
    pass(276, "tee"),
    pass(277, "sync_file_range"),
    // Its pipe keeps the pages themselves, and a copy of them would be used again too early.
    refuse(278, "vmsplice", Errno::ENOSYS),
    pass(284, "eventfd"),
    pass(285, "fallocate"),
    pass(290, "eventfd2"),
    pass(292, "dup3"),
    again(293, "pipe2", &[writes(0, Bytes(8))]),
    again(295, "preadv", &[fills(1, Iovec(2))]),
    again(296, "pwritev", &[reads(1, Iovec(2))]),
    pass(306, "syncfs"),
    once(326, "copy_file_range", &[updates(1, Bytes(8)), updates(3, Bytes(8))]),
    // Offset -1 is the file's own position, so it may be a pipe's read.
    once(327, "preadv2", &[fills(1, Iovec(2))]),
    again(328, "pwritev2", &[reads(1, Iovec(2))]),
    once(333, "io_pgetevents", &[fills(3, Elements { count: 2, each: 32 }), reads(4, Bytes(16)), reads(5, Argpack)]),
    refuse(425, "io_uring_setup", Errno::ENOSYS),
    refuse(426, "io_uring_enter", Errno::ENOSYS),
    refuse(427, "io_uring_register", Errno::ENOSYS),
    pass(436, "close_range"),
    again(451, "cachestat", &[reads(1, Bytes(16)), writes(2, Bytes(40))]),
];
