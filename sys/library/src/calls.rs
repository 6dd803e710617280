//! Who has which thread-locals.
//!
//! Each thread keeps those that its unithreads have had, and gives the last ones back first: they are in the cache. It
//! has as many as it ever had calls at a time.
//!
//! UNSAFETY: what runs with other thread-locals is promised by the caller.

use std::cell::RefCell;

use yonder_trap::Locals;
use yonder_trap::scope::{Caught, attempt};

thread_local! {
    /// Thread-locals that no call of this thread has now.
    static FREE: RefCell<Vec<Locals>> = const { RefCell::new(Vec::new()) };
}

/// Calls a library: on a unithread with thread-locals that no other call has meanwhile, which an earlier call may have
/// had; on another thread with its own. A panic in `body` ends the process on a unithread.
///
/// A failed touch of far memory that ends a scope around this ([`yonder_trap::scope`]) leaves what the call had as it
/// was: its thread-locals serve no further call. [`try_call`] is for libraries of which more is known.
///
/// # Panics
/// If there can be no more threads, of which each owns thread-locals.
///
/// # Safety
/// `body` calls functions of libraries and touches memory, and uses no thread-local of Rust whose content may not be
/// dropped by another thread. It switches to no other unithread but by page faults.
pub unsafe fn call<T>(body: impl FnOnce() -> T) -> T {
    if !yonder_unithread::is_on_unithread() {
        return body();
    }
    let mut locals = take();
    // SAFETY: the caller's.
    let result = unsafe { locals.with(body) };
    give_back(locals);
    result
}

/// As [`call`], in a scope of its own: an error is a touch of far memory in it that failed. The thread-locals serve
/// later calls also then, so that calls that fail cost no threads.
///
/// # Panics
/// As for [`call`].
///
/// # Safety
/// As for [`call`] and for [`attempt`]; and wherever `body` touches far memory, what it has in thread-locals by then
/// may be found by another call, and dropped.
pub unsafe fn try_call<T>(body: impl FnOnce() -> T) -> Result<T, Caught> {
    if !yonder_unithread::is_on_unithread() {
        // SAFETY: the caller's.
        return unsafe { attempt(body) };
    }
    let mut locals = take();
    // SAFETY: the caller's. The thread-locals are of a frame that stays.
    let result = unsafe { attempt(|| locals.with(body)) };
    give_back(locals);
    result
}

/// Thread-locals that no other call has.
fn take() -> Locals {
    let free = FREE.with_borrow_mut(Vec::pop);
    free.unwrap_or_else(|| Locals::new().expect("there can be one thread more"))
}

fn give_back(locals: Locals) {
    FREE.with_borrow_mut(|free| free.push(locals));
}
