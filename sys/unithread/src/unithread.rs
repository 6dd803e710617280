//! The handles of a unithread, one type for each stage of its life, and what runs on its stack.
//!
//! ```text
//!   Pool::take -> Unithread --start--> Running --resume--> Resumed::Suspended(Running)
//!       ^            |  ^                                          Finished(Unithread)
//!       +---drop-----+  +------------------------------------------Panicked(Unithread, why)
//! ```
//!
//! [`Unithread`] is idle: it has a payload and no live stack, and may travel between threads. [`Running`] has a live
//! stack and stays on its thread. Both are one pointer, and linear: whoever holds one owns the slot.
//! Neighbours: `slot.rs` (what a handle points to), `pool.rs` (where it goes home), the file of the ISA (the switch).

// UNSAFETY: handles are raw pointers to slots, and resuming switches stacks.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use crate::arch::{Context, exchange, prefetch_line, stack_pointer};
use crate::pool::bring_home;
use crate::section::in_no_yield_section;
use crate::slot::{self, Header, Slot, State};

/// The number of a unithread in its pool; unique among the unithreads of one pool that are out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnithreadId(pub u32);

/// A unithread that is not running anything: a payload and room for a stack. Dropping it drops the payload and returns
/// the slot to its pool.
pub struct Unithread<P: Send + 'static> {
    slot: NonNull<Slot<P>>,
}

// SAFETY: an idle slot holds a payload, which is `Send`, and no live stack; the handle is its only owner.
unsafe impl<P: Send> Send for Unithread<P> {}
// SAFETY: `&Unithread` gives access to nothing but numbers that do not change.
unsafe impl<P: Send> Sync for Unithread<P> {}

/// A unithread with a live stack. It never leaves the thread that started it, because what it has on its stack need
/// not be `Send`.
///
/// Dropping it before it has ended abandons the stack: its slot, its payload and everything the stack holds are leaked,
/// and the pool stays mapped for good. Freeing them would be wrong, as other threads may hold pointers to them.
#[must_use = "dropping a started unithread leaks its slot"]
pub struct Running<P: Send + 'static> {
    slot: NonNull<Slot<P>>,
    /// Not `Send`, and says so even if the pointer above should ever change.
    stays_on_its_thread: PhantomData<*mut ()>,
}

/// Why a unithread gave control back.
#[must_use = "dropping a suspended unithread leaks its slot"]
pub enum Resumed<P: Send + 'static> {
    /// It called [`suspend`] and can be resumed.
    Suspended(Running<P>),
    /// Its entry function returned.
    Finished(Unithread<P>),
    /// Its entry function panicked, with this payload; [`panic_message`] reads it.
    Panicked(Unithread<P>, Box<dyn Any + Send>),
}

impl<P: Send + 'static> Unithread<P> {
    /// Owns a slot.
    ///
    /// # Safety
    /// The caller has popped the slot from its pool's free list, or ended its run, and has stored a payload in it;
    /// there is no other handle.
    #[inline]
    pub(crate) unsafe fn own(slot: NonNull<Slot<P>>) -> Self {
        Self { slot }
    }

    /// Which unithread of its pool this is.
    #[inline]
    #[must_use]
    pub fn id(&self) -> UnithreadId {
        // SAFETY: the handle's slot is taken; its index does not change.
        UnithreadId(unsafe { (*self.slot.as_ptr()).header.index })
    }

    /// Bytes of stack that its entry function will find, at least what the pool was asked for.
    #[must_use]
    pub fn stack_bytes(&self) -> usize {
        // SAFETY: the handle's slot is taken; the size of its stack does not change.
        unsafe { (*self.slot.as_ptr()).header.stack_bytes as usize }
    }

    /// Begins to bring header and payload into this CPU's cache: for whoever will start it soon and got it from another
    /// CPU.
    #[inline]
    pub fn prefetch(&self) {
        const CACHE_LINE: usize = 64;
        /// A large payload is read as it is needed.
        const LINES_MAX: usize = 6;
        for line in (0..size_of::<Slot<P>>()).step_by(CACHE_LINE).take(LINES_MAX) {
            prefetch_line(self.slot.as_ptr().cast::<u8>().wrapping_add(line));
        }
    }

    /// The payload, for whoever only looks at the request.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &P {
        // SAFETY: an idle slot holds a payload, and nobody changes it without an exclusive borrow of its only handle.
        unsafe { (*self.slot.as_ptr()).payload.assume_init_ref() }
    }

    /// The payload, for whoever fills a request in or reads its reply.
    #[inline]
    #[must_use]
    pub fn payload_mut(&mut self) -> &mut P {
        // SAFETY: an idle slot holds a payload, and the exclusive borrow of its only handle covers it.
        unsafe { (*self.slot.as_ptr()).payload.assume_init_mut() }
    }

    /// Takes the payload out and returns the slot to its pool.
    #[inline]
    #[must_use]
    pub fn into_payload(self) -> P {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: an idle slot holds a payload; after the read the slot is empty and given up.
        unsafe {
            let payload = (*this.slot.as_ptr()).payload.assume_init_read();
            bring_home(this.slot.cast());
            payload
        }
    }

    /// Ties the unithread to this thread and prepares `entry` to run on its stack at the first
    /// [`resume`](Running::resume), with every exception of the floating-point environment masked and rounding to
    /// nearest.
    #[inline]
    pub fn start(self, entry: fn(&mut P)) -> Running<P> {
        let slot = std::mem::ManuallyDrop::new(self).slot;
        let raw = slot.as_ptr();
        // SAFETY: the handle owns the slot, no stack is live in it, and the stack ends below the header, which is
        // 64-byte aligned.
        unsafe {
            (&raw mut (*raw).header.context).write(Context::fresh(raw.cast(), body::<P>, raw.cast()));
            (&raw mut (*raw).header.state).write(State::Started);
            (&raw mut (*raw).header.local).write(Cell::new(0));
            (&raw mut (*raw).entry).write(entry);
        }
        Running { slot, stays_on_its_thread: PhantomData }
    }
}

