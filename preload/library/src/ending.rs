//! The end of the process that `yonder run` has become: it waits for the moment in which its figures are told, so that
//! whoever has started it finds them when it is gone. Nobody waits for one that is killed, whose helper is gone, or
//! that has a filter of system calls of its own: what it calls then may be its end.
//!
//! And the end of a program whose first thread has left it to the others: the system's own threads would go on.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::arch::naked_asm;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::FILE;
use yonder_preload_protocol::{ProcessId, Settings, SharedStats};

use crate::libc_own::{as_c, errno, own};

/// Longest that an end is waited for until the helper has heard of it.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// Longest that streams are waited for which another thread has, where a program has failed.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
/// What a program that has failed in the eyes of `yonder run` ends with.
const FAILED: c_int = 1;
/// What names of the system's own threads begin with.
const OWN_THREADS: &str = "yonder-";

/// The process, and where its figures are.
static ENDS_THE_RUN: OnceLock<(u32, SharedStats)> = OnceLock::new();
/// Whether this is a forked child of it, or has a filter of its own.
static IS_LEFT_ALONE: AtomicBool = AtomicBool::new(false);
/// Whether the first thread of the program has ended, and others may go on.
static FIRST_HAS_ENDED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    fn at_quick_exit(function: extern "C" fn()) -> c_int;
    static stdout: *mut FILE;
    static stderr: *mut FILE;
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
}

/// To be called before the program can change what it may open.
pub(crate) fn begin(settings: &Settings) {
    // Most processes of a run have another number, and need not ask for their namespace.
    if settings.process.number == std::process::id()
        && settings.process == ProcessId::own()
        && let Ok(board) = SharedStats::open(&settings.board)
        && ENDS_THE_RUN.set((settings.process.number, board)).is_ok()
    {
        // SAFETY: this library is never unloaded. The first function is called last.
        let _ = unsafe { at_quick_exit(end_quickly) };
    }
}

/// This process is a forked child.
pub(crate) fn is_child() {
    IS_LEFT_ALONE.store(true, Ordering::Relaxed);
}

/// Does what gives this process a filter, which is the system's own.
pub(crate) fn with_own_filter<T>(install: impl FnOnce() -> T) -> T {
    let before = IS_LEFT_ALONE.load(Ordering::Relaxed);
    let done = install();
    IS_LEFT_ALONE.store(before, Ordering::Relaxed);
    done
}

/// Where the figures are told, if this process is the one whose end that waits for. Between `vfork` and `exec` it is a
/// child with another number.
fn told_at() -> Option<&'static SharedStats> {
    let (process, board) = ENDS_THE_RUN.get()?;
    (!IS_LEFT_ALONE.load(Ordering::Relaxed) && *process == std::process::id()).then_some(board)
}

/// Whether a process may end as it wants to, when its figures are told.
fn may_end(board: &SharedStats) -> bool {
    // SAFETY: asks whether a process is there.
    let has_helper = unsafe { libc::kill(board.helper().cast_signed(), 0) } == 0 || errno() != libc::ESRCH;
    !has_helper || board.end(HEARD_WITHIN)
}

/// The program has ended by itself.
pub(crate) fn end() {
    let Some(board) = told_at() else { return };
    // What it has printed comes before what is told of it. Other threads may wait for input, with their streams locked:
    // the C library does not wait for them at an end, and so must not this.
    // SAFETY: the streams are the C library's own.
    unsafe {
        for stream in [stdout, stderr] {
            if ftrylockfile(stream) == 0 {
                libc::fflush(stream);
                funlockfile(stream);
            }
        }
    }
    if !may_end(board) {
        write_out();
        end_at_once(FAILED);
    }
}

/// Writes out what all streams have kept, as far as no other thread has them.
fn write_out() {
    let (done, is_done) = std::sync::mpsc::channel();
    let write = move || {
        // SAFETY: writes what streams have kept.
        let _ = done.send(unsafe { libc::fflush(std::ptr::null_mut()) });
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = is_done.recv_timeout(WRITTEN_WITHIN);
    }
}

/// The same, without what is to be done at an end.
extern "C" fn end_quickly() {
    if told_at().is_some_and(|board| !may_end(board)) {
        end_at_once(FAILED);
    }
}

fn end_at_once(code: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// `_exit`. It may be called wherever a signal is handled, and by a child that shares all memory: it allocates nothing.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _exit(code: c_int) -> ! {
    end_at_once(if told_at().is_none_or(may_end) { code } else { FAILED })
}

/// `_Exit`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn _Exit(code: c_int) -> ! {
    // SAFETY: the caller's.
    unsafe { _exit(code) }
}

/// Functions that look at their first argument, and then jump to the C library's of the same name.
macro_rules! looks_first {
    ($($name:ident: $look:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "call {}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                sym $look
            )
        }
    )*};
}

looks_first! {
    prctl: look_at_prctl;
    pthread_exit: look_at_pthread_exit;
}

/// `syscall`, which cannot look for the C library's function: what it would take for that may call it.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn syscall() {
    naked_asm!(
        "cmp rdi, {seccomp}",
        "jne 2f",
        "mov byte ptr [rip + {is_left_alone}], 1",
        "2:",
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        "cmp rax, -4095",
        "jae 3f",
        "ret",
        "3:",
        "mov rdi, rax",
        "jmp {failed}",
        seccomp = const libc::SYS_seccomp,
        is_left_alone = sym IS_LEFT_ALONE,
        failed = sym failed_call,
    )
}

unsafe extern "C" fn failed_call(answer: i64) -> isize {
    as_c(answer)
}

type Function = unsafe extern "C" fn();

unsafe extern "C" fn look_at_prctl(option: c_int) -> Function {
    if option == libc::PR_SET_SECCOMP {
        IS_LEFT_ALONE.store(true, Ordering::Relaxed);
    }
    own!(prctl: fn() -> ())
}

unsafe extern "C" fn look_at_pthread_exit() -> Function {
    // SAFETY: asks for the number of the thread.
    if unsafe { libc::gettid() }.cast_unsigned() == std::process::id() {
        FIRST_HAS_ENDED.store(true, Ordering::Relaxed);
    }
    own!(pthread_exit: fn() -> ())
}

/// Ends the process if no thread of the program is left, as the C library does when the last one ends. For a thread of
/// ours, from time to time.
pub(crate) fn end_if_nobody_is_left() {
    if !FIRST_HAS_ENDED.load(Ordering::Relaxed) {
        return;
    }
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return };
    let is_the_programs = |thread: std::io::Result<std::fs::DirEntry>| {
        let Ok(thread) = thread else { return false };
        let of_thread = |what: &str| std::fs::read_to_string(thread.path().join(what)).unwrap_or_default();
        // The first one stays in the table until the process ends.
        let has_ended = of_thread("stat").rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']));
        !has_ended && !of_thread("comm").starts_with(OWN_THREADS)
    };
    if !threads.into_iter().any(is_the_programs) {
        // SAFETY: the C library ends the process so, with all that is to be done then.
        unsafe { libc::exit(0) };
    }
}
