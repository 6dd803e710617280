//! The program's signal handlers, which wait until a change of the far heap is over.
//!
//! A handler may call `mmap` or `fork`, and would wait for a lock that its own thread has. To hold signals back takes
//! two system calls, which is more than most changes of the heap take. So the kernel knows [`relay`] as the handler of
//! each signal: it calls the program's, or keeps a signal that has come in the middle of [`defer_handlers`] until that
//! is over.
//!
//! Who touches what: an entry of [`ENTRIES`] is written once, before its number is anywhere; [`CURRENT`] is changed by
//! `sigaction` alone. What a thread defers is its own.
//!
//! UNSAFETY: signal handlers, and what the kernel tells them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, AtomicUsize, Ordering, compiler_fence};

use libc::{sigaction as Action, siginfo_t, ucontext_t};
use yonder_trap::{ALWAYS_THROUGH, exchange_mask};

/// Different handlers that a program may have in its life: with flags and a mask each. Further ones are the kernel's
/// business alone.
const ENTRIES_MAX: usize = 256;
const SIGNALS: usize = 64;

/// What the program has told `sigaction`.
struct Entry {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
    is_ready: AtomicBool,
}

static ENTRIES: [Entry; ENTRIES_MAX] = [const {
    Entry {
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
        is_ready: AtomicBool::new(false),
    }
}; ENTRIES_MAX];
static ENTRIES_USED: AtomicUsize = AtomicUsize::new(0);
/// One more than the number of a signal's entry; 0 if it never had one.
static CURRENT: [AtomicU16; SIGNALS + 1] = [const { AtomicU16::new(0) }; SIGNALS + 1];

/// A signal whose handler waits.
struct Deferred {
    entry: &'static Entry,
    signal: c_int,
    info: siginfo_t,
    /// The signals that the thread held back before.
    mask: u64,
}

thread_local! {
    /// Whether the handler of the next signal waits.
    static DEFERS: Cell<bool> = const { Cell::new(false) };
    /// Whether one does, in [`DEFERRED`]. All other signals are held back then.
    static HAS_DEFERRED: Cell<bool> = const { Cell::new(false) };
    static DEFERRED: Cell<Option<Deferred>> = const { Cell::new(None) };
}

/// Runs `code`, and the handlers of signals that come meanwhile after it: as [`yonder_trap::hold_back`] does, without a
/// system call if none comes. Handlers that the program has installed past the C library are not seen.
pub(crate) fn defer_handlers(code: &mut dyn FnMut()) {
    if DEFERS.replace(true) {
        return code();
    }
    compiler_fence(Ordering::SeqCst);
    code();
    compiler_fence(Ordering::SeqCst);
    DEFERS.set(false);
    // Only now: until then one could come.
    compiler_fence(Ordering::SeqCst);
    if HAS_DEFERRED.replace(false) {
        call_deferred(DEFERRED.take().expect("it was kept before it was said"));
    }
}

#[cold]
fn call_deferred(mut deferred: Deferred) {
    let mut context = MaybeUninit::<ucontext_t>::zeroed();
    // SAFETY: the context is a local; what the C library leaves out of it is zeros.
    let context = unsafe {
        libc::getcontext(context.as_mut_ptr());
        &mut *context.as_mut_ptr()
    };
    *mask_of(context) = deferred.mask;
    // SAFETY: the kernel has told of this signal.
    unsafe { deferred.entry.call(deferred.signal, &raw mut deferred.info, context) }
    // Which signals are held back after it is the handler's to change.
    exchange_mask(*mask_of(context));
}

/// The kernel keeps 64 signals in the first word of the C library's larger set.
fn mask_of(context: &mut ucontext_t) -> &mut u64 {
    // SAFETY: the set is at least so long, and aligned.
    unsafe { &mut *(&raw mut context.uc_sigmask).cast() }
}

fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

impl Entry {
    /// Calls the program's handler with the signals held back that it wants.
    ///
    /// # Safety
    /// `info` is of a signal that the kernel told of.
    unsafe fn call(&self, signal: c_int, info: *mut siginfo_t, context: &mut ucontext_t) {
        let itself = if self.flags.load(Ordering::Relaxed) & libc::SA_NODEFER == 0 { bit(signal) } else { 0 };
        exchange_mask(*mask_of(context) | self.mask.load(Ordering::Relaxed) | itself);
        // SAFETY: the program's own handler. One that wants the number alone ignores the others.
        unsafe {
            let handler: unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void) =
                std::mem::transmute(self.handler.load(Ordering::Relaxed));
            handler(signal, info, (&raw mut *context).cast());
        }
    }

    fn is(&self, action: &Action) -> bool {
        self.is_ready.load(Ordering::Acquire)
            && self.handler.load(Ordering::Relaxed) == action.sa_sigaction
            && self.flags.load(Ordering::Relaxed) == action.sa_flags
            && self.mask.load(Ordering::Relaxed) == mask_word(action)
    }
}

