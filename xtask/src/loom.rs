//! `cargo xtask loom`: runs the models of the lock-free types.
//!
//! With `--cfg yonder_loom` the crates in [`CRATES`] are built on loom's atomics, and their `model` modules try every
//! interleaving of a few threads, with every value that a load may see in it. The build has a folder of its own: the
//! setting changes every crate, so sharing one would rebuild the workspace at each turn.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use crate::cargo::{cargo, target_folder};

/// The crates that have models.
const CRATES: [&str; 7] = [
    "yonder-unithread",
    "yonder-sched",
    "yonder-pager",
    "yonder-preload-protocol",
    "yonder-node",
    "yonder-board",
    "yonder-protect",
];
/// How often a thread may be stopped between two steps to let another go on. Known bugs of such code need two at most,
/// and each more multiplies the time by about four. Set the variable `LOOM_MAX_PREEMPTIONS` to look further.
const PREEMPTIONS_MAX: &str = "3";

/// Builds and runs the models; fails if one fails, or if a crate has none.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut command = cargo(root, &["test", "--lib"]);
    command.args(CRATES.iter().flat_map(|name| ["--package", name])).args(["--", "::model::"]);
    command.env("RUSTFLAGS", rust_flags(std::env::var_os("RUSTFLAGS")));
    // The models are small: loom itself, a dependency that is optimised, is what takes their time, and the compiler
    // more.
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    command.env("CARGO_TARGET_DIR", target_folder(root).join("loom"));
    if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
        command.env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS_MAX);
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("cargo test: {error}"))?;
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let mut passed = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        println!("{line}");
        passed.extend(passed_tests(&line));
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    if !status.success() {
        return Err(format!("a model fails, or does not build: cargo ended with {status}"));
    }
    let models = count(&passed)?;
    println!("loom: {models} models hold");
    Ok(())
}

/// `--cfg yonder_loom` behind what the user has set.
fn rust_flags(own: Option<OsString>) -> OsString {
    let mut flags = own.unwrap_or_default();
    flags.push(" --cfg yonder_loom");
    flags
}

/// The number of tests that passed, if `line` is the result line of a test program.
fn passed_tests(line: &str) -> Option<usize> {
    let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
    rest.split_once(" passed")?.0.parse().ok()
}

/// The number of models of all crates. A crate without one has lost them: a model that is not compiled finds nothing.
fn count(passed: &[usize]) -> Result<usize, String> {
    if passed.len() != CRATES.len() || passed.contains(&0) {
        return Err(format!("each of {} must have models, but they ran {passed:?}", CRATES.join(", ")));
    }
    Ok(passed.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_read() {
        let line = "test result: ok. 6 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s";
        assert_eq!(passed_tests(line), Some(6));
        for other in ["", "running 6 tests", "test table::model::x ... ok", "test result: ok."] {
            assert_eq!(passed_tests(other), None, "{other}");
        }
    }

    #[test]
    fn a_crate_that_lost_its_models_is_an_error() {
        assert_eq!(count(&[7, 4, 2, 9, 1, 1, 3]), Ok(27));
        for lost in [&[][..], &[7, 4, 2, 9, 1, 1], &[7, 0, 2, 9, 1, 1, 3]] {
            assert!(count(lost).is_err(), "{lost:?}");
        }
    }

    #[test]
    fn the_users_flags_are_kept() {
        assert_eq!(rust_flags(Some("-C debuginfo=1".into())), "-C debuginfo=1 --cfg yonder_loom");
        assert_eq!(rust_flags(None), " --cfg yonder_loom");
    }
}
