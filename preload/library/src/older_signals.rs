//! `signal`, and older functions for signals, which the C library does not make of those in `signals`: the program's
//! ways to hold SIGBUS and SIGSYS back, or to install a handler for them, are the same.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sigaction as Action, sighandler_t};
use yonder_trap::NEEDED_SIGNALS;

use crate::far::far;
use crate::libc_own::{failed, in_front, own};
use crate::signals::sigaction;

/// `SIG_HOLD`, by which `sigset` holds a signal back, and says that one was.
const SIG_HOLD: sighandler_t = 2;

/// Signals that interrupt system calls, as `siginterrupt` wants it of those that `signal` has handlers for.
static INTERRUPTING: AtomicU64 = AtomicU64::new(0);

/// The bit of a signal; none of what is not a signal.
fn bit_of(signal: c_int) -> u64 {
    if (1..=64).contains(&signal) { 1 << (signal - 1) } else { 0 }
}

/// Whether a signal is one that must come through.
fn is_needed(signal: c_int) -> bool {
    NEEDED_SIGNALS & bit_of(signal) != 0
}

/// `siginterrupt`. The C library keeps what is asked for its own `signal`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    let own = own!(siginterrupt: fn(c_int, c_int) -> c_int);
    // SAFETY: the caller's.
    let result = unsafe { own(signal, interrupts) };
    match (result, interrupts) {
        (0, 0) => _ = INTERRUPTING.fetch_and(!bit_of(signal), Ordering::Relaxed),
        (0, _) => _ = INTERRUPTING.fetch_or(bit_of(signal), Ordering::Relaxed),
        _ => {}
    }
    result
}

/// The flags of a handler that stays.
fn bsd_flags(signal: c_int) -> c_int {
    if INTERRUPTING.load(Ordering::Relaxed) & bit_of(signal) == 0 { libc::SA_RESTART } else { 0 }
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
    if handler == libc::SIG_ERR {
        failed(libc::EINVAL);
        return libc::SIG_ERR;
    }
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
    ($($name:ident($signal:ident) with $flags:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($signal: c_int, handler: sighandler_t) -> sighandler_t {
            // SAFETY: the caller's.
            unsafe { install($signal, handler, $flags) }
        }
    )*};
}

handlers! {
    // The meaning that it has had since BSD: the handler stays, and system calls go on, if nobody wants else.
    signal(number) with bsd_flags(number);
    bsd_signal(number) with bsd_flags(number);
    ssignal(number) with bsd_flags(number);
    sysv_signal(number) with libc::SA_RESETHAND | libc::SA_NODEFER;
    // What `signal` is for programs that were compiled for an older standard alone.
    __sysv_signal(number) with libc::SA_RESETHAND | libc::SA_NODEFER;
}
