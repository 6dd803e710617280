//! The SIGBUS handler and the table of regions it serves.
//!
//! Who touches what: a slot's fields are written by [`register`] and by the drop of its [`Registration`], and read by
//! the handler on any thread. A region's owner keeps the registration alive while any thread can touch the region, so
//! the handler never meets a slot that is being torn down.
//!
//! UNSAFETY: signal handlers, the frames the kernel builds for them, and handlers kept behind raw pointers because
//! nothing else can be read inside a signal handler.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use yonder_unithread::no_yield;
use yonder_units::{Narrow as _, PAGE_BYTES};

use crate::chain::Chain;
use crate::hold_back::{CANCELLING_SIGNAL, HELD_IN_FAULTS};
use crate::locals::{self, SavedTls};
use crate::{access, resume, scope};

/// Regions that can be registered at one time in a process. Few and large is what userfaultfd wants.
pub const REGISTRATIONS_MAX: usize = 64;

/// What the kernel said of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// A read of a missing page.
    Read,
    /// A write to a missing or write-protected page.
    Write,
    /// The memory itself is damaged: an uncorrectable error (`BUS_MCEERR_AR`).
    Damaged,
    /// The same, found before anybody has touched it (`BUS_MCEERR_AO`): no access has failed, and the verdict does not
    /// matter.
    FoundDamaged,
}

/// The general registers of a thread at an instruction, which is tried again later.
#[derive(Clone, Copy, Debug)]
pub struct Registers<'a>(&'a [libc::greg_t; 23]);

impl Registers<'_> {
    /// Address of the instruction.
    #[must_use]
    pub fn instruction(&self) -> usize {
        self.0[libc::REG_RIP as usize].cast_unsigned().narrow_usize()
    }

    /// What the code works with: the general registers but the stack pointer and the instruction's, in no useful order,
    /// and then the words on top of its stack, as far as these can be read without asking the kernel: to the end of a
    /// page, and none that could have a fault itself.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "libc's names of registers are indexes")]
    pub fn words(&self) -> Words {
        let mut words = Words { words: [0; WORDS_MAX], count: WORDS.len() };
        for (word, register) in words.words.iter_mut().zip(WORDS) {
            *word = self.0[register as usize].cast_unsigned();
        }
        let top = self.0[libc::REG_RSP as usize].cast_unsigned().narrow_usize().next_multiple_of(size_of::<u64>());
        let end = top.next_multiple_of(PAGE_BYTES);
        if find(top).is_none() {
            let stack = (top..end).step_by(size_of::<u64>());
            for (word, at) in words.words[WORDS.len()..].iter_mut().zip(stack) {
                // SAFETY: a stack begins above its top, and what is left of the page of the top is mapped as a whole;
                // if the top is at the end of a page, nothing is read. The word may change meanwhile, so it is read as
                // one that may.
                *word = unsafe { ptr::with_exposed_provenance::<u64>(at).read_volatile() };
                words.count += 1;
            }
        }
        words
    }
}

/// Most words of a stack that are looked at.
const STACK_WORDS_MAX: usize = 32;
const WORDS_MAX: usize = WORDS.len() + STACK_WORDS_MAX;

/// Words that some code works with. See [`Registers::words`].
pub struct Words {
    words: [u64; WORDS_MAX],
    count: usize,
}

impl std::ops::Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

/// See [`Registers::words`].
const WORDS: [libc::c_int; 15] = [
    libc::REG_RAX,
    libc::REG_RBX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// One fault in a registered region.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'a> {
    /// Byte offset of the touched address in its region.
    pub offset: u64,
    /// The touched address.
    pub address: usize,
    /// What was tried.
    pub kind: FaultKind,
    /// The registers of who tried it.
    pub registers: Registers<'a>,
}

/// What the handler does with the access that faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The page is there now: the access is retried.
    Retry,
    /// The page cannot be had: the access fails with this code.
    Fail(NonZeroU32),
}

