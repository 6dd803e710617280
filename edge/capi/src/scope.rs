//! Paging errors that C catches: what YONDER_TRY, YONDER_CATCH and YONDER_END of `yonder.h` are made of.
//!
//! UNSAFETY: it exports functions under names of their own, one of which returns twice.

use std::ffi::{CStr, c_char, c_int, c_void};

use yonder::PagingCause;
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
    ERRORS.iter().find(|error| error.code == code).map_or(c"no paging error", |error| error.text).as_ptr()
}

/// A cause as C has it.
struct Error {
    code: c_int,
    text: &'static CStr,
    cause: PagingCause,
    name: &'static str,
}

/// YONDER_CAUGHT_...
const ERRORS: [Error; 8] = [
    Error { code: 1, text: c"the connection to the node is lost", cause: PagingCause::NodeLost, name: "NODE_LOST" },
    Error { code: 2, text: c"the node does not answer", cause: PagingCause::TimedOut, name: "TIMED_OUT" },
    Error { code: 3, text: c"the node reports errors", cause: PagingCause::NodeFailed, name: "NODE_FAILED" },
    Error {
        code: 4,
        text: c"local memory stays full, because the node takes no writes",
        cause: PagingCause::LocalMemoryFull,
        name: "LOCAL_FULL",
    },
    Error { code: 5, text: c"the page stays under reclaim", cause: PagingCause::Stuck, name: "STUCK" },
    Error { code: 6, text: c"the page is lost", cause: PagingCause::Poisoned, name: "PAGE_LOST" },
    Error { code: 7, text: c"the memory is damaged", cause: PagingCause::HardwareError, name: "DAMAGED" },
    Error {
        code: 8,
        text: c"a forked process has only those of its parent's pages that were local or in the parent's process",
        cause: PagingCause::Forked,
        name: "FORKED",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_every_cause_with_its_code() {
        let header = include_str!("../include/yonder.h");
        for Error { code, text, cause, name } in ERRORS {
            assert_eq!(cause.code().get() as c_int, code, "{name}");
            assert_eq!(cause.text(), text.to_str().unwrap());
            assert!(header.contains(&format!("#define YONDER_CAUGHT_{name} {code} ")), "{name}");
        }
        assert!(PagingCause::ALL.iter().all(|cause| ERRORS.iter().any(|error| error.cause == *cause)));
    }
}
