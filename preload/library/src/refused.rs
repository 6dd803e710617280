//! Functions of the C library that are refused where far memory is in the way, with an errno that programs are prepared
//! for.
//!
//! Its own threads do what is asked of `aio_read` and `getaddrinfo_a`, and hold all signals back for good: they can
//! have no fault. A thread that stops sharing its descriptors with the others no longer has those that are opened for
//! far memory later, and has files of its own at their numbers.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{c_int, c_void};

use libc::{aiocb, sigevent};

use crate::far::{far, is_far};
use crate::libc_own::{own, set_errno};

fn refused(errno: c_int) -> c_int {
    set_errno(errno);
    -1
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

/// Functions that begin an asynchronous transfer.
macro_rules! transfers {
    ($($name:ident($($argument:ident: $type:ty),*) of $request:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's.
            if unsafe { needs_far($request) } {
                return refused(libc::ENOSYS);
            }
            let own = own!($name: fn($($type),*) -> c_int);
            // SAFETY: the caller's.
            unsafe { own($($argument),*) }
        }
    )*};
}

transfers! {
    aio_read(request: *mut aiocb) of request;
    aio_read64(request: *mut aiocb) of request;
    aio_write(request: *mut aiocb) of request;
    aio_write64(request: *mut aiocb) of request;
    aio_fsync(operation: c_int, request: *mut aiocb) of request;
    aio_fsync64(operation: c_int, request: *mut aiocb) of request;
}

/// Functions that begin several.
macro_rules! lists {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            mode: c_int,
            list: *const *mut aiocb,
            count: c_int,
            event: *mut sigevent,
        ) -> c_int {
            // SAFETY: the caller's: the list is as long as it says.
            let needs_far = unsafe {
                far().is_some()
                    && ((0..count.max(0) as usize).any(|at| needs_far(*list.add(at)))
                        || event.as_ref().is_some_and(|event| event.sigev_notify == libc::SIGEV_THREAD))
            };
            if needs_far {
                return refused(libc::ENOSYS);
            }
            let own = own!($name: fn(c_int, *const *mut aiocb, c_int, *mut sigevent) -> c_int);
            // SAFETY: the caller's.
            unsafe { own(mode, list, count, event) }
        }
    )*};
}

lists!(lio_listio lio_listio64);

/// What `getaddrinfo_a` is asked: a name, a service and what is wanted of them, and a place for the answer.
type Question = [*const c_void; 4];

/// `getaddrinfo_a`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getaddrinfo_a(
    mode: c_int,
    list: *const *mut Question,
    count: c_int,
    event: *mut sigevent,
) -> c_int {
    // SAFETY: the caller's: the list is as long as it says, and has null pointers or questions.
    let needs_far = unsafe {
        far().is_some()
            && (0..count.max(0) as usize).any(|at| {
                let question = *list.add(at);
                let parts = question.as_ref().into_iter().flatten();
                is_far(question as usize) || parts.into_iter().any(|part| is_far(*part as usize))
            })
    };
    if needs_far {
        set_errno(libc::ENOSYS);
        return libc::EAI_SYSTEM;
    }
    let own = own!(getaddrinfo_a: fn(c_int, *const *mut Question, c_int, *mut sigevent) -> c_int);
    // SAFETY: the caller's.
    unsafe { own(mode, list, count, event) }
}

/// `unshare`. What else it cannot do in a process with several threads, such as ours, the kernel says.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 && far().is_some() {
        return refused(libc::EINVAL);
    }
    let own = own!(unshare: fn(c_int) -> c_int);
    // SAFETY: the caller's.
    unsafe { own(flags) }
}