/// Brings the pages of one region.
///
/// Both methods run inside a signal handler, at any instruction that touches the region: they must not allocate, block
/// on a lock that the interrupted code could hold, or touch far memory. They may switch to another unithread and come
/// back later.
pub trait FaultHandler: Send + Sync {
    /// Brings the page that `fault` touched, or says why it cannot.
    fn on_fault(&self, fault: &Fault<'_>) -> Verdict;

    /// Writes one line that says what `code` means, for the message that ends the process.
    fn describe(&self, fault: &Fault<'_>, code: NonZeroU32, out: &mut dyn std::fmt::Write);
}

/// Why a region could not be registered.
#[derive(Debug)]
pub enum RegisterError {
    /// [`REGISTRATIONS_MAX`] regions are registered.
    Full,
    /// The kernel refused the signal handler.
    Os(std::io::Error),
}

struct Slot {
    base: AtomicUsize,
    bytes: AtomicUsize,
    handler: AtomicPtr<Box<dyn FaultHandler>>,
}

static SLOTS: [Slot; REGISTRATIONS_MAX] = [const {
    Slot { base: AtomicUsize::new(0), bytes: AtomicUsize::new(0), handler: AtomicPtr::new(ptr::null_mut()) }
}; REGISTRATIONS_MAX];
/// Slots below this have been used; the handler looks no further.
static SLOTS_USED: AtomicUsize = AtomicUsize::new(0);
static REGISTERING: Mutex<()> = Mutex::new(());
/// Who gets the signals that are not ours.
static NEXT: Chain = Chain::new();

/// Whether the handler runs with other signals held back.
static HOLDS_SIGNALS: AtomicBool = AtomicBool::new(false);

/// From now on faults are handled with other signals held back, for a program whose handlers touch regions: one that
/// comes in the middle of a fault would wait for what its own thread is doing. To be called before the first
/// [`register`]. A handler must not be left by a switch then, but on a thread that holds the same signals back anyway
/// ([`HeldBack::as_in_faults`](crate::HeldBack::as_in_faults)).
pub fn hold_signals() {
    assert!(!is_installed(), "signals are held back from the first fault on, or never");
    HOLDS_SIGNALS.store(true, Ordering::Release);
}

/// Whether [`hold_signals`] was called.
#[must_use]
pub fn holds_signals() -> bool {
    HOLDS_SIGNALS.load(Ordering::Acquire)
}

/// Keeps a region's faults handled. Dropped only when no thread can touch the region any more.
#[derive(Debug)]
pub struct Registration {
    slot: usize,
}

/// Handles the faults of the `bytes` at `base` with `handler` from now on. Installs the process's SIGBUS handler at the
/// first call; signals outside every region go to the handler that was there before.
pub fn register(base: usize, bytes: usize, handler: Box<dyn FaultHandler>) -> Result<Registration, RegisterError> {
    let _guard = REGISTERING.lock().expect("no code panics while it holds this lock");
    install_once().map_err(RegisterError::Os)?;
    let free = SLOTS.iter().position(|slot| slot.handler.load(Ordering::Acquire).is_null());
    let index = free.ok_or(RegisterError::Full)?;
    let slot = &SLOTS[index];
    slot.handler.store(Box::into_raw(Box::new(handler)), Ordering::Release);
    slot.base.store(base, Ordering::Release);
    slot.bytes.store(bytes, Ordering::Release);
    SLOTS_USED.fetch_max(index + 1, Ordering::Release);
    Ok(Registration { slot: index })
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _guard = REGISTERING.lock().expect("no code panics while it holds this lock");
        let slot = &SLOTS[self.slot];
        slot.bytes.store(0, Ordering::Release);
        slot.base.store(0, Ordering::Release);
        let handler = slot.handler.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the pointer came from `Box::into_raw` in `register`, this is the only place that takes it back, and
        // no thread is in a fault of this region (the condition on dropping a registration).
        drop(unsafe { Box::from_raw(handler) });
    }
}

/// Whether the process's SIGBUS handler is the one here.
#[must_use]
pub fn is_installed() -> bool {
    NEXT.has_begun()
}

/// Whether the handler here was installed, and somebody has put another one in its place since: the next fault would be
/// that one's.
#[must_use]
pub fn is_replaced() -> bool {
    // SAFETY: an all-zero sigaction is a valid value; the call writes one, and changes nothing.
    let current = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut action);
        action.sa_sigaction
    };
    is_installed() && current != on_sigbus as *const () as usize
}

