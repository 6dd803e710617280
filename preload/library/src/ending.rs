//! The end of the process that `yonder run` has become: it waits for the moment in which its figures are told, so that
//! whoever has started it finds them when it is gone. Nobody waits for one that is killed.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::time::Duration;

use yonder_preload_protocol::{ProcessId, Settings, SharedStats};

/// Longest that an end is waited for: whoever tells the figures may have been killed.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// What a program that has failed in the eyes of `yonder run` ends with.
const FAILED: c_int = 1;

/// The process, which forked children are not, and where its figures are.
static ENDS_THE_RUN: OnceLock<(u32, SharedStats)> = OnceLock::new();

/// To be called before the program can change what it may open.
pub(crate) fn begin(settings: &Settings) {
    // Most processes of a run have another number, and need not ask for their namespace.
    if settings.process.number == std::process::id()
        && settings.process == ProcessId::own()
        && let Ok(board) = SharedStats::open(&settings.board)
    {
        let _ = ENDS_THE_RUN.set((settings.process.number, board));
    }
}

/// Whether this process may end as it wants to.
fn may_end() -> bool {
    let board = ENDS_THE_RUN.get().filter(|(process, _)| *process == std::process::id());
    board.is_none_or(|(_, board)| board.end(TOLD_WITHIN))
}

/// The program has ended by itself.
pub(crate) fn end() {
    if !may_end() {
        end_at_once(FAILED);
    }
}

fn end_at_once(code: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// `_exit`. It may be called wherever a signal is handled, and by a child that shares all memory: it allocates nothing.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(code: c_int) -> ! {
    end_at_once(if may_end() { code } else { FAILED })
}

/// `_Exit`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(code: c_int) -> ! {
    // SAFETY: the caller's.
    unsafe { _exit(code) }
}
