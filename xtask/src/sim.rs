//! `cargo xtask sim`: the simulator of client and memory node, in the release profile: many seeds, or one again.
//!
//! The program itself is in `testing/sim`, and reads the arguments; its output is this chore's.

use std::path::Path;
use std::process::Command;

/// Runs the seeds that continuous integration runs.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &[])
}

/// Builds the simulator and hands it `arguments`; fails if a seed fails.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["run", "--release", "--quiet", "--package", "yonder-sim", "--"]).args(arguments).current_dir(root);
    let status = command.status().map_err(|error| format!("cargo run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("a seed fails, or the simulator does not build: cargo ended with {status}"))
    }
}
