//! Scopes: code whose touches of far memory may fail (LightSwap, section 4.4).
//!
//! [`attempt`] runs a function, and [`enter`] is what C's `YONDER_TRY` calls. If a page cannot be had that is touched
//! inside, the SIGBUS handler makes [`attempt`] or [`enter`] return with the code of the failure: it loads the
//! registers that were kept when the scope was entered. All frames between are gone as if they had never been; nothing
//! in them is dropped.
//!
//! A thread has a chain of scopes, the innermost first, and so has each unithread, which may be left in the middle of
//! one when it waits for a page. [`Scope`]s lie on the stack of who has entered them.
//!
//! Invariants: a scope is in the chain from its entry until it is left, and ends with the innermost one. The handler
//! takes a scope out of its chain before it goes there, so each catches one failure.
//!
//! UNSAFETY: registers that are kept and loaded, and a chain through stacks.

use std::cell::Cell;
use std::mem::offset_of;
use std::num::NonZeroU32;
use std::ptr;

use crate::locals;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("yonder-trap knows the registers of x86-64 Linux only: build with --target x86_64-unknown-linux-gnu");

/// What a scope keeps: the registers that a function must hand back as it got them, where it was entered, and the scope
/// around it. `yonder_try` of `yonder.h`.
#[derive(Debug)]
#[repr(C)]
pub struct Scope {
    rbx: u64,
    rbp: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    /// The stack pointer behind the return of the function that entered.
    rsp: u64,
    /// Where that returns to.
    rip: u64,
    outer: *mut Scope,
    /// No-yield sections around the scope: those inside end with it.
    no_yield_depth: usize,
}

const _: () = assert!(size_of::<Scope>() == 80, "yonder_try of yonder.h has ten words");

/// The body of a naked function: keeps what the caller must find again in the scope at rdi, then does the rest.
macro_rules! keep_registers_and {
    ([$($rest:literal),*], $($operands:tt)*) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "mov [rdi + {rbx}], rbx",
            "mov [rdi + {rbp}], rbp",
            "mov [rdi + {r12}], r12",
            "mov [rdi + {r13}], r13",
            "mov [rdi + {r14}], r14",
            "mov [rdi + {r15}], r15",
            "mov rax, [rsp]",
            "mov [rdi + {rip}], rax",
            "lea rax, [rsp + 8]",
            "mov [rdi + {rsp}], rax",
            $($rest,)*
            ".cfi_endproc",
            rbx = const offset_of!(Scope, rbx),
            rbp = const offset_of!(Scope, rbp),
            r12 = const offset_of!(Scope, r12),
            r13 = const offset_of!(Scope, r13),
            r14 = const offset_of!(Scope, r14),
            r15 = const offset_of!(Scope, r15),
            rip = const offset_of!(Scope, rip),
            rsp = const offset_of!(Scope, rsp),
            $($operands)*
        )
    };
}

thread_local! {
    /// The innermost scope of the thread's own stack. Constant and without a destructor, so that a signal handler may
    /// read it.
    static INNERMOST: Cell<*mut Scope> = const { Cell::new(ptr::null_mut()) };
    /// What a scope of this thread has caught last.
    static CAUGHT: Cell<Option<Caught>> = const { Cell::new(None) };
}

/// A touch that failed inside a scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caught {
    /// The code that the [`FaultHandler`](crate::FaultHandler) gave.
    pub code: NonZeroU32,
    /// The touched address.
    pub address: usize,
}

impl From<Caught> for NonZeroU32 {
    fn from(caught: Caught) -> Self {
        caught.code
    }
}

