//! Files by name: open, look at, change, name, watch; attributes and mounts.
//!
//! A path is read before anything is done, so nearly all of these calls may be repeated.

use super::row::{again, by, choose_again, choose_once, fills, once, pass, perhaps, reads, text, updates, writes};
use crate::rule::Extent::{AtLeast, Bytes, Count, CountInt, Elements, Inside, Text};
use crate::rule::Rule::{Direct, Pass};
use crate::rule::{Command, Extent, Rule, Syscall};

/// A `file_handle`: its first word counts the bytes after its head.
const HANDLE: Extent = Inside { offset: 0, plus: 8, least: 8 };
/// An `mnt_id_req`: its first word is its size.
const MOUNT_REQUEST: Extent = Inside { offset: 0, plus: 0, least: 24 };
/// With flag `AT_HANDLE_MNT_ID_UNIQUE` the number of the mount has 64 bits.
const NAME_TO_HANDLE: Command = Command {
    selector: 4,
    shift: 0,
    mask: 1,
    cases: &[(0, Direct(&[text(1), updates(2, HANDLE), writes(3, Bytes(4))]))],
    other: Direct(&[text(1), updates(2, HANDLE), writes(3, Bytes(8))]),
};

pub(super) const ROWS: &[Syscall] = &[
    again(2, "open", &[text(0)]),
    again(4, "stat", &[text(0), writes(1, Bytes(144))]),
    again(5, "fstat", &[writes(1, Bytes(144))]),
    again(6, "lstat", &[text(0), writes(1, Bytes(144))]),
    again(21, "access", &[text(0)]),
    choose_again(72, "fcntl", &FCNTL),
    again(76, "truncate", &[text(0)]),
    again(79, "getcwd", &[fills(0, Count(1))]),
    again(80, "chdir", &[text(0)]),
    pass(81, "fchdir"),
    again(82, "rename", &[text(0), text(1)]),
    again(83, "mkdir", &[text(0)]),
    again(84, "rmdir", &[text(0)]),
    again(85, "creat", &[text(0)]),
    again(86, "link", &[text(0), text(1)]),
    again(87, "unlink", &[text(0)]),
    again(88, "symlink", &[text(0), text(1)]),
    again(89, "readlink", &[text(0), fills(1, CountInt(2))]),
    again(90, "chmod", &[text(0)]),
    pass(91, "fchmod"),
    again(92, "chown", &[text(0)]),
    pass(93, "fchown"),
    again(94, "lchown", &[text(0)]),
    pass(95, "umask"),
    again(132, "utime", &[text(0), reads(1, Bytes(16))]),
    again(133, "mknod", &[text(0)]),
    again(136, "ustat", &[writes(1, Bytes(32))]),
    again(137, "statfs", &[text(0), writes(1, Bytes(120))]),
    again(138, "fstatfs", &[writes(1, Bytes(120))]),
    choose_again(139, "sysfs", &SYSFS),
    again(155, "pivot_root", &[text(0), text(1)]),
    again(161, "chroot", &[text(0)]),
    // The data are text or a structure of the file system, up to a page.
    again(165, "mount", &[text(0), text(1), text(2), reads(4, AtLeast(1))]),
    again(166, "umount2", &[text(0)]),
    again(188, "setxattr", &[text(0), text(1), reads(2, Count(3))]),
    again(189, "lsetxattr", &[text(0), text(1), reads(2, Count(3))]),
    again(190, "fsetxattr", &[text(1), reads(2, Count(3))]),
    again(191, "getxattr", &[text(0), text(1), fills(2, Count(3))]),
    again(192, "lgetxattr", &[text(0), text(1), fills(2, Count(3))]),
    again(193, "fgetxattr", &[text(1), fills(2, Count(3))]),
    again(194, "listxattr", &[text(0), fills(1, Count(2))]),
    again(195, "llistxattr", &[text(0), fills(1, Count(2))]),
    again(196, "flistxattr", &[fills(1, Count(2))]),
    again(197, "removexattr", &[text(0), text(1)]),
    again(198, "lremovexattr", &[text(0), text(1)]),
    again(199, "fremovexattr", &[text(1)]),
    again(212, "lookup_dcookie", &[fills(1, Count(2))]),
    again(235, "utimes", &[text(0), reads(1, Bytes(32))]),
    pass(253, "inotify_init"),
    again(254, "inotify_add_watch", &[text(1)]),
    pass(255, "inotify_rm_watch"),
    again(257, "openat", &[text(1)]),
    again(258, "mkdirat", &[text(1)]),
    again(259, "mknodat", &[text(1)]),
    again(260, "fchownat", &[text(1)]),
    again(261, "futimesat", &[text(1), reads(2, Bytes(32))]),
    again(262, "newfstatat", &[text(1), writes(2, Bytes(144))]),
    again(263, "unlinkat", &[text(1)]),
    again(264, "renameat", &[text(1), text(3)]),
    again(265, "linkat", &[text(1), text(3)]),
    again(266, "symlinkat", &[text(0), text(2)]),
    again(267, "readlinkat", &[text(1), fills(2, CountInt(3))]),
    again(268, "fchmodat", &[text(1)]),
    again(269, "faccessat", &[text(1)]),
    again(280, "utimensat", &[text(1), reads(2, Bytes(32))]),
    pass(294, "inotify_init1"),
    pass(300, "fanotify_init"),
    again(301, "fanotify_mark", &[text(4)]),
    choose_again(303, "name_to_handle_at", &NAME_TO_HANDLE),
    again(304, "open_by_handle_at", &[reads(1, HANDLE)]),
    again(316, "renameat2", &[text(1), text(3)]),
    again(319, "memfd_create", &[text(0)]),
    again(332, "statx", &[text(1), writes(4, Bytes(256))]),
    again(428, "open_tree", &[text(1)]),
    again(429, "move_mount", &[text(1), text(3)]),
    again(430, "fsopen", &[text(0)]),
    choose_once(431, "fsconfig", &FSCONFIG),
    pass(432, "fsmount"),
    again(433, "fspick", &[text(1)]),
    again(437, "openat2", &[text(1), reads(2, Count(3))]),
    again(439, "faccessat2", &[text(1)]),
    again(442, "mount_setattr", &[text(1), reads(3, Count(4))]),
    pass(447, "memfd_secret"),
    again(452, "fchmodat2", &[text(1)]),
    again(457, "statmount", &[reads(0, MOUNT_REQUEST), updates(1, Count(2))]),
    again(458, "listmount", &[reads(0, MOUNT_REQUEST), fills(1, Elements { count: 2, each: 8 })]),
    // The address of the value stands in an `xattr_args`.
    again(463, "setxattrat", &[text(1), text(3), reads(4, AtLeast(16))]),
    again(464, "getxattrat", &[text(1), text(3), reads(4, AtLeast(16))]),
    again(465, "listxattrat", &[text(1), fills(3, Count(4))]),
    again(466, "removexattrat", &[text(1), text(3)]),
    again(467, "open_tree_attr", &[text(1), reads(3, Count(4))]),
    again(468, "file_getattr", &[text(1), updates(2, Count(3))]),
    once(469, "file_setattr", &[text(1), reads(2, Count(3))]),
];

