//! [`Chain`]: who gets the signals that are not ours, as without us: the program's handler, or nobody.
//!
//! A handler that the program wants for one signal alone (`SA_RESETHAND`) gets one. What it asked for otherwise is not
//! kept: its handler runs on the stack and with the mask of ours.
//!
//! UNSAFETY: actions behind a raw pointer because nothing else can be read inside a signal handler, the program's
//! handlers, and system calls, because a program or a library may have put functions of its own in the place of the C
//! library's.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Whose a signal is otherwise. Replaced as a whole; neither written nor freed, because a handler may be reading it.
#[derive(Debug, Default)]
pub struct Chain {
    next: AtomicPtr<libc::sigaction>,
}

impl Chain {
    /// Of a signal whose handler is not installed yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether there has been a [`Chain::begin`].
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.next.load(Ordering::Acquire).is_null()
    }

    /// The handler is installed now, and what was there before is `previous`.
    pub fn begin(&self, previous: libc::sigaction) {
        self.next.store(Box::into_raw(Box::new(previous)), Ordering::Release);
    }

    /// The action until now, and from now on `next` if there is one. `None` before [`Chain::begin`].
    pub fn replace(&self, next: Option<libc::sigaction>) -> Option<libc::sigaction> {
        let now = self.next.load(Ordering::Acquire);
        let before = match next {
            Some(next) if !now.is_null() => self.next.swap(Box::into_raw(Box::new(next)), Ordering::AcqRel),
            _ => now,
        };
        // SAFETY: null, or from `Box::into_raw` and never freed, or a constant.
        unsafe { before.as_ref() }.copied()
    }

    /// Whether the program has a handler of its own.
    #[must_use]
    pub fn has_handler(&self) -> bool {
        // SAFETY: as above.
        let next = unsafe { self.next.load(Ordering::Acquire).as_ref() };
        next.is_some_and(|action| action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN)
    }

    /// Whose this signal is. If that was for one signal alone, the next takes the default action.
    fn take(&self) -> Option<&libc::sigaction> {
        // SAFETY: all zeros is the default action.
        static DEFAULT: libc::sigaction = unsafe { std::mem::zeroed() };
        loop {
            let next = self.next.load(Ordering::Acquire);
            // SAFETY: null, or from `Box::into_raw` and never freed, or the constant.
            let action = unsafe { next.as_ref() }?;
            let is_for_one = action.sa_sigaction > libc::SIG_IGN && action.sa_flags & libc::SA_RESETHAND != 0;
            let default = (&raw const DEFAULT).cast_mut();
            if !is_for_one || self.next.compare_exchange(next, default, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Some(action);
            }
        }
    }

    /// Passes a signal on from its handler. One that ends a process does so at once, or when the handler returns and
    /// the instruction that raised it is tried again.
    ///
    /// # Safety
    /// Called in the signal's handler, with what the kernel has given that.
    pub unsafe fn pass_on(&self, signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let next = self.take();
        let (action, flags) = next.map_or((libc::SIG_DFL, 0), |action| (action.sa_sigaction, action.sa_flags));
        // SAFETY: the caller's: the kernel passes a valid siginfo. Up to 0 are the codes of what was sent.
        let was_sent = unsafe { (*info).si_code } <= 0;
        match action {
            libc::SIG_IGN if was_sent => {}
            // What an instruction or a filter raises cannot be ignored; a call that was filtered is not made again.
            libc::SIG_DFL | libc::SIG_IGN => take_default_action(signal, was_sent || signal == libc::SIGSYS),
            _ if flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: the program has given this value as a three-argument handler.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(action) };
                handler(signal, info, context);
            }
            _ => {
                // SAFETY: the program has given this value as a one-argument handler.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(action) };
                handler(signal);
            }
        }
    }
}

/// From now on the kernel does what it does with a signal that nobody handles; now, if this one does not come again by
/// itself.
fn take_default_action(signal: libc::c_int, is_now: bool) {
    /// The kernel's `struct sigaction`: handler, flags, restorer, mask. All zeros is the default action.
    const DEFAULT: [u64; 4] = [0; 4];
    // SAFETY: the kernel reads the action, which lives as long as the call; the others take no pointers.
    unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), ptr::null_mut::<u64>(), 8);
        if is_now {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// What the kernel passes with a signal that was sent.
    fn pass_on(chain: &Chain) {
        // SAFETY: all zeros is a valid siginfo, of a signal that was sent; the handlers here look at nothing.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            chain.pass_on(libc::SIGUSR1, &raw mut info, ptr::null_mut());
        }
    }

    #[test]
    fn a_handler_for_one_signal_gets_one() {
        static SEEN: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn on_signal(_signal: libc::c_int) {
            SEEN.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: all zeros is a valid action.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        let chain = Chain::new();
        chain.begin(action);
        (0..2).for_each(|_| pass_on(&chain));
        action.sa_flags = libc::SA_RESETHAND;
        assert_eq!(chain.replace(Some(action)).unwrap().sa_flags, 0);
        assert!(chain.has_handler());
        pass_on(&chain);
        assert_eq!((SEEN.load(Ordering::Relaxed), chain.has_handler()), (3, false));
        assert_eq!(chain.replace(Some(action)).unwrap().sa_sigaction, libc::SIG_DFL);
    }
}
