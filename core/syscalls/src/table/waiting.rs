//! Waiting: for files to be ready, and for futexes.
//!
//! `select` overwrites its sets one after the other, so it cannot be repeated; `poll` writes beside what it reads. An
//! event of `epoll_wait` that could not be written may be gone. A futex is known by its address, and its calls fail
//! before they do anything: the word is touched, and the call repeated.

use super::row::{again, by, choose_again, fills, once, pass, reads, updates};
use crate::rule::Extent::{Argpack, Bits, Bytes, Elements, WaiterPair, Waiters, Word};
use crate::rule::Rule::Direct;
use crate::rule::{Arg, Command, Extent, Rule, Syscall};

const TIMESPEC: Extent = Bytes(16);
const SIGSET: Extent = Bytes(8);
const EPOLL_EVENTS: Arg = fills(1, Elements { count: 2, each: 12 });
const POLL_FDS: Arg = updates(0, Elements { count: 1, each: 8 });

/// A set of descriptors.
const fn fd_set(index: u8) -> Arg {
    updates(index, Bits { count: 0, less: 0 })
}

pub(super) const ROWS: &[Syscall] = &[
    again(7, "poll", &[POLL_FDS]),
    once(23, "select", &[fd_set(1), fd_set(2), fd_set(3), updates(4, Bytes(16))]),
    choose_again(202, "futex", &FUTEX),
    pass(213, "epoll_create"),
    once(232, "epoll_wait", &[EPOLL_EVENTS]),
    choose_again(233, "epoll_ctl", &EPOLL_CTL),
    once(270, "pselect6", &[fd_set(1), fd_set(2), fd_set(3), updates(4, TIMESPEC), reads(5, Argpack)]),
    again(271, "ppoll", &[POLL_FDS, updates(2, TIMESPEC), reads(3, SIGSET)]),
    once(281, "epoll_pwait", &[EPOLL_EVENTS, reads(4, SIGSET)]),
    pass(291, "epoll_create1"),
    once(441, "epoll_pwait2", &[EPOLL_EVENTS, reads(3, TIMESPEC), reads(4, SIGSET)]),
    again(449, "futex_waitv", &[reads(0, Waiters(1)), reads(3, TIMESPEC)]),
    again(454, "futex_wake", &[WORD]),
    again(455, "futex_wait", &[WORD, reads(4, TIMESPEC)]),
    again(456, "futex_requeue", &[reads(0, WaiterPair)]),
];

const WORD: Arg = updates(0, Word);
const WAKE: Rule = Direct(&[WORD]);
const WAIT: Rule = Direct(&[WORD, reads(3, TIMESPEC)]);
/// The fourth argument is a number here.
const REQUEUE: Rule = Direct(&[WORD, updates(4, Word)]);

/// The operation without its flags for private futexes and for the clock.
const FUTEX: Command = Command {
    selector: 1,
    shift: 0,
    mask: 0x7f,
    cases: &[
        // WAKE, WAIT, WAIT_BITSET; the arguments that a wake does not have are often left over from something else.
        (1, WAKE),
        (0, WAIT),
        (9, WAIT),
        // WAKE_BITSET, UNLOCK_PI, TRYLOCK_PI, FD.
        (10, WAKE),
        (7, WAKE),
        (8, WAKE),
        (2, WAKE),
        // LOCK_PI, LOCK_PI2.
        (6, WAIT),
        (13, WAIT),
        // REQUEUE, CMP_REQUEUE, WAKE_OP, CMP_REQUEUE_PI.
        (3, REQUEUE),
        (4, REQUEUE),
        (5, REQUEUE),
        (12, REQUEUE),
    ],
    // WAIT_REQUEUE_PI.
    other: Direct(&[WORD, reads(3, TIMESPEC), updates(4, Word)]),
};

/// To delete takes no event.
const EPOLL_CTL: Command = by(1, &[(2, Rule::Pass)], Direct(&[reads(3, Bytes(12))]));