/// Who gets the SIGBUS signals that are not of a region, and who does from now on if there is a `next`: for whoever
/// stands between a program and `sigaction`. `None` before the first region is registered.
pub fn replace_next(next: Option<libc::sigaction>) -> Option<libc::sigaction> {
    NEXT.replace(next)
}

fn install_once() -> std::io::Result<()> {
    if is_installed() {
        return Ok(());
    }
    // Asked here, so that the handler finds the answer without a system call.
    resume::is_possible();
    // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that SA_SIGINFO asks for, and it is
    // async-signal-safe as long as the registered handlers keep their contract.
    let previous = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_sigbus as *const () as usize;
        // No SA_ONSTACK: the frame goes to the unithread's own stack. SA_NODEFER and an empty mask: the mask stays as
        // it is, so that the handler can be left by a switch while it waits.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigemptyset(&raw mut action.sa_mask);
        if HOLDS_SIGNALS.load(Ordering::Acquire) {
            // SAFETY: the kernel's 64 signals are the first word of the C library's larger set.
            *(&raw mut action.sa_mask).cast::<u64>() = HELD_IN_FAULTS;
        }
        let mut previous: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        previous
    };
    NEXT.begin(previous);
    Ok(())
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let away = locals::switch_to_own_tls();
    handle(signal, info, context, away).restore();
}

/// The handler, with the thread's own thread-locals. Returns only if the kernel is to restore the registers, and says
/// where to go back to.
#[inline(never)]
fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, mut away: SavedTls) -> SavedTls {
    // SAFETY: the kernel passes a valid siginfo and, on x86-64, a ucontext that this frame owns until it returns.
    let (info_ref, context_ref) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    // SAFETY: SIGBUS fills the address field.
    let address = unsafe { info_ref.si_addr() } as usize;
    // What was sent has no address.
    let found = if info_ref.si_code > 0 { find(address) } else { None };
    let Some((slot, offset)) = found else {
        pass_on(signal, info, context, away);
        return SavedTls::NOWHERE;
    };
    // SAFETY: errno is a thread-local word of libc.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved_errno = unsafe { *errno };
    let registers = &mut context_ref.uc_mcontext.gregs;
    let kind = kind(info_ref.si_code, registers[libc::REG_ERR as usize]);
    let fault = Fault { offset, address, kind, registers: Registers(registers) };
    // SAFETY: a slot that `find` returned has a handler, which lives until its registration is dropped.
    let handler = unsafe { &**slot.handler.load(Ordering::Acquire) };
    // SAFETY: the kernel's 64 signals are the first word of the C library's larger set.
    let mask = unsafe { *(&raw const context_ref.uc_sigmask).cast::<u64>() };
    let holds_signals = HOLDS_SIGNALS.load(Ordering::Relaxed);
    // A lock that a parked unithread holds would stop the thread of the next that wants it. The others would have the
    // mask of this one: of a handler of the program, or of a unithread that has changed it; but who puts a mask back by
    // the C library has let the cancelling signal through by that, which says nothing.
    let has_other_mask = holds_signals && mask | CANCELLING_SIGNAL != HELD_IN_FAULTS;
    // Whether the thread has that mask now: the kernel has added nothing to it.
    let mut has_mask = !holds_signals || mask & HELD_IN_FAULTS == HELD_IN_FAULTS;
    let must_stay = away.holds_lock() || has_other_mask;
    let verdict = if must_stay { no_yield(|| handler.on_fault(&fault)) } else { handler.on_fault(&fault) };
    if let Verdict::Fail(code) = verdict
        && kind != FaultKind::FoundDamaged
    {
        let instruction = registers[libc::REG_RIP as usize].cast_unsigned().narrow_usize();
        match access::landing(instruction) {
            Some(landing) => {
                registers[libc::REG_RAX as usize] = i64::from(code.get());
                registers[libc::REG_RIP as usize] = (landing as u64).cast_signed();
            }
            // With a shadow stack only the kernel may go back over frames, and a lock in one of them would never be
            // released.
            None if resume::is_possible() && scope::is_open() && !away.holds_lock() => {
                scope::catch(registers, address, code);
                // Scopes are entered at home.
                away = SavedTls::NOWHERE;
                // And with the mask of their worker, if they are a unithread's: it may be a handler of the program that
                // is left, with its own signal held back.
                if has_other_mask && yonder_unithread::is_on_unithread() {
                    has_mask = false;
                    // SAFETY: as where it was read.
                    unsafe { *(&raw mut context_ref.uc_sigmask).cast::<u64>() = HELD_IN_FAULTS };
                }
            }
            None => die(handler, &fault, code),
        }
    }
    // SAFETY: the unithread that faulted is back on its own thread, so this is the errno that was saved.
    unsafe { *errno = saved_errno };
    if has_mask && resume::is_possible() {
        away.restore();
        // SAFETY: this is the handler of `context`, nothing here has a destructor, and the thread has the mask of the
        // interrupted code: the kernel has added nothing to it.
        unsafe { resume::resume(context.cast()) }
    }
    away
}

