//! `cargo xtask sim`: the simulators, in the release profile: many seeds, or one again.
//!
//! The program itself is in `testing/sim`, and reads the arguments; its output is this chore's.

use std::path::Path;

use crate::cargo::{cargo, finish};

/// The simulators, by the names that the program's command line gives them.
const SIMULATORS: [&str; 4] = ["node", "order", "moves", "pager"];

/// Runs the seeds that are run each night.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &[])
}

/// Builds the simulators and hands one of them `arguments`, or all if none is named; fails if a seed fails.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (named, rest) = match arguments {
        [] | ["all", ..] => (&SIMULATORS[..], arguments.get(1..).unwrap_or(&[])),
        [name, rest @ ..] if SIMULATORS.contains(name) => (&arguments[..1], rest),
        [name, ..] => {
            return Err(format!("'{name}' is no simulator: type one of {}, or all", SIMULATORS.join(", ")));
        }
    };
    named.iter().try_for_each(|name| {
        let run = ["run", "--release", "--quiet", "--package", "yonder-sim", "--", name];
        let ended = finish(cargo(root, &run).args(rest));
        ended.map_err(|cause| format!("a seed of the simulator '{name}' fails, or it does not build: {cause}"))
    })
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
