//! Children that Python forks.
//!
//! The C library calls these around every `fork`, with no Python in between. A child has its parent's far memory as it
//! was: what was local, and with `emu://` all of it. A page that only the parent could fetch is a paging error there.
//! The child allocates nothing and gives nothing back; it opens a memory of its own for that.
//!
//! UNSAFETY: hooks that the C library calls, and borrows that are kept from one to the next.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, MutexGuard, Once, Weak};

use yonder::Region;
use yonder_paging::Forking;

use crate::memory::{Far, Memories, memories};
use crate::sealed::Sealed;

/// What is held of one memory while the process forks.
struct Held {
    /// Of the memory that `far` keeps: ended before it.
    forking: Forking<'static>,
    regions: Regions,
}

/// One memory's.
struct Regions {
    far: Arc<Far>,
    sealed: Vec<Arc<Sealed>>,
}

impl Regions {
    fn all(&self) -> Vec<&Region> {
        let sealed = self.sealed.iter().map(|sealed| sealed.region());
        std::iter::once(self.far.region()).chain(sealed).collect()
    }
}

/// What is held of all.
struct AllHeld {
    each: Vec<Held>,
    /// A child could not take a lock that another thread of its parent's had.
    _memories: MutexGuard<'static, Memories>,
}

thread_local! {
    /// Never dropped with its thread: a program may fork at its exit, when what has to be dropped is gone.
    static HELD: RefCell<ManuallyDrop<Option<AllHeld>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// From now on forks are right.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the hooks have the type that is asked for, and extensions are never unloaded. Without the hooks, a
        // child that touches far memory ends by SIGSEGV, because that is not inherited.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
}

unsafe extern "C" fn before() {
    let memories = memories();
    let sealed: Vec<Arc<Sealed>> = memories.sealed.iter().filter_map(Weak::upgrade).collect();
    let each = memories.far.iter().filter_map(Weak::upgrade).map(|far| {
        let its = sealed.iter().filter(|sealed| Arc::ptr_eq(sealed.far(), &far)).map(Arc::clone).collect();
        let regions = Regions { far, sealed: its };
        let forking = regions.far.memory().about_to_fork(&regions.all());
        // SAFETY: `Held` keeps the memory that is borrowed, where it is, for longer than the borrow.
        let forking = unsafe { std::mem::transmute::<Forking<'_>, Forking<'static>>(forking) };
        Held { forking, regions }
    });
    let each = each.collect();
    HELD.with_borrow_mut(|held| **held = Some(AllHeld { each, _memories: memories }));
}

fn take_held() -> Option<AllHeld> {
    HELD.with_borrow_mut(|held| held.take())
}

unsafe extern "C" fn in_parent() {
    let Some(AllHeld { each, _memories: memories }) = take_held() else { return };
    drop(memories);
    for Held { forking, regions } in each {
        forking.in_parent(&regions.all());
    }
}

unsafe extern "C" fn in_child() {
    let Some(AllHeld { each, _memories: memories }) = take_held() else { return };
    drop(memories);
    for Held { forking, regions } in each {
        if let Err(error) = forking.in_child(&regions.all()) {
            eprintln!("yonder: a forked process has no far memory: {error}");
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(1) }
        }
    }
}
