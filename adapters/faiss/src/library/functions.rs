//! The functions of the glue.
//!
//! UNSAFETY: types of functions that are found by their names.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use yonder_library::Library;

use crate::library::FaissError;
use crate::library::glue::Toolchain;

/// Debian's packages with the compiler and with Faiss.
pub(crate) const PACKAGES: &str = "g++ libfaiss-dev";
/// Room for what a function says of its failure.
pub(crate) const WHY_BYTES: usize = 512;

/// Objects of the library, of which only addresses are known here.
pub(crate) type Object = *mut c_void;
/// Where a function puts a text, with room for [`WHY_BYTES`].
pub(crate) type Why = *mut c_char;

/// Where an inverted list is: codes and ids of so many vectors.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct List {
    pub(crate) codes: *const u8,
    pub(crate) ids: *const i64,
    pub(crate) length: usize,
}

// Those that return a number return -1 if they have failed.
yonder_library::functions! {
    Functions, "yonder_faiss_", PACKAGES;
    train: fn(usize, usize, usize, *const f32, *mut Object, Why) -> c_int;
    add: fn(Object, usize, *const f32, Why) -> c_int;
    lists: fn(Object, *mut List, Why) -> c_int;
    place: fn(Object, *const List, Why) -> c_int;
    search: fn(Object, *const f32, usize, usize, *mut f32, *mut i64, Why) -> c_int;
    begin: fn(Object, *const f32, usize, usize, *mut Object, Why) -> c_int;
    step: fn(Object, usize, Why) -> c_int;
    found: fn(Object, *mut f32, *mut i64, Why) -> c_int;
    end: fn(Object);
    close: fn(Object);
}

/// The glue, made if need be and loaded by the first call, with locks that are counted.
pub(crate) fn load() -> Result<&'static Functions, FaissError> {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    let glue = Toolchain::of_user()?.build()?;
    // The name stays as long as the library, which is for good.
    let name: &'static str = glue.display().to_string().leak();
    let library = Library::open(name, PACKAGES)?;
    library.count_locks()?;
    let functions = Functions::of(&library)?;
    Ok(LOADED.get_or_init(|| functions))
}
