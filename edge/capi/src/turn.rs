//! [`Turn`]: something that one thread uses at a time, whoever calls.
//!
//! C can call with one object from two threads at once. Then the second is refused: the word `state` says who may touch
//! `inside`, and whoever has moved it from Free to Busy may. A use that panics leaves it Broken for ever.
//!
//! UNSAFETY: it lends what it holds out through a shared reference.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::failure::Failure;

const FREE: u8 = 0;
const BUSY: u8 = 1;
const BROKEN: u8 = 2;

/// A value and whose turn it is.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    state: AtomicU8,
    inside: UnsafeCell<T>,
}

/// A use, and the state after it.
struct Using<'a> {
    state: &'a AtomicU8,
    after: u8,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.state.store(self.after, Ordering::Release);
    }
}

impl<T> Turn<T> {
    pub(crate) fn new(inside: T) -> Self {
        Self { state: AtomicU8::new(FREE), inside: UnsafeCell::new(inside) }
    }

    /// Uses the value, if nobody else does.
    pub(crate) fn use_it<R>(&self, work: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        match self.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => {}
            Err(BROKEN) => return Err(Failure::new(libc::EIO, "a call on this thread has failed before: close it")),
            Err(_) => {
                let message = "the yonder_thread is in use by another thread: open one for each";
                return Err(Failure::new(libc::EBUSY, message));
            }
        }
        // If the work panics it stays at that.
        let mut using = Using { state: &self.state, after: BROKEN };
        // SAFETY: only who has moved the state from Free to Busy is here, and it stays Busy until `using` is dropped,
        // after the reference.
        let outcome = work(unsafe { &mut *self.inside.get() });
        using.after = FREE;
        outcome
    }

    /// Whether nobody is using the value now.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Acquire) != BUSY
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn errno_is(refused: &Result<(), Failure>, errno: i32) -> bool {
        format!("{refused:?}").contains(&format!("errno: {errno},"))
    }

    #[test]
    fn a_value_in_use_is_refused() {
        let turn = Turn::new(5);
        let inner = turn.use_it(|_| {
            assert!(!turn.is_idle());
            Ok(turn.use_it(|value| {
                *value = 6;
                Ok(())
            }))
        });
        assert!(errno_is(&inner.unwrap(), libc::EBUSY));
        assert_eq!(turn.use_it(|value| Ok(*value)), Ok(5));
        assert!(turn.use_it(|_| Err::<(), _>(Failure::invalid("x"))).is_err());
        assert_eq!(turn.use_it(|value| Ok(*value)), Ok(5), "a failure breaks nothing");
    }

    #[test]
    fn a_panic_breaks_it() {
        let turn = Turn::new(5);
        let panicked = catch_unwind(AssertUnwindSafe(|| turn.use_it::<()>(|_| panic!("a bug"))));
        assert!(panicked.is_err() && turn.is_idle());
        assert!(errno_is(&turn.use_it(|_| Ok(())), libc::EIO));
    }
}
