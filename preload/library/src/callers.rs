//! Whose call it is: code of the C library, of the dynamic linker, of this library and of a guide gets memory that is
//! always here.
//!
//! The C library makes system calls on what it allocates (the buffers of streams, lists of directories), holds all
//! signals back for moments, and runs in children between `vfork` and `exec`; its share of a program's memory is small.
//! This library must not have faults of its own, nor may a guide, which runs where faults are served. Everybody else's
//! memory can be far.
//!
//! UNSAFETY: walks the list of loaded objects.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

/// Functions that are a few instructions in front of others, which are told by a last argument who has called.
macro_rules! tell_caller {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $told:ident, $($instruction:literal),+;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            std::arch::naked_asm!($($instruction),+, sym $told)
        }
    )*};
}
pub(crate) use tell_caller;

/// Most objects whose calls are answered locally: the C library in its parts, the dynamic linker, this one.
const OBJECTS: usize = 8;

static CODE: OnceLock<[Range<usize>; OBJECTS]> = OnceLock::new();
static OWN: OnceLock<Range<usize>> = OnceLock::new();
static GUIDE: OnceLock<Range<usize>> = OnceLock::new();

/// Looks where the objects are. To be called once, before threads are there.
pub(crate) fn find() {
    let mut found = Found { own: 0..0, code: [const { 0..0 }; OBJECTS], objects: 0 };
    // SAFETY: the callback gets `found` back, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    let _ = OWN.set(found.own);
    let _ = CODE.set(found.code);
}

/// From now on the object with `address` is answered locally too.
pub(crate) fn add_guide(address: usize) {
    let mut search = Search { address, object: 0..0 };
    // SAFETY: the callback gets `search` back, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look_for), (&raw mut search).cast()) };
    let _ = GUIDE.set(search.object);
}

/// Whether the instruction at `address` is of one of the objects.
#[inline]
pub(crate) fn is_local(address: usize) -> bool {
    let is_guide = || GUIDE.get().is_some_and(|guide| guide.contains(&address));
    CODE.get().is_none_or(|code| code.iter().any(|range| range.contains(&address))) || is_guide()
}

/// The same, and not before the objects are known: libraries begin before this one, and allocate then.
pub(crate) fn is_known_local(address: usize) -> bool {
    CODE.get().is_some() && is_local(address)
}

/// Whether the instruction at `address` is of this library.
#[inline]
pub(crate) fn is_own(address: usize) -> bool {
    OWN.get().is_none_or(|own| own.contains(&address))
}

struct Found {
    own: Range<usize>,
    code: [Range<usize>; OBJECTS],
    objects: usize,
}

unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _bytes: usize, found: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that is loaded, and what `find` has given it.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Found>()) };
    // SAFETY: a loaded object has a name, which may be empty.
    let name = unsafe { if object.dlpi_name.is_null() { c"" } else { CStr::from_ptr(object.dlpi_name) } };
    let range = addresses(object);
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // The C library is one object since 2.34; programs that were linked with an older one load the others as well.
    let is_known = [&b"libc.so"[..], b"ld-linux", b"libpthread.so", b"libdl.so", b"librt.so"];
    let is_known = is_known.iter().any(|start| file.starts_with(start));
    let is_own = range.contains(&(look as *const () as usize));
    if is_own {
        found.own = range.clone();
    }
    if is_known || is_own {
        // One that is left out would get far memory where it cannot use it.
        assert!(found.objects < OBJECTS, "the C library has more parts than any");
        found.code[found.objects] = range;
        found.objects += 1;
    }
    0
}

struct Search {
    address: usize,
    object: Range<usize>,
}

unsafe extern "C" fn look_for(object: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that is loaded, and what `add_guide` has given it.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search>()) };
    let range = addresses(object);
    let is_it = range.contains(&search.address);
    if is_it {
        search.object = range;
    }
    c_int::from(is_it)
}

/// Where a loaded object is.
fn addresses(object: &libc::dl_phdr_info) -> Range<usize> {
    // SAFETY: a loaded object has its program headers.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = object.dlpi_addr as usize;
    let end = segments.map(|header| start + (header.p_vaddr + header.p_memsz) as usize).max().unwrap_or(start);
    start..end
}
