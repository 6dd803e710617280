//! Processes of Chromium, Electron and their kin that fork all others of their kind: their zygotes.
//!
//! A zygote checks that it has one thread, and what it forks never executes a program: it and its children stay as they
//! are. What Chromium starts without one (`--no-zygote`) is as any other program.

use std::os::unix::ffi::OsStrExt as _;

/// How such a process is started.
const ARGUMENT: &[u8] = b"--type=zygote";

/// Whether this process is one. It has an allocator of its own, as all of them have.
pub(crate) fn is_program() -> bool {
    std::env::args_os().skip(1).any(|argument| argument.as_bytes() == ARGUMENT) && crate::malloc::is_another()
}
