//! A message for a unithread that overflows its stack: [`report_overflows`].
//!
//! The guard already ends the process by SIGSEGV; the handler here only says why. It runs on the alternate signal
//! stack that the standard library gives each of its threads (the overflowed one has no room), recognises the guard
//! of the running unithread, and passes every other fault on to the handler that was there before. A thread that
//! has no such stack, as in a program that is not Rust's, gets one by [`SignalStack`].
//!
//! Invariant: the handler allocates nothing, locks nothing and leaves errno as it was.

// UNSAFETY: sigaction, and calling the previous handler by its address.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::pool::GUARD_BYTES_OF_C;
use crate::slot::{StackBounds, current_stack};
use crate::stack_memory::{StackMemory, signal_frame_bytes};

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 256;

/// What SIGSEGV did before; set before the handler can run.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Makes a stack overflow of a unithread print one line before it ends the process. Installs a SIGSEGV handler for the
/// process, once, and passes other faults on to the handler that was installed before. Threads without an alternate
/// signal stack die without the line: see [`SignalStack`]. The other handler runs there too, also if it has not asked
/// for it: were it called on the stack that it has interrupted, a signal in the middle of it would take the alternate
/// stack from its top on, where the frame of the first one lies.
///
/// # Errors
/// What the kernel said about the handler.
pub fn report_overflows() -> io::Result<()> {
    let mut previous = no_action();
    // SAFETY: a null new action only reads the present one.
    if unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), &raw mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if PREVIOUS.set(previous).is_err() {
        return Ok(());
    }
    let mut action = no_action();
    action.sa_sigaction = on_fault as *const () as usize;
    // A handler that it is passed on to runs with what it has asked for.
    let kept = previous.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
    action.sa_mask = previous.sa_mask;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for and only does what a signal handler may do.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An alternate signal stack of the calling thread, if it had none, until this is dropped there.
#[derive(Debug)]
#[must_use = "the stack is gone when this is dropped"]
pub struct SignalStack {
    memory: Option<StackMemory>,
    /// The stack is this thread's.
    _thread: PhantomData<*const ()>,
}

impl SignalStack {
    /// Enough for the kernel's frame with all registers, and for a line of text.
    const BYTES: usize = 64 << 10;

    /// Sees that the thread has one. Where the kernel refuses, it has none.
    pub fn of_this_thread() -> Self {
        // SAFETY: all zeros is a valid `stack_t`, and a null new stack only reads the present one.
        let has_none = unsafe {
            let mut present: libc::stack_t = std::mem::zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut present) == 0 && present.ss_flags & libc::SS_DISABLE != 0
        };
        // The program's handlers may run on it, and need more than there is.
        let map = || StackMemory::map(1, GUARD_BYTES_OF_C + Self::BYTES, GUARD_BYTES_OF_C).ok();
        let memory = if has_none { map() } else { None };
        if let Some(memory) = &memory {
            let lowest = memory.slot(0).lowest_usable;
            let stack = libc::stack_t { ss_sp: lowest.as_ptr().cast(), ss_flags: 0, ss_size: Self::BYTES };
            // SAFETY: the memory is there until the drop, which takes the stack back first.
            unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
        }
        Self { memory, _thread: PhantomData }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.memory.is_some() {
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            // SAFETY: takes back what was set on this thread.
            unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
        }
    }
}

/// An action with nothing set: the default one, with an empty mask.
fn no_action() -> libc::sigaction {
    // SAFETY: all zeros is a valid `sigaction`.
    unsafe { std::mem::zeroed() }
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo, and errno is this thread's own.
    let (address, errno) = unsafe { ((*info).si_addr().addr(), libc::__errno_location()) };
    // SAFETY: as above.
    let saved_errno = unsafe { *errno };
    // SAFETY: the kernel passes a valid siginfo and, on x86-64, a ucontext.
    let (code, registers) = unsafe { ((*info).si_code, &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs) };
    let top = registers[libc::REG_RSP as usize].cast_unsigned();
    let is_overflow = |stack: &StackBounds| match code {
        libc::SI_KERNEL => has_no_room(stack, usize::try_from(top).expect("an address")),
        _ => is_in_guard(stack, address),
    };
    match current_stack().filter(is_overflow) {
        Some(stack) => {
            write_message(&stack);
            die_on_return(signal);
        }
        None => pass_on(signal, info, context),
    }
    // SAFETY: as above.
    unsafe { *errno = saved_errno };
}