fn find(address: usize) -> Option<(&'static Slot, u64)> {
    let used = SLOTS_USED.load(Ordering::Acquire);
    SLOTS[..used].iter().find_map(|slot| {
        let offset = address.wrapping_sub(slot.base.load(Ordering::Acquire));
        (offset < slot.bytes.load(Ordering::Acquire)).then_some((slot, offset as u64))
    })
}

fn kind(code: libc::c_int, error: i64) -> FaultKind {
    /// Bit of the x86 page-fault error code that says the access was a write.
    const WRITE: i64 = 1 << 1;
    match code {
        libc::BUS_MCEERR_AR => FaultKind::Damaged,
        libc::BUS_MCEERR_AO => FaultKind::FoundDamaged,
        _ if error & WRITE != 0 => FaultKind::Write,
        _ => FaultKind::Read,
    }
}

/// Passes a signal that is not ours to the handler that was installed before, or lets it have its default effect.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, away: SavedTls) {
    if HOLDS_SIGNALS.load(Ordering::Relaxed) {
        // SAFETY: both masks live as long as the call: the kernel passes a ucontext on x86-64.
        unsafe {
            let mask = &raw const (*context.cast::<libc::ucontext_t>()).uc_sigmask;
            libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut());
        }
    }
    away.restore();
    // SAFETY: the kernel passes a valid siginfo, and SIGBUS fills the address field.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    if matches!(code, libc::BUS_MCEERR_AR | libc::BUS_MCEERR_AO) && !NEXT.has_handler() {
        end_process(format_args!(
            "yonder: the memory at address {address:p} is damaged (an uncorrectable error), and it is no far memory: \
             what was there cannot be had again"
        ));
    }
    // SAFETY: the handler has these of the kernel.
    unsafe { NEXT.pass_on(signal, info, context) };
}

/// Ends the process: code that cannot be made to fail touched a page that cannot be had.
fn die(handler: &dyn FaultHandler, fault: &Fault<'_>, code: NonZeroU32) -> ! {
    struct Described<'a>(&'a dyn FaultHandler, &'a Fault<'a>, NonZeroU32);
    impl std::fmt::Display for Described<'_> {
        fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.describe(self.1, self.2, out);
            Ok(())
        }
    }
    let why = Described(handler, fault, code);
    end_process(format_args!("yonder: paging error at address {:#x}: {why}", fault.address))
}

/// Ends the process with one line.
fn end_process(message: std::fmt::Arguments<'_>) -> ! {
    let mut line = Line { text: [0; 512], len: 0 };
    let _ = writeln!(line, "{message}");
    // SAFETY: write and abort are async-signal-safe; the buffer is `len` bytes long.
    unsafe {
        libc::write(2, line.text.as_ptr().cast(), line.len);
        libc::abort()
    }
}

/// A line of text on the stack: a signal handler must not allocate.
struct Line {
    text: [u8; 512],
    len: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.text.len() - self.len;
        let taken = text.len().min(room);
        self.text[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}