/// Runs `body` in a scope of its own. An error is a touch of far memory in it that failed.
///
/// # Safety
/// From any touch of far memory in `body` it must be sound to forget all frames up to here: no value whose drop matters
/// for memory safety lies in them, such as a guard of a lock, a scope of threads or a pinned value that others point
/// to. What they own leaks, locks that they hold stay locked, and a library that was in the middle of something stays
/// there.
pub unsafe fn attempt<F: FnOnce() -> T, T>(body: F) -> Result<T, Caught> {
    let mut call = Call { body: Some(body), result: None };
    let mut scope = Scope::new();
    let scope = &raw mut scope;
    // SAFETY: the scope outlives the call, and `leave` takes it out of its chain also when the call unwinds.
    unsafe {
        push(scope);
        let leave = Leave(scope);
        let code = call_in(scope, run::<F, T>, (&raw mut call).cast());
        drop(leave);
        NonZeroU32::new(code).map_or_else(
            || Ok(call.result.expect("the function has returned")),
            |_| Err(last_caught().expect("a scope has just caught something")),
        )
    }
}

/// Keeps the registers of the caller in `scope`, which becomes its innermost scope, and returns 0. Returns a second
/// time, with the code, if a touch fails before [`leave`].
///
/// # Safety
/// As for [`attempt`], with the rest of the calling function until [`leave`] in place of `body`; `scope` lies in the
/// frame of the caller, which treats the call as one that returns twice, as that of `setjmp`.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(scope: *mut Scope) -> u32 {
    // `push` returns to the caller.
    keep_registers_and!(["jmp {push}"], push = sym push)
}

/// Ends the scope, if it has not caught anything, and those inside that were not ended.
///
/// # Safety
/// `scope` was given to [`enter`] on this stack, and its frame is still there.
pub unsafe fn leave(scope: *mut Scope) {
    let mut seen = innermost();
    while !seen.is_null() && seen != scope {
        // SAFETY: scopes of the chain lie in frames that are still there.
        seen = unsafe { (*seen).outer };
    }
    // One that has caught something is not in the chain any more.
    if seen == scope {
        // SAFETY: as above.
        set_innermost(unsafe { (*scope).outer });
    }
}

/// What a scope of this thread has caught last. For unithreads: before they touch far memory again, or switch.
#[must_use]
pub fn last_caught() -> Option<Caught> {
    CAUGHT.get()
}

/// Whether the running code is in a scope.
pub(crate) fn is_open() -> bool {
    !innermost().is_null()
}

/// Goes to the innermost scope with `code`, by changing the registers of the interrupted code. There must be one.
pub(crate) fn catch(registers: &mut [libc::greg_t; 23], address: usize, code: NonZeroU32) {
    /// The direction flag, which functions expect to be clear.
    const DIRECTION: i64 = 1 << 10;
    // SAFETY: scopes of the chain lie in frames that are still there, and this thread is in the handler.
    let scope = unsafe { innermost().as_mut() }.expect("the caller has seen a scope");
    set_innermost(scope.outer);
    CAUGHT.set(Some(Caught { code, address }));
    yonder_unithread::leave_sections(scope.no_yield_depth);
    #[expect(clippy::cast_sign_loss, reason = "libc's names of registers are indexes")]
    let mut load = |register: libc::c_int, value: u64| registers[register as usize] = value.cast_signed();
    load(libc::REG_RBX, scope.rbx);
    load(libc::REG_RBP, scope.rbp);
    load(libc::REG_R12, scope.r12);
    load(libc::REG_R13, scope.r13);
    load(libc::REG_R14, scope.r14);
    load(libc::REG_R15, scope.r15);
    load(libc::REG_RSP, scope.rsp);
    load(libc::REG_RIP, scope.rip);
    load(libc::REG_RAX, u64::from(code.get()));
    registers[libc::REG_EFL as usize] &= !DIRECTION;
}

impl Scope {
    fn new() -> Self {
        Self {
            rbx: 0,
            rbp: 0,
            r12: 0,
            r13: 0,
            r14: 0,
            r15: 0,
            rsp: 0,
            rip: 0,
            outer: ptr::null_mut(),
            no_yield_depth: 0,
        }
    }
}

/// A function on its way into a scope, and what it has returned.
struct Call<F, T> {
    body: Option<F>,
    result: Option<T>,
}

