//! [`detach`]: a process of the system's own beside the one that is about to become somebody's program.
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

/// Makes a helper that the caller's waits for children do not see, whatever the caller becomes: the kernel takes it for
/// a child of the other kind (`__WCLONE` of `waitpid`), and sends no SIGCHLD when it ends. The helper has a session of
/// its own, and ignores the signals that ask programs to end; nothing to read, no standard output, and none of the
/// descriptors that the caller was started with but for standard error. What this process has opened itself, both have.
///
/// An error if this process has more than one thread, or the kernel makes no more processes.
pub fn detach() -> io::Result<Side> {
    /// Where the C library keeps the number of its thread.
    const PR_GET_TID_ADDRESS: c_int = 40;
    // Without that file system nobody knows better.
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(io::Error::other("a process with threads cannot be forked"));
    }
    let mut number: *mut c_int = std::ptr::null_mut();
    // SAFETY: writes the address that the C library has told the kernel, which is of this thread's own memory.
    let is_known = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut number) } == 0 && !number.is_null();
    // As a fork has them, but for the signal in the lowest bits.
    let flags = if is_known { libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID } else { 0 };
    let none = std::ptr::null_mut::<c_int>();
    // SAFETY: a fork, before there are other threads that could have a lock: the child has a copy of all memory, and
    // the number of its thread stands where the C library looks for it.
    match unsafe { libc::syscall(libc::SYS_clone, flags, none, none, number, none) } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            become_helper();
            Ok(Side::Helper)
        }
        _ => Ok(Side::Caller),
    }
}

fn become_helper() {
    const IGNORED: [c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];
    for descriptor in given() {
        // SAFETY: nothing in this process has opened it, so nothing here uses it.
        unsafe { libc::close(descriptor) };
    }
    // SAFETY: signals are ignored, and standard input and output are what their numbers say.
    unsafe {
        libc::setsid();
        for signal in IGNORED {
            libc::signal(signal, libc::SIG_IGN);
        }
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
