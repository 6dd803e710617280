//! [`Protected`]: memory whose pages appear at their first touch, by a handler of SIGSEGV.
//!
//! The oldest way to have page faults in user space: nobody has permission for a page, a touch of it raises SIGSEGV in
//! the thread that touched it, and the handler gives the permission. It is here to be measured beside userfaultfd. Far
//! memory is not made of it, because other threads would see a page before it is filled, and each change of a
//! permission takes the lock of the whole address space.
//!
//! Who touches what: there is one such memory at a time in a process, and whoever makes another waits. Its owner writes
//! [`WATCHED`] before anybody can touch the memory, and again when nobody can any more; the handler reads it.
//!
//! UNSAFETY: a signal handler, and the permissions of memory that this crate owns.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use yonder_units::PAGE_BYTES;

use crate::{MapError, Mapping};

/// Is told of a touch, by the offset of its page, in the thread that touched it and before the page appears.
///
/// It runs inside a signal handler, so it must not allocate, block, or touch the memory.
pub type OnTouch = Box<dyn Fn(u64) + Send + Sync>;

/// Memory whose pages nobody may use until somebody was told of their first touch. If several threads touch a page at
/// one moment, each of them counts as first.
pub struct Protected {
    mapping: Mapping,
    previous: libc::sigaction,
    _turn: MutexGuard<'static, ()>,
}

/// What the handler needs.
struct Watched {
    base: AtomicUsize,
    /// Zero where nothing is watched.
    bytes: AtomicUsize,
    /// From `Box::into_raw`, and alive as long as anybody can touch the memory.
    on_touch: AtomicPtr<OnTouch>,
    /// From `Box::into_raw`. Replaced as a whole and never freed, because a handler may be reading it.
    previous: AtomicPtr<libc::sigaction>,
}

static TURN: Mutex<()> = Mutex::new(());
static WATCHED: Watched = Watched {
    base: AtomicUsize::new(0),
    bytes: AtomicUsize::new(0),
    on_touch: AtomicPtr::new(ptr::null_mut()),
    previous: AtomicPtr::new(ptr::null_mut()),
};

impl Protected {
    /// Maps `bytes` of zeros, which appear page by page. Replaces the process's SIGSEGV handler as long as it lives;
    /// the one that was there has its place back, and its effect, at the first signal that is not of this memory.
    pub fn new(bytes: usize, on_touch: OnTouch) -> Result<Self, MapError> {
        // A test that failed while it had its turn leaves nothing behind: its memory was dropped first.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mapping = Mapping::region(bytes)?;
        // SAFETY: the range is this mapping, which nobody else knows yet.
        if unsafe { libc::mprotect(mapping.checked(0, bytes).cast(), bytes, libc::PROT_NONE) } != 0 {
            return Err(MapError::last("mprotect", bytes));
        }
        let previous = change_action(None).ok_or_else(|| MapError::last("sigaction", bytes))?;
        WATCHED.previous.store(Box::into_raw(Box::new(previous)), Ordering::Release);
        WATCHED.on_touch.store(Box::into_raw(Box::new(on_touch)), Ordering::Release);
        WATCHED.base.store(mapping.address(), Ordering::Release);
        WATCHED.bytes.store(bytes, Ordering::Release);
        let protected = Self { mapping, previous, _turn: turn };
        // If this fails, the drop puts back what is there.
        change_action(Some(&handling())).ok_or_else(|| MapError::last("sigaction", bytes))?;
        Ok(protected)
    }

    /// The memory, to be read and written like any other.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Protected {
    fn drop(&mut self) {
        change_action(Some(&self.previous)).expect("a handler that was there can come back");
        WATCHED.bytes.store(0, Ordering::Release);
        let on_touch = WATCHED.on_touch.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: from `Box::into_raw` in `new`, and taken back here only. Nobody can touch the memory any more,
        // because every way to it borrows what is being dropped, so no handler calls it.
        drop(unsafe { Box::from_raw(on_touch) });
    }
}

