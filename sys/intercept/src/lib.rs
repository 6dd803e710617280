//! System calls that a seccomp filter sends back to the thread that made them.
//!
//! Who installs a filter with [`install_filter`] chooses system calls that are not made: the thread gets SIGSYS
//! instead, and the handler here passes number and arguments to the function that [`handle`] was given, whose result
//! the interrupted code sees as the result of its system call. That function makes system calls of its own with
//! [`call`], from a *stub* at a fixed address that the filter lets through: fixed, because a filter outlives `execve`,
//! and the next program's stub must be where the filter expects it. Code that may run with or without a filter makes
//! its calls with [`issue`], and keeps its descriptors with [`Kept`].
//!
//! Neighbours: `core/syscalls` builds the filter's program; `preload/library` is the function; `sys/ring` issues calls
//! that the filter refuses.
//!
//! UNSAFETY: a signal handler and the frames the kernel builds for it, a page of code that is copied to a fixed
//! address, and system calls with whatever arguments they are given.

mod kept;

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use yonder_syscalls::{Instruction, RET_DATA, RET_TRAP};
use yonder_trap::Chain;

pub use kept::{Kept, is_kept, next_kept};

const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());

/// A system call that was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Its number.
    pub number: i64,
    /// Its arguments, as many as it has; the rest is whatever the registers held.
    pub arguments: [u64; 6],
}

/// Answers a [`Call`]: a result, or an errno with its sign changed. Runs inside a signal handler, at any system call of
/// the program: it must not allocate or wait for a lock that the interrupted code may hold.
pub type Handler = fn(&Call, &mut Interrupted<'_>) -> i64;

/// The thread that has made a call, as it will go on after the answer.
pub struct Interrupted<'a> {
    context: &'a mut libc::ucontext_t,
}

impl Interrupted<'_> {
    /// The signals that the thread holds back: bit `n - 1` is signal `n`. A change of the mask by a system call would
    /// be undone when the handler returns; this is what the thread has from then on.
    pub fn signal_mask(&mut self) -> &mut u64 {
        // SAFETY: the kernel keeps 64 signals in the first word of the C library's larger set, which lives as long as
        // `self`.
        unsafe { &mut *(&raw mut self.context.uc_sigmask).cast::<u64>() }
    }
}

/// Where the stub is: in the page below the window of far memory.
pub const STUB: Range<usize> = 0x2fff_ffff_f000..0x3000_0000_0000;

const STUB_BYTES: usize = STUB.end - STUB.start;

std::arch::global_asm!(
    ".pushsection .text.yonder_stub, \"ax\", @progbits",
    ".hidden yonder_stub_code",
    ".hidden yonder_stub_code_end",
    // (number, six arguments) as the C calling convention passes them, the last one on the stack.
    "yonder_stub_code:",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "ret",
    "yonder_stub_code_end:",
    ".popsection",
);

unsafe extern "C" {
    static yonder_stub_code: u8;
    static yonder_stub_code_end: u8;
}

type Stub = unsafe extern "C" fn(i64, u64, u64, u64, u64, u64, u64) -> i64;

