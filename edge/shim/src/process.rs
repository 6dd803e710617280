//! Programs that the program executes: what they are given is copied to memory that the kernel can read.
//!
//! The kernel reads paths, arguments and environment while it replaces the process, or in a child whose handlers are reset, where
//! no fault could be handled. The copies live until the new program begins, or for good where it does not.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::far::is_far;
use crate::libc_own::own;

/// A text that is local: itself, or a copy.
struct LocalText {
    text: *const c_char,
    _copy: Option<CString>,
}

impl LocalText {
    /// # Safety
    /// `text` is null or a C string.
    unsafe fn of(text: *const c_char) -> Self {
        if !is_far(text as usize) {
            return Self { text, _copy: None };
        }
        // SAFETY: the caller's.
        let copy = unsafe { CStr::from_ptr(text) }.to_owned();
        Self { text: copy.as_ptr(), _copy: Some(copy) }
    }
}

/// A list of texts, with a null pointer at its end, of which everything is local.
struct LocalTexts {
    list: *const *const c_char,
    _texts: Vec<LocalText>,
    _pointers: Vec<*const c_char>,
}

impl LocalTexts {
    /// # Safety
    /// `list` is null, or a list of C strings with a null pointer at its end.
    unsafe fn of(list: *const *const c_char) -> Self {
        let mut texts = Vec::new();
        // SAFETY: the caller's.
        unsafe {
            let mut at = list;
            while !at.is_null() && !(*at).is_null() {
                texts.push(LocalText::of(*at));
                at = at.add(1);
            }
        }
        let is_local = !is_far(list as usize) && texts.iter().all(|text| text._copy.is_none());
        if is_local {
            return Self { list, _texts: Vec::new(), _pointers: Vec::new() };
        }
        let pointers: Vec<_> = texts.iter().map(|text| text.text).chain([std::ptr::null()]).collect();
        Self { list: pointers.as_ptr(), _texts: texts, _pointers: pointers }
    }
}

type Texts = *const *const c_char;

unsafe extern "C" {
    static environ: Texts;
}

/// `execve`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execve(path: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let own = own!(execve: fn(*const c_char, Texts, Texts) -> c_int);
    // SAFETY: the caller's; copies live as long as the call.
    unsafe {
        let (path, arguments, environment) =
            (LocalText::of(path), LocalTexts::of(arguments), LocalTexts::of(environment));
        own(path.text, arguments.list, environment.list)
    }
}

/// `execv`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's.
    unsafe { execve(path, arguments, environ) }
}

/// `execvpe`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvpe(file: *const c_char, arguments: Texts, environment: Texts) -> c_int {
    let own = own!(execvpe: fn(*const c_char, Texts, Texts) -> c_int);
    // SAFETY: the caller's; copies live as long as the call.
    unsafe {
        let (file, arguments, environment) =
            (LocalText::of(file), LocalTexts::of(arguments), LocalTexts::of(environment));
        own(file.text, arguments.list, environment.list)
    }
}

/// `execvp`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, arguments: Texts) -> c_int {
    // SAFETY: the caller's.
    unsafe { execvpe(file, arguments, environ) }
}

type Spawn = unsafe extern "C" fn(*mut pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int;

/// Spawns with `own` what these say.
///
/// # Safety
/// As the C library's.
unsafe fn spawn(
    own: Spawn,
    pid: *mut pid_t,
    path: *const c_char,
    (actions, attributes): (*const c_void, *const c_void),
    arguments: Texts,
    environment: Texts,
) -> c_int {
    // SAFETY: the caller's; copies live as long as the call, which returns when the new program has begun.
    unsafe {
        let (path, arguments, environment) =
            (LocalText::of(path), LocalTexts::of(arguments), LocalTexts::of(environment));
        own(pid, path.text, actions, attributes, arguments.list, environment.list)
    }
}

/// `posix_spawn`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    let own = own!(posix_spawn: fn(*mut pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int);
    // SAFETY: the caller's.
    unsafe { spawn(own, pid, path, (actions, attributes), arguments, environment) }
}

/// `posix_spawnp`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Texts,
    environment: Texts,
) -> c_int {
    let own = own!(posix_spawnp: fn(*mut pid_t, *const c_char, *const c_void, *const c_void, Texts, Texts) -> c_int);
    // SAFETY: the caller's.
    unsafe { spawn(own, pid, file, (actions, attributes), arguments, environment) }
}

/// `system`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let own = own!(system: fn(*const c_char) -> c_int);
    // SAFETY: the caller's; the copy lives as long as the call.
    unsafe { own(LocalText::of(command).text) }
}

/// `popen`.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    let own = own!(popen: fn(*const c_char, *const c_char) -> *mut FILE);
    // SAFETY: the caller's; the copy lives as long as the call, which returns when the shell has begun.
    unsafe { own(LocalText::of(command).text, mode) }
}
