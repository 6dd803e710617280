//! Signals, clocks and timers.
//!
//! What a handler does to its signal mask and its signal stack is undone when it returns, so these two calls are issued
//! by the interrupted context. A call that sets one thing and tells the old one has set it when the telling fails.

use super::row::{again, by_caller, once, pass, reads, updates, writes};
use crate::rule::Extent::{Bytes, Count};
use crate::rule::{Extent, Syscall};

const TIMESPEC: Extent = Bytes(16);
const TIMEX: Extent = Bytes(208);
const INTERVAL: Extent = Bytes(32);
const SIGINFO: Extent = Bytes(128);
const SIGACTION: Extent = Bytes(32);
/// The kernel takes signal sets of this size only.
const SIGSET: Extent = Bytes(8);

pub(super) const ROWS: &[Syscall] = &[
    once(13, "rt_sigaction", &[reads(1, SIGACTION), writes(2, SIGACTION)]),
    by_caller(once(14, "rt_sigprocmask", &[reads(1, SIGSET), writes(2, SIGSET)])),
    pass(15, "rt_sigreturn"),
    pass(34, "pause"),
    // The rest of the time is written only after a signal, with an error.
    once(35, "nanosleep", &[reads(0, TIMESPEC), updates(1, TIMESPEC)]),
    again(36, "getitimer", &[writes(1, INTERVAL)]),
    pass(37, "alarm"),
    once(38, "setitimer", &[reads(1, INTERVAL), writes(2, INTERVAL)]),
    again(96, "gettimeofday", &[writes(0, Bytes(16)), writes(1, Bytes(8))]),
    again(127, "rt_sigpending", &[writes(0, Count(1))]),
    once(128, "rt_sigtimedwait", &[reads(0, SIGSET), writes(1, SIGINFO), reads(2, TIMESPEC)]),
    again(129, "rt_sigqueueinfo", &[reads(2, SIGINFO)]),
    again(130, "rt_sigsuspend", &[reads(0, SIGSET)]),
    by_caller(once(131, "sigaltstack", &[reads(0, Bytes(24)), writes(1, Bytes(24))])),
    once(159, "adjtimex", &[updates(0, TIMEX)]),
    again(164, "settimeofday", &[reads(0, Bytes(16)), reads(1, Bytes(8))]),
    again(201, "time", &[writes(0, Bytes(8))]),
    pass(219, "restart_syscall"),
    once(222, "timer_create", &[reads(1, Bytes(64)), writes(2, Bytes(4))]),
    once(223, "timer_settime", &[reads(2, INTERVAL), writes(3, INTERVAL)]),
    again(224, "timer_gettime", &[writes(1, INTERVAL)]),
    pass(225, "timer_getoverrun"),
    pass(226, "timer_delete"),
    again(227, "clock_settime", &[reads(1, TIMESPEC)]),
    again(228, "clock_gettime", &[writes(1, TIMESPEC)]),
    again(229, "clock_getres", &[writes(1, TIMESPEC)]),
    once(230, "clock_nanosleep", &[reads(2, TIMESPEC), updates(3, TIMESPEC)]),
    again(282, "signalfd", &[reads(1, Count(2))]),
    pass(283, "timerfd_create"),
    once(286, "timerfd_settime", &[reads(2, INTERVAL), writes(3, INTERVAL)]),
    again(287, "timerfd_gettime", &[writes(1, INTERVAL)]),
    again(289, "signalfd4", &[reads(1, Count(2))]),
    again(297, "rt_tgsigqueueinfo", &[reads(3, SIGINFO)]),
    once(305, "clock_adjtime", &[updates(1, TIMEX)]),
    again(424, "pidfd_send_signal", &[reads(2, SIGINFO)]),
];