fn mask_word(action: &Action) -> u64 {
    // SAFETY: as in `mask_of`.
    unsafe { (&raw const action.sa_mask).cast::<u64>().read() }
}

fn set_mask_word(action: &mut Action, mask: u64) {
    // SAFETY: as in `mask_of`.
    unsafe { (&raw mut action.sa_mask).cast::<u64>().write(mask) }
}

/// What the kernel knows as the handler of each signal. It comes with all signals held back that can be.
unsafe extern "C-unwind" fn relay(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let entry = &ENTRIES[usize::from(CURRENT[signal as usize].load(Ordering::Acquire)) - 1];
    // SAFETY: the kernel's, which are this frame's until it returns.
    let (told, context) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    if DEFERS.get() && !HAS_DEFERRED.get() && !is_raised_by_code(told) {
        DEFERRED.set(Some(Deferred { entry, signal, info: *told, mask: *mask_of(context) }));
        HAS_DEFERRED.set(true);
        // No other comes before this one is handled.
        *mask_of(context) = !ALWAYS_THROUGH;
        return;
    }
    // SAFETY: the kernel has told of it.
    unsafe { entry.call(signal, info, context) }
}

/// Whether an instruction has raised it, which would do so again.
fn is_raised_by_code(told: &siginfo_t) -> bool {
    told.si_code > 0 && matches!(told.si_signo, libc::SIGSEGV | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP)
}

/// What the kernel is told in the place of `action`, and what is undone by [`Relayed::refused`] if it refuses.
pub(crate) struct Relayed {
    signal: c_int,
    before: u16,
}

/// Lets the relay stand between the kernel and a handler. None for what is no handler, or if there are too many
/// different ones.
pub(crate) fn relay_to(signal: c_int, action: &mut Action) -> Option<Relayed> {
    if !(1..=SIGNALS as c_int).contains(&signal) || matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return None;
    }
    let number = number_of(action)?;
    let before = CURRENT[signal as usize].swap(number + 1, Ordering::AcqRel);
    action.sa_sigaction = relay as *const () as usize;
    action.sa_flags |= libc::SA_SIGINFO;
    set_mask_word(action, !ALWAYS_THROUGH);
    Some(Relayed { signal, before })
}

impl Relayed {
    /// The kernel does not let the signal be handled.
    pub(crate) fn refused(self) {
        CURRENT[self.signal as usize].store(self.before, Ordering::Release);
    }
}

/// The number of a signal's entry, for [`tell`].
pub(crate) fn current(signal: c_int) -> u16 {
    usize::try_from(signal).ok().and_then(|signal| CURRENT.get(signal)).map_or(0, |entry| entry.load(Ordering::Acquire))
}

/// Makes what the kernel says of a handler what the program had said, where the relay stands between; `current` is what
/// [`current`] was then.
pub(crate) fn tell(action: &mut Action, current: u16) {
    if action.sa_sigaction != relay as *const () as usize || current == 0 {
        return;
    }
    let entry = &ENTRIES[usize::from(current) - 1];
    action.sa_sigaction = entry.handler.load(Ordering::Relaxed);
    // Others than this flag the C library may have changed since (`siginterrupt`).
    action.sa_flags = action.sa_flags & !libc::SA_SIGINFO | entry.flags.load(Ordering::Relaxed) & libc::SA_SIGINFO;
    set_mask_word(action, entry.mask.load(Ordering::Relaxed));
}

fn number_of(action: &Action) -> Option<u16> {
    let used = ENTRIES_USED.load(Ordering::Acquire).min(ENTRIES_MAX);
    let known = ENTRIES[..used].iter().position(|entry| entry.is(action));
    let number = match known {
        Some(number) => number,
        None => {
            // A handler of a signal may do the same in the middle of this, and gets another entry.
            let number = ENTRIES_USED.fetch_add(1, Ordering::AcqRel);
            let Some(entry) = ENTRIES.get(number) else {
                ENTRIES_USED.store(ENTRIES_MAX, Ordering::Release);
                return None;
            };
            entry.handler.store(action.sa_sigaction, Ordering::Relaxed);
            entry.flags.store(action.sa_flags, Ordering::Relaxed);
            entry.mask.store(mask_word(action), Ordering::Relaxed);
            entry.is_ready.store(true, Ordering::Release);
            number
        }
    };
    u16::try_from(number).ok()
}