/// What the process does at SIGSEGV as long as there is a [`Protected`]: SIGSEGV is blocked in the handler and the
/// kernel restores the mask, as in any program.
fn handling() -> libc::sigaction {
    // SAFETY: an all-zero sigaction is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigsegv as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action
}

/// What was done at SIGSEGV until now, and is not any more if there is an `action`.
fn change_action(action: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let new = action.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both structures live as long as the call; the handler has the signature that SA_SIGINFO asks for and is
    // async-signal-safe as long as those that it calls keep their contract.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(libc::SIGSEGV, new, &raw mut previous) == 0).then_some(previous)
    }
}

extern "C" fn on_sigsegv(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo, in which SIGSEGV fills the address field.
    let address = unsafe { (*info).si_addr() } as usize;
    let offset = address.wrapping_sub(WATCHED.base.load(Ordering::Acquire));
    if offset < WATCHED.bytes.load(Ordering::Acquire) {
        let page = offset - offset % PAGE_BYTES;
        // SAFETY: the touched memory is watched, and whoever touches it borrows its owner, so this is alive.
        (unsafe { &*WATCHED.on_touch.load(Ordering::Acquire) })(page as u64);
        let start = ptr::with_exposed_provenance_mut(address - offset % PAGE_BYTES);
        // SAFETY: the page is one of the memory that is watched, and to give a permission takes nothing from anybody.
        if unsafe { libc::mprotect(start, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) } == 0 {
            return;
        }
    }
    // Not ours, or the kernel has no more mappings: the access is tried again, and the previous action has its effect.
    // SAFETY: set before the handler was installed, and never freed.
    change_action(Some(unsafe { &*WATCHED.previous.load(Ordering::Acquire) }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn each_page_is_told_of_once_and_is_memory_then() {
        let touches: Arc<[AtomicU32; 64]> = Arc::new([const { AtomicU32::new(0) }; 64]);
        let seen = Arc::clone(&touches);
        let on_touch = Box::new(move |offset: u64| {
            seen[(offset / PAGE) as usize].fetch_add(1, Ordering::Relaxed);
        });
        let protected = Protected::new(64 * PAGE_BYTES, on_touch).unwrap();
        let handler = change_action(None).unwrap().sa_sigaction;
        assert_eq!(handler, on_sigsegv as *const () as usize);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mapping = protected.mapping();
                scope.spawn(move || {
                    for page in 16 * thread..16 * thread + 16 {
                        assert_eq!(mapping.try_read_u64(page * PAGE + 8), Ok(0));
                        mapping.write(page * PAGE + 8, &page.to_le_bytes());
                        assert_eq!(mapping.try_read_u64(page * PAGE + 8), Ok(page));
                    }
                });
            }
        });
        assert!(touches.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{touches:?}");
        let previous = protected.previous.sa_sigaction;
        drop(protected);
        // Another test may have its turn meanwhile.
        let after = change_action(None).unwrap().sa_sigaction;
        assert!(after == previous || after == handler, "the handler that was there is lost");
    }

    /// Set in the process that this test starts, which touches memory that nobody watches.
    const VICTIM: &str = "YONDER_TEST_TOUCHES_FOREIGN_MEMORY";

    #[test]
    fn a_touch_of_other_memory_ends_the_process_as_before() {
        if std::env::var_os(VICTIM).is_some() {
            let _protected = Protected::new(PAGE_BYTES, Box::new(|_| {})).unwrap();
            let foreign = Mapping::reserved(PAGE_BYTES).unwrap();
            // By a routine in assembly, which is made although nobody wants the value.
            let _ = foreign.try_read_u64(0);
            return;
        }
        let name = "protected::tests::a_touch_of_other_memory_ends_the_process_as_before";
        let mut victim = Command::new(std::env::current_exe().unwrap());
        let ended = victim.args([name, "--exact", "--test-threads=1"]).env(VICTIM, "1").output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGSEGV), "{}", String::from_utf8_lossy(&ended.stdout));
    }
}
