//! Sockets.
//!
//! Zero-copy sending is refused where it is switched on (`SO_ZEROCOPY`), not where it is asked for (`MSG_ZEROCOPY`):
//! without the option the kernel ignores the flag and copies, and a program that did not look at the option's answer
//! goes on. A kernel that is too old says the same. `AF_XDP` hands memory to a device for good, and is refused as if
//! not built in.

use super::row::{again, by, choose_again, fills, once, pass, reads, updates, writes};
use crate::rule::Extent::{Bytes, Count, CountAt, CountInt, Message, Messages};
use crate::rule::Rule::Direct;
use crate::rule::{Command, Errno, Rule, Syscall};

pub(super) const ROWS: &[Syscall] = &[
    pass(41, "socket"),
    again(42, "connect", &[reads(1, CountInt(2))]),
    once(43, "accept", &[updates(1, CountAt(2)), updates(2, Bytes(4))]),
    again(44, "sendto", &[reads(1, Count(2)), reads(4, CountInt(5))]),
    once(45, "recvfrom", &[fills(1, Count(2)), updates(4, CountAt(5)), updates(5, Bytes(4))]),
    again(46, "sendmsg", &[reads(1, Message)]),
    once(47, "recvmsg", &[fills(1, Message)]),
    pass(48, "shutdown"),
    again(49, "bind", &[reads(1, CountInt(2))]),
    pass(50, "listen"),
    again(51, "getsockname", &[updates(1, CountAt(2)), updates(2, Bytes(4))]),
    again(52, "getpeername", &[updates(1, CountAt(2)), updates(2, Bytes(4))]),
    again(53, "socketpair", &[writes(3, Bytes(8))]),
    choose_again(54, "setsockopt", &SETSOCKOPT),
    // SO_ERROR forgets the error that it tells.
    once(55, "getsockopt", &[updates(3, CountAt(4)), updates(4, Bytes(4))]),
    once(288, "accept4", &[updates(1, CountAt(2)), updates(2, Bytes(4))]),
    once(299, "recvmmsg", &[fills(1, Messages(2)), updates(4, Bytes(16))]),
    // The counts of sent bytes are written after the sending.
    once(307, "sendmmsg", &[reads(1, Messages(2))]),
];

const OPTION: Rule = Direct(&[reads(3, CountInt(4))]);

/// `SOL_SOCKET` with `SO_ZEROCOPY`, `SOL_XDP` with `XDP_UMEM_REG`.
const SETSOCKOPT: Command = by(
    1,
    &[
        (1, Rule::Command(&by(2, &[(60, Rule::Refuse(Errno::ENOPROTOOPT))], OPTION))),
        (283, Rule::Command(&by(2, &[(4, Rule::Refuse(Errno::ENOPROTOOPT))], OPTION))),
    ],
    OPTION,
);
