//! The two functions that return text: the version and the last message.
//!
//! UNSAFETY: it exports functions under names of their own.

use std::ffi::{CStr, c_char};

use crate::failure::last_message;

/// The version, as C has it.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no NUL inside"),
};

/// `yonder_version` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_version() -> *const c_char {
    VERSION.as_ptr()
}

/// `yonder_error_message` of `yonder.h`.
#[unsafe(no_mangle)]
pub extern "C" fn yonder_error_message() -> *const c_char {
    last_message()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_version_of_the_library() {
        let header = include_str!("../include/yonder.h");
        let version = VERSION.to_str().unwrap();
        assert!(header.contains(&format!("#define YONDER_VERSION \"{version}\"\n")), "{version}");
        for (name, number) in ["MAJOR", "MINOR", "PATCH"].into_iter().zip(version.split('.')) {
            assert!(header.contains(&format!("#define YONDER_VERSION_{name} {number}\n")), "{name} is not {number}");
        }
    }
}
