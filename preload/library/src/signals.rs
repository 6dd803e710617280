//! Signals that far memory needs, and what the program may do with them.
//!
//! SIGBUS is how a fault reaches the thread that had it, and SIGSYS how a system call comes back. The program may have
//! handlers of its own for them, which get what is not ours; it may not hold them back, or a fault would end it.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};
use std::io;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigaction as Action, sigset_t, timespec};
use yonder_intercept::{Call, Interrupted};
use yonder_trap::NEEDED_SIGNALS;

use crate::calls;
use crate::far::{far, is_far};
use crate::held::hold_for_good;
use crate::libc_own::{failed, in_front, own};
use crate::process::LocalCopy;

/// The variable that says that a program before this one has installed the filter, which stays.
const FILTERED: &std::ffi::CStr = c"YONDER_RUN_FILTERED";

/// Makes system calls on far memory come back: see `calls`.
pub(crate) fn answer_system_calls() -> io::Result<()> {
    yonder_intercept::install_stub()?;
    // A thread that is cancelled in the middle of an answer would leave behind what it holds for it.
    yonder_intercept::handle(calls::answer_trapped, yonder_trap::CANCELLING_SIGNAL)?;
    // SAFETY: the names and values are C strings; the environment is the process's, as it is for all that a program
    // preloads.
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

/// Changes the signals that an interrupted thread holds back, as its `rt_sigprocmask` asks. The C library makes this
/// call itself where it keeps a mask for the program: in `sigsetjmp`, `swapcontext` and their kin.
pub(crate) fn change_mask(call: &Call, interrupted: &mut Interrupted<'_>) -> Result<i64, i64> {
    const NEVER: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
    const EFAULT: i64 = -(libc::EFAULT as i64);
    let [how, set, before, bytes, ..] = call.arguments;
    let invalid = -i64::from(libc::EINVAL);
    let far = far().ok_or(EFAULT)?;
    if bytes as usize != size_of::<u64>() {
        return Err(invalid);
    }
    let now = *interrupted.signal_mask();
    if set != 0 {
        let mut given = [0; size_of::<u64>()];
        // Nobody asks whether it is protected: who holds the lock for that may be changing its mask here.
        match far.offset(set as usize) {
            Some(offset) => far.region().read(offset, &mut given).map_err(|_| EFAULT)?,
            None => far.get(set as usize, &mut given)?,
        }
        let given = u64::from_ne_bytes(given);
        let next = match how as c_int {
            libc::SIG_BLOCK => now | given & !NEEDED_SIGNALS,
            libc::SIG_UNBLOCK => now & !given,
            libc::SIG_SETMASK => given & !NEEDED_SIGNALS,
            _ => return Err(invalid),
        };
        *interrupted.signal_mask() = next & !NEVER;
    }
    if before != 0 {
        match far.offset(before as usize) {
            Some(offset) => far.region().write(offset, &now.to_ne_bytes()).map_err(|_| EFAULT)?,
            None => far.put(before as usize, &[now])?,
        }
    }
    Ok(0)
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

/// Changes the mask with one of the C library's functions. The kernel gets copies of the sets, which may be far.
///
/// # Safety
/// As that function's.
unsafe fn change_by(
    set_mask: unsafe extern "C" fn(c_int, *const sigset_t, *mut sigset_t) -> c_int,
    how: c_int,
    set: *const sigset_t,
    before: *mut sigset_t,
) -> c_int {
    // SAFETY: the caller's; the copies are locals.
    unsafe {
        let mut was: sigset_t = std::mem::zeroed();
        let result = set_mask(how, pointer_to(allowed(how, set).as_ref()), &raw mut was);
        if let (0, Some(before)) = (result, before.as_mut()) {
            *before = was;
        }
        result
    }
}

/// `sigprocmask`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sigprocmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    let set_mask = own!(sigprocmask: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the caller's.
    unsafe { change_by(set_mask, how, set, before) }
}

/// `pthread_sigmask`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const sigset_t, before: *mut sigset_t) -> c_int {
    let set_mask = own!(pthread_sigmask: fn(c_int, *const sigset_t, *mut sigset_t) -> c_int);
    // SAFETY: the caller's.
    unsafe { change_by(set_mask, how, set, before) }
}

