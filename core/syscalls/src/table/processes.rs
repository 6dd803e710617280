//! Processes and threads: their beginning and end, identities, limits, scheduling, tracing.

use super::row::{
    again, by, by_caller, choose_again, choose_once, fills, keeps, once, pass, perhaps, reads, text, updates, writes,
};
use crate::rule::Extent::{AtLeast, Bytes, Count, CountAt, CountInt, Elements, Inside, Stack, Strings};
use crate::rule::Rule::{Direct, Pass};
use crate::rule::{Command, Rule, Syscall};

pub(super) const ROWS: &[Syscall] = &[
    pass(24, "sched_yield"),
    pass(39, "getpid"),
    by_caller(once(56, "clone", &[keeps(1, Stack), updates(2, Bytes(4)), keeps(3, Bytes(4))])),
    pass(57, "fork"),
    pass(58, "vfork"),
    again(59, "execve", &[text(0), reads(1, Strings), reads(2, Strings)]),
    pass(60, "exit"),
    // Nothing is written where no child was waiting.
    once(61, "wait4", &[updates(1, Bytes(4)), updates(3, Bytes(144))]),
    pass(62, "kill"),
    again(63, "uname", &[writes(0, Bytes(390))]),
    again(97, "getrlimit", &[writes(1, Bytes(16))]),
    again(98, "getrusage", &[writes(1, Bytes(144))]),
    again(99, "sysinfo", &[writes(0, Bytes(112))]),
    again(100, "times", &[writes(0, Bytes(32))]),
    choose_once(101, "ptrace", &PTRACE),
    pass(102, "getuid"),
    pass(104, "getgid"),
    pass(105, "setuid"),
    pass(106, "setgid"),
    pass(107, "geteuid"),
    pass(108, "getegid"),
    pass(109, "setpgid"),
    pass(110, "getppid"),
    pass(111, "getpgrp"),
    pass(112, "setsid"),
    pass(113, "setreuid"),
    pass(114, "setregid"),
    again(115, "getgroups", &[fills(1, Elements { count: 0, each: 4 })]),
    again(116, "setgroups", &[reads(1, Elements { count: 0, each: 4 })]),
    pass(117, "setresuid"),
    again(118, "getresuid", &[writes(0, Bytes(4)), writes(1, Bytes(4)), writes(2, Bytes(4))]),
    pass(119, "setresgid"),
    again(120, "getresgid", &[writes(0, Bytes(4)), writes(1, Bytes(4)), writes(2, Bytes(4))]),
    pass(121, "getpgid"),
    pass(122, "setfsuid"),
    pass(123, "setfsgid"),
    pass(124, "getsid"),
    // The first version has half as much data as the two after it.
    again(125, "capget", &[updates(0, Bytes(8)), updates(1, AtLeast(12))]),
    again(126, "capset", &[updates(0, Bytes(8)), updates(1, AtLeast(12))]),
    pass(135, "personality"),
    pass(140, "getpriority"),
    pass(141, "setpriority"),
    again(142, "sched_setparam", &[reads(1, Bytes(4))]),
    again(143, "sched_getparam", &[writes(1, Bytes(4))]),
    again(144, "sched_setscheduler", &[reads(2, Bytes(4))]),
    pass(145, "sched_getscheduler"),
    pass(146, "sched_get_priority_max"),
    pass(147, "sched_get_priority_min"),
    again(148, "sched_rr_get_interval", &[writes(1, Bytes(16))]),
    again(154, "modify_ldt", &[updates(1, Count(2))]),
    choose_once(157, "prctl", &PRCTL),
    choose_again(158, "arch_prctl", &ARCH_PRCTL),
    again(160, "setrlimit", &[reads(1, Bytes(16))]),
    pass(186, "gettid"),
    pass(200, "tkill"),
    again(203, "sched_setaffinity", &[reads(2, CountInt(1))]),
    again(204, "sched_getaffinity", &[fills(2, CountInt(1))]),
    again(205, "set_thread_area", &[updates(0, Bytes(16))]),
    again(211, "get_thread_area", &[updates(0, Bytes(16))]),
    pass(231, "exit_group"),
    // Zeroed, and a futex woken, when the thread ends.
    again(218, "set_tid_address", &[keeps(0, Bytes(4))]),
    pass(234, "tgkill"),
    once(247, "waitid", &[updates(2, Bytes(128)), updates(4, Bytes(144))]),
    pass(251, "ioprio_set"),
    pass(252, "ioprio_get"),
    pass(272, "unshare"),
    // Followed when the thread ends.
    again(273, "set_robust_list", &[keeps(0, Bytes(24))]),
    again(274, "get_robust_list", &[writes(1, Bytes(8)), writes(2, Bytes(8))]),
    once(302, "prlimit64", &[reads(2, Bytes(16)), writes(3, Bytes(16))]),
    pass(308, "setns"),
    again(309, "getcpu", &[writes(0, Bytes(4)), writes(1, Bytes(4))]),
    // KCMP_EPOLL_TFD compares with a descriptor that is watched.
    choose_again(312, "kcmp", &by(2, &[(7, Direct(&[reads(4, Bytes(12))]))], Pass)),
    again(314, "sched_setattr", &[updates(1, Inside { offset: 0, plus: 0, least: 48 })]),
    again(315, "sched_getattr", &[updates(1, CountInt(2))]),
    again(322, "execveat", &[text(1), reads(2, Strings), reads(3, Strings)]),
    pass(324, "membarrier"),
    // Read and written whenever the thread returns from the kernel.
    again(334, "rseq", &[keeps(0, CountInt(1))]),
    pass(434, "pidfd_open"),
    // Holds further addresses: of the stack, of thread numbers, of a descriptor.
    by_caller(once(435, "clone3", &[updates(0, Count(1))])),
    pass(438, "pidfd_getfd"),
    again(459, "lsm_get_self_attr", &[updates(1, CountAt(2)), updates(2, Bytes(4))]),
    again(460, "lsm_set_self_attr", &[reads(1, CountInt(2))]),
    again(461, "lsm_list_modules", &[updates(0, CountAt(1)), updates(1, Bytes(4))]),
];

