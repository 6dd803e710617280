//! The C library's own functions, behind those that this library exports under the same names.
//!
//! [`Local`] is this library's allocator: whatever the paging runtime needs for itself comes from the C library's heap,
//! which is always here.
//!
//! UNSAFETY: calls of the C library, and functions found by their names.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::functions;

/// Alignment of everything that the C library's malloc returns.
pub(crate) const MALLOC_ALIGN: usize = 16;

unsafe extern "C" {
    pub(crate) fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_realloc(old: *mut c_void, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_free(old: *mut c_void);
    pub(crate) fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// The C library's heap.
struct Local;

#[global_allocator]
static LOCAL: Local = Local;

// SAFETY: the C library's allocator, with the alignment that the layout asks for.
unsafe impl GlobalAlloc for Local {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size is a valid request.
        unsafe {
            if layout.align() <= MALLOC_ALIGN {
                __libc_malloc(layout.size()).cast()
            } else {
                __libc_memalign(layout.align(), layout.size()).cast()
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: any size is a valid request.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        // SAFETY: as the caller's; what was allocated is `size` bytes long.
        unsafe {
            let new = self.alloc(layout);
            if !new.is_null() {
                new.write_bytes(0, layout.size());
            }
            new
        }
    }

    unsafe fn dealloc(&self, old: *mut u8, _layout: Layout) {
        // SAFETY: `old` came from one of the functions above.
        unsafe { __libc_free(old.cast()) }
    }
}

/// A function of the C library that this library hides.
pub(crate) struct Hidden {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Hidden {
    /// A function by its name, which ends with a zero.
    pub(crate) const fn new(name: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name.as_bytes()) else { unreachable!() };
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Acquire);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // In the C library itself, and not in whatever comes next: that may be another allocator.
        let found = functions::find(self.name).unwrap_or_else(|| panic!("the C library has no {:?}", self.name));
        self.found.store(found, Ordering::Release);
        found
    }
}

/// A function of the C library as one of its type.
macro_rules! typed {
    ($hidden:ident: fn($($argument:ty),*) -> $result:ty) => {
        std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>($hidden.address())
    };
}
pub(crate) use typed;

/// The function of the C library with this name and type.
macro_rules! own {
    ($name:ident: fn($($argument:ty),*) -> $result:ty) => {{
        static HIDDEN: $crate::libc_own::Hidden = $crate::libc_own::Hidden::new(concat!(stringify!($name), "\0"));
        // SAFETY: the C library's function of this name has this type.
        unsafe { $crate::libc_own::typed!(HIDDEN: fn($($argument),*) -> $result) }
    }};
}
pub(crate) use own;

/// Functions in front of the C library's of the same names. Behind an argument stands what the C library gets in its
/// place, and behind the result when it is not asked, and what is answered then.
macro_rules! in_front {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty $(=> $given:expr)?),*) -> $result:ty
        $(, if $condition:expr => $answer:expr)?;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static HIDDEN: $crate::libc_own::Hidden = $crate::libc_own::Hidden::new(concat!(stringify!($name), "\0"));
            // SAFETY: the caller's, and the C library's function of this name has this type; copies of what an argument
            // points to live as long as the call.
            unsafe {
                $(if $condition {
                    return $answer;
                })?
                let own = $crate::libc_own::typed!(HIDDEN: fn($($type),*) -> $result);
                own($($crate::libc_own::given!($argument $(, $given)?)),*)
            }
        }
    )*};
}
pub(crate) use in_front;

/// An argument, or what stands behind it.
macro_rules! given {
    ($argument:ident) => {
        $argument
    };
    ($argument:ident, $given:expr) => {
        $given
    };
}
pub(crate) use given;

/// The errno of the calling thread.
pub(crate) fn errno() -> libc::c_int {
    // SAFETY: errno is a thread-local word of the C library.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub(crate) fn set_errno(errno: libc::c_int) {
    // SAFETY: errno is a thread-local word of the C library.
    unsafe { *libc::__errno_location() = errno };
}

/// Sets it, and answers as a function that has failed.
pub(crate) fn failed(errno: libc::c_int) -> libc::c_int {
    set_errno(errno);
    -1
}

/// What a system call has answered, as the C library says it: -1 and errno for an error.
pub(crate) fn as_c(answer: i64) -> isize {
    const ERRNO_MAX: i64 = 4095;
    if (-ERRNO_MAX..0).contains(&answer) {
        return failed(-answer as libc::c_int) as isize;
    }
    answer as isize
}
