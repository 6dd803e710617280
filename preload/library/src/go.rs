//! Programs in Go, whose memory stays local.
//!
//! The stacks of goroutines are a few KiB in the middle of their heap, and a handler of a fault needs more than there is
//! left of them. Such a program has a note of its linker.
//!
//! UNSAFETY: walks the list of loaded objects.

use std::ffi::{c_int, c_void};

/// Bytes in front of a note's name: the lengths of name and content, and the kind.
const HEADER_BYTES: usize = 12;
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
    unsafe { *is_go.cast::<bool>() = notes.any(is_of_go) };
    1
}

/// Whether one of a row of notes is the linker's of Go.
fn is_of_go(mut notes: &[u8]) -> bool {
    let word = |notes: &[u8], index: usize| {
        notes.get(4 * index..4 * index + 4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")))
    };
    while let (Some(name), Some(content), Some(kind)) = (word(notes, 0), word(notes, 1), word(notes, 2)) {
        if kind == BUILD_ID && notes[HEADER_BYTES..].starts_with(NAME) && name as usize == NAME.len() {
            return true;
        }
        let padded = |bytes: u32| (bytes as usize).next_multiple_of(4);
        let Some(rest) = notes.get(HEADER_BYTES + padded(name) + padded(content)..) else { break };
        notes = rest;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let words = [name.len() as u32, content.len() as u32, kind];
        let padded = |bytes: &[u8]| [bytes, &[0; 4][..bytes.len().next_multiple_of(4) - bytes.len()]].concat();
        [words.iter().flat_map(|word| word.to_ne_bytes()).collect(), padded(name), padded(content)].concat()
    }

    #[test]
    fn the_linker_of_go_leaves_a_note() {
        let (gnu, go) = (note(b"GNU\0", 3, b"twenty bytes"), note(b"Go\0\0", BUILD_ID, b"an id"));
        assert!(is_of_go(&go) && is_of_go(&[gnu.clone(), go.clone()].concat()));
        assert!(!is_of_go(&gnu) && !is_of_go(&[]) && !is_of_go(&go[..10]) && !is_of_go(&note(b"Go\0\0", 3, b"")));
        assert!(!is_of_go(&note(b"GNU\0", BUILD_ID, b"Go")) && !is_program());
    }
}
