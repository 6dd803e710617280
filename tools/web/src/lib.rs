//! The page of `yonder top --web`: what a server and all processes with far memory count, live in a browser, and their
//! limits, which it changes.
//!
//! ```text
//!   browser  --- GET /api/look --->  server  --- Looker --->  /metrics of a server, sockets of processes
//!            --- POST /api/set --->  (Guard)                  (tools/metrics)       (runtime/control)
//! ```
//!
//! [`serve`] answers on a thread of its own. The page is [`yonder_metrics::page`], which servers with `--metrics` have
//! too; what is added here is the processes of this user, and that they can be changed. Sockets of processes are their
//! user's, and a port of this machine is everybody's: so whoever asks must have the key in the address that was
//! printed, which is new at each start. `guard` says who else is turned away.
//!
//! Invariants: what is held is bounded, however many ask for however long; a look is made at most every quarter of a
//! second, whoever asks.

#![forbid(unsafe_code)]

mod guard;
mod listener;
mod look;
mod server;

pub use look::{Folders, WatchedServer};
pub use server::{WebError, WebServer, WebSettings, serve};
