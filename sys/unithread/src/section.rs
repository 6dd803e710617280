//! No-yield sections: code on a unithread that must not be left in the middle, whatever it waits for.
//!
//! This crate keeps count; whoever would suspend asks ([`must_stay`](crate::must_stay)) and waits in another way. The
//! count is the thread's: no unithread is left inside a section, so it is that of the one that runs.

use std::cell::Cell;

thread_local! {
    /// Depth of the sections of the unithread that runs now.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Runs `section` without yielding: its page faults spin. For code that must not be left in the middle, such as a
/// library that keeps thread-local state across the access.
pub fn no_yield<T>(section: impl FnOnce() -> T) -> T {
    /// Ends the section also when it unwinds.
    struct Section;
    impl Drop for Section {
        fn drop(&mut self) {
            DEPTH.set(DEPTH.get() - 1);
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    let _section = Section;
    section()
}

/// Whether the code that runs now is in a no-yield section. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn in_no_yield_section() -> bool {
    DEPTH.get() > 0
}

/// How many no-yield sections the code that runs now is in.
#[inline]
#[must_use]
pub fn no_yield_depth() -> usize {
    DEPTH.get()
}

/// Ends all sections but `depth`, for who leaves frames without unwinding them.
///
/// # Panics
/// If there are fewer.
pub fn leave_sections(depth: usize) {
    assert!(depth <= DEPTH.get(), "a section is left that was not entered");
    DEPTH.set(depth);
}
