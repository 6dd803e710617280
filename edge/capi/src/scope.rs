//! Paging errors that C catches: what YONDER_TRY, YONDER_CATCH and YONDER_END of `yonder.h` are made of.
//!
//! UNSAFETY: it exports functions under names of their own, one of which returns twice.

use std::ffi::{CStr, c_char, c_int, c_void};

use yonder_trap::scope::{self, Scope};

/// `yonder_try_enter` of `yonder.h`.
///
/// # Safety
/// `scope` is a `yonder_try` in the frame of the caller, which knows that the call returns twice, and calls
/// [`yonder_try_leave`] before it returns.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn yonder_try_enter(scope: *mut Scope) -> c_int {
    // Not a call: what is kept of the registers and the stack is the caller's.
    std::arch::naked_asm!("jmp {enter}", enter = sym scope::enter)
}

/// `yonder_try_leave` of `yonder.h`.
///
/// # Safety
/// `scope` was given to [`yonder_try_enter`] by the calling function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_try_leave(scope: *mut Scope) {
    // SAFETY: as the caller promises.
    unsafe { scope::leave(scope) };
}

/// `yonder_caught` of `yonder.h`.
///
/// # Safety
/// `address` is NULL or points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yonder_caught(address: *mut *mut c_void) -> c_int {
    let Some(caught) = scope::last_caught() else { return 0 };
    if !address.is_null() {
        // SAFETY: as the caller promises.
        unsafe { address.write(std::ptr::with_exposed_provenance_mut(caught.address)) };
    }
    caught.code.get() as c_int
}

/// `yonder_caught_text` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_caught_text(code: c_int) -> *const c_char {
    let index = usize::try_from(code).unwrap_or(0);
    TEXTS.get(index).unwrap_or(&TEXTS[0]).as_ptr()
}

/// What each YONDER_CAUGHT_... means, at the index of its code.
const TEXTS: [&CStr; 9] = [
    c"no paging error",
    c"the connection to the node is lost",
    c"the node does not answer",
    c"the node reports errors",
    c"local memory stays full, because the node takes no writes",
    c"the page stays under reclaim",
    c"the page is lost",
    c"the memory is damaged",
    c"a forked process has only those of its parent's pages that were local or in the parent's process",
];

#[cfg(test)]
mod tests {
    use yonder::{Config, FarMemory, PagingCause, try_far};

    use super::*;

    /// The same scopes in Rust, over a region: the handler finds the page lost, and nothing on its way back.
    #[test]
    fn a_touch_by_pointer_of_a_lost_page_ends_its_scope() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let far = FarMemory::open("emu://?latency=1us&size=64MiB", Config::with_local(4 << 20)).unwrap();
        let region = far.region(8 << 20).unwrap();
        let word = |offset: usize| std::ptr::with_exposed_provenance::<u64>(region.address() + offset);
        (0..4).for_each(|page| region.write_u64(page * 4096, page + 1).unwrap());
        assert!(region.inject_damage(2 * 4096));
        for page in 0..4 {
            // SAFETY: the word is in the region, which nobody writes; nothing in the frames is dropped.
            let seen = unsafe { try_far(|| word(page * 4096).read_volatile()) };
            let seen = seen.map_err(|caught| (PagingCause::of(caught), caught.address));
            let lost = Err((PagingCause::HardwareError, word(page * 4096).addr()));
            assert_eq!(seen, if page == 2 { lost } else { Ok(page as u64 + 1) });
        }
        region.discard(2 * 4096, 4096).unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { try_far(|| word(2 * 4096).read_volatile()) }, Ok(0));
    }

    #[test]
    fn the_header_has_every_cause_with_its_code() {
        let header = include_str!("../include/yonder.h");
        let names = ["NODE_LOST", "TIMED_OUT", "NODE_FAILED", "LOCAL_FULL", "STUCK", "PAGE_LOST", "DAMAGED", "FORKED"];
        assert_eq!((names.len(), TEXTS.len()), (PagingCause::ALL.len(), PagingCause::ALL.len() + 1));
        for (cause, name) in PagingCause::ALL.into_iter().zip(names) {
            let code = cause.code().get();
            assert_eq!(cause.text(), TEXTS[code as usize].to_str().unwrap());
            assert!(header.contains(&format!("#define YONDER_CAUGHT_{name} {code} ")), "{name}");
        }
    }
}
