//! Remote address spaces, used without paging: the client library of the memory node (Clio, section 3.1).
//!
//! A [`Process`] has a remote address space (RAS) on a memory node, its own or one that it was given a [`Ticket`] for.
//! Each thread of it works through a [`Thread`], which has a flow of its own to the node:
//!
//! ```no_run
//! use yonder::clib::{Permission, Process};
//!
//! let process = Process::create("udp://127.0.0.1:7000")?;
//! let mut thread = process.thread()?;
//! let address = thread.ralloc(1 << 20, Permission::ReadWrite)?;
//! thread.rwrite(address, b"kept far away")?;
//! let mut back = [0; 13];
//! thread.rread(address, &mut back)?;
//! assert_eq!(&back, b"kept far away");
//! # Ok::<(), yonder::clib::ClibError>(())
//! ```
//!
//! The address space is on one node, or spread over several that a controller places it on (`controller://host:port`);
//! then [`Process`] finds out where addresses are, and follows them when they move.
//!
//! A synchronous call returns when the node has answered. An asynchronous one returns a [`Pending`] (or a
//! [`PendingAllocation`] or [`PendingFree`]) at once, whose result [`Thread::rpoll`] asks for. Asynchronous operations
//! of a thread may be executed in any order, but for those that touch a page in common, one of them to change it: they
//! keep the order in which they were called, and nothing on freed pages comes before or after its turn. An allocation
//! touches no page: it may be executed before a release that was called earlier. [`Thread::rrelease`] returns when all
//! have ended. Between threads and processes nothing is ordered but what [`Thread::rlock`] and atomics order.
//!
//! [`offload`] has the requests and answers of what a node computes beside the data, for [`Thread::call`].
//!
//! Every operation is executed at most once, however often the network loses, repeats or delays it. One whose answer
//! does not come until its deadline has ended with [`ClibError::TimedOut`]: it may have been executed or not, and what
//! follows it in order waits until the node has confirmed that it will not be executed later.

mod allocate;
mod asynchronous;
mod error;
mod flows;
mod pending;
mod process;
mod table;
mod thread;
mod ticket;

pub use error::ClibError;
pub use pending::{Begun, Pending, PendingAllocation, PendingFree};
pub use process::{Process, ProcessConfig};
pub use table::{Buffer, Completed};
pub use thread::Thread;
pub use ticket::{Ticket, TicketError};
pub use yonder_offload as offload;
pub use yonder_wire::{Backing, NodeStatus, Permission, Rights};
