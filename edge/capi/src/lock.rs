//! Locks of light threads: mutexes, condition variables and semaphores of `yonder_threads.h`.
//!
//! UNSAFETY: it exports functions that read C's pointers.

use std::ffi::c_int;
use std::time::Duration;

use yonder::threads::sync::{Condvar, Lock, Semaphore, WaitTimeout};

use crate::arguments::reference;
use crate::failure::{Failure, answer};
use crate::handle;
use crate::light::may_wait;

/// `yonder_mutex`.
pub struct YonderMutex {
    lock: Lock,
}

/// `yonder_cond`.
pub struct YonderCond {
    condvar: Condvar,
}

/// `yonder_semaphore`.
pub struct YonderSemaphore {
    semaphore: Semaphore,
}

fn not_locked() -> Failure {
    Failure::new(libc::EPERM, "the mutex is not locked: lock it first")
}

/// `yonder_mutex_new` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_mutex_new() -> *mut YonderMutex {
    handle::new(YonderMutex { lock: Lock::new() })
}

/// `yonder_mutex_free` of `yonder_threads.h`.
///
/// # Safety
/// `mutex` is NULL, or nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_mutex_free(mutex: *mut YonderMutex) {
    // SAFETY: as the caller promises.
    unsafe { handle::free(mutex) };
}

/// `yonder_mutex_lock` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_mutex_lock(mutex: *mut YonderMutex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(mutex, "mutex", |mutex| {
            if !mutex.lock.try_hold() {
                may_wait()?;
                mutex.lock.hold();
            }
            Ok(0)
        })
    }
}

/// `yonder_mutex_trylock` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_mutex_trylock(mutex: *mut YonderMutex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(mutex, "mutex", |mutex| {
            if mutex.lock.try_hold() { Ok(0) } else { Err(Failure::new(libc::EBUSY, "the mutex is locked")) }
        })
    }
}

/// `yonder_mutex_unlock` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_mutex_unlock(mutex: *mut YonderMutex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { handle::on(mutex, "mutex", |mutex| if mutex.lock.release() { Ok(0) } else { Err(not_locked()) }) }
}

/// `yonder_cond_new` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_cond_new() -> *mut YonderCond {
    handle::new(YonderCond { condvar: Condvar::new() })
}

/// `yonder_cond_free` of `yonder_threads.h`.
///
/// # Safety
/// `cond` is NULL, or nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_cond_free(cond: *mut YonderCond) {
    // SAFETY: as the caller promises.
    unsafe { handle::free(cond) };
}

/// # Safety
/// The pointers are what the header says.
unsafe fn wait(cond: *mut YonderCond, mutex: *mut YonderMutex, span: Option<Duration>) -> c_int {
    answer(|| {
        // SAFETY: as the caller promises.
        let (cond, mutex) = unsafe { (reference(cond, "cond")?, reference(mutex, "mutex")?) };
        if !mutex.lock.is_held() {
            return Err(not_locked());
        }
        may_wait()?;
        match cond.condvar.wait_holding(&mutex.lock, span) {
            WaitTimeout::Notified => Ok(0),
            WaitTimeout::TimedOut => Err(Failure::new(libc::ETIMEDOUT, "nobody has signalled in time")),
        }
    })
}

/// `yonder_cond_wait` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_cond_wait(cond: *mut YonderCond, mutex: *mut YonderMutex) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { wait(cond, mutex, None) }
}

/// `yonder_cond_timedwait` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_cond_timedwait(
    cond: *mut YonderCond,
    mutex: *mut YonderMutex,
    nanoseconds: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { wait(cond, mutex, Some(Duration::from_nanos(nanoseconds))) }
}

/// `yonder_cond_signal` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_cond_signal(cond: *mut YonderCond) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(cond, "cond", |cond| {
            cond.condvar.notify_one();
            Ok(0)
        })
    }
}

/// `yonder_cond_broadcast` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_cond_broadcast(cond: *mut YonderCond) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(cond, "cond", |cond| {
            cond.condvar.notify_all();
            Ok(0)
        })
    }
}

/// `yonder_semaphore_new` of `yonder_threads.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_semaphore_new(permits: usize) -> *mut YonderSemaphore {
    handle::new(YonderSemaphore { semaphore: Semaphore::new(permits) })
}

/// `yonder_semaphore_free` of `yonder_threads.h`.
///
/// # Safety
/// `semaphore` is NULL, or nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_semaphore_free(semaphore: *mut YonderSemaphore) {
    // SAFETY: as the caller promises.
    unsafe { handle::free(semaphore) };
}

/// `yonder_semaphore_acquire` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_semaphore_acquire(semaphore: *mut YonderSemaphore) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(semaphore, "semaphore", |semaphore| {
            let permit = match semaphore.semaphore.try_acquire() {
                Some(permit) => permit,
                None => may_wait().map(|()| semaphore.semaphore.acquire())?,
            };
            permit.forget();
            Ok(0)
        })
    }
}

/// `yonder_semaphore_try_acquire` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_semaphore_try_acquire(semaphore: *mut YonderSemaphore) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(semaphore, "semaphore", |semaphore| {
            let permit = semaphore.semaphore.try_acquire();
            permit.ok_or_else(|| Failure::new(libc::EAGAIN, "no permit is free"))?.forget();
            Ok(0)
        })
    }
}

/// `yonder_semaphore_release` of `yonder_threads.h`.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_semaphore_release(semaphore: *mut YonderSemaphore) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        handle::on(semaphore, "semaphore", |semaphore| {
            semaphore.semaphore.add_permits(1);
            Ok(0)
        })
    }
}
