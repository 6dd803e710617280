//! Programs that the program executes: what they are given is copied to memory that the kernel can read.
//!
//! The kernel reads paths, arguments and environment while it replaces the process, or in a child whose handlers are
//! reset, where no fault could be handled. The copies live until the new program begins, or for good where it does not.
//!
//! UNSAFETY: the C library's contracts for these functions.

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use libc::{FILE, pid_t};

use crate::far::is_far;
use crate::libc_own::{in_front, own};

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

/// A structure that is local: itself, or a copy.
pub(crate) struct LocalCopy<T> {
    given: *const T,
    copy: Option<T>,
}

impl<T> LocalCopy<T> {
    /// # Safety
    /// `given` is null or valid; nothing of what it points to is given up with the copy.
    pub(crate) unsafe fn of(given: *const T) -> Self {
        // SAFETY: the caller's.
        Self { given, copy: is_far(given as usize).then(|| unsafe { given.read() }) }
    }

    pub(crate) fn start(&self) -> *const c_void {
        self.copy.as_ref().map_or(self.given, |copy| &raw const *copy).cast()
    }
}

type Texts = *const *const c_char;

unsafe extern "C" {
    static mut environ: Texts;
}

/// The environment, for functions of the C library that use it by themselves: what is far in it is replaced for good.
fn local_environment() {
    // SAFETY: the environment is a list of C strings; it is the program's business that nobody changes it meanwhile.
    unsafe {
        let local = LocalTexts::of(environ);
        if local.list != environ {
            environ = local.list;
            std::mem::forget(local);
        }
    }
}

/// A command for the C library's shell, which gets the environment too.
///
/// # Safety
/// `command` is null or a C string.
unsafe fn for_shell(command: *const c_char) -> LocalText {
    local_environment();
    // SAFETY: the caller's.
    unsafe { LocalText::of(command) }
}

/// Arguments of a function that takes any number of them, with a null pointer at their end.
struct Variadic {
    /// Those in registers: all but the first.
    registers: *const [*const c_char; 5],
    /// The others.
    stack: Texts,
}

impl Variadic {
    fn at(&self, index: usize) -> *const c_char {
        // SAFETY: the caller asks for no more than there are.
        unsafe {
            match (*self.registers).get(index) {
                Some(text) => *text,
                None => *self.stack.add(index - (*self.registers).len()),
            }
        }
    }

    /// All texts, and the null pointer.
    fn texts(&self) -> Vec<*const c_char> {
        let mut texts = Vec::new();
        while texts.last().is_none_or(|last: &*const c_char| !last.is_null()) {
            texts.push(self.at(texts.len()));
        }
        texts
    }
}

/// Hands variadic functions' arguments over: the first one, and addresses of the others in registers and on the stack.
macro_rules! variadic {
    ($($name:ident = $function:ident;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As the C library's.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                "mov rsi, rsp",
                "lea rdx, [rsp + 48]",
                "call {}",
                "add rsp, 40",
                "ret",
                sym $function
            )
        }
    )*};
}

variadic! {
    execl = execl_of;
    execlp = execlp_of;
    execle = execle_of;
}

unsafe extern "C" fn execl_of(path: *const c_char, registers: *const [*const c_char; 5], stack: Texts) -> c_int {
    // SAFETY: the caller's.
    unsafe { execv(path, Variadic { registers, stack }.texts().as_ptr()) }
}

unsafe extern "C" fn execlp_of(file: *const c_char, registers: *const [*const c_char; 5], stack: Texts) -> c_int {
    // SAFETY: the caller's.
    unsafe { execvp(file, Variadic { registers, stack }.texts().as_ptr()) }
}

unsafe extern "C" fn execle_of(path: *const c_char, registers: *const [*const c_char; 5], stack: Texts) -> c_int {
    let arguments = Variadic { registers, stack };
    let texts = arguments.texts();
    // SAFETY: the caller's: the environment follows the null pointer.
    unsafe { execve(path, texts.as_ptr(), arguments.at(texts.len()).cast()) }
}

in_front! {
    fexecve(fd: c_int, arguments: Texts => LocalTexts::of(arguments).list,
        environment: Texts => LocalTexts::of(environment).list) -> c_int;
    execveat(fd: c_int, path: *const c_char => LocalText::of(path).text,
        arguments: Texts => LocalTexts::of(arguments).list, environment: Texts => LocalTexts::of(environment).list,
        flags: c_int) -> c_int;
    execve(path: *const c_char => LocalText::of(path).text, arguments: Texts => LocalTexts::of(arguments).list,
        environment: Texts => LocalTexts::of(environment).list) -> c_int;
    execvpe(file: *const c_char => LocalText::of(file).text, arguments: Texts => LocalTexts::of(arguments).list,
        environment: Texts => LocalTexts::of(environment).list) -> c_int;
    system(command: *const c_char => for_shell(command).text) -> c_int;
    /// It returns when the shell has begun.
    popen(command: *const c_char => for_shell(command).text, mode: *const c_char) -> *mut FILE;
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
    // SAFETY: the caller's; copies live as long as the call, which returns when the new program has begun. All of it
    // happens with all signals held back, the result too.
    unsafe {
        let (path, arguments, environment) =
            (LocalText::of(path), LocalTexts::of(arguments), LocalTexts::of(environment));
        let actions = LocalCopy::of(actions.cast::<libc::posix_spawn_file_actions_t>());
        let attributes = LocalCopy::of(attributes.cast::<libc::posix_spawnattr_t>());
        let mut child = 0;
        let result =
            own(&raw mut child, path.text, actions.start(), attributes.start(), arguments.list, environment.list);
        if let (0, Some(pid)) = (result, pid.as_mut()) {
            *pid = child;
        }
        result
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
