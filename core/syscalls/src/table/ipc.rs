//! Message queues, semaphores and shared memory of System V and of POSIX; keys.

use super::row::{again, by, choose_again, choose_once, fills, once, pass, perhaps, reads, text, updates, writes};
use crate::rule::Extent::{AtLeast, Bytes, Count, Elements, Headed, Iovec};
use crate::rule::Rule::{Direct, Pass};
use crate::rule::{Arg, Command, Extent, Rule, Syscall};

const TIMESPEC: Extent = Bytes(16);
const SEMAPHORE_OPERATIONS: Arg = reads(1, Elements { count: 2, each: 6 });
/// A System V message: its type, and then the text, whose length is an argument.
const MESSAGE: Extent = Headed { head: 8, count: 2 };
const MQ_ATTR: Extent = Bytes(64);

pub(super) const ROWS: &[Syscall] = &[
    pass(29, "shmget"),
    choose_again(31, "shmctl", &SHMCTL),
    pass(64, "semget"),
    again(65, "semop", &[SEMAPHORE_OPERATIONS]),
    choose_again(66, "semctl", &SEMCTL),
    pass(68, "msgget"),
    again(69, "msgsnd", &[reads(1, MESSAGE)]),
    once(70, "msgrcv", &[fills(1, MESSAGE)]),
    choose_again(71, "msgctl", &MSGCTL),
    again(220, "semtimedop", &[SEMAPHORE_OPERATIONS, reads(3, TIMESPEC)]),
    choose_again(240, "mq_open", &MQ_OPEN),
    again(241, "mq_unlink", &[text(0)]),
    again(242, "mq_timedsend", &[reads(1, Count(2)), reads(4, TIMESPEC)]),
    once(243, "mq_timedreceive", &[fills(1, Count(2)), writes(3, Bytes(4)), reads(4, TIMESPEC)]),
    again(244, "mq_notify", &[reads(1, Bytes(64))]),
    once(245, "mq_getsetattr", &[reads(1, MQ_ATTR), writes(2, MQ_ATTR)]),
    again(248, "add_key", &[text(0), text(1), reads(2, Count(3))]),
    again(249, "request_key", &[text(0), text(1), text(2)]),
    choose_once(250, "keyctl", &KEYCTL),
];

/// Attributes are given with O_CREAT only.
const MQ_OPEN: Command = Command {
    selector: 1,
    shift: 0,
    mask: 0o100,
    cases: &[(0, Direct(&[text(0)]))],
    other: Direct(&[text(0), reads(3, MQ_ATTR)]),
};

const SHMID: Extent = Bytes(112);
const SEMID: Extent = Bytes(104);
const MSGID: Extent = Bytes(120);

/// IPC_RMID, SHM_LOCK, SHM_UNLOCK; IPC_SET; IPC_STAT, SHM_STAT, SHM_STAT_ANY; IPC_INFO; SHM_INFO.
const SHMCTL: Command = by(
    1,
    &[
        (0, Pass),
        (11, Pass),
        (12, Pass),
        (1, Direct(&[reads(2, SHMID)])),
        (2, Direct(&[writes(2, SHMID)])),
        (13, Direct(&[writes(2, SHMID)])),
        (15, Direct(&[writes(2, SHMID)])),
        (3, Direct(&[writes(2, Bytes(72))])),
        (14, Direct(&[writes(2, Bytes(48))])),
    ],
    Direct(&[perhaps(2)]),
);

/// IPC_RMID, GETPID, GETVAL, GETNCNT, GETZCNT, SETVAL; GETALL, SETALL; IPC_SET; IPC_STAT, SEM_STAT, SEM_STAT_ANY;
/// IPC_INFO, SEM_INFO.
const SEMCTL: Command = by(
    2,
    &[
        (0, Pass),
        (11, Pass),
        (12, Pass),
        (14, Pass),
        (15, Pass),
        (16, Pass),
        (13, Direct(&[updates(3, AtLeast(2))])),
        (17, Direct(&[reads(3, AtLeast(2))])),
        (1, Direct(&[reads(3, SEMID)])),
        (2, Direct(&[writes(3, SEMID)])),
        (18, Direct(&[writes(3, SEMID)])),
        (20, Direct(&[writes(3, SEMID)])),
        (3, Direct(&[writes(3, Bytes(40))])),
        (19, Direct(&[writes(3, Bytes(40))])),
    ],
    Direct(&[perhaps(3)]),
);

/// IPC_RMID; IPC_SET; IPC_STAT, MSG_STAT, MSG_STAT_ANY; IPC_INFO, MSG_INFO.
const MSGCTL: Command = by(
    1,
    &[
        (0, Pass),
        (1, Direct(&[reads(2, MSGID)])),
        (2, Direct(&[writes(2, MSGID)])),
        (11, Direct(&[writes(2, MSGID)])),
        (13, Direct(&[writes(2, MSGID)])),
        (3, Direct(&[writes(2, Bytes(32))])),
        (12, Direct(&[writes(2, Bytes(32))])),
    ],
    Direct(&[perhaps(2)]),
);

/// What is told may be longer than the buffer, and is then written in part or not at all.
const KEY_TOLD: Rule = Direct(&[updates(2, Count(3))]);
const KEY_GIVEN: Rule = Direct(&[reads(2, Count(3))]);

const KEYCTL: Command = by(
    0,
    &[
        // GET_KEYRING_ID, REVOKE, CHOWN, SETPERM, CLEAR, LINK, UNLINK.
        (0, Pass),
        (3, Pass),
        (4, Pass),
        (5, Pass),
        (7, Pass),
        (8, Pass),
        (9, Pass),
        // JOIN_SESSION_KEYRING, SEARCH.
        (1, Direct(&[text(1)])),
        (10, Direct(&[text(2), text(3)])),
        // UPDATE, INSTANTIATE; DESCRIBE, READ, GET_SECURITY.
        (2, KEY_GIVEN),
        (12, KEY_GIVEN),
        (6, KEY_TOLD),
        (11, KEY_TOLD),
        (17, KEY_TOLD),
        // INSTANTIATE_IOV, RESTRICT_KEYRING, CAPABILITIES.
        (20, Direct(&[reads(2, Iovec(3))])),
        (29, Direct(&[text(2), text(3)])),
        (31, Direct(&[updates(1, Count(2))])),
    ],
    Direct(&[perhaps(1), perhaps(2), perhaps(3), perhaps(4)]),
);
