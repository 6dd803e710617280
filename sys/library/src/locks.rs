//! The C library's locks, for a library whose locks are counted.
//!
//! A lock that is asked for without waiting counts if it was got. What gives a lock away and takes it again, such as
//! the wait for a condition, changes nothing.
//!
//! UNSAFETY: functions of the C library, which get what they were to get.

use std::ffi::{CStr, c_int, c_void};

use yonder_trap::{lock_released, lock_taken};

/// A function that may be called instead of another.
pub(crate) struct Counting(pub(crate) *const c_void);

// SAFETY: the address of a function.
unsafe impl Sync for Counting {}

type Lock = *mut c_void;

/// What the `libc` crate does not have.
mod own {
    use std::ffi::c_int;

    use super::Lock;

    unsafe extern "C" {
        pub(super) fn pthread_mutex_clocklock(
            mutex: Lock,
            clock: libc::clockid_t,
            until: *const libc::timespec,
        ) -> c_int;
        pub(super) fn pthread_rwlock_clockrdlock(
            lock: Lock,
            clock: libc::clockid_t,
            until: *const libc::timespec,
        ) -> c_int;
        pub(super) fn pthread_rwlock_clockwrlock(
            lock: Lock,
            clock: libc::clockid_t,
            until: *const libc::timespec,
        ) -> c_int;
        pub(super) fn pthread_rwlock_timedrdlock(lock: Lock, until: *const libc::timespec) -> c_int;
        pub(super) fn pthread_rwlock_timedwrlock(lock: Lock, until: *const libc::timespec) -> c_int;
    }
}

/// Functions that count, in the place of those of their names.
macro_rules! counting {
    ($($counted:ident $own:path = ($($argument:ident: $type:ty),*) ;)*) => {
        /// The functions that are replaced, by their names.
        pub(crate) static COUNTING: &[(&CStr, Counting)] = &[$((
            match CStr::from_bytes_with_nul(concat!(stringify!($counted), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
            Counting($counted as *const c_void),
        )),*];

        $(unsafe extern "C" fn $counted(lock: Lock $(, $argument: $type)*) -> c_int {
            // SAFETY: the caller's.
            let result = unsafe { $own(lock.cast() $(, $argument)*) };
            // A robust mutex whose owner has ended is taken all the same.
            if result == 0 || result == libc::EOWNERDEAD {
                if stringify!($counted).ends_with("unlock") { lock_released() } else { lock_taken() }
            }
            result
        })*
    };
}

counting! {
    pthread_mutex_lock libc::pthread_mutex_lock = ();
    pthread_mutex_trylock libc::pthread_mutex_trylock = ();
    pthread_mutex_timedlock libc::pthread_mutex_timedlock = (until: *const libc::timespec);
    pthread_mutex_clocklock own::pthread_mutex_clocklock = (clock: libc::clockid_t, until: *const libc::timespec);
    pthread_mutex_unlock libc::pthread_mutex_unlock = ();
    pthread_rwlock_rdlock libc::pthread_rwlock_rdlock = ();
    pthread_rwlock_tryrdlock libc::pthread_rwlock_tryrdlock = ();
    pthread_rwlock_wrlock libc::pthread_rwlock_wrlock = ();
    pthread_rwlock_trywrlock libc::pthread_rwlock_trywrlock = ();
    pthread_rwlock_timedrdlock own::pthread_rwlock_timedrdlock = (until: *const libc::timespec);
    pthread_rwlock_timedwrlock own::pthread_rwlock_timedwrlock = (until: *const libc::timespec);
    pthread_rwlock_clockrdlock own::pthread_rwlock_clockrdlock = (clock: libc::clockid_t, until: *const libc::timespec);
    pthread_rwlock_clockwrlock own::pthread_rwlock_clockwrlock = (clock: libc::clockid_t, until: *const libc::timespec);
    pthread_rwlock_unlock libc::pthread_rwlock_unlock = ();
    pthread_spin_lock libc::pthread_spin_lock = ();
    pthread_spin_trylock libc::pthread_spin_trylock = ();
    pthread_spin_unlock libc::pthread_spin_unlock = ();
}
