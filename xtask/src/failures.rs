//! `cargo xtask failures`: what a server with pages on several nodes notices when one fails, in the release profile.
//!
//! The program itself is in `testing/failures`, and reads the arguments; its output is this chore's.

use std::path::Path;

use crate::cargo::{cargo, finish, target_folder};

/// Builds the command and the measurement, and hands that `arguments`; fails if anything but time was noticed.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    finish(&mut cargo(root, &["build", "--release", "--quiet", "--package", "yonder-cli"]))?;
    let run = ["run", "--release", "--quiet", "--package", "yonder-failures", "--"];
    // The one that was just built.
    let yonder = target_folder(root).join("release").join("yonder");
    finish(cargo(root, &run).args(arguments).env("YONDER_BIN", yonder))
}
