//! The table through which a loaded library calls the functions of others.
//!
//! The dynamic linker fills it when it loads the library: an entry is named by a relocation, which has the number of a
//! symbol and the place of the address. Entries are words, and written as such.
//!
//! UNSAFETY: structures of the dynamic linker, of a library that is never unloaded.

use std::ffi::{CStr, c_char, c_void};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Question to `dlinfo`: the structure below.
const LINK_MAP: libc::c_int = 2;

/// Entries of a dynamic section, by their tags.
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const RELOCATIONS: i64 = 7;
const RELOCATIONS_BYTES: i64 = 8;
const JUMPS_BYTES: i64 = 2;
const JUMPS: i64 = 23;

/// Relocations that are the address of a symbol.
const R_64: u32 = 1;
const R_GLOB_DAT: u32 = 6;
const R_JUMP_SLOT: u32 = 7;

/// The beginning of what the dynamic linker keeps of a library.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Writes `replacement` where the library has the address of the function `name` of another. How often it had.
///
/// # Safety
/// `handle` is of a library that stays loaded. `replacement` may be called wherever the function is.
pub(crate) unsafe fn replace(handle: *mut c_void, name: &CStr, replacement: *const c_void) -> io::Result<usize> {
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: the answer is a pointer, which goes to `map`.
    if unsafe { libc::dlinfo(handle, LINK_MAP, (&raw mut map).cast()) } != 0 {
        return Err(io::Error::other("the dynamic linker does not know it"));
    }
    // SAFETY: the caller's: the structure and all that it points to stay.
    let map = unsafe { &*map };
    // SAFETY: as above.
    let value = |tag| unsafe { dynamic(map, tag) };
    let tables = [(RELOCATIONS, RELOCATIONS_BYTES), (JUMPS, JUMPS_BYTES)];
    let (Some(symbols), Some(strings)) = (value(SYMBOLS), value(STRINGS)) else { return Ok(0) };
    let mut replaced = 0;
    for (table, bytes) in tables {
        let (Some(table), Some(bytes)) = (value(table), value(bytes)) else { continue };
        // SAFETY: the dynamic section says that so many are there.
        let relocations = unsafe {
            let first = std::ptr::with_exposed_provenance::<Relocation>(table);
            std::slice::from_raw_parts(first, bytes / size_of::<Relocation>())
        };
        for relocation in relocations {
            let (symbol, kind) = ((relocation.info >> 32) as usize, (relocation.info & 0xffff_ffff) as u32);
            if !matches!(kind, R_64 | R_GLOB_DAT | R_JUMP_SLOT) || symbol == 0 || relocation.addend != 0 {
                continue;
            }
            // SAFETY: a relocation has the number of a symbol of the table, and that a name of the other.
            let found = unsafe {
                let symbol = &*std::ptr::with_exposed_provenance::<Symbol>(symbols).add(symbol);
                CStr::from_ptr(std::ptr::with_exposed_provenance(strings + symbol.name as usize))
            };
            if found == name {
                // SAFETY: the place is a word of the library, which nobody but the dynamic linker writes, and that is
                // done.
                unsafe { write(map.base + relocation.offset, replacement as usize)? };
                replaced += 1;
            }
        }
    }
    Ok(replaced)
}

/// A value of a library's dynamic section.
///
/// # Safety
/// `map` is the dynamic linker's.
unsafe fn dynamic(map: &LinkMap, tag: i64) -> Option<usize> {
    let mut entry = map.dynamic;
    // SAFETY: the section ends with an entry of tag 0.
    unsafe {
        while (*entry).tag != 0 {
            if (*entry).tag == tag {
                return Some((*entry).value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Writes a word of a table that may be closed against writing, and leaves it open: whoever is in the library now reads
/// the old word or the new one.
///
/// # Safety
/// `place` is a word of a mapping that nobody else protects.
unsafe fn write(place: usize, word: usize) -> io::Result<()> {
    // SAFETY: a question.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
    let page = std::ptr::with_exposed_provenance_mut::<c_void>(place & !(page_bytes - 1));
    // SAFETY: the caller's; the page stays readable.
    unsafe {
        if libc::mprotect(page, page_bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return Err(io::Error::last_os_error());
        }
        (*std::ptr::with_exposed_provenance::<AtomicUsize>(place)).store(word, Ordering::Release);
    }
    Ok(())
}
