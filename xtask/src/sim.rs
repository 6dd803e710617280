//! `cargo xtask sim`: the simulators, in the release profile: many seeds, or one again.
//!
//! The programs themselves are in `testing/sim` and `testing/pager-sim`, and read the arguments; their output is this chore's.

use std::path::Path;
use std::process::Command;

/// The simulators, by the name that the command line gives them, and their packages.
const SIMULATORS: [(&str, &str); 2] = [("node", "yonder-sim"), ("pager", "yonder-pager-sim")];

/// Runs the seeds that continuous integration runs.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &[])
}

/// Builds a simulator and hands it `arguments`, or all of them if none is named; fails if a seed fails.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let named = |name: &str| SIMULATORS.iter().find(|simulator| simulator.0 == name);
    match arguments {
        [] | ["all"] => SIMULATORS.iter().try_for_each(|simulator| run_one(root, simulator, &[])),
        ["all", rest @ ..] => SIMULATORS.iter().try_for_each(|simulator| run_one(root, simulator, rest)),
        [name, rest @ ..] if named(name).is_some() => run_one(root, named(name).expect("just found"), rest),
        // What is not named is the first one.
        arguments => run_one(root, &SIMULATORS[0], arguments),
    }
}

fn run_one(root: &Path, (name, package): &(&str, &str), arguments: &[&str]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["run", "--release", "--quiet", "--package", package, "--"]).args(arguments).current_dir(root);
    let status = command.status().map_err(|error| format!("cargo run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("a seed of the simulator '{name}' fails, or it does not build: cargo ended with {status}"))
    }
}