fn is_in_guard(stack: &StackBounds, address: usize) -> bool {
    (stack.lowest - stack.guard_bytes..stack.lowest).contains(&address)
}

/// Whether the kernel could not push the frame of a signal, such as that of a fault in far memory, onto a stack with
/// this top: it raises SIGSEGV then, and does not say where.
fn has_no_room(stack: &StackBounds, top: usize) -> bool {
    /// Code may use these below the top, so that a frame begins behind them.
    const RED_ZONE_BYTES: usize = 128;
    let needed = stack.lowest + signal_frame_bytes() + RED_ZONE_BYTES;
    (stack.lowest - stack.guard_bytes..needed).contains(&top)
}

fn write_message(stack: &StackBounds) {
    let mut buffer = [0u8; MESSAGE_BYTES_MAX];
    let mut rest = &mut buffer[..];
    let written = writeln!(
        rest,
        "unithread {} overflowed its stack of {} KiB: give its pool a larger stack, such as {} KiB",
        stack.index,
        stack.bytes >> 10,
        (stack.bytes + stack.bytes / 2).next_power_of_two() >> 10
    );
    let length = MESSAGE_BYTES_MAX - rest.len();
    if written.is_ok() {
        // SAFETY: writes the initialised part of a buffer; if standard error is closed there is nobody to tell.
        unsafe { libc::write(libc::STDERR_FILENO, buffer.as_ptr().cast(), length) };
    }
}

/// Restores the default action, so that the fault, which repeats when the handler returns, ends the process.
fn die_on_return(signal: libc::c_int) {
    let default = no_action();
    // SAFETY: the default action is valid for every signal.
    unsafe { libc::sigaction(signal, &raw const default, std::ptr::null_mut()) };
}

/// The same for what may have been sent, and does not repeat then.
fn take_default_action(signal: libc::c_int, info: *const libc::siginfo_t) {
    die_on_return(signal);
    // SAFETY: the kernel passes a valid siginfo. Up to 0 are the codes of what was sent, to a thread that may get it.
    unsafe {
        if (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    match PREVIOUS.get() {
        Some(previous) if previous.sa_sigaction > libc::SIG_IGN => {
            // It is for one signal alone, as the kernel would see to.
            if previous.sa_flags & libc::SA_RESETHAND != 0 {
                die_on_return(signal);
            }
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                // SAFETY: an action that is neither default nor ignore holds its handler's address, and the flag says
                // that it takes three arguments.
                let handler = unsafe { std::mem::transmute::<usize, Handler>(previous.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: as above, without the flag: one argument.
                let handler =
                    unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(previous.sa_sigaction) };
                handler(signal);
            }
        }
        // What was sent is ignored; the kernel does not let a process ignore a fault of its own.
        // SAFETY: as where the default action is taken.
        Some(previous) if previous.sa_sigaction == libc::SIG_IGN && unsafe { (*info).si_code } <= 0 => {}
        _ => take_default_action(signal, info),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_memory::readable;

    #[test]
    fn a_signal_stack_lies_above_a_guard() {
        std::thread::spawn(|| {
            // The standard library has given the thread one.
            let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            let mut present = none;
            // SAFETY: both are valid, and no handler runs.
            unsafe { libc::sigaltstack(&raw const none, std::ptr::null_mut()) };
            let stack = SignalStack::of_this_thread();
            // SAFETY: a null new stack only reads the present one.
            unsafe { libc::sigaltstack(std::ptr::null(), &raw mut present) };
            let lowest = present.ss_sp.cast::<u8>();
            assert_eq!((present.ss_flags, present.ss_size), (0, SignalStack::BYTES));
            assert!(readable(lowest) && readable(lowest.wrapping_add(SignalStack::BYTES - 1)));
            assert!((1..=GUARD_BYTES_OF_C).step_by(1024).all(|below| !readable(lowest.wrapping_sub(below))));
            drop(stack);
            // SAFETY: as above.
            unsafe { libc::sigaltstack(std::ptr::null(), &raw mut present) };
            assert_eq!(present.ss_flags, libc::SS_DISABLE);
        })
        .join()
        .unwrap();
    }
}
