//! Robust mutexes, which the kernel releases when the thread that owns them ends.
//!
//! It walks the thread's list of them with what memory is there then, and leaves the rest of the list alone at the
//! first word that is not: nothing can bring a page at that moment. So a robust mutex that is far is held from its
//! `pthread_mutex_init`, without which there is none, to its `pthread_mutex_destroy`.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::{pthread_mutex_t, pthread_mutexattr_t};
use yonder_paging::Hold;

use crate::far::{far, is_far};
use crate::libc_own::{in_front, own};

/// What is held, by the addresses of the mutexes.
static HELD: Mutex<BTreeMap<usize, Hold<'static>>> = Mutex::new(BTreeMap::new());

/// What keeps mutexes from being held or let go until it is dropped.
pub(crate) type Held = MutexGuard<'static, BTreeMap<usize, Hold<'static>>>;

/// For who keeps handlers of signals away.
pub(crate) fn held() -> Held {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

in_front! {
    /// ENOMEM where a robust mutex cannot be held.
    pthread_mutex_init(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t) -> c_int,
        if is_far(mutex as usize) && is_robust(attributes) && !hold(mutex as usize) => libc::ENOMEM;
}

/// `pthread_mutex_destroy`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pthread_mutex_destroy(mutex: *mut pthread_mutex_t) -> c_int {
    let destroy = own!(pthread_mutex_destroy: fn(*mut pthread_mutex_t) -> c_int);
    // SAFETY: the caller's.
    let result = unsafe { destroy(mutex) };
    if result == 0 && is_far(mutex as usize) {
        yonder_trap::hold_back(|| held().remove(&(mutex as usize)));
    }
    result
}

/// # Safety
/// `attributes` is null or valid.
unsafe fn is_robust(attributes: *const pthread_mutexattr_t) -> bool {
    let mut kind = libc::PTHREAD_MUTEX_STALLED;
    // SAFETY: the caller's.
    !attributes.is_null()
        && unsafe { libc::pthread_mutexattr_getrobust(attributes, &raw mut kind) } == 0
        && kind == libc::PTHREAD_MUTEX_ROBUST
}

/// Lets go of mutexes that are unmapped, and were not destroyed.
pub(crate) fn forget(range: Range<usize>) {
    yonder_trap::hold_back(|| {
        let mut held = held();
        let gone: Vec<usize> = held.range(range).map(|(address, _)| *address).collect();
        gone.iter().for_each(|address| _ = held.remove(address));
    });
}

/// Holds a mutex; whether it is held now.
fn hold(address: usize) -> bool {
    let Some(far) = far() else { return true };
    let Some(offset) = far.offset(address) else { return false };
    yonder_trap::hold_back(|| {
        let hold = far.region().hold(offset, size_of::<pthread_mutex_t>());
        // One that was there before, of memory that was freed with a mutex in it, is let go.
        hold.map(|hold| held().insert(address, hold)).is_ok()
    })
}