impl<P: Send + 'static> Drop for Unithread<P> {
    fn drop(&mut self) {
        /// Brings the slot home also when dropping the payload panics.
        struct BringHome(NonNull<Header>);
        impl Drop for BringHome {
            fn drop(&mut self) {
                // SAFETY: the payload has been dropped, as far as it goes, and the handle is being dropped.
                unsafe { bring_home(self.0) };
            }
        }
        let _home = BringHome(self.slot.cast());
        // SAFETY: an idle slot holds a payload, and its only handle is being dropped.
        unsafe { (*self.slot.as_ptr()).payload.assume_init_drop() };
    }
}

impl<P: Send + 'static> Running<P> {
    /// Which unithread of its pool this is.
    #[inline]
    #[must_use]
    pub fn id(&self) -> UnithreadId {
        // SAFETY: the handle's slot is taken; its index does not change.
        UnithreadId(unsafe { (*self.slot.as_ptr()).header.index })
    }

    /// Runs the unithread until it suspends or ends.
    ///
    /// # Panics
    /// If a unithread is running on this thread already: a unithread cannot resume another.
    #[inline(always)]
    pub fn resume(self) -> Resumed<P> {
        let slot = self.slot;
        let header: *mut Header = slot.as_ptr().cast();
        assert!(slot::current().is_null(), "a unithread cannot resume another");
        slot::set_current(header);
        // SAFETY: the slot is started and not running, so its context is fresh or was left by its `suspend`; `Running`
        // is not `Send`, so this is the thread that started it and has its stack.
        let state = unsafe {
            exchange(&raw mut (*header).context);
            (*header).state
        };
        slot::set_current(std::ptr::null_mut());
        match state {
            State::Started => Resumed::Suspended(self),
            // SAFETY: the entry function has returned, so the stack is no longer live and the payload is ours again.
            State::Finished => Resumed::Finished(unsafe { Unithread::own(slot) }),
            State::Panicked => Self::panicked(slot),
        }
    }

    #[cold]
    fn panicked(slot: NonNull<Slot<P>>) -> Resumed<P> {
        // SAFETY: as for `Finished`; a unithread that ends so has left the panic's payload, which is read once.
        unsafe {
            let why = (*slot.as_ptr()).header.panic.assume_init_read();
            Resumed::Panicked(Unithread::own(slot), why)
        }
    }
}

impl<P: Send + 'static> fmt::Debug for Unithread<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unithread").field(&self.id().0).finish()
    }
}

impl<P: Send + 'static> fmt::Debug for Running<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.id().0).finish()
    }
}

impl<P: Send + 'static> fmt::Debug for Resumed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended(running) => f.debug_tuple("Suspended").field(running).finish(),
            Self::Finished(idle) => f.debug_tuple("Finished").field(idle).finish(),
            Self::Panicked(idle, why) => f.debug_tuple("Panicked").field(idle).field(&panic_message(&**why)).finish(),
        }
    }
}

