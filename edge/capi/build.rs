//! Gives the shared library the name by which programs ask for it when they start: libyonder.so.0.
//!
//! The number is the version of the binary interface. It changes when a program that was built with an older `yonder.h`
//! could no longer run; what is only added to the interface leaves it as it is. `xtask/src/install.rs` has it too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libyonder.so.0");
}
