//! Transactions on tables in far memory, after Silo (Adios, section 5.2), and TPC-C on them.
//!
//! A [`Database`] has tables in one region: records, and B+-trees whose nodes are pages. A [`Transaction`] reads
//! without locks, keeps what it writes to itself, and commits if what it has read is unchanged then. [`tpcc`] is TPC-C:
//! tables, loader, the five transactions, and [`Tpcc`](tpcc::Tpcc), which serves them on unithreads.
//!
//! What differs from Silo, and why, is in `docs/design/oltp.md`. Invariants:
//!
//! - locks and versions are local memory: a lost node cannot keep a lock, and looking at a version never faults;
//! - nobody parks or fails between taking the first lock and releasing the last: the pages that will be written are
//!   held before;
//! - which keys a table has is said by its leaves alone: a leaf's version changes when a key comes or goes.
//!
//! Neighbours: `apps/serve` has the sockets; `tools/bench` drives this within the process.

#![forbid(unsafe_code)]

mod commit;
mod database;
mod error;
mod latches;
mod memory;
mod node;
mod space;
pub mod tpcc;
mod transaction;
mod tree;

pub use crate::database::{Database, STRIPES_LOG2_DEFAULT};
pub use crate::error::OltpError;
pub use crate::latches::Tid;
pub use crate::node::Key;
pub use crate::transaction::{Direction, Entry, Row, RowAt, Transaction};

/// Stack of a unithread that runs transactions, in bytes: a commit has three nodes on it.
pub const STACK_BYTES: usize = 64 << 10;
