//! The malloc family.
//!
//! Each function that allocates is a few instructions in front of another that is told who has called: see `callers`.
//!
//! UNSAFETY: the C library's contracts for these functions, and their first instructions.

use std::ffi::{c_int, c_void};

use yonder_paging::far_heap::Misuse;

use crate::callers;
use crate::far::{Far, far, far_for, is_far};
use crate::libc_own::{
    __libc_calloc, __libc_free, __libc_malloc, __libc_memalign, __libc_realloc, MALLOC_ALIGN, own, set_errno,
};
use crate::mapped::is_any_protected;

/// The far memory for an allocation that the code at `caller` asks for.
#[inline]
fn wanted(bytes: usize, caller: usize) -> Option<&'static Far> {
    if callers::is_local(caller) { None } else { far_for(bytes) }
}

#[inline]
fn allocated(address: usize) -> *mut c_void {
    if address == 0 {
        set_errno(libc::ENOMEM);
    }
    std::ptr::with_exposed_provenance_mut(address)
}

callers::tell_caller! {
    malloc(bytes: usize) -> *mut c_void = malloc_for, "mov rsi, [rsp]", "jmp {}";
    calloc(count: usize, bytes: usize) -> *mut c_void = calloc_for, "mov rdx, [rsp]", "jmp {}";
    realloc(old: *mut c_void, bytes: usize) -> *mut c_void = realloc_for, "mov rdx, [rsp]", "jmp {}";
    reallocarray(old: *mut c_void, count: usize, bytes: usize) -> *mut c_void = reallocarray_for,
        "mov rcx, [rsp]", "jmp {}";
    memalign(align: usize, bytes: usize) -> *mut c_void = memalign_for, "mov rdx, [rsp]", "jmp {}";
    aligned_alloc(align: usize, bytes: usize) -> *mut c_void = memalign_for, "mov rdx, [rsp]", "jmp {}";
    valloc(bytes: usize) -> *mut c_void = memalign_for, "mov rdx, [rsp]", "mov rsi, rdi", "mov edi, 4096", "jmp {}";
    pvalloc(bytes: usize) -> *mut c_void = pvalloc_for, "mov rsi, [rsp]", "jmp {}";
    posix_memalign(block: *mut *mut c_void, align: usize, bytes: usize) -> c_int = posix_memalign_for,
        "mov rcx, [rsp]", "jmp {}";
}

/// Whether the program has an allocator of its own in the place of this one: then all that becomes far is what that one
/// maps.
pub(crate) fn is_another() -> bool {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    !found.is_null() && !callers::is_own(found as usize)
}

extern "C" fn malloc_for(bytes: usize, caller: usize) -> *mut c_void {
    match wanted(bytes, caller) {
        Some(far) => allocated(far.alloc(bytes, MALLOC_ALIGN)),
        // SAFETY: any size is a valid request.
        None => unsafe { __libc_malloc(bytes) },
    }
}

extern "C" fn calloc_for(count: usize, bytes: usize, caller: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return allocated(0) };
    match wanted(all, caller) {
        Some(far) => allocated(far.alloc_zeroed(all)),
        // SAFETY: any size is a valid request.
        None => unsafe { __libc_calloc(count, bytes) },
    }
}

extern "C" fn reallocarray_for(old: *mut c_void, count: usize, bytes: usize, caller: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(all) => realloc_for(old, all, caller),
        None => allocated(0),
    }
}

extern "C" fn realloc_for(old: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    if old.is_null() {
        return malloc_for(bytes, caller);
    }
    let (address, far) = (old as usize, far());
    if bytes == 0 {
        // SAFETY: the caller gives `old` up.
        unsafe { free(old) };
        return std::ptr::null_mut();
    }
    let Some(far) = far.filter(|_| is_far(address)) else { return realloc_local(old, bytes, caller) };
    let size = far.heap.size_of(address).unwrap_or_else(|misuse| die_of(misuse));
    if bytes < size && is_any_protected() {
        far.unprotect_pages(address, bytes).unwrap_or_else(|misuse| die_of(misuse));
    }
    if far.heap.resize_in_place(address, bytes).unwrap_or_else(|misuse| die_of(misuse)) {
        return old;
    }
    let new = allocated(far.alloc(bytes, MALLOC_ALIGN));
    if !new.is_null() {
        // SAFETY: both are as long, and new memory does not overlap old.
        unsafe { std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), size.min(bytes)) };
        far.free(address).unwrap_or_else(|misuse| die_of(misuse));
    }
    new
}

/// Resizes memory of the C library's heap. What grows large leaves it.
fn realloc_local(old: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    /// Smallest block that is worth the move.
    const LARGE: usize = 64 << 10;
    let far = if bytes >= LARGE { wanted(bytes, caller) } else { None };
    // SAFETY: `old` is a block of the C library's heap, and the caller gives it up; new memory does not overlap it.
    unsafe {
        let Some(far) = far else { return __libc_realloc(old, bytes) };
        let new = allocated(far.alloc(bytes, MALLOC_ALIGN));
        if !new.is_null() {
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), usable_local(old).min(bytes));
            __libc_free(old);
        }
        new
    }
}

/// `free`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn free(old: *mut c_void) {
    if is_far(old as usize)
        && let Some(far) = far()
    {
        far.free(old as usize).unwrap_or_else(|misuse| die_of(misuse));
    } else {
        // SAFETY: the caller's.
        unsafe { __libc_free(old) }
    }
}

/// `malloc_usable_size`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    match far() {
        Some(far) if is_far(block as usize) => far.heap.size_of(block as usize).unwrap_or_else(|misuse| die_of(misuse)),
        // SAFETY: the caller's.
        _ => unsafe { usable_local(block) },
    }
}

unsafe fn usable_local(block: *mut c_void) -> usize {
    let size_of = own!(malloc_usable_size: fn(*mut c_void) -> usize);
    // SAFETY: the caller's.
    unsafe { size_of(block) }
}

extern "C" fn pvalloc_for(bytes: usize, caller: usize) -> *mut c_void {
    match bytes.checked_next_multiple_of(4096) {
        Some(bytes) => memalign_for(4096, bytes, caller),
        None => allocated(0),
    }
}

extern "C" fn posix_memalign_for(block: *mut *mut c_void, align: usize, bytes: usize, caller: usize) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let new = memalign_for(align, bytes, caller);
    if new.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's: a place for the result.
    unsafe { *block = new };
    0
}

extern "C" fn memalign_for(align: usize, bytes: usize, caller: usize) -> *mut c_void {
    // As the C library does, which takes the next power of two for what is none.
    let Some(align) = align.max(MALLOC_ALIGN).checked_next_power_of_two() else {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    };
    match wanted(bytes, caller) {
        Some(far) => allocated(far.alloc(bytes, align)),
        // SAFETY: any size is a valid request.
        None => unsafe { __libc_memalign(align, bytes) },
    }
}

/// Ends the process: the program has freed what it had not allocated, and its heap is not what it thinks.
#[cold]
pub(crate) fn die_of(misuse: Misuse) -> ! {
    crate::complain(&misuse.to_string());
    std::process::abort()
}
