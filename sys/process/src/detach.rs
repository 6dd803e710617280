//! [`detach`]: a process of the system's own beside the one that is about to become a program of its user.
//!
//! Neighbours: `edge/cli`, whose `run` leaves a helper behind and executes the program.
//!
//! UNSAFETY: a fork, before there are threads.

use std::ffi::c_int;
use std::io;

/// Which of the two processes this is, after [`detach`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that has called, with the same number.
    Caller,
    /// The new one.
    Helper,
}

/// Makes a helper that the caller's waits for children do not see, whatever the caller becomes. It is the child of a
/// process that has ended, so the system's first process has it. If that is the caller, as in a container, the kernel
/// takes it for a child of the other kind (`__WCLONE` of `waitpid`).
///
/// The helper has a session of its own, and holds back all signals that can be; nothing to read, no standard output,
/// and none of the descriptors that the caller was started with but for standard error. What this process has opened
/// itself, both have. To be called before this process has made threads.
///
/// An error if the kernel makes no more processes.
pub fn detach() -> io::Result<Side> {
    if std::process::id() == 1 {
        return made(fork_unseen());
    }
    // SAFETY: there is no other thread of ours that could have a lock now, and the C library sees to its own.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as for the first one; what ends here runs no code of its parent's exit.
            match unsafe { libc::fork() } {
                0 => become_helper(),
                // SAFETY: as above.
                other => unsafe { libc::_exit(c_int::from(other == -1)) },
            }
            Ok(Side::Helper)
        }
        child => ended_well(child).map(|()| Side::Caller),
    }
}

fn made(process: libc::c_long) -> io::Result<Side> {
    match process {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            become_helper();
            Ok(Side::Helper)
        }
        _ => Ok(Side::Caller),
    }
}

/// A fork without a signal for the parent.
fn fork_unseen() -> libc::c_long {
    /// Asks where the C library keeps the number of its thread.
    const PR_GET_TID_ADDRESS: c_int = 40;
    let mut number: *mut c_int = std::ptr::null_mut();
    // SAFETY: writes the address that the C library has told the kernel, which is of this thread's own memory.
    let is_known = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut number) } == 0 && !number.is_null();
    // As a fork has them, but for the signal in the lowest bits.
    let flags = if is_known { libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID } else { 0 };
    let none = std::ptr::null_mut::<c_int>();
    // SAFETY: a fork, before there are other threads that could have a lock: the child has a copy of all memory, and
    // the number of its thread stands where the C library looks for it.
    unsafe { libc::syscall(libc::SYS_clone, flags, none, none, number, none) }
}

/// Waits for the process between the two.
fn ended_well(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    loop {
        // SAFETY: the child is this process's own, and the status a number.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        match io::Error::last_os_error() {
            _ if waited == child && status == 0 => return Ok(()),
            _ if waited == child => return Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            error if error.kind() == io::ErrorKind::Interrupted => {}
            // Whoever has started this process ignores ends of children, which is inherited.
            error if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            error => return Err(error),
        }
    }
}

fn become_helper() {
    /// What tells of a mistake in this process itself.
    const OWN: [c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGSYS, libc::SIGTRAP];
    for descriptor in given() {
        // SAFETY: nothing in this process has opened it, so nothing here uses it.
        unsafe { libc::close(descriptor) };
    }
    // SAFETY: signals are held back, and standard input and output are what their numbers say.
    unsafe {
        libc::setsid();
        let mut held: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut held);
        for signal in OWN {
            libc::sigdelset(&raw mut held, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const held, std::ptr::null_mut());
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        for descriptor in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
            libc::dup2(nothing, descriptor);
        }
        if nothing > libc::STDERR_FILENO {
            libc::close(nothing);
        }
    }
}

/// The descriptors that this process was started with, behind the standard ones: what it opens itself is closed when it
/// executes something, and these were not.
fn given() -> Vec<c_int> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers: Vec<c_int> = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse().ok()).collect();
    let is_given = |descriptor: &c_int| {
        // SAFETY: asks for flags alone; one that is closed meanwhile has none.
        let flags = unsafe { libc::fcntl(*descriptor, libc::F_GETFD) };
        *descriptor > libc::STDERR_FILENO && flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    numbers.into_iter().filter(is_given).collect()
}
