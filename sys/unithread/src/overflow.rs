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

use crate::slot::{StackBounds, current_stack};

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 256;

/// What SIGSEGV did before; set before the handler can run.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Makes a stack overflow of a unithread print one line before it ends the process. Installs a SIGSEGV handler for the
/// process, once, and passes other faults on to the handler that was installed before. Threads without an alternate
/// signal stack die without the line: see [`SignalStack`].
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
    memory: Option<Box<[u8]>>,
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
        let mut memory = has_none.then(|| vec![0; Self::BYTES].into_boxed_slice());
        if let Some(memory) = &mut memory {
            let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: Self::BYTES };
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
    match current_stack().filter(|stack| is_in_guard(stack, address)) {
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
