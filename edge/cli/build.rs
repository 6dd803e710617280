//! Tells the command which commit it is built from: `YONDER_COMMIT`.
//!
//! That is what the environment's own `YONDER_COMMIT` says, else git's, else `unknown`: sources without a history, as
//! in an archive, and those that lie in somebody else's repository, build all the same.

use std::path::Path;
use std::process::Command;

const VARIABLE: &str = "YONDER_COMMIT";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let commit = std::env::var(VARIABLE).ok().filter(|commit| !commit.is_empty()).or_else(of_history);
    println!("cargo::rustc-env={VARIABLE}={}", commit.as_deref().unwrap_or("unknown"));
}

/// The commit of this repository's history, if this is one.
fn of_history() -> Option<String> {
    // Below the top of the working tree the prefix is not empty.
    if !git(&["rev-parse", "--show-prefix"])?.is_empty() {
        return None;
    }
    // Git adds a line there with every commit and every checkout.
    let history = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    if Path::new(&history).exists() {
        println!("cargo::rerun-if-changed={history}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|commit| !commit.is_empty())
}

/// What git says of the workspace's folder; none without git, or if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new("git").arg("-C").arg(workspace).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
