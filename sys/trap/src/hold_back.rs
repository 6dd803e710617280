//! [`hold_back`]: a piece of code that no signal handler of the program may interrupt.
//!
//! UNSAFETY: a system call, because a program may have put functions of its own in the place of the C library's.

/// Signals that must always come through, or a fault ends the process: bit `n - 1` is signal `n`. SIGBUS is how a fault reaches
/// its thread, and SIGSYS how a system call on far memory comes back.
pub const NEEDED_SIGNALS: u64 = 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGSYS - 1);

/// Runs `code` while this thread takes no signals but [`NEEDED_SIGNALS`]. The program's handlers may touch far memory: that must
/// not happen in the middle of a change of it, nor on a thread that is not the program's. `code` must not be left by a switch.
pub fn hold_back<T>(code: impl FnOnce() -> T) -> T {
    let set = |mask: &u64, before: *mut u64| {
        let arguments = [libc::SIG_SETMASK as u64, mask as *const u64 as u64, before as u64, 8, 0, 0];
        // SAFETY: the kernel reads and writes the words, which live as long as the call.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, arguments[0], arguments[1], arguments[2], arguments[3]) };
    };
    let mut before = 0;
    set(&!NEEDED_SIGNALS, &raw mut before);
    let result = code();
    set(&before, std::ptr::null_mut());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_held_back(signal: libc::c_int) -> bool {
        // SAFETY: the set is a local.
        unsafe {
            let mut now: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut now);
            libc::sigismember(&raw const now, signal) == 1
        }
    }

    #[test]
    fn all_but_faults_wait_until_the_code_is_done() {
        let signals = [libc::SIGBUS, libc::SIGSYS, libc::SIGUSR1, libc::SIGINT];
        assert_eq!(hold_back(|| signals.map(is_held_back)), [false, false, true, true]);
        assert_eq!(signals.map(is_held_back), [false; 4]);
    }
}
