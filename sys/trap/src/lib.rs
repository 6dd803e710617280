//! In-thread page faults.
//!
//! A touch of a missing page of a userfaultfd region in SIGBUS mode raises SIGBUS in the thread that touched it. The
//! handler here finds the region, asks its [`FaultHandler`] to bring the page, and returns to the access, which is then
//! retried. It runs on the stack of whoever touched the page (the universal stack of Adios, section 3.2), leaves the
//! signal mask as it was, and may therefore be left by a switch to another unithread and entered again meanwhile.
//!
//! If the page cannot be had, the access itself must fail. The routines in [`access`] are the only code that touches
//! far memory from safe Rust; the handler knows their addresses and makes them return an error code. A touch from
//! anywhere else ends the innermost [`scope`] that it is in, or the process, with a message.
//!
//! Neighbours: `sys/mapping` wraps [`access`] in bounds checks; `runtime/paging` implements [`FaultHandler`].

pub mod access;
mod chain;
mod hold_back;
mod locals;
mod resume;
pub mod scope;
mod sigbus;

pub use chain::Chain;
pub use hold_back::{CANCELLING_SIGNAL, HeldBack, NEEDED_SIGNALS, hold_back};
pub use locals::{Locals, lock_released, lock_taken};
pub use sigbus::{
    Fault, FaultHandler, FaultKind, REGISTRATIONS_MAX, RegisterError, Registers, Registration, Verdict, Words,
    hold_signals, holds_signals, is_installed, is_replaced, register, replace_next,
};