/// The second and third argument are addresses of the traced process, and are passed on.
const PTRACE: Command = by(
    0,
    &[
        // PTRACE_TRACEME; PEEKTEXT, PEEKDATA, PEEKUSER; POKETEXT, POKEDATA, POKEUSER.
        (0, Pass),
        (1, Direct(&[writes(3, Bytes(8))])),
        (2, Direct(&[writes(3, Bytes(8))])),
        (3, Direct(&[writes(3, Bytes(8))])),
        (4, Pass),
        (5, Pass),
        (6, Pass),
        // CONT, KILL, SINGLESTEP, ATTACH, DETACH, SYSCALL, SETOPTIONS, SEIZE, INTERRUPT, LISTEN.
        (7, Pass),
        (8, Pass),
        (9, Pass),
        (16, Pass),
        (17, Pass),
        (24, Pass),
        (0x4200, Pass),
        (0x4206, Pass),
        (0x4207, Pass),
        (0x4208, Pass),
        // GETREGS, SETREGS, GETFPREGS, SETFPREGS.
        (12, Direct(&[writes(3, Bytes(216))])),
        (13, Direct(&[reads(3, Bytes(216))])),
        (14, Direct(&[writes(3, Bytes(512))])),
        (15, Direct(&[reads(3, Bytes(512))])),
        // GETEVENTMSG, GETSIGINFO, SETSIGINFO.
        (0x4201, Direct(&[writes(3, Bytes(8))])),
        (0x4202, Direct(&[writes(3, Bytes(128))])),
        (0x4203, Direct(&[reads(3, Bytes(128))])),
        // PEEKSIGINFO.
        (0x4209, Direct(&[reads(2, Bytes(16)), updates(3, AtLeast(128))])),
        // GETSIGMASK, SETSIGMASK, GET_SYSCALL_INFO.
        (0x420a, Direct(&[writes(3, Bytes(8))])),
        (0x420b, Direct(&[reads(3, Bytes(8))])),
        (0x420e, Direct(&[fills(3, Count(2))])),
    ],
    // Among them GETREGSET and SETREGSET: an `iovec`, whose buffer is not followed.
    Direct(&[perhaps(3)]),
);

const INT_OUT: Rule = Direct(&[writes(1, Bytes(4))]);
const LONG_OUT: Rule = Direct(&[writes(1, Bytes(8))]);

const PRCTL: Command = by(
    0,
    &[
        // Numbers: PDEATHSIG, DUMPABLE, KEEPCAPS, CAPBSET, SECUREBITS, TIMERSLACK, SUBREAPER, NO_NEW_PRIVS,
        // CAP_AMBIENT, SPECULATION, PTRACER.
        (1, Pass),
        (3, Pass),
        (4, Pass),
        (7, Pass),
        (8, Pass),
        (23, Pass),
        (24, Pass),
        (27, Pass),
        (28, Pass),
        (29, Pass),
        (30, Pass),
        (36, Pass),
        (38, Pass),
        (39, Pass),
        (47, Pass),
        (52, Pass),
        (53, Pass),
        (0x5961_6d61, Pass),
        // PR_GET_PDEATHSIG, UNALIGN, FPEMU, FPEXC, ENDIAN, TSC, CHILD_SUBREAPER: an int. PR_GET_TID_ADDRESS: an
        // address.
        (2, INT_OUT),
        (5, INT_OUT),
        (9, INT_OUT),
        (11, INT_OUT),
        (19, INT_OUT),
        (25, INT_OUT),
        (37, INT_OUT),
        (40, LONG_OUT),
        // PR_SET_NAME, PR_GET_NAME.
        (15, Direct(&[text(1)])),
        (16, Direct(&[writes(1, Bytes(16))])),
        // PR_SET_SECCOMP: a `sock_fprog`, which holds the address of the program.
        (22, Direct(&[reads(2, Bytes(16))])),
        // PR_SET_SYSCALL_USER_DISPATCH: a byte that is read at every system call.
        (59, Direct(&[keeps(4, Bytes(1))])),
        // PR_SCHED_CORE, PR_GET_SHADOW_STACK_STATUS.
        (62, Direct(&[updates(4, Bytes(8))])),
        (74, LONG_OUT),
        // PR_SET_VMA: the name of a range. PR_GET_AUXV.
        (0x5356_4d41, Direct(&[text(4)])),
        (0x4155_5856, Direct(&[updates(1, Count(2))])),
    ],
    Direct(&[perhaps(1), perhaps(2), perhaps(3), perhaps(4)]),
);

/// All that tell something write 64 bits; the others take numbers, among them the base of thread-local storage.
const ARCH_PRCTL: Command = by(
    0,
    &[
        (0x1003, LONG_OUT),
        (0x1004, LONG_OUT),
        (0x1021, LONG_OUT),
        (0x1022, LONG_OUT),
        (0x1024, LONG_OUT),
        (0x4001, LONG_OUT),
        (0x4003, LONG_OUT),
        (0x5005, LONG_OUT),
    ],
    Pass,
);