unsafe extern "C-unwind" fn run<F: FnOnce() -> T, T>(call: *mut u8) {
    // SAFETY: `attempt` gives a pointer to its own call, which nobody else uses meanwhile.
    let call = unsafe { &mut *call.cast::<Call<F, T>>() };
    let body = call.body.take().expect("a function is called once");
    call.result = Some(body());
}

/// Ends a scope also when the function in it panics.
struct Leave(*mut Scope);

impl Drop for Leave {
    fn drop(&mut self) {
        // SAFETY: the guard lies in the same frame as the scope.
        unsafe { leave(self.0) };
    }
}

/// Calls `body` with `argument` and returns 0, or the code if the scope has caught something.
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_in(
    scope: *mut Scope,
    body: unsafe extern "C-unwind" fn(*mut u8),
    argument: *mut u8,
) -> u32 {
    keep_registers_and!([
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rdi, rdx",
        "call rsi",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "xor eax, eax",
        "ret"
    ],)
}

/// Puts `scope` into the chain, and returns 0 for [`enter`].
unsafe extern "C" fn push(scope: *mut Scope) -> u32 {
    assert!(locals::is_home(), "a scope is entered in a library's call, which has other thread-locals");
    // SAFETY: as the caller promises.
    unsafe {
        (*scope).outer = innermost();
        (*scope).no_yield_depth = yonder_unithread::no_yield_depth();
    }
    set_innermost(scope);
    0
}

fn innermost() -> *mut Scope {
    yonder_unithread::local().map_or_else(|| INNERMOST.get(), ptr::with_exposed_provenance_mut)
}

