//! Children that the program forks.
//!
//! The C library calls these around every `fork`, also its own. Nothing changes while the kernel copies the process;
//! the child then has the far memory that its parent had, as far as that can be ([`yonder_paging::Forking`]), and ends
//! with a message where it cannot. Between `vfork` and `exec` a child uses its parent's memory, and its faults are as
//! its parent's.
//!
//! UNSAFETY: hooks that the C library calls.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use yonder_paging::Forking;
use yonder_paging::far_heap::Frozen;
use yonder_trap::HeldBack;

use crate::far::{self, Far, far};
use crate::{complain, ending, locked, mapped, robust};

/// What is held while the process forks.
struct Held {
    far: &'static Far,
    forking: Forking<'static>,
    _heap: Frozen<'static>,
    _maps: mapped::Held,
    _mutexes: robust::Held,
    _locked: locked::Held,
    /// Last: a handler of a signal may fork or map memory, and would wait for what its own thread has locked.
    _signals: HeldBack,
}

thread_local! {
    /// Never dropped with its thread: a program may fork at its exit, when thread-locals that have to be dropped are
    /// gone.
    static HELD: RefCell<ManuallyDrop<Option<Held>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

fn take_held() -> Option<Held> {
    HELD.with_borrow_mut(|held| held.take())
}

/// From now on forks are right. To be called before the program's code runs: hooks that come later are called outside
/// these, and may use memory.
pub(crate) fn watch() {
    // SAFETY: the hooks have the type that is asked for, and this library is never unloaded. Without the hooks, a child
    // that touches far memory ends by SIGSEGV, because that is not inherited.
    let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
}

unsafe extern "C" fn before() {
    let Some(far) = far() else { return };
    let signals = HeldBack::begin();
    let (locked, mutexes, maps, heap) = (locked::held(), robust::held(), mapped::hold(), far.heap.freeze());
    let forking = far.region().far().about_to_fork(&[far.region()]);
    HELD.with_borrow_mut(|held| {
        **held =
            Some(Held { far, forking, _heap: heap, _maps: maps, _mutexes: mutexes, _locked: locked, _signals: signals })
    });
}

unsafe extern "C" fn in_parent() {
    if let Some(held) = take_held() {
        held.forking.in_parent(&[held.far.region()]);
    }
}

unsafe extern "C" fn in_child() {
    ending::is_child();
    let Some(held) = take_held() else { return far::has_none() };
    held.far.is_child();
    if let Err(error) = held.forking.in_child(&[held.far.region()]) {
        complain(&format!("a forked process has no far memory: {error}"));
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(1) }
    }
}
