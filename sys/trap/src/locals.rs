//! Thread-locals for unithreads that call libraries.
//!
//! A library keeps things in thread-locals from one line to the next: what it has borrowed, an error number, a cache. A
//! unithread that waits for a page in the middle leaves them to the next one of its thread, which finds them half
//! changed. So each call of a library gets [`Locals`], those of a thread that does nothing else but own them:
//!
//! ```text
//!   worker's thread      fs ---> the worker's thread-locals <---------------------------+
//!     unithread               |  with                                                   | HOME
//!       calls a library  fs ---> thread-locals of a parked thread: errno, the library's, HOME
//!         touches a page      |  SIGBUS: home again, whatever runs meanwhile; then back
//! ```
//!
//! The thread pointer is a register that user code may change on most machines (FSGSBASE), so that this takes no system
//! call.
//!
//! Locks have the same trouble: one that a parked unithread holds stops the thread of the next that wants it, for good.
//! Whoever stands between a library and its locks counts them here ([`lock_taken`], [`lock_released`]), and faults do
//! not yield while one is held.
//!
//! Invariants: thread-locals are used by one call at a time; the fault handler runs at home; a call does not migrate.
//!
//! UNSAFETY: the thread pointer.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Stack of a thread that owns thread-locals: it runs their destructors.
const STACK_BYTES: usize = 256 << 10;
/// `HWCAP2_FSGSBASE`: user code may change the thread pointer.
const FSGSBASE: u64 = 1 << 1;
/// `ARCH_SET_FS` of arch_prctl.
const SET_FS: libc::c_int = 0x1002;

thread_local! {
    /// The thread pointer to go back to; 0 with thread-locals that are the running thread's own.
    static HOME: Cell<usize> = const { Cell::new(0) };
    /// Locks of libraries that were taken with these thread-locals and not released.
    static LOCKS: Cell<usize> = const { Cell::new(0) };
}

/// Thread-locals that calls of libraries may use, one at a time. Dropping them runs their destructors.
#[derive(Debug)]
pub struct Locals {
    base: usize,
    /// Dropped to end the thread.
    stays: Option<Sender<()>>,
    owner: Option<JoinHandle<()>>,
}

impl Locals {
    /// Thread-locals as a new thread finds them.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn new() -> io::Result<Self> {
        may_change_base();
        let (tell, told) = channel();
        let (stays, ends) = channel::<()>();
        let own = move || {
            hold_back_signals();
            let _ = tell.send(base());
            // An error says that the sender is gone.
            let _ = ends.recv();
        };
        let owner = std::thread::Builder::new().name("yonder-locals".to_owned()).stack_size(STACK_BYTES).spawn(own)?;
        let base = told.recv().map_err(io::Error::other)?;
        Ok(Self { base, stays: Some(stays), owner: Some(owner) })
    }

    /// Runs `body` with these thread-locals. A panic in it ends the process.
    ///
    /// # Safety
    /// `body` leaves nothing in a thread-local that only the running thread may have or drop, and switches to no other
    /// unithread but by page faults.
    pub unsafe fn with<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let abort = Abort;
        // SAFETY: the owner is parked and stays so; `self` is borrowed for this call alone.
        unsafe { leave_home(self.base) };
        let result = run(body);
        // A fault may have brought the unithread elsewhere and back, never to another thread.
        switch_to_own_tls();
        std::mem::forget(abort);
        result
    }
}

impl Drop for Locals {
    fn drop(&mut self) {
        self.stays = None;
        if let Some(owner) = self.owner.take() {
            // It has panicked if a destructor has, and has said so.
            let _ = owner.join();
        }
    }
}

/// Ends the process when a panic would leave code that runs with other thread-locals.
struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Where a thread was before it came home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedTls {
    /// The thread pointer there; 0 if it was at home.
    base: usize,
    locks: usize,
}

impl SavedTls {
    /// At home.
    pub(crate) const NOWHERE: Self = Self { base: 0, locks: 0 };

    /// Whether a lock of a library is held there.
    pub(crate) fn holds_lock(self) -> bool {
        self.locks > 0
    }

    /// Goes back there.
    pub(crate) fn restore(self) {
        if self.base != 0 {
            // SAFETY: the thread was there before, in the same call.
            unsafe { set_base(self.base) };
        }
    }
}

/// Makes the thread's own thread-locals those of the running code. Says where it was.
#[inline(never)]
pub(crate) fn switch_to_own_tls() -> SavedTls {
    let (home, locks) = (HOME.get(), LOCKS.get());
    if home == 0 {
        return SavedTls { base: 0, locks };
    }
    let away = SavedTls { base: base(), locks };
    // SAFETY: `leave_home` has kept the pointer of the thread that runs this.
    unsafe { set_base(home) };
    away
}

