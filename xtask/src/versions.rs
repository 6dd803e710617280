//! `cargo xtask versions`: clusters of this release and the one before, rolled under load.
//!
//! The release before is the commit that `xtask/versions.txt` names, or `--with`. It is built from git, in a worktree
//! under `target/versions` with a target folder of its own, which both stay for the next time. The clusters themselves
//! are `testing/e2e/tests/e2e/versions.rs`; each prints a line.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, finish, target_folder, typed};

/// Where the release before is named.
const PIN: &str = "xtask/versions.txt";
const USAGE: &str = "type cargo xtask versions [--with COMMIT]";

/// Builds both releases and runs their clusters.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let named = match arguments {
        [] => pinned(&read(&root.join(PIN))?)?,
        ["--with", commit] => (*commit).to_owned(),
        _ => return Err(USAGE.to_owned()),
    };
    let commit = git(root, &["rev-parse", "--verify", "--quiet", &format!("{named}^{{commit}}")])
        .map_err(|_| format!("'{named}' is no commit here: {USAGE}"))?;
    let before = build_before(root, &commit)?;
    finish(&mut cargo(root, &["build", "--quiet", "--package", "yonder-cli"]))?;
    println!("versions: {} and {named}", git(root, &["describe", "--always", "--dirty"])?);
    let tests = ["test", "--quiet", "--package", "yonder-e2e", "--test", "e2e", "--", "versions::"];
    let now = target_folder(root).join("debug").join("yonder");
    let mut run = cargo(root, &tests);
    run.args(["--nocapture", "--test-threads", "1"]).env("YONDER_BIN", now).env("YONDER_BEFORE", before);
    finish(&mut run)
}

/// The commit that the file names: its only line that is no comment.
fn pinned(text: &str) -> Result<String, String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (Some(commit), None) => Ok(commit.to_owned()),
        _ => Err(format!("{PIN} names no commit, or several: write one line")),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("'{}': {error}", path.display()))
}

/// Builds the command of a commit, and says where it is.
fn build_before(root: &Path, commit: &str) -> Result<PathBuf, String> {
    let tree = target_folder(root).join("versions").join(commit);
    if !tree.join("Cargo.toml").exists() {
        // One that was removed by hand is known to git for a while.
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--detach", &tree.display().to_string(), commit])?;
    }
    let target = tree.join("target");
    let build = ["build", "--quiet", "--package", "yonder-cli"];
    finish(cargo(&tree, &build).env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("debug").join("yonder"))
}

/// What git says.
fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(root);
    let output = command.output().map_err(|error| format!("{}: {error}", typed(&command)))?;
    if !output.status.success() {
        return Err(format!("'{}': {}", typed(&command), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_before_is_named_and_is_not_this_one() {
        let text = read(&crate::repository_root().join(PIN)).unwrap();
        assert!(pinned(&text).is_ok_and(|commit| commit.len() >= 5), "{text}");
        assert_eq!(pinned("# a comment\n\n v1 \n"), Ok("v1".to_owned()));
        for bad in ["", "# v1", "v1\nv2"] {
            assert!(pinned(bad).unwrap_err().contains(PIN), "{bad}");
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        let root = crate::repository_root();
        assert_eq!(run_with(&root, &["--without"]), Err(USAGE.to_owned()));
        let message = run_with(&root, &["--with", "no-such-commit"]).unwrap_err();
        assert!(message.contains("'no-such-commit' is no commit here"), "{message}");
    }
}