/// Whether the stub is at its place.
static HAS_STUB: AtomicBool = AtomicBool::new(false);
static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Puts the stub to its place. To be called once, before anything else here.
pub fn install_stub() -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let wanted = std::ptr::without_provenance_mut::<libc::c_void>(STUB.start);
    // SAFETY: a new mapping that replaces nothing.
    let page = unsafe { libc::mmap(wanted, STUB_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    assert!(page == wanted, "the kernel is too old for MAP_FIXED_NOREPLACE");
    // SAFETY: the code lies between its two labels, is shorter than a page, and runs wherever it is copied to.
    unsafe {
        let (code, end) = (&raw const yonder_stub_code, &raw const yonder_stub_code_end);
        std::ptr::copy_nonoverlapping(code, page.cast::<u8>(), end as usize - code as usize);
        if libc::mprotect(page, STUB_BYTES, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    HAS_STUB.store(true, Ordering::Release);
    Ok(())
}

/// Whether the system calls of this process are filtered, or will be.
#[must_use]
pub fn has_stub() -> bool {
    HAS_STUB.load(Ordering::Acquire)
}

/// Makes a system call from the stub, which no filter of ours looks at. The result, or an errno with its sign changed.
///
/// # Safety
/// As for the system call itself, with these arguments. [`install_stub`] has been called.
#[must_use]
pub unsafe fn call(call: &Call) -> i64 {
    // SAFETY: `install_stub` has put a function of this type there.
    let stub = unsafe { std::mem::transmute::<*const (), Stub>(std::ptr::without_provenance(STUB.start)) };
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the caller's.
    unsafe { stub(call.number, a, b, c, d, e, f) }
}

/// Makes a system call that no filter of ours looks at, whether one is installed or not: from the stub where there is
/// one. The result, or an errno with its sign changed. For what is behind far memory, which a program's filter refuses
/// to the program.
///
/// # Safety
/// As for the system call itself, with these arguments.
#[must_use]
pub unsafe fn issue(wanted: &Call) -> i64 {
    if has_stub() {
        // SAFETY: the caller's, and the stub is there.
        return unsafe { call(wanted) };
    }
    let [a, b, c, d, e, f] = wanted.arguments;
    let result;
    // SAFETY: the caller's; the kernel changes these three registers alone.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") wanted.number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// From now on `handler` answers what the filter sends back. Signals in `held_back` wait until it has: bit `n - 1` is
/// signal `n`.
pub fn handle(handler: Handler, held_back: u64) -> io::Result<()> {
    HANDLER.store(handler as *mut (), Ordering::Release);
    // SAFETY: an all-zero sigaction is a valid value; the handler has the signature that SA_SIGINFO asks for.
    let (result, previous) = unsafe {
        let (mut action, mut previous): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
        action.sa_sigaction = on_sigsys as *const () as usize;
        // The handler's own touches of far memory raise signals, and the program's may come in between.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
        libc::sigemptyset(&raw mut action.sa_mask);
        // The kernel keeps 64 signals in the first word of the C library's larger set.
        *(&raw mut action.sa_mask).cast::<u64>() |= held_back;
        (libc::sigaction(libc::SIGSYS, &raw const action, &raw mut previous), previous)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    NEXT.begin(previous);
    Ok(())
}

/// Installs a filter for all threads of the process, now and later, and for the programs that it will execute. A
/// process without the privilege to do so gives up that of gaining privileges by executing set-uid programs.
pub fn install_filter(program: &[Instruction]) -> io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len().try_into().expect("the kernel takes 4096 instructions"),
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads the program, which lives until the call returns.
    let install = || unsafe {
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter)
    };
    if install() == 0 {
        return Ok(());
    }
    // SAFETY: a flag of this process, which takes no pointer.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 && install() == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Who gets the signals that are not of our filter: the program may have one of its own, or be sent one.
static NEXT: Chain = Chain::new();

/// Whose a SIGSYS is that is not of a filter of ours, and from now on if there is a `next`. `None` before [`handle`].
pub fn replace_next(next: Option<libc::sigaction>) -> Option<libc::sigaction> {
    NEXT.replace(next)
}

/// Code of a SIGSYS that a filter has raised: `SYS_SECCOMP`. What that filter says of it is where an error number is
/// else.
const BY_FILTER: libc::c_int = 1;

extern "C" fn on_sigsys(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo and, on x86-64, a ucontext that this frame owns until it returns.
    let (told, context) = unsafe { (&*info, &mut *context.cast::<libc::ucontext_t>()) };
    if told.si_code != BY_FILTER || told.si_errno != (RET_TRAP & RET_DATA).cast_signed() {
        // SAFETY: the handler has these of the kernel.
        return unsafe { NEXT.pass_on(signal, info, (&raw mut *context).cast()) };
    }
    let registers = &context.uc_mcontext.gregs;
    // SAFETY: errno is a thread-local word of libc.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved_errno = unsafe { *errno };
    #[expect(clippy::cast_sign_loss, reason = "libc's names of registers are indexes")]
    let argument = |register: libc::c_int| registers[register as usize].cast_unsigned();
    let arguments =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9].map(argument);
    // The kernel leaves the number where the program has put it.
    let call = Call { number: registers[libc::REG_RAX as usize], arguments };
    // SAFETY: the pointer came from a `Handler`, and the filter is installed after `handle` has been called.
    let handler = unsafe { std::mem::transmute::<*mut (), Handler>(HANDLER.load(Ordering::Acquire)) };
    let answer = handler(&call, &mut Interrupted { context });
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = answer;
    // SAFETY: as above.
    unsafe { *errno = saved_errno };
}
