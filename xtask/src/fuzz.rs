//! `cargo xtask fuzz`: hostile inputs for everything that parses or executes what others send.
//!
//! The fuzzer itself is in `fuzz`, and reads the arguments; its output is this chore's. It is built in the development
//! profile, where overflows and broken assertions are panics. `fuzz guided TARGET` runs the same target under
//! libFuzzer, guided by coverage: stable Rust can do that, and a C++ compiler must be there.

use std::path::Path;
use std::process::Command;

use crate::cargo::{cargo, finish};

/// What makes the compiler count what is reached, and break off where the development profile would.
const GUIDED_FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1";
/// Seconds of a guided run.
const GUIDED_SECONDS: &str = "60";

/// Runs every target for a while, as is done each night. The tests of the fuzzer run each for a second.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &["smoke"])
}

/// Builds the fuzzer and hands it `arguments`; fails if an input fails.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    match arguments {
        ["guided", target] => run_guided(root, target, GUIDED_SECONDS),
        ["guided", target, "--seconds", seconds] => run_guided(root, target, seconds),
        ["guided", ..] => Err("a target is missing: type fuzz guided TARGET [--seconds N]".to_owned()),
        _ => {
            let run = ["run", "--quiet", "--package", "yonder-fuzz", "--bin", "yonder-fuzz", "--"];
            finish(cargo(root, &run).args(arguments)).map_err(explained)
        }
    }
}

/// Runs a target under libFuzzer. What it learns stays in the build folder, with inputs that fail.
fn run_guided(root: &Path, target: &str, seconds: &str) -> Result<(), String> {
    let corpus = root.join("fuzz/corpus").join(target);
    if !corpus.is_dir() {
        return Err(format!("'{target}' is no fuzz target: type cargo xtask fuzz list"));
    }
    let folder = root.join("target/fuzz-guided");
    let learned = folder.join("corpus").join(target);
    std::fs::create_dir_all(&learned).map_err(|error| format!("{}: {error}", learned.display()))?;
    let run = ["run", "--release", "--package", "yonder-fuzz", "--bin", "libfuzzer", "--features", "libfuzzer"];
    let mut command = cargo(root, &run);
    // With a target named, build scripts are built without the flags.
    command.args(["--target", &host()?, "--target-dir"]).arg(&folder).arg("--").args([&learned, &corpus]);
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/{target}-", folder.display()));
    finish(command.env("RUSTFLAGS", GUIDED_FLAGS).env("YONDER_FUZZ_TARGET", target)).map_err(explained)
}

/// The target that the compiler builds for by itself.
fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc -vV: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    host_in(&said).ok_or_else(|| format!("rustc -vV does not name its host: {}", said.trim()))
}

fn host_in(said: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

fn explained(cause: String) -> String {
    format!("an input fails, or the fuzzer does not build: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_named() {
        let said = "rustc 1.90.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.90.0\n";
        assert_eq!(host_in(said).as_deref(), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host_in("rustc 1.90.0\n"), None);
    }

    #[test]
    fn a_guided_run_of_nothing_is_refused() {
        let root = crate::repository_root();
        let message = run_with(&root, &["guided", "bord"]).unwrap_err();
        assert_eq!(message, "'bord' is no fuzz target: type cargo xtask fuzz list");
        assert!(run_with(&root, &["guided"]).is_err());
    }
}
