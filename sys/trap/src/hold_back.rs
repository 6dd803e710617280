//! [`hold_back`]: a piece of code that no signal handler of the program may interrupt.
//!
//! UNSAFETY: a system call, because a program may have put functions of its own in the place of the C library's.

use std::marker::PhantomData;

/// Signals that must always come through, or a fault ends the process: bit `n - 1` is signal `n`. SIGBUS is how a fault
/// reaches its thread, and SIGSYS how a system call on far memory comes back.
pub const NEEDED_SIGNALS: u64 = 1 << (libc::SIGBUS - 1) | 1 << (libc::SIGSYS - 1);

/// The C library's signal for `pthread_cancel`. Its own functions never hold it back, nor let it out of a set.
pub const CANCELLING_SIGNAL: u64 = 1 << 31;

/// The C library's signal for a change of the process's user or groups, as its manual calls it (`nptl(7)`): each thread
/// makes the system call in the handler, and the thread that asked waits until all have.
const IDENTITY_SIGNAL: u64 = 1 << 32;

/// What an instruction raises: the kernel ends a process in which it has to wait.
const RAISED_SIGNALS: u64 = NEEDED_SIGNALS
    | 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGTRAP - 1);

/// Signals that wait while a fault is handled, where they have to ([`hold_signals`](crate::hold_signals)). A thread
/// that is cancelled in the middle would leave locks behind. The kernel lets nobody hold two others back.
pub(crate) const HELD_IN_FAULTS: u64 =
    !(RAISED_SIGNALS | IDENTITY_SIGNAL | 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// Runs `code` while this thread takes no signals but [`NEEDED_SIGNALS`] and the one that makes it change its user or
/// groups, which touches no memory of the program. The program's handlers may touch far memory: that must not happen in
/// the middle of a change of it, nor on a thread that is not the program's. `code` must not be left by a switch, nor by
/// a cancellation. A thread that it starts begins with the same signals held back.
pub fn hold_back<T>(code: impl FnOnce() -> T) -> T {
    let _held_back = HeldBack::begin();
    code()
}

/// Signals are held back on this thread until it is dropped there, as in [`hold_back`].
#[derive(Debug)]
#[must_use]
pub struct HeldBack {
    before: u64,
    /// The signals are this thread's.
    _thread: PhantomData<*const ()>,
}

impl HeldBack {
    /// From now on.
    pub fn begin() -> Self {
        Self::of(!(NEEDED_SIGNALS | IDENTITY_SIGNAL))
    }

    /// From now on those that wait while a fault is handled: so nothing changes at a fault, and its handler may be left
    /// by a switch. What instructions raise comes through.
    pub fn as_in_faults() -> Self {
        Self::of(HELD_IN_FAULTS)
    }

    fn of(signals: u64) -> Self {
        let mut before = 0;
        set(&signals, &raw mut before);
        Self { before, _thread: PhantomData }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        set(&self.before, std::ptr::null_mut());
    }
}

fn set(mask: &u64, before: *mut u64) {
    let arguments = [libc::SIG_SETMASK as u64, mask as *const u64 as u64, before as u64, 8];
    // SAFETY: the kernel reads and writes the words, which live as long as the call.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, arguments[0], arguments[1], arguments[2], arguments[3]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_held_back(signal: libc::c_int) -> bool {
        held_back() & (1 << (signal - 1)) != 0
    }

    /// By the kernel's account: the C library does not tell of its own signals.
    fn held_back() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let held_back = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        u64::from_str_radix(held_back, 16).unwrap()
    }

    #[test]
    fn a_thread_holds_back_what_a_handler_does() {
        let before = held_back();
        let held = HeldBack::as_in_faults();
        assert_eq!(held_back(), HELD_IN_FAULTS, "else faults go back through the kernel");
        drop(held);
        assert_eq!(held_back(), before);
    }

    #[test]
    fn all_but_faults_wait_until_the_code_is_done() {
        let signals = [libc::SIGBUS, libc::SIGSYS, libc::SIGUSR1, libc::SIGINT];
        assert_eq!(hold_back(|| signals.map(is_held_back)), [false, false, true, true]);
        assert_eq!(signals.map(is_held_back), [false; 4]);
    }

    #[test]
    fn the_c_librarys_signals_are_told_apart() {
        const BOTH: [libc::c_int; 2] = [32, 33];
        assert_eq!(1 << (BOTH[0] - 1), CANCELLING_SIGNAL);
        assert_eq!(
            hold_back(|| BOTH.map(is_held_back)),
            [true, false],
            "a cancellation waits, a change of user does not"
        );
        let in_a_thread = || std::thread::spawn(|| is_held_back(BOTH[1])).join().unwrap();
        assert!(!hold_back(in_a_thread), "threads that are ours change their user with the others");
    }
}
