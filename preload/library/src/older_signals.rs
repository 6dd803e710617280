//! `signal`, and older functions for signals, which the C library does not make of those in `signals`: the program's
//! ways to hold SIGBUS and SIGSYS back, or to install a handler for them, are the same.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::c_int;

use libc::{sigaction as Action, sighandler_t};
use yonder_trap::NEEDED_SIGNALS;

use crate::far::far;
use crate::libc_own::{in_front, own};
use crate::signals::sigaction;

/// `SIG_HOLD`, by which `sigset` holds a signal back, and says that one was.
const SIG_HOLD: sighandler_t = 2;

/// Whether a signal is one that must come through.
fn is_needed(signal: c_int) -> bool {
    (1..=64).contains(&signal) && NEEDED_SIGNALS & 1 << (signal - 1) != 0
}

/// `sigset`. A signal that must come through is never held back, whatever it says.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t {
    let own = own!(sigset: fn(c_int, sighandler_t) -> sighandler_t);
    // SAFETY: the caller's; the action is a local.
    unsafe {
        if !is_needed(signal) || far().is_none() {
            return own(signal, handler);
        }
        if handler != SIG_HOLD {
            return install(signal, handler, 0);
        }
        let mut now: Action = std::mem::zeroed();
        if sigaction(signal, std::ptr::null(), &raw mut now) == 0 { now.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// Makes `handler` a signal's; the one before.
///
/// # Safety
/// `handler` is one.
unsafe fn install(signal: c_int, handler: sighandler_t, flags: c_int) -> sighandler_t {
    // SAFETY: an all-zero action is valid, and both are locals.
    unsafe {
        let (mut action, mut before): (Action, Action) = (std::mem::zeroed(), std::mem::zeroed());
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        if sigaction(signal, &raw const action, &raw mut before) == 0 { before.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// A mask of the first 32 signals, without those that must come through.
fn allowed(mask: c_int) -> c_int {
    if far().is_some() { mask & !(NEEDED_SIGNALS as c_int) } else { mask }
}

in_front! {
    sighold(signal: c_int) -> c_int, if is_needed(signal) && far().is_some() => 0;
    sigignore(signal: c_int) -> c_int,
        if is_needed(signal) => if install(signal, libc::SIG_IGN, 0) == libc::SIG_ERR { -1 } else { 0 };
    sigblock(mask: c_int => allowed(mask)) -> c_int;
    sigsetmask(mask: c_int => allowed(mask)) -> c_int;
}

/// Functions with the name and the meaning of `signal` in some standard.
macro_rules! handlers {
    ($($name:ident with $flags:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: the caller's.
            unsafe { install(signal, handler, $flags) }
        }
    )*};
}

handlers! {
    // The meaning that it has had since BSD: the handler stays, and system calls go on.
    signal with libc::SA_RESTART;
    bsd_signal with libc::SA_RESTART;
    ssignal with libc::SA_RESTART;
    sysv_signal with libc::SA_RESETHAND | libc::SA_NODEFER;
    // What `signal` is for programs that were compiled for an older standard alone.
    __sysv_signal with libc::SA_RESETHAND | libc::SA_NODEFER;
}
