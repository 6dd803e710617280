//! Functions of the C library that are refused where far memory is in the way, with an errno that programs are prepared
//! for.
//!
//! Its own threads do what is asked of `aio_read` and `getaddrinfo_a`, and hold all signals back for good: they can
//! have no fault. A thread that stops sharing its descriptors with the others no longer has those that are opened for
//! far memory later, and has files of its own at their numbers. A library that looks for its functions in itself first
//! would find another `free` than the one that knows far memory.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use libc::{aiocb, sigevent};

use crate::far::{far, is_far};
use crate::libc_own::{failed, in_front, own, set_errno};

/// `dlopen`, without `RTLD_DEEPBIND`: who asks for that gets a library that finds its functions where all others do.
///
/// # Safety
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlopen() {
    // The C library looks at who has called, by the return address, so this is a jump.
    naked_asm!(
        "push rdi", "push rsi", "sub rsp, 8",
        "call {}",
        "add rsp, 8", "pop rsi", "pop rdi",
        "and esi, {}",
        "jmp rax",
        sym own_dlopen,
        const !libc::RTLD_DEEPBIND
    )
}

unsafe extern "C" fn own_dlopen() -> unsafe extern "C" fn() {
    own!(dlopen: fn() -> ())
}

/// Whether an asynchronous transfer would need far memory in the C library's thread.
///
/// # Safety
/// `request` is null or valid.
unsafe fn needs_far(request: *const aiocb) -> bool {
    // SAFETY: the caller's.
    far().is_some()
        && unsafe { request.as_ref() }.is_some_and(|request| {
            is_far(std::ptr::from_ref(request) as usize)
                || is_far(request.aio_buf as usize)
                || request.aio_sigevent.sigev_notify == libc::SIGEV_THREAD
        })
}

/// Whether one of several would.
///
/// # Safety
/// `list` has `count` elements, of which each is null or valid; `event` is null or valid.
unsafe fn any_needs_far(list: *const *mut aiocb, count: c_int, event: *const sigevent) -> bool {
    // SAFETY: the caller's.
    unsafe {
        far().is_some()
            && ((0..count.max(0) as usize).any(|at| needs_far(*list.add(at)))
                || event.as_ref().is_some_and(|event| event.sigev_notify == libc::SIGEV_THREAD))
    }
}

/// What `getaddrinfo_a` is asked: a name, a service and what is wanted of them, and a place for the answer.
type Question = [*const c_void; 4];

/// Whether one of several questions is far, or a part of it.
///
/// # Safety
/// `list` has `count` elements, which are null pointers or questions.
unsafe fn any_is_far(list: *const *mut Question, count: c_int) -> bool {
    // SAFETY: the caller's.
    unsafe {
        far().is_some()
            && (0..count.max(0) as usize).any(|at| {
                let question = *list.add(at);
                let parts = question.as_ref().into_iter().flatten();
                is_far(question as usize) || parts.into_iter().any(|part| is_far(*part as usize))
            })
    }
}

in_front! {
    aio_read(request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    aio_read64(request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    aio_write(request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    aio_write64(request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    aio_fsync(operation: c_int, request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    aio_fsync64(operation: c_int, request: *mut aiocb) -> c_int, if needs_far(request) => failed(libc::ENOSYS);
    lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int,
        if any_needs_far(list, count, event) => failed(libc::ENOSYS);
    lio_listio64(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int,
        if any_needs_far(list, count, event) => failed(libc::ENOSYS);
    getaddrinfo_a(mode: c_int, list: *const *mut Question, count: c_int, event: *mut sigevent) -> c_int,
        if any_is_far(list, count) => {
            set_errno(libc::ENOSYS);
            libc::EAI_SYSTEM
        };
    /// What else it cannot do in a process with several threads, such as ours, the kernel says.
    unshare(flags: c_int) -> c_int, if flags & libc::CLONE_FILES != 0 && far().is_some() => failed(libc::EINVAL);
}