/// `sigaction`. A handler for SIGBUS gets the signals that are not of far memory, and one for SIGSYS those that are not
/// of the filter.
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
        let replaced = match signal {
            libc::SIGBUS => yonder_trap::replace_next(copy),
            libc::SIGSYS => yonder_intercept::replace_next(copy),
            _ => None,
        };
        // Before there is far memory nobody stands between.
        if let Some(previous) = replaced {
            if let Some(before) = before.as_mut() {
                *before = previous;
            }
            return 0;
        }
        set_action(signal, copy.as_ref().map_or(std::ptr::null(), |copy| &raw const *copy), before)
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
            && hold_for_good(stack.ss_sp as usize, stack.ss_size).is_err()
        {
            return failed(libc::ENOMEM);
        }
        let (given, mut was): (_, libc::stack_t) = (stack.as_ref().copied(), std::mem::zeroed());
        let result = set_stack(given.as_ref().map_or(std::ptr::null(), |given| &raw const *given), &raw mut was);
        if let (0, Some(before)) = (result, before.as_mut()) {
            *before = was;
        }
        result
    }
}

/// `makecontext`. A stack in far memory is held from now on: the kernel cannot tell a thread of a fault on a stack that
/// is not here.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn makecontext() {
    // The arguments, of which there can be any number, stay where they are.
    naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
        "call {}",
        "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "jmp rax",
        sym hold_stack_of
    )
}

/// Holds the stack of a context; the address of the C library's `makecontext`.
unsafe extern "C" fn hold_stack_of(context: *const libc::ucontext_t) -> unsafe extern "C" fn() {
    // SAFETY: the caller of `makecontext` has one.
    let stack = unsafe { &(*context).uc_stack };
    // The function can tell of no error; a stack that cannot be had ends the program at its first touch.
    let _ = hold_for_good(stack.ss_sp as usize, stack.ss_size);
    own!(makecontext: fn() -> ())
}

/// A mask without the signals that must come through.
macro_rules! masked {
    ($mask:ident) => {
        pointer_to(without_ours($mask).as_ref())
    };
}

in_front! {
    /// The C library reads the attributes with all signals held back. What the copy points to stays the program's.
    pthread_create(thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t => LocalCopy::of(attributes).start().cast(),
        start: *mut c_void, argument: *mut c_void) -> c_int;
    /// A thread that is to run on far memory gets a stack of the C library instead, as large: it begins with all
    /// signals held back, and could have no faults.
    pthread_attr_setstack(attributes: *mut libc::pthread_attr_t, stack: *mut c_void, bytes: usize) -> c_int,
        if is_far(stack as usize) => libc::pthread_attr_setstacksize(attributes, bytes);
    pthread_attr_setsigmask_np(attributes: *mut libc::pthread_attr_t, mask: *const sigset_t => masked!(mask)) -> c_int;
    /// Handlers run with its mask.
    sigsuspend(mask: *const sigset_t => masked!(mask)) -> c_int;
    ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t => masked!(mask)) -> c_int;
    /// `ppoll`, as programs call it that are compiled with checks of their buffers.
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t => masked!(mask),
        bytes: usize) -> c_int;
    /// The kernel finds its mask by an address that no filter sees.
    pselect(count: c_int, reads: *mut fd_set, writes: *mut fd_set, errors: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t => masked!(mask)) -> c_int;
    epoll_pwait(fd: c_int, events: *mut epoll_event, most: c_int, timeout: c_int,
        mask: *const sigset_t => masked!(mask)) -> c_int;
    epoll_pwait2(fd: c_int, events: *mut epoll_event, most: c_int, timeout: *const timespec,
        mask: *const sigset_t => masked!(mask)) -> c_int;
}

/// `timer_create`. The C library starts threads for timers that hold all signals back.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn timer_create(clock: c_int, event: *mut SignalEvent, timer: *mut *mut c_void) -> c_int {
    let own = own!(timer_create: fn(c_int, *mut SignalEvent, *mut *mut c_void) -> c_int);
    // SAFETY: the caller's.
    unsafe {
        let Some(event) = event.as_ref().filter(|event| event.notify == libc::SIGEV_THREAD) else {
            return own(clock, event, timer);
        };
        let mut ours = *event;
        // Kept for good: a thread may start at any time, even after the timer's end.
        ours.value = Box::into_raw(Box::new(*event)).cast();
        ours.function = Some(notify);
        let mut made = std::ptr::null_mut();
        let result = own(clock, &raw mut ours, &raw mut made);
        if result == 0 {
            *timer = made;
        }
        result
    }
}

/// `struct sigevent`, for a function that is called.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SignalEvent {
    value: *mut c_void,
    signal: c_int,
    notify: c_int,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    attributes: *mut c_void,
    rest: [u64; 4],
}

const _: () = assert!(size_of::<SignalEvent>() == size_of::<libc::sigevent>());

/// Calls the program's function in a thread for a timer.
unsafe extern "C" fn notify(event: *mut c_void) {
    let_ours_through();
    // SAFETY: from `timer_create`, and never freed.
    let event = unsafe { &*event.cast::<SignalEvent>() };
    if let Some(function) = event.function {
        // SAFETY: the program's own function with the value that it wants.
        unsafe { function(event.value) }
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
