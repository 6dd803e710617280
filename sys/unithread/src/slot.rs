//! What lies at the upper end of a slot: [`Slot`], the header and the payload. The stack grows down from the header.
//!
//! A slot has one owner at a time, and its handle is a pointer to the [`Slot`]. Who touches what:
//!
//! | field                          | idle ([`crate::Unithread`]) | started, not running | running                    |
//! |--------------------------------|-----------------------------|----------------------|----------------------------|
//! | `context`                      | its owner, in `start`       | its thread           | its thread (the resumer's) |
//! | `state`, `panic`               | its owner                   | its thread           | the unithread, as it ends  |
//! | `entry`, `payload`             | its owner                   | nobody               | the unithread              |
//! | `local`                        | its owner, in `start`       | nobody               | the unithread              |
//! | `pool`, `index`, `stack_bytes` | written once, in `take`     | read                 | read                       |
//!
//! Nobody touches a slot that is home.
//!
//! Neighbours: `pool.rs` places slots, `unithread.rs` runs them, `overflow.rs` asks whose guard was hit.

// UNSAFETY: the thread-local pointer to the running slot is read through, in `current_stack` and `with_local`.

use std::any::Any;
use std::cell::Cell;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;

use crate::arch::Context;
use crate::pool::Shared;

/// How a unithread last gave control back.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It has been started and has not ended.
    Started,
    /// Its entry function returned.
    Finished,
    /// Its entry function panicked; `panic` holds the payload.
    Panicked,
}

/// The part of a slot that does not depend on the payload's type. The first two cache lines of a slot.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// The side that is not running. First, so that its address is the slot's.
    pub(crate) context: Context,
    /// The pool to go home to.
    pub(crate) pool: NonNull<Shared>,
    /// Valid while `state` is [`State::Panicked`].
    pub(crate) panic: MaybeUninit<Box<dyn Any + Send>>,
    /// How it last gave control back.
    pub(crate) state: State,
    /// The slot's number in its pool.
    pub(crate) index: u32,
    /// Bytes from the header down to the guard.
    pub(crate) stack_bytes: u32,
    /// A word for what a thread would keep in a thread-local. See [`crate::local`].
    pub(crate) local: Cell<usize>,
}

/// A slot's header and payload, at the upper end of its memory.
#[repr(C)]
pub(crate) struct Slot<P> {
    /// Must be first: a pointer to the slot is a pointer to its header.
    pub(crate) header: Header,
    /// What the unithread runs.
    pub(crate) entry: fn(&mut P),
    /// Written while the slot is taken.
    pub(crate) payload: MaybeUninit<P>,
}

const _: () = assert!(size_of::<Header>() == 128, "the header is two cache lines");
const _: () = assert!(offset_of!(Slot<u64>, header) == 0 && offset_of!(Header, context) == 0);

thread_local! {
    /// The unithread that runs on this thread. Constant and without a destructor, so that a signal handler may read it.
    static CURRENT: Cell<*mut Header> = const { Cell::new(std::ptr::null_mut()) };
}

/// The unithread that runs on this thread, or null.
#[inline(always)]
pub(crate) fn current() -> *mut Header {
    CURRENT.get()
}

/// Names the unithread that is about to run on this thread, or null when its resumer runs again.
#[inline(always)]
pub(crate) fn set_current(header: *mut Header) {
    CURRENT.set(header);
}

/// The addresses and the size of a stack, for whoever reports on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackBounds {
    /// The slot's number in its pool.
    pub(crate) index: u32,
    /// The lowest address of the stack; the guard lies right below.
    pub(crate) lowest: usize,
    /// Bytes of the guard.
    pub(crate) guard_bytes: usize,
    /// Bytes of stack.
    pub(crate) bytes: usize,
}

/// The stack of the unithread that runs on this thread.
#[inline]
pub(crate) fn current_stack() -> Option<StackBounds> {
    let header = NonNull::new(current())?;
    // SAFETY: a non-null current pointer names a slot that is running on this thread, so it is taken and mapped, the
    // fields never change, and what the pool shares is alive.
    let (index, bytes, guard_bytes) = unsafe {
        let header = header.as_ptr();
        ((*header).index, (*header).stack_bytes as usize, (*header).pool.as_ref().guard_bytes())
    };
    Some(StackBounds { index, lowest: header.as_ptr().addr() - bytes, guard_bytes, bytes })
}

/// Looks at the local word of the unithread that runs on this thread, if one does.
#[inline]
pub(crate) fn with_local<T>(look: impl FnOnce(&Cell<usize>) -> T) -> Option<T> {
    let header = NonNull::new(current())?;
    // SAFETY: as in `current_stack`; the word is touched by the running unithread alone, and `look` does not switch.
    Some(look(unsafe { &(*header.as_ptr()).local }))
}
