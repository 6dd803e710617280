//! `cargo xtask lints`: what the compiler is asked beyond the workspace's own lints, of the libraries of `core`, `sys`
//! and `runtime`.
//!
//! [`LINTS`] are clippy's lints of casts, and those of its pedantic ones that found something worth mending. They are
//! named here and not in the manifests, because they are for code and not for tests, and for some layers only: a
//! package that inherits the workspace's lints cannot add to them. A cast that is right says so by
//! `yonder_units::Narrow`, or by an `expect` with its reason.

use std::path::Path;

use crate::cargo::{cargo, finish};
use crate::miri;

/// The layers whose libraries are asked.
const LAYERS: [&str; 3] = ["core", "sys", "runtime"];
/// What they are asked.
const LINTS: [&str; 10] = [
    "cast_lossless",
    "cast_possible_truncation",
    "cast_possible_wrap",
    "cast_sign_loss",
    "checked_conversions",
    "manual_midpoint",
    "match_wildcard_for_single_variants",
    "needless_for_each",
    "redundant_closure_for_method_calls",
    "trivially_copy_pass_by_ref",
];

/// Runs clippy with the lints; fails if one finds something.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut command = cargo(root, &["clippy", "--lib"]);
    for layer in LAYERS {
        command.args(miri::packages(&root.join(layer))?.iter().map(|name| format!("--package={name}")));
    }
    command.args(["--", "-D", "warnings"]);
    finish(command.args(LINTS.map(|lint| format!("-Wclippy::{lint}"))))
}
