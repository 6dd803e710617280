//! The targets under libFuzzer: the variable `YONDER_FUZZ_TARGET` says which. The README says how it is built.
//!
//! UNSAFETY: libFuzzer calls a function by its unmangled name, which `fuzz_target!` defines.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use yonder_fuzz::{Target, Trail, target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("YONDER_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|message| panic!("YONDER_FUZZ_TARGET: {message}"))
});

fuzz_target!(|data: &[u8]| {
    (TARGET.run)(&data[..data.len().min(TARGET.bytes_max)], &mut Trail::default());
});
