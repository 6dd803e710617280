//! `cargo xtask versions`: clusters of this release and the one before, rolled under load.
//!
//! The release before is the commit that `xtask/versions.txt` names, or `--with`. It is built from git, in a worktree
//! under `target/versions` with a target folder of its own, which both stay for the next time. The clusters themselves
//! are `testing/e2e/tests/e2e/versions.rs`; each prints a line.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::{cargo, finish, target_folder, typed};

/// Where the release before is named.
const PIN: &str = "xtask/versions.txt";
/// How many clusters are run: the tests of [`CLUSTERS_IN`].
const CLUSTERS: usize = 6;
const CLUSTERS_IN: &str = "testing/e2e/tests/e2e/versions.rs";
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
    are_all_run(&finish_and_show(&mut run)?)
}

/// Runs a command to its end, which is to be good, and shows what it says, line by line.
fn finish_and_show(command: &mut Command) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cargo: {error}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line.map_err(failed)?;
        println!("{line}");
        said += &line;
        said.push('\n');
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(said) } else { Err(format!("'{}' ended with {status}", typed(command))) }
}

/// Whether all clusters say that they were run: each has a line, and one that was left out shows nothing.
fn are_all_run(said: &str) -> Result<(), String> {
    if let Some(skip) = said.lines().find(|line| line.contains("SKIP")) {
        return Err(format!("a cluster was not run: {skip}"));
    }
    let is_of_cluster = |line: &&str| line.contains("versions: ") && line.contains(" restarted in ");
    match said.lines().filter(is_of_cluster).count() {
        CLUSTERS => Ok(()),
        run => Err(format!("{run} clusters of {CLUSTERS} were run: see what {CLUSTERS_IN} has said")),
    }
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

    /// Whether a commit is one before this one.
    fn is_before(root: &Path, commit: &str) -> Result<(), String> {
        let full = |name: &str| git(root, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
        let named = full(commit).map_err(|_| format!("'{commit}' is no commit here"))?;
        if named == full("HEAD")? {
            return Err(format!("'{commit}' is this commit, and not one before it"));
        }
        git(root, &["merge-base", "--is-ancestor", &named, "HEAD"])
            .map(drop)
            .map_err(|_| format!("'{commit}' is not before this commit: name one that is"))
    }

    #[test]
    fn the_release_before_is_named_and_is_not_this_one() {
        let text = read(&crate::repository_root().join(PIN)).unwrap();
        let commit = pinned(&text).unwrap();
        match git(&crate::repository_root(), &["rev-parse", "--is-shallow-repository"]).as_deref() {
            Ok("false") => assert_eq!(is_before(&crate::repository_root(), &commit), Ok(())),
            Ok(_) => println!("SKIP: the history of this repository is not whole: type git fetch --unshallow"),
            Err(error) => println!("SKIP: the history is not here: {error}"),
        }
        assert_eq!(pinned("# a comment\n\n v1 \n"), Ok("v1".to_owned()));
        for bad in ["", "# v1", "v1\nv2"] {
            assert!(pinned(bad).unwrap_err().contains(PIN), "{bad}");
        }
    }

    #[test]
    fn only_an_earlier_commit_is_before_this_one() {
        let root = crate::repository_root();
        assert!(is_before(&root, "no-such-commit").unwrap_err().contains("is no commit here"));
        if git(&root, &["rev-parse", "--verify", "HEAD"]).is_ok() {
            assert!(is_before(&root, "HEAD").unwrap_err().contains("is this commit"));
        } else {
            println!("SKIP: no git repository is here");
        }
    }

    #[test]
    fn clusters_that_were_not_run_are_an_error() {
        let line = ".versions: nodes before: 5 restarted in 7.1 s, no error\n";
        assert_eq!(are_all_run(&line.repeat(CLUSTERS)), Ok(()));
        assert!(are_all_run(&line.repeat(CLUSTERS - 1)).unwrap_err().starts_with("5 clusters of 6 were run"));
        let skipped = line.repeat(CLUSTERS) + "SKIP: no binary of the release before\n";
        assert!(are_all_run(&skipped).unwrap_err().contains("SKIP: no binary"));
        let tests = read(&crate::repository_root().join(CLUSTERS_IN)).unwrap();
        assert_eq!(tests.matches("#[test]").count(), CLUSTERS, "each of {CLUSTERS_IN} prints a line");
    }

    #[test]
    fn other_arguments_are_refused() {
        let root = crate::repository_root();
        assert_eq!(run_with(&root, &["--without"]), Err(USAGE.to_owned()));
        let message = run_with(&root, &["--with", "no-such-commit"]).unwrap_err();
        assert!(message.contains("'no-such-commit' is no commit here"), "{message}");
    }
}