fn set_innermost(scope: *mut Scope) {
    if yonder_unithread::is_on_unithread() {
        yonder_unithread::set_local(scope.expose_provenance());
    } else {
        INNERMOST.set(scope);
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::{Fault, FaultHandler, FaultKind, Verdict};

    /// Pages that can never be had: address space without permission stands for them, and the tests raise the signal.
    struct Lost;

    impl FaultHandler for Lost {
        fn on_fault(&self, fault: &Fault<'_>) -> Verdict {
            match fault.kind {
                FaultKind::FoundDamaged => Verdict::Retry,
                _ => Verdict::Fail(NonZeroU32::new(7).expect("not zero")),
            }
        }

        fn describe(&self, _fault: &Fault<'_>, _code: NonZeroU32, out: &mut dyn std::fmt::Write) {
            let _ = out.write_str("lost for a test");
        }
    }

    /// A registered range that is never touched: `raise` says that it was.
    fn lost_range() -> usize {
        static RANGE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *RANGE.get_or_init(|| {
            let base = 0x6000_0000_0000;
            std::mem::forget(crate::register(base, 1 << 20, Box::new(Lost)).expect("the handler can be installed"));
            base
        })
    }

    /// What the kernel does at a touch of `address` with `code`.
    fn raise(code: libc::c_int, address: usize) {
        // SAFETY: the kernel reads one siginfo, in which the address lies behind three words and their padding; a
        // thread may send itself one of any kind.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (info.si_signo, info.si_code) = (libc::SIGBUS, code);
            (&raw mut info).cast::<usize>().add(2).write(address);
            let (process, thread) = (libc::getpid(), libc::gettid());
            let sent = libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, &raw const info);
            assert_eq!(sent, 0, "{}", std::io::Error::last_os_error());
        }
    }

    fn touch(offset: usize) {
        raise(libc::BUS_MCEERR_AR, lost_range() + offset);
    }

    /// As in the frames of a program: a few calls deep, with registers in use.
    #[inline(never)]
    fn touch_deep(depth: usize, offset: usize) -> usize {
        let kept: [usize; 6] = std::array::from_fn(|index| black_box(index * depth));
        if depth == 0 {
            touch(offset);
        } else {
            touch_deep(depth - 1, offset);
        }
        kept.iter().sum()
    }

    #[test]
    fn a_touch_that_fails_ends_the_scope_it_is_in() {
        let (before, mut reached) = (black_box([1, 2, 3, 4, 5, 6, 7, 8]), 0);
        for depth in 0..40 {
            // SAFETY: nothing in the frames is dropped.
            let caught = unsafe { attempt(|| touch_deep(depth, depth * 8)) }.unwrap_err();
            assert_eq!((caught.code.get(), caught.address), (7, lost_range() + depth * 8));
            reached += 1;
        }
        assert_eq!((black_box(before), reached), ([1, 2, 3, 4, 5, 6, 7, 8], 40));
        assert!(!is_open());
    }

    #[test]
    fn scopes_nest_and_each_catches_once() {
        // SAFETY: nothing in the frames is dropped.
        let outer = unsafe {
            attempt(|| {
                assert_eq!(attempt(|| 3).unwrap(), 3);
                assert_eq!(attempt(|| touch_deep(3, 16)).unwrap_err().address, lost_range() + 16);
                touch(24);
            })
        };
        assert_eq!(outer.unwrap_err().address, lost_range() + 24);
        assert!(!is_open());
    }

    #[test]
    fn no_yield_sections_inside_end_with_the_scope() {
        yonder_unithread::no_yield(|| {
            // SAFETY: nothing in the frames is dropped but the section.
            let caught = unsafe { attempt(|| yonder_unithread::no_yield(|| touch(32))) };
            assert_eq!((caught.is_err(), yonder_unithread::no_yield_depth()), (true, 1));
        });
        assert!(!yonder_unithread::in_no_yield_section());
    }

    #[test]
    fn a_panic_leaves_the_scope() {
        // SAFETY: no touch fails.
        let panic = catch_unwind(AssertUnwindSafe(|| unsafe { attempt(|| panic!("on purpose")) }));
        assert!(panic.is_err() && !is_open());
    }

    #[test]
    fn a_call_of_a_library_ends_with_the_scope_around_it() {
        let mut locals = crate::Locals::new().unwrap();
        for offset in [40, 48] {
            // SAFETY: nothing in the frames is dropped, and nothing is left in thread-locals.
            let caught = unsafe { attempt(|| locals.with(|| touch_deep(4, offset))) };
            assert_eq!((caught.unwrap_err().address, locals::is_home()), (lost_range() + offset, true));
        }
        // SAFETY: as above.
        let found = unsafe { locals.with(|| (raise(libc::BUS_MCEERR_AO, lost_range()), locals::is_home())) };
        assert_eq!(found, ((), false), "a touch that succeeds goes back");
    }

    #[test]
    fn damage_found_ahead_of_a_touch_fails_nothing() {
        // SAFETY: nothing in the frames is dropped.
        let result = unsafe { attempt(|| raise(libc::BUS_MCEERR_AO, lost_range())) };
        assert_eq!(result, Ok(()));
    }

    /// Two unithreads of one thread are in scopes at the same time, and end them in the other order.
    #[test]
    fn each_unithread_has_scopes_of_its_own() {
        let pool = std::sync::Arc::new(yonder_unithread::Pool::new(2, 64 << 10).unwrap());
        let start = |offset: usize| {
            let unithread = pool.take((offset, 0)).unwrap_or_else(|_| panic!("there is room"));
            unithread.start(|(offset, caught): &mut (usize, usize)| {
                // SAFETY: nothing in the frames is dropped.
                let result = unsafe {
                    attempt(|| {
                        yonder_unithread::suspend();
                        touch(*offset);
                    })
                };
                *caught = result.unwrap_err().address - lost_range();
            })
        };
        let suspend = |running: yonder_unithread::Running<_>| match running.resume() {
            yonder_unithread::Resumed::Suspended(running) => running,
            _ => panic!("it suspends once"),
        };
        let (first, second) = (suspend(start(64)), suspend(start(72)));
        assert!(!is_open(), "their scopes are not the thread's");
        for (running, expected) in [(first, 64), (second, 72)] {
            let yonder_unithread::Resumed::Finished(mut ended) = running.resume() else { panic!("it ends") };
            assert_eq!(ended.payload_mut().1, expected);
        }
    }
}
