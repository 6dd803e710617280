//! What the kernel reads and writes of a program's memory at each system call, and the seccomp filter made of that.
//!
//! Far memory lies in one [`WINDOW`] of the address space. A program that touches a missing page of it gets the page;
//! the kernel, when it touches one for the program, gives up with EFAULT. A seccomp filter therefore traps the calls of
//! which an argument lies in the window; the handler makes the memory local, by a copy or by holding the pages, and
//! issues the call from a stub that the filter lets pass. This crate is the part of it that decides:
//!
//! - [`syscall`], [`rule`]: the table, one [`Rule`] for each number of x86-64 Linux up to version 6.18;
//! - [`filter`]: the [`Instruction`]s that make the kernel trap;
//! - [`plan`]: the [`Buffers`] of one call.
//!
//! | calls | what is done |
//! |---|---|
//! | numbers only (`close`, `lseek`, `getpid`, `fork`, ...) | [`Rule::Pass`]: nothing |
//! | paths and names (`open`, `rename`, `setxattr`, `mount`, ...) | read up to the zero byte; may be repeated |
//! | fixed structures (`stat`, `nanosleep`, `rt_sigaction`, ...) | copied in, out or both by their size |
//! | sized by an argument (`read`, `send`, `getdents`, ...) | copied; back as far as the result says |
//! | sized in memory (`accept`, `getsockopt`, `perf_event_open`, ...) | [`Length::InMemory`] |
//! | arrays (`poll`, `epoll_wait`, `semop`, `select`, ...) | count times size |
//! | vectors (`readv`, `sendmsg`, `recvmmsg`, `execve`, ...) | by shape; what they point to is the handler's to follow |
//! | `futex` and its kin | by operation; the word is touched and the call repeated, never copied |
//! | `ioctl`, `fcntl`, `prctl`, `ptrace`, `keyctl`, `*ctl` | [`Rule::Command`]; unlisted ones are held as [`Length::Unknown`] |
//! | remembered by the kernel (`rseq`, `set_tid_address`, `set_robust_list`, `clone`) | [`Access::Kept`]: held while the thread lives |
//! | ranges (`mmap`, `munmap`, `madvise`, `mlock`, `mprotect`, ...) | [`Rule::Memory`]: the caller's own business |
//! | used after the call has returned (`io_uring_*`, `io_submit`, `vmsplice`, `SO_ZEROCOPY`, `AF_XDP`, VFIO) | [`Rule::Refuse`] |
//! | `process_vm_writev`, `mlockall` | [`Rule::Refuse`]: they would lose data of a sweep, or keep it from dropping pages |
//! | numbers of the future | [`Rule::Unknown`]: every argument that lies in the window is held |
//!
//! A handler that copies keeps an address's offset within its page, since direct input and output ask for alignment.
//!
//! Not seen by the filter, and so the business of wrappers: addresses that stand in memory which is not far itself
//! (buffers of a local `iovec` or `msghdr`, texts of a local `argv`, structures of `bpf`, `seccomp`, `clone3`,
//! `SIOCGIFCONF`); ranges that begin before the window and reach into it; files that stand for memory
//! (`/proc/self/mem`); registration of memory for RDMA; sockets that were handed over with `SO_ZEROCOPY` already on.
//!
//! Neighbours: whoever installs the filter, catches the trap and moves bytes is above this layer.
//!
//! Invariants: pure; [`plan`] allocates nothing; the filter traps a call if and only if one of its [`Rule::addresses`]
//! lies in the window and the stub did not issue it.

#![forbid(unsafe_code)]

mod filter;
mod plan;
mod rule;
mod table;

use std::ops::Range;

pub use filter::{INSTRUCTIONS_MAX, Instruction, RET_ALLOW, RET_DATA, RET_ERRNO, RET_TRAP, Stub, filter};
pub use plan::{Buffer, Buffers, LENGTH_MAX, Length, Plan, plan};
pub use rule::{ARGS, Access, Arg, ArgSet, Command, Errno, Extent, Issuer, OnFault, Rule, Syscall};
pub use table::{NUMBER_MAX, X32, rule, syscall, syscalls};

/// The addresses of far memory: one window of the address space, which the kernel never chooses by itself.
pub const WINDOW: Range<u64> = 0x3000_0000_0000..0x4000_0000_0000;
