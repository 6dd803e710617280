//! The machine and the kernel itself: modules, names, quotas, BPF, events, sandboxes; and numbers that no kernel has
//! any more.

use super::row::{again, by, choose_again, choose_once, fills, once, pass, perhaps, reads, text, updates, writes};
use crate::rule::Extent::{AtLeast, Bytes, Count, CountInt, Elements, Inside};
use crate::rule::Rule::{Direct, Pass};
use crate::rule::{Command, Syscall};

pub(super) const ROWS: &[Syscall] = &[
    choose_once(16, "ioctl", &super::ioctl::IOCTL),
    once(103, "syslog", &[fills(1, CountInt(2))]),
    again(134, "uselib", &[text(0)]),
    pass(153, "vhangup"),
    pass(156, "_sysctl"),
    again(163, "acct", &[text(0)]),
    again(167, "swapon", &[text(0)]),
    again(168, "swapoff", &[text(0)]),
    // LINUX_REBOOT_CMD_RESTART2 takes a text.
    choose_again(169, "reboot", &by(2, &[(0xa1b2_c3d4, Direct(&[text(3)]))], Pass)),
    again(170, "sethostname", &[reads(0, CountInt(1))]),
    again(171, "setdomainname", &[reads(0, CountInt(1))]),
    pass(172, "iopl"),
    pass(173, "ioperm"),
    pass(174, "create_module"),
    again(175, "init_module", &[reads(0, Count(1)), text(2)]),
    again(176, "delete_module", &[text(0)]),
    pass(177, "get_kernel_syms"),
    pass(178, "query_module"),
    choose_once(179, "quotactl", &QUOTACTL),
    pass(180, "nfsservctl"),
    pass(181, "getpmsg"),
    pass(182, "putpmsg"),
    pass(183, "afs_syscall"),
    pass(184, "tuxcall"),
    pass(185, "security"),
    pass(214, "epoll_ctl_old"),
    pass(215, "epoll_wait_old"),
    pass(236, "vserver"),
    // The segments hold addresses.
    again(246, "kexec_load", &[reads(2, Elements { count: 1, each: 32 })]),
    again(298, "perf_event_open", &[updates(0, Inside { offset: 4, plus: 0, least: 64 })]),
    again(313, "finit_module", &[text(1)]),
    choose_again(317, "seccomp", &SECCOMP),
    again(318, "getrandom", &[fills(0, Count(1))]),
    again(320, "kexec_file_load", &[reads(3, Count(2))]),
    // The attributes hold addresses, which differ by command.
    once(321, "bpf", &[updates(1, CountInt(2))]),
    pass(335, "uretprobe"),
    pass(336, "uprobe"),
    choose_once(443, "quotactl_fd", &QUOTACTL_FD),
    again(444, "landlock_create_ruleset", &[reads(0, Count(1))]),
    choose_again(445, "landlock_add_rule", &LANDLOCK_ADD_RULE),
    pass(446, "landlock_restrict_self"),
];

/// `SECCOMP_SET_MODE_STRICT`, `SECCOMP_GET_ACTION_AVAIL`, `SECCOMP_GET_NOTIF_SIZES`; else a filter, a `sock_fprog`,
/// which holds the address of the program.
const SECCOMP: Command = by(
    0,
    &[(0, Pass), (2, Direct(&[reads(2, Bytes(4))])), (3, Direct(&[writes(2, Bytes(6))]))],
    Direct(&[reads(2, Bytes(16))]),
);

/// The command stands above its type. `Q_QUOTAON`, with a path; `Q_QUOTAOFF` and `Q_SYNC`; others have structures.
const QUOTACTL: Command = Command {
    selector: 0,
    shift: 8,
    mask: u32::MAX,
    cases: &[
        (0x80_0002, Direct(&[text(1), text(3)])),
        (0x80_0003, Direct(&[text(1)])),
        (0x80_0001, Direct(&[text(1)])),
    ],
    other: Direct(&[text(1), updates(3, AtLeast(4))]),
};

const QUOTACTL_FD: Command = Command {
    selector: 1,
    shift: 8,
    mask: u32::MAX,
    cases: &[(0x80_0002, Direct(&[text(3)])), (0x80_0003, Pass), (0x80_0001, Pass)],
    other: Direct(&[updates(3, AtLeast(4))]),
};

/// A path beneath which; a port.
const LANDLOCK_ADD_RULE: Command =
    by(1, &[(1, Direct(&[reads(2, Bytes(12))])), (2, Direct(&[reads(2, Bytes(16))]))], Direct(&[perhaps(2)]));
