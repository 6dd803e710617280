//! The C library's own functions, behind those that this library exports under the same names.
//!
//! [`Local`] is this library's allocator: whatever the paging runtime needs for itself comes from the C library's heap,
//! which is always here.
//!
//! UNSAFETY: calls of the C library, and functions found by their names.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Alignment of everything that the C library's malloc returns.
pub(crate) const MALLOC_ALIGN: usize = 16;

unsafe extern "C" {
    pub(crate) fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_realloc(old: *mut c_void, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    pub(crate) fn __libc_free(old: *mut c_void);
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
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. The first look goes to the dynamic linker.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Acquire);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // In the C library itself, and not in whatever comes next: that may be another allocator.
        // SAFETY: names are C strings; the C library is loaded and stays so.
        let found = unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            libc::dlsym(if libc.is_null() { libc::RTLD_NEXT } else { libc }, self.name.as_ptr())
        };
        assert!(!found.is_null(), "the C library has no {:?}", self.name);
        self.found.store(found, Ordering::Release);
        found
    }
}

/// The function of the C library with this name and type.
macro_rules! own {
    ($name:ident: fn($($argument:ty),*) -> $result:ty) => {{
        static HIDDEN: $crate::libc_own::Hidden = $crate::libc_own::Hidden::new({
            const NAME: &str = concat!(stringify!($name), "\0");
            match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            }
        });
        // SAFETY: the C library's function of this name has this type.
        unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) -> $result>(HIDDEN.address())
        }
    }};
}
pub(crate) use own;

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

/// What a system call has answered, as the C library says it: -1 and errno for an error.
pub(crate) fn as_c(answer: i64) -> isize {
    const ERRNO_MAX: i64 = 4095;
    if (-ERRNO_MAX..0).contains(&answer) {
        set_errno(-answer as libc::c_int);
        return -1;
    }
    answer as isize
}
