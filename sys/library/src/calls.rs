//! Who has which thread-locals.
//!
//! Each thread keeps those that its unithreads have had, and gives the last ones back first: they are in the cache. It has as many as
//! it ever had calls at a time.
//!
//! UNSAFETY: what runs with other thread-locals is promised by the caller.

use std::cell::RefCell;

use yonder_trap::Locals;

thread_local! {
    /// Thread-locals that no call of this thread has now.
    static FREE: RefCell<Vec<Locals>> = const { RefCell::new(Vec::new()) };
}

/// Calls a library: on a unithread with thread-locals that no other call has meanwhile, which an earlier call may have had; on another
/// thread with its own. A panic in `body` ends the process on a unithread.
///
/// A failed touch of far memory that ends a scope around this ([`yonder_trap::scope`]) leaves what the call had as it was: its
/// thread-locals serve no further call.
///
/// # Panics
/// If there can be no more threads, of which each owns thread-locals.
///
/// # Safety
/// `body` calls functions of libraries and touches memory, and uses no thread-local of Rust whose content may not be dropped by
/// another thread. It switches to no other unithread but by page faults.
pub unsafe fn call<T>(body: impl FnOnce() -> T) -> T {
    if !yonder_unithread::is_on_unithread() {
        return body();
    }
    let free = FREE.with_borrow_mut(Vec::pop);
    let mut locals = free.unwrap_or_else(|| Locals::new().expect("there can be one thread more"));
    // SAFETY: the caller's.
    let result = unsafe { locals.with(body) };
    FREE.with_borrow_mut(|free| free.push(locals));
    result
}
