//! Programs in Go, whose memory stays local.
//!
//! The stacks of goroutines are a few KiB in the middle of their heap, and a handler of a fault needs more than is left
//! of them. Such a program has a note of its linker.
//!
//! UNSAFETY: walks the list of loaded objects.

use std::ffi::{c_int, c_void};

use yonder_library::has_note;

/// The name, and the kind of note that says how it was built.
const NAME: &[u8; 4] = b"Go\0\0";
const BUILD_ID: u32 = 4;

/// Whether the program of this process is one.
pub(crate) fn is_program() -> bool {
    let mut is_go = false;
    // SAFETY: the callback gets `is_go` back, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut is_go).cast()) };
    is_go
}

/// The first object is the program: the walk ends there.
unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _bytes: usize, is_go: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that is loaded, with its program headers.
    let (base, headers) = unsafe {
        let object = &*object;
        (object.dlpi_addr as usize, std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)))
    };
    let mut notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE).map(|header| {
        let start = std::ptr::with_exposed_provenance::<u8>(base + header.p_vaddr as usize);
        // SAFETY: a loaded object has its notes in memory, readable, and as long as it says.
        unsafe { std::slice::from_raw_parts(start, header.p_memsz as usize) }
    });
    // SAFETY: it is what `is_program` has given.
    unsafe { *is_go.cast::<bool>() = notes.any(|notes| has_note(notes, NAME, BUILD_ID)) };
    1
}
