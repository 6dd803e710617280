//! User-level threads with one universal stack (Adios, EuroSys '25, section 3.2).
//!
//! A **unithread** is a request, a context and a stack in ONE pre-allocated buffer, its slot. The stack is universal:
//! signal handlers run on it as well, so the handler of a page fault can give the thread back to its scheduler in the
//! middle of the fault and continue when the page has arrived.
//!
//! ```text
//!   high address
//!   +----------------------------+
//!   | payload P                  |  the request
//!   +----------------------------+
//!   | entry function             |
//!   | header, 128 bytes          |  the 80-byte context of the side that is not running; pool, state, panic
//!   +----------------------------+  <- a handle points here; 64-byte aligned
//!   | stack, grows down          |  calls, signal frames, the fault handler
//!   |            |               |
//!   |            v               |
//!   +----------------------------+
//!   | guard                      |  an overflow ends the process and touches no neighbour
//!   +----------------------------+
//!   low address
//! ```
//!
//! A slot that does little touches one page: payload, header and the first frames share it.
//!
//! Key types: [`Pool`] gives out [`Unithread`]s; [`Unithread::start`] makes a [`Running`], which stays on its thread;
//! [`Running::resume`] runs it until [`suspend`] or its end. [`measure`] times the switch. [`report_overflows`] makes a
//! stack overflow end the process with a message.
//!
//! Invariants: a slot has one handle; a live stack is never freed and never changes its thread; nothing allocates,
//! locks or makes a system call between `take` and the return of the slot, except a panic.
//!
//! Neighbours: `runtime/sched` takes, resumes and returns unithreads; the fault path calls [`suspend`].

#[cfg(not(target_os = "linux"))]
compile_error!("yonder-unithread needs Linux: build for a target such as x86_64-unknown-linux-gnu");

#[cfg(not(target_arch = "x86_64"))]
compile_error!(
    "yonder-unithread has a context switch for x86-64 only: build for x86_64-unknown-linux-gnu, or add a file with \
     `Context` and `exchange` for this processor beside src/x86_64.rs"
);

#[path = "x86_64.rs"]
mod arch;
mod atomic;
mod free_list;
pub mod measure;
mod overflow;
mod pool;
mod section;
mod slot;
mod stack_memory;
#[cfg(target_env = "gnu")]
mod ucontext;
mod unithread;

pub use overflow::{SignalStack, report_overflows};
pub use pool::{GUARD_BYTES_OF_C, POOL_SLOTS_MAX, Pool, STACK_BYTES_DEFAULT, STACK_BYTES_MAX};
pub use section::{in_no_yield_section, leave_sections, no_yield, no_yield_depth};
pub use stack_memory::stack_bytes_min;
pub use unithread::{
    Resumed, Running, Unithread, UnithreadId, current, is_on_foreign_stack, is_on_unithread, local, must_stay,
    panic_message, set_local, suspend,
};