/// # Safety
/// `base` is the thread pointer of a thread that is parked, and of nobody else's call.
#[inline(never)]
unsafe fn leave_home(away: usize) {
    assert!(is_home(), "a library's call is made in another's");
    let home = base();
    // SAFETY: the caller's.
    unsafe { set_base(away) };
    remember(home);
}

// Functions of their own, because a compiler takes the thread pointer for one that stays: none of them uses
// thread-locals both before and after a change.

#[inline(never)]
fn remember(home: usize) {
    HOME.set(home);
}

#[inline(never)]
fn run<T>(body: impl FnOnce() -> T) -> T {
    body()
}

/// Whether the running code has the thread's own thread-locals.
#[inline(never)]
pub(crate) fn is_home() -> bool {
    HOME.get() == 0
}

/// A library has taken a lock.
#[inline(never)]
pub fn lock_taken() {
    LOCKS.set(LOCKS.get() + 1);
}

/// A library has released a lock. One that was taken elsewhere counts there, and keeps faults there from yielding.
#[inline(never)]
pub fn lock_released() {
    LOCKS.set(LOCKS.get().saturating_sub(1));
}

/// The thread pointer.
fn base() -> usize {
    let base;
    // SAFETY: the first word that it points to is itself, on x86-64 Linux.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) base, options(nostack, preserves_flags, readonly)) };
    base
}

/// # Safety
/// `base` is the thread pointer of a thread that lives, and does not use it meanwhile unless it is the running one.
#[inline]
unsafe fn set_base(base: usize) {
    if may_change_base() {
        // SAFETY: the caller's, and the kernel lets user code do so.
        unsafe { std::arch::asm!("wrfsbase {}", in(reg) base, options(nostack, preserves_flags)) };
    } else {
        // By hand: the C library's wrapper stores an error number between two thread pointers.
        // SAFETY: the caller's; the call changes these three registers alone.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") libc::SYS_arch_prctl => _,
                in("rdi") SET_FS, in("rsi") base,
                lateout("rcx") _, lateout("r11") _,
                options(nostack),
            );
        }
    }
}

/// Whether user code may change the thread pointer. Asked before the first signal, which finds the answer without a
/// lock.
fn may_change_base() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    // SAFETY: a question.
    *MAY.get_or_init(|| unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0)
}

/// Signals of the process are for threads that do something; page faults are not held back.
fn hold_back_signals() {
    // SAFETY: both sets are locals.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        for own in [libc::SIGBUS, libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGSYS] {
            libc::sigdelset(&raw mut all, own);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static MINE: Cell<u32> = const { Cell::new(0) };
    }

    #[inline(never)]
    fn mine() -> u32 {
        MINE.get()
    }

    #[inline(never)]
    fn set_mine(value: u32) {
        MINE.set(value);
    }

    fn errno() -> *mut libc::c_int {
        // SAFETY: the address of a thread-local word.
        unsafe { libc::__errno_location() }
    }

    #[test]
    fn a_call_has_thread_locals_of_its_own_that_stay_for_the_next() {
        let (mut first, mut second) = (Locals::new().unwrap(), Locals::new().unwrap());
        set_mine(1);
        // SAFETY: a number is left.
        unsafe {
            assert_eq!((first.with(mine), second.with(mine)), (0, 0));
            first.with(|| set_mine(2));
            second.with(|| set_mine(3));
            assert_eq!((mine(), first.with(mine), second.with(mine)), (1, 2, 3));
            let at_home = errno().addr();
            assert_ne!(first.with(errno).addr(), at_home);
            assert_eq!(errno().addr(), at_home);
        }
    }

    #[test]
    fn destructors_run_when_they_are_dropped() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Counted;
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread_local!(static COUNTED: Counted = const { Counted });
        let mut locals = Locals::new().unwrap();
        // SAFETY: what is left may be dropped by any thread.
        unsafe { locals.with(|| COUNTED.with(|_| ())) };
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
        drop(locals);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn locks_are_counted_where_they_are_taken() {
        let mut locals = Locals::new().unwrap();
        // SAFETY: nothing is left.
        unsafe { locals.with(lock_taken) };
        assert!(!switch_to_own_tls().holds_lock());
        // SAFETY: as above.
        let is_held = unsafe {
            locals.with(|| {
                let away = switch_to_own_tls();
                away.restore();
                lock_released();
                away.holds_lock()
            })
        };
        assert!(is_held);
        lock_released();
        lock_taken();
        assert!(switch_to_own_tls().holds_lock());
        lock_released();
    }
}