const FLOCK: Extent = Bytes(32);

const FCNTL: Command = by(
    1,
    &[
        // F_DUPFD to F_SETFL; F_DUPFD_CLOEXEC. Their argument is a number, or was never set.
        (0, Pass),
        (1, Pass),
        (2, Pass),
        (3, Pass),
        (4, Pass),
        (1030, Pass),
        // F_GETLK, F_SETLK, F_SETLKW, and the same for open file descriptions.
        (5, Direct(&[updates(2, FLOCK)])),
        (6, Direct(&[reads(2, FLOCK)])),
        (7, Direct(&[reads(2, FLOCK)])),
        (36, Direct(&[updates(2, FLOCK)])),
        (37, Direct(&[reads(2, FLOCK)])),
        (38, Direct(&[reads(2, FLOCK)])),
        // F_SETOWN_EX, F_GETOWN_EX, F_GETOWNER_UIDS.
        (15, Direct(&[reads(2, Bytes(8))])),
        (16, Direct(&[writes(2, Bytes(8))])),
        (17, Direct(&[writes(2, Bytes(8))])),
        // F_GET_RW_HINT, F_SET_RW_HINT, F_GET_FILE_RW_HINT, F_SET_FILE_RW_HINT.
        (1035, Direct(&[writes(2, Bytes(8))])),
        (1036, Direct(&[reads(2, Bytes(8))])),
        (1037, Direct(&[writes(2, Bytes(8))])),
        (1038, Direct(&[reads(2, Bytes(8))])),
    ],
    Direct(&[perhaps(2)]),
);

/// `sysfs(2)`: the number of a file system's name, the name of a number, how many there are.
const SYSFS: Command = by(0, &[(1, Direct(&[text(1)])), (2, Direct(&[updates(2, AtLeast(1))]))], Pass);

const KEY: Rule = Direct(&[text(2)]);
const KEY_AND_TEXT: Rule = Direct(&[text(2), reads(3, Text)]);

/// `fsconfig(2)`: flag, string, binary, path, path or empty, descriptor; create and reconfigure take nothing.
const FSCONFIG: Command = by(
    1,
    &[
        (0, KEY),
        (1, KEY_AND_TEXT),
        (2, Direct(&[text(2), reads(3, CountInt(4))])),
        (3, KEY_AND_TEXT),
        (4, KEY_AND_TEXT),
        (5, KEY),
    ],
    Pass,
);
