//! The functions of RocksDB's C interface that are used here.
//!
//! UNSAFETY: types of functions that are found by their names.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;

use yonder_library::{Library, LibraryError};

use crate::library::files;

/// Debian's package with `librocksdb.so`.
pub(crate) const PACKAGE: &str = "librocksdb-dev";

/// Objects of the library, of which only addresses are known here.
pub(crate) type Object = *mut c_void;
/// Where a function puts a message, which whoever has called it frees.
pub(crate) type Message = *mut *mut c_char;

yonder_library::functions! {
    Functions, "rocksdb_", PACKAGE;
    options_create: fn() -> Object;
    options_destroy: fn(Object);
    options_set_create_if_missing: fn(Object, c_uchar);
    options_set_allow_mmap_reads: fn(Object, c_uchar);
    options_set_compression: fn(Object, c_int);
    // Versions from 8 on have the last four too; the others do not look at them.
    options_set_plain_table_factory: fn(Object, u32, c_int, f64, usize, usize, c_char, c_uchar, c_uchar);
    open: fn(Object, *const c_char, Message) -> Object;
    close: fn(Object);
    writeoptions_create: fn() -> Object;
    writeoptions_destroy: fn(Object);
    writeoptions_disable_WAL: fn(Object, c_int);
    readoptions_create: fn() -> Object;
    readoptions_destroy: fn(Object);
    put: fn(Object, Object, *const c_char, usize, *const c_char, usize, Message);
    get_pinned: fn(Object, Object, *const c_char, usize, Message) -> Object;
    pinnableslice_value: fn(Object, *mut usize) -> *const c_char;
    pinnableslice_destroy: fn(Object);
    create_iterator: fn(Object, Object) -> Object;
    iter_seek: fn(Object, *const c_char, usize);
    iter_valid: fn(Object) -> c_uchar;
    iter_next: fn(Object);
    iter_key: fn(Object, *mut usize) -> *const c_char;
    iter_value: fn(Object, *mut usize) -> *const c_char;
    iter_get_error: fn(Object, Message);
    iter_destroy: fn(Object);
    flushoptions_create: fn() -> Object;
    flushoptions_destroy: fn(Object);
    flush: fn(Object, Object, Message);
    compact_range: fn(Object, *const c_char, usize, *const c_char, usize);
    free: fn(*mut c_void);
}

/// The library, loaded by the first call, with our functions in the place of those that it would read files with, and
/// with locks that are counted.
pub(crate) fn load() -> Result<&'static Functions, LibraryError> {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    static LOADING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let library = Library::open("librocksdb.so", PACKAGE)?;
    let functions = Functions::of(&library)?;
    library.count_locks()?;
    // SAFETY: they do what those functions do, but for files that have a place in far memory; nobody uses the library
    // yet.
    unsafe {
        library.replace_import(c"mmap", files::mmap as *const c_void)?;
        library.replace_import(c"munmap", files::munmap as *const c_void)?;
    }
    Ok(LOADED.get_or_init(|| functions))
}
