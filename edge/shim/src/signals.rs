//! Signals that far memory needs, and what the program may do with them.
//!
//! SIGBUS is how a fault reaches the thread that had it, and SIGSYS how a system call comes back. The program may have handlers
//! of its own for them, which get what is not ours; it may not hold them back, or a fault would end it.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::c_int;
use std::io;

use libc::{sigaction as Action, sighandler_t, sigset_t};

use crate::calls;
use crate::libc_own::own;

/// The variable that says that a program before this one has installed the filter, which stays.
const FILTERED: &std::ffi::CStr = c"YONDER_RUN_FILTERED";

/// Makes system calls on far memory come back: see `calls`.
pub(crate) fn answer_system_calls() -> io::Result<()> {
    yonder_intercept::install_stub()?;
    yonder_intercept::handle(calls::answer_trapped)?;
    // SAFETY: the names and values are C strings; the environment is the process's, as it is for all that a program preloads.
    unsafe {
        if libc::getenv(FILTERED.as_ptr()).is_null() {
            yonder_intercept::install_filter(&calls::filter())?;
            libc::setenv(FILTERED.as_ptr(), c"1".as_ptr(), 1);
        }
    }
    Ok(())
}

/// Takes the signals that must come through out of a set.
///
/// # Safety
/// `set` is null or a valid set.
unsafe fn without_ours(set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the caller's; the copy is a local.
    unsafe {
        let mut copy = *set.as_ref()?;
        libc::sigdelset(&raw mut copy, libc::SIGBUS);
        libc::sigdelset(&raw mut copy, libc::SIGSYS);
        Some(copy)
    }
}

fn pointer_to(set: Option<&sigset_t>) -> *const sigset_t {
    set.map_or(std::ptr::null(), |set| &raw const *set)
}

/// The set that a change of the mask may use.
///
/// # Safety
/// `set` is null or a valid set.
unsafe fn allowed(how: c_int, set: *const sigset_t) -> Option<sigset_t> {
    // SAFETY: the caller's.
    unsafe { if how == libc::SIG_UNBLOCK { set.as_ref().copied() } else { without_ours(set) } }
}

/// `sigprocmask`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    let set_mask = own!(sigprocmask: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the caller's.
    unsafe { set_mask(how, pointer_to(allowed(how, set).as_ref()), before) }
}

/// `pthread_sigmask`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    let set_mask = own!(pthread_sigmask: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the caller's.
    unsafe { set_mask(how, pointer_to(allowed(how, set).as_ref()), before) }
}

/// `sigaction`. A handler for SIGBUS gets the signals that are not of far memory; one for SIGSYS is not taken.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaction(signal: c_int, action: *const Action, before: *mut Action) -> c_int {
    let set_action = own!(sigaction: fn(c_int, *const Action, *mut Action) -> c_int);
    // SAFETY: the caller's; copies are locals.
    unsafe {
        let copy = action.as_ref().map(|action| {
            let mut copy = *action;
            copy.sa_mask = without_ours(&raw const action.sa_mask).expect("not null");
            copy
        });
        let is_ours = signal == libc::SIGSYS && crate::far::far().is_some();
        if signal == libc::SIGBUS && yonder_trap::is_installed() {
            let previous = yonder_trap::replace_next(copy);
            if let (Some(before), Some(previous)) = (before.as_mut(), previous) {
                *before = previous;
            }
            return 0;
        }
        if is_ours && copy.is_some() {
            return 0;
        }
        set_action(signal, copy.as_ref().map_or(std::ptr::null(), |copy| &raw const *copy), before)
    }
}

/// `signal`, with the meaning that it has had since BSD: the handler stays, and system calls go on.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn signal(number: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: an all-zero action is valid, and both are locals.
    unsafe {
        let (mut action, mut before): (Action, Action) = (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        if sigaction(number, &raw const action, &raw mut before) == 0 { before.sa_sigaction } else { libc::SIG_ERR }
    }
}

/// `sigaltstack`. A stack in far memory is held from now on: the kernel writes to it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigaltstack(stack: *const libc::stack_t, before: *mut libc::stack_t) -> c_int {
    let set_stack = own!(sigaltstack: fn(*const libc::stack_t, *mut libc::stack_t) -> c_int);
    // SAFETY: the caller's.
    unsafe {
        if let Some(stack) = stack.as_ref()
            && stack.ss_flags & libc::SS_DISABLE == 0
        {
            calls::hold_for_good(stack.ss_sp as usize, stack.ss_size);
        }
        set_stack(stack, before)
    }
}

/// A program may have been started with signals held back: lets those through that far memory needs.
pub(crate) fn let_ours_through() {
    let set_mask = own!(pthread_sigmask: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the set is a local.
    unsafe {
        let mut ours: sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut ours, libc::SIGBUS);
        libc::sigaddset(&raw mut ours, libc::SIGSYS);
        set_mask(libc::SIG_UNBLOCK, &raw const ours, std::ptr::null_mut());
    }
}
