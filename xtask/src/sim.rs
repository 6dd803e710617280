//! `cargo xtask sim`: the simulators, in the release profile: many seeds, or one again.
//!
//! The programs themselves are in `testing/sim` and `testing/pager-sim`, and read the arguments; their output is this
//! chore's.

use std::path::Path;
use std::process::Command;

/// The simulators, by the names that the command line gives them: the package of each, and what its program is told
/// first.
const SIMULATORS: [(&str, &str, &[&str]); 4] = [
    ("node", "yonder-sim", &["node"]),
    ("order", "yonder-sim", &["order"]),
    ("moves", "yonder-sim", &["moves"]),
    ("pager", "yonder-pager-sim", &[]),
];

/// Runs the seeds that are run each night.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &[])
}

/// Builds a simulator and hands it `arguments`, or all of them if none is named; fails if a seed fails.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (name, rest) = match arguments {
        [] => ("all", arguments),
        [name, rest @ ..] => (*name, rest),
    };
    let is_named = |simulator: &&(&str, &str, &[&str])| name == "all" || simulator.0 == name;
    let mut named = SIMULATORS.iter().filter(is_named).peekable();
    if named.peek().is_none() {
        let names = SIMULATORS.map(|simulator| simulator.0).join(", ");
        return Err(format!("'{name}' is no simulator: type one of {names}, or all"));
    }
    named.try_for_each(|simulator| run_one(root, simulator, rest))
}

fn run_one(root: &Path, (name, package, first): &(&str, &str, &[&str]), rest: &[&str]) -> Result<(), String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(["run", "--release", "--quiet", "--package", package, "--"]).args(*first).args(rest).current_dir(root);
    let status = command.status().map_err(|error| format!("cargo run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("a seed of the simulator '{name}' fails, or it does not build: cargo ended with {status}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_simulator_is_refused() {
        let refused = run_with(Path::new("."), &["--seed", "7"]).unwrap_err();
        assert_eq!(refused, "'--seed' is no simulator: type one of node, order, moves, pager, or all");
    }
}
