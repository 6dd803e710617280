//! The address space.
//!
//! Calls on a range of far memory are the intercepting library's own business: it does to the region what they ask, or
//! answers them. `mlockall` would make far memory impossible to drop, so it is answered as if the limit of locked
//! memory were too small.
//!
//! `process_vm_readv` reads another process: what it meets there is resident, or it says EFAULT. `process_vm_writev`
//! writes through a page that the other process may be sweeping, and would lose data: it is answered as by a kernel
//! without it. A program's own `userfaultfd` is left alone: the kernel keeps two of them from having the same range.

use super::row::{again, fills, memory, pass, perhaps, reads, refuse, updates, writes};
use crate::rule::Extent::{Bits, Bytes, Elements, Iovec};
use crate::rule::{Errno, Syscall};

/// A set of memory nodes: the kernel reads one bit less than it is told.
const fn nodes(count: u8) -> crate::rule::Extent {
    Bits { count, less: 1 }
}

pub(super) const ROWS: &[Syscall] = &[
    memory(9, "mmap", &[0]),
    memory(10, "mprotect", &[0]),
    memory(11, "munmap", &[0]),
    memory(12, "brk", &[0]),
    memory(25, "mremap", &[0, 4]),
    memory(26, "msync", &[0]),
    // The third is a buffer: one byte for each page of the range.
    memory(27, "mincore", &[0, 2]),
    memory(28, "madvise", &[0]),
    memory(30, "shmat", &[1]),
    memory(67, "shmdt", &[0]),
    memory(149, "mlock", &[0]),
    memory(150, "munlock", &[0]),
    refuse(151, "mlockall", Errno::ENOMEM),
    pass(152, "munlockall"),
    memory(216, "remap_file_pages", &[0]),
    // The fourth is a set of nodes, of which the fifth counts the bits.
    memory(237, "mbind", &[0, 3]),
    again(238, "set_mempolicy", &[reads(1, nodes(2))]),
    again(239, "get_mempolicy", &[writes(0, Bytes(4)), updates(1, nodes(2)), perhaps(3)]),
    again(256, "migrate_pages", &[reads(2, nodes(1)), reads(3, nodes(1))]),
    again(
        279,
        "move_pages",
        &[
            reads(2, Elements { count: 1, each: 8 }),
            reads(3, Elements { count: 1, each: 4 }),
            updates(4, Elements { count: 1, each: 4 }),
        ],
    ),
    again(310, "process_vm_readv", &[fills(1, Iovec(2)), reads(3, Elements { count: 4, each: 16 })]),
    refuse(311, "process_vm_writev", Errno::ENOSYS),
    pass(323, "userfaultfd"),
    memory(325, "mlock2", &[0]),
    memory(329, "pkey_mprotect", &[0]),
    pass(330, "pkey_alloc"),
    pass(331, "pkey_free"),
    // An array of ranges; they are not seen by the filter.
    memory(440, "process_madvise", &[1]),
    pass(448, "process_mrelease"),
    memory(450, "set_mempolicy_home_node", &[0]),
    memory(453, "map_shadow_stack", &[0]),
    memory(462, "mseal", &[0]),
];
