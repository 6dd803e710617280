//! [`find`]: a function of the C library, by its name and without the dynamic linker.
//!
//! `dlopen` and `dlsym` may allocate, and the allocator may be the program's own: an allocator that maps memory for the
//! first time has its lock, and asks us for the C library's `mmap`.
//!
//! UNSAFETY: tables of a library that is never unloaded, which the dynamic linker has relocated.

use std::ffi::{CStr, c_int, c_void};

/// Entries of a dynamic section, by their tags.
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const HASHES: i64 = 0x6fff_fef5;
const VERSIONS: i64 = 0x6fff_fff0;

/// In the version of a symbol: programs that are linked now get another one of this name.
const IS_OLD: u16 = 1 << 15;
/// The kind of a symbol, of which the address is that of a function that chooses one.
const CHOOSES: u8 = 10;
const KIND_MASK: u8 = 0xF;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

struct Search<'a> {
    name: &'a CStr,
    found: Option<usize>,
}

/// The address of the C library's function `name`, if it has one.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    let mut search = Search { name, found: None };
    // SAFETY: the callback gets `search` back, which outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found.map(std::ptr::with_exposed_provenance_mut)
}

unsafe extern "C" fn look(object: *mut libc::dl_phdr_info, _bytes: usize, search: *mut c_void) -> c_int {
    // SAFETY: the C library passes an object that is loaded, and what `find` has given it.
    let (object, search) = unsafe { (&*object, &mut *search.cast::<Search<'_>>()) };
    // SAFETY: a loaded object has a name, which may be empty.
    let name = unsafe { if object.dlpi_name.is_null() { c"" } else { CStr::from_ptr(object.dlpi_name) } };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // What is one library now was several before.
    if [&b"libc.so"[..], b"libpthread.so", b"libdl.so"].iter().any(|known| file.starts_with(known)) {
        // SAFETY: it is loaded, and stays so.
        search.found = unsafe { function_of(object, search.name) };
    }
    c_int::from(search.found.is_some())
}

/// # Safety
/// The object stays loaded.
unsafe fn function_of(object: &libc::dl_phdr_info, name: &CStr) -> Option<usize> {
    // SAFETY: a loaded object has its program headers.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let section = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    let base = object.dlpi_addr as usize;
    let dynamic = std::ptr::with_exposed_provenance::<Dynamic>(base + section.p_vaddr as usize);
    // SAFETY: the caller's: the tables stay, and refer to one another as the format says.
    unsafe {
        let [hashes, symbols, strings, versions] = [HASHES, SYMBOLS, STRINGS, VERSIONS]
            .map(|tag| value(dynamic, tag).map(std::ptr::with_exposed_provenance::<u8>));
        let symbols = symbols?.cast::<Symbol>();
        let (strings, versions): (*const u8, Option<*const u16>) = (strings?, versions.map(<*const u8>::cast::<u16>));
        for index in Chain::of(hashes?.cast(), hash_of(name)) {
            let symbol = &*symbols.add(index);
            let is_old = versions.is_some_and(|versions| *versions.add(index) & IS_OLD != 0);
            let is_it = symbol.section != 0 && !is_old;
            if is_it && CStr::from_ptr(strings.add(symbol.name as usize).cast()) == name {
                let address = base + symbol.value;
                return Some(if symbol.info & KIND_MASK == CHOOSES { chosen_by(address) } else { address });
            }
        }
    }
    None
}

/// # Safety
/// A function of this kind is at `address`.
unsafe fn chosen_by(address: usize) -> usize {
    let choose = std::ptr::with_exposed_provenance::<c_void>(address);
    // SAFETY: the caller's.
    unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> usize>(choose)() }
}

/// # Safety
/// The section ends with an entry of tag 0.
unsafe fn value(mut entry: *const Dynamic, tag: i64) -> Option<usize> {
    // SAFETY: the caller's.
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

/// The hash of a name in `DT_GNU_HASH`.
fn hash_of(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// The symbols of a table that may have a hash.
struct Chain {
    hash: u32,
    /// Where the hashes of all symbols from `first` on stand.
    hashes: *const u32,
    first: usize,
    next: Option<usize>,
}

impl Chain {
    /// # Safety
    /// `table` is a library's `DT_GNU_HASH`, which stays.
    unsafe fn of(table: *const u32, hash: u32) -> Self {
        // SAFETY: the caller's: four numbers, then so many words for a filter, then so many buckets.
        unsafe {
            let [buckets, first, filter_words] = [0, 1, 2].map(|at| *table.add(at) as usize);
            let table = table.add(4 + 2 * filter_words);
            let start = *table.add(hash as usize % buckets) as usize;
            Self { hash, hashes: table.add(buckets), first, next: (start >= first).then_some(start) }
        }
    }
}

impl Iterator for Chain {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let index = self.next?;
            // SAFETY: a chain ends with a hash of which the lowest bit is set.
            let hash = unsafe { *self.hashes.add(index - self.first) };
            self.next = (hash & 1 == 0).then_some(index + 1);
            if hash | 1 == self.hash | 1 {
                return Some(index);
            }
        }
    }
}
