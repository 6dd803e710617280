//! Far memory as an allocator of NumPy's (`PyDataMem_Handler`, since NumPy 1.22).
//!
//! A handler is a capsule. NumPy keeps the one that is in force in a context variable, so threads and asynchronous
//! tasks have their own, and each array keeps the one that its data came from, which frees it. Allocations of less than
//! a limit are the C library's: far memory gains nothing by them. So are those of a child that was forked inside.
//!
//! UNSAFETY: functions that NumPy calls with pointers, and its table of functions.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::memory::Far;

/// What NumPy calls a capsule of a handler.
const CAPSULE: &std::ffi::CStr = c"mem_handler";
/// Where `PyDataMem_SetHandler` stands in NumPy's table. Places in it do not change.
const SET_HANDLER: usize = 304;
/// NumPy's name of a handler, in its own field.
const NAME: &[u8] = b"yonder";

/// `PyDataMem_Handler`, version 1.
#[repr(C)]
struct DataMemHandler {
    name: [c_char; 127],
    version: u8,
    context: *mut c_void,
    malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

const _: () = assert!(size_of::<DataMemHandler>() == 128 + 5 * size_of::<usize>());

/// What a capsule points to, and each function has as its context.
#[repr(C)]
struct Handler {
    /// First: NumPy has a pointer to it.
    numpy: DataMemHandler,
    far: Arc<Far>,
    far_bytes_min: usize,
}

/// A handler of `far` for NumPy, for what has at least `far_bytes_min` bytes.
pub(crate) fn capsule(py: Python<'_>, far: Arc<Far>, far_bytes_min: usize) -> PyResult<Bound<'_, PyAny>> {
    let mut name = [0; 127];
    for (letter, from) in name.iter_mut().zip(NAME) {
        *letter = from.cast_signed();
    }
    let numpy = DataMemHandler { name, version: 1, context: ptr::null_mut(), malloc, calloc, realloc, free };
    let handler = Box::into_raw(Box::new(Handler { numpy, far, far_bytes_min }));
    // SAFETY: the handler was just made; the capsule has it from now on, and `forget` takes it back.
    unsafe {
        (*handler).numpy.context = handler.cast();
        let capsule = ffi::PyCapsule_New(handler.cast(), CAPSULE.as_ptr(), Some(forget));
        if capsule.is_null() {
            drop(Box::from_raw(handler));
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

unsafe extern "C" fn forget(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is one of `capsule`'s, which nobody has any more, and it has this pointer.
    unsafe {
        let handler = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr());
        drop(Box::from_raw(handler.cast::<Handler>()));
    }
}

/// Puts a handler, or NumPy's own if that is `None`, in force in the context that runs. Returns the one before.
#[pyfunction]
pub(crate) fn set_handler<'py>(py: Python<'py>, handler: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let set = of_numpy(py)?;
    let handler = handler.map_or(ptr::null_mut(), Bound::as_ptr);
    // SAFETY: NumPy checks that it is a capsule with the right name, and keeps it. What it returns is a reference of
    // the caller's, or NULL with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, set(handler)) }
}

type SetHandler = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;

/// `PyDataMem_SetHandler` of the NumPy that is loaded.
fn of_numpy(py: Python<'_>) -> PyResult<SetHandler> {
    static SET: PyOnceLock<SetHandler> = PyOnceLock::new();
    let find = || {
        let table = py.import("numpy._core._multiarray_umath")?.getattr("_ARRAY_API")?;
        // SAFETY: NumPy's capsule, without a name, has a pointer to its table, in which this place has a function of
        // this type since NumPy 1.22; the package asks for NumPy 2.
        unsafe {
            let table = ffi::PyCapsule_GetPointer(table.as_ptr(), ptr::null()).cast::<*const c_void>();
            if table.is_null() {
                return Err(PyErr::fetch(py));
            }
            Ok(std::mem::transmute::<*const c_void, SetHandler>(*table.add(SET_HANDLER)))
        }
    };
    SET.get_or_try_init(py, find).copied()
}

/// The handler that a function was given as its context.
///
/// # Safety
/// `context` is that of a handler whose capsule is still there.
unsafe fn handler<'a>(context: *mut c_void) -> &'a Handler {
    // SAFETY: as the caller promises; nobody changes it.
    unsafe { &*context.cast::<Handler>() }
}

fn pointer(address: Option<usize>) -> *mut c_void {
    address.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

unsafe extern "C" fn malloc(context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy gives each function the context of the handler, and keeps its capsule.
    let handler = unsafe { handler(context) };
    if bytes >= handler.far_bytes_min && handler.far.is_of_this_process() {
        return pointer(handler.far.take(bytes));
    }
    // SAFETY: no pointers are given.
    unsafe { libc::malloc(bytes.max(1)) }
}

unsafe extern "C" fn calloc(context: *mut c_void, count: usize, each: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let handler = unsafe { handler(context) };
    let Some(bytes) = count.checked_mul(each) else { return ptr::null_mut() };
    if bytes >= handler.far_bytes_min && handler.far.is_of_this_process() {
        return pointer(handler.far.take_zeroed(bytes));
    }
    // SAFETY: no pointers are given.
    unsafe { libc::calloc(bytes.max(1), 1) }
}

unsafe extern "C" fn realloc(context: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let handler = unsafe { handler(context) };
    let (is_far, will_be_far) = (handler.far.contains(old.addr()), bytes >= handler.far_bytes_min);
    if !is_far && !will_be_far {
        // SAFETY: `old` is NULL or the C library's.
        return unsafe { libc::realloc(old, bytes.max(1)) };
    }
    if is_far && will_be_far && handler.far.resize(old.addr(), bytes) {
        return old;
    }
    // SAFETY: as in `malloc`; both have so many bytes, and nobody else has those of a new one; the caller gives up the
    // old one if there is a new one.
    unsafe {
        let new = malloc(context, bytes);
        if !new.is_null() && !old.is_null() {
            let before = if is_far { handler.far.size_of(old.addr()) } else { libc::malloc_usable_size(old) };
            ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast(), before.min(bytes));
            free(context, old, before);
        }
        new
    }
}

unsafe extern "C" fn free(context: *mut c_void, block: *mut c_void, _bytes: usize) {
    // SAFETY: as in `malloc`.
    let handler = unsafe { handler(context) };
    if handler.far.contains(block.addr()) {
        handler.far.give(block.addr());
    } else {
        // SAFETY: what is not far is the C library's, or NULL.
        unsafe { libc::free(block) }
    }
}
