//! Direct reads and writes of a file through io_uring, with buffers of its own.
//!
//! A [`Ring`] belongs to one thread at a time. Each of its buffers has at most one transfer, so that neither queue of
//! the kernel's can overflow, and no transfer is refused for want of room. Beginning a transfer makes no system call:
//! [`Ring::submit`] makes one for all that was begun since the last.
//!
//! Neighbours: the store on a file in `runtime/fabric` makes a disk of this; `core/store` says what is read and
//! written.
//!
//! Invariant: a buffer that has a transfer is nobody's but the kernel's until the transfer has ended, also when the
//! ring is dropped, which waits for it.
//!
//! Files: `raw` the kernel's structures and system calls, `queues` the two queues that are shared with it, `ring`
//! buffers and transfers, `file` what they go to.
//!
//! UNSAFETY: transfers name memory and a descriptor to the kernel, which uses them later; the memory is then lent as
//! slices.

mod file;
mod queues;
mod raw;
mod ring;

pub use file::{DirectFile, OpenError};
pub use ring::{Ended, Ring, RingError, probe};