/// Gives control back to whoever resumed the running unithread; returns when it is resumed again.
///
/// It neither allocates nor locks, and may be called by the handler of a synchronous signal (a page fault's SIGBUS or
/// SIGSEGV) that runs on the unithread's own stack. The handler of an asynchronous signal must not call it: it could
/// interrupt a switch.
///
/// The caller should hold nothing that others on its thread need meanwhile: no lock, no borrow of a thread-local
/// (above all none that it has lent to other threads and that the thread's end would destroy), and it should not be
/// unwinding, because the standard library counts panics for the thread and not for the unithread.
///
/// # Panics
/// If no unithread is running on this thread, or the caller is on another stack than the unithread's, such as that of
/// a signal handler with `SA_ONSTACK`.
#[inline(always)]
pub fn suspend() {
    let header = slot::current();
    if header.is_null() {
        outside_a_unithread();
    }
    // SAFETY: a non-null current pointer names the slot that runs on this thread. Its context is its resumer's, which
    // waits in `resume` on this thread; the check shows that what is saved belongs to the slot's own stack.
    unsafe {
        if !is_on_stack_of(header) {
            on_another_stack();
        }
        exchange(&raw mut (*header).context);
    }
}

/// Whether the stack pointer is on the stack of a slot.
///
/// # Safety
/// The slot runs on this thread.
#[inline(always)]
unsafe fn is_on_stack_of(header: *mut Header) -> bool {
    // SAFETY: as the caller promises, so it is mapped, and the field never changes.
    header.addr().wrapping_sub(stack_pointer()) <= unsafe { (*header).stack_bytes } as usize
}

/// Whether a unithread is running on this thread and the caller is on another stack than its own, such as that of a
/// signal handler with `SA_ONSTACK`: it must not suspend there. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn is_on_foreign_stack() -> bool {
    let header = slot::current();
    // SAFETY: a non-null current pointer names the slot that runs on this thread.
    !header.is_null() && unsafe { !is_on_stack_of(header) }
}

/// Whether the code that runs now may not be left: it is in a no-yield section, or unwinds, for the count of panics is
/// the thread's, or it is on a foreign stack. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn must_stay() -> bool {
    in_no_yield_section() || std::thread::panicking() || is_on_foreign_stack()
}

/// The unithread that is running on this thread, if any. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn current() -> Option<UnithreadId> {
    slot::current_stack().map(|stack| UnithreadId(stack.index))
}

/// Whether a unithread is running on this thread. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn is_on_unithread() -> bool {
    !slot::current().is_null()
}

/// A word of the unithread that runs on this thread, 0 when it starts: what a thread would keep in a thread-local,
/// which all unithreads of a thread share. `None` on a thread's own stack. Safe to ask in a signal handler.
#[inline]
#[must_use]
pub fn local() -> Option<usize> {
    slot::with_local(Cell::get)
}

/// Sets the word that [`local`] reads.
///
/// # Panics
/// If no unithread is running on this thread.
#[inline]
pub fn set_local(word: usize) {
    slot::with_local(|local| local.set(word)).expect("only a unithread has a local word");
}

/// What a panic said, if it was raised by `panic!` or one of its relatives.
#[must_use]
pub fn panic_message(why: &(dyn Any + Send)) -> &str {
    why.downcast_ref::<&str>()
        .copied()
        .or_else(|| why.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic")
}

/// The first Rust function on a unithread's stack: runs the entry function, catches its panic, reports and leaves.
unsafe extern "C" fn body<P: Send + 'static>(argument: *mut ()) -> ! {
    let slot: *mut Slot<P> = argument.cast();
    // SAFETY: `start` passed the slot; while it runs, its entry and payload belong to this stack, and nobody else
    // writes its state. All that this frame owns has been moved out before the exchange, from which it never returns,
    // because `resume` does not run a slot that has ended.
    unsafe {
        let (entry, payload) = ((*slot).entry, (*slot).payload.assume_init_mut());
        let state = match catch_unwind(AssertUnwindSafe(|| entry(payload))) {
            Ok(()) => State::Finished,
            Err(why) => {
                (&raw mut (*slot).header.panic).write(MaybeUninit::new(why));
                State::Panicked
            }
        };
        (&raw mut (*slot).header.state).write(state);
        exchange(&raw mut (*slot).header.context);
    }
    std::process::abort()
}

#[cold]
#[inline(never)]
fn outside_a_unithread() -> ! {
    panic!("suspend() was called outside a unithread");
}

#[cold]
#[inline(never)]
fn on_another_stack() -> ! {
    panic!(
        "suspend() was called on another stack than the unithread's: a handler that suspends must not use SA_ONSTACK"
    );
}
