//! Settings of running processes, through a Unix socket in each.
//!
//! ```text
//!   yonder ctl                       a process with far memory
//!   Folder, ask  --- PID.sock --->   ControlServer: a thread  --->  Controlled (FarControl)
//! ```
//!
//! The sockets of a user are in one [`Folder`] that nobody else may enter, and whoever asks or answers is checked to be
//! that user, or root. A process answers on a thread of its own: what is asked comes to a [`Controlled`], which
//! [`FarControl`] is for far memory. What is said is in `core/settings`, who types it in `edge/cli`; `preload/library`
//! answers in programs that know nothing of it.
//!
//! Invariants:
//! - The thread takes no signals of the program, touches no far memory and waits for no client.
//! - A descriptor that is no longer the socket that it was, because a program has closed all that it did not know, is
//!   neither used nor closed.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod checked_socket;
mod connection;
mod far;
mod folder;
mod server;

pub use answer::Controlled;
pub use ask::{AskError, ask};
pub use far::FarControl;
pub use folder::{Folder, FolderError, folder_of};
pub use server::{CLIENTS_MAX, ControlServer, StartError, TIMEOUT};
