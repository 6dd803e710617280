//! `cargo xtask miri`: runs tests in Miri, which interprets them and sees undefined behaviour and data races.
//!
//! Miri knows no userfaultfd and no hand-written assembly, so the suites are every crate of `core`, which is pure, and
//! the free list of unithreads. It comes with the nightly toolchain only; where that cannot be had the chore prints
//! SKIP and succeeds. It takes hours, so it is no step of `ci`: it is for the night.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cargo::{finish, typed};

/// The layer whose crates are all interpreted.
const PURE_LAYER: &str = "core";
/// What else is, as typed after `cargo miri test`.
const FREE_LIST: [&str; 4] = ["--lib", "--package=yonder-unithread", "--", "free_list::tests::"];
/// Cases of each property, unless `PROPTEST_CASES` is set: Miri is some hundred times slower than the processor.
const PROPERTY_CASES: &str = "4";
/// How Miri comes.
const REMEDY: &str = "type rustup toolchain install nightly --component miri --component rust-src";

/// Runs all suites, a crate each, also behind one that fails.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    if let Err(cause) = prepare(root) {
        println!("SKIP: no Miri: {cause}: {REMEDY}");
        return Ok(());
    }
    let packages = packages(&root.join(PURE_LAYER))?;
    let suites = packages.iter().map(|name| vec!["--lib".to_owned(), format!("--package={name}")]);
    let failed: Vec<String> = suites
        .chain([FREE_LIST.map(str::to_owned).to_vec()])
        .filter_map(|suite| run_suite(root, &suite).err())
        .collect();
    if failed.is_empty() {
        println!("miri: every suite passes");
        return Ok(());
    }
    Err(failed.join("; "))
}

fn run_suite(root: &Path, suite: &[String]) -> Result<(), String> {
    let mut command = miri(root, &["test"]);
    command.args(suite);
    println!("==> {}", typed(&command));
    command.env("MIRIFLAGS", miri_flags(std::env::var_os("MIRIFLAGS")));
    if std::env::var_os("PROPTEST_CASES").is_none() {
        command.env("PROPTEST_CASES", PROPERTY_CASES);
    }
    finish(&mut command)
}

/// The names of the packages in the folders of `layer`, in order.
pub(crate) fn packages(layer: &Path) -> Result<Vec<String>, String> {
    let unreadable = |error| format!("{}: {error}", layer.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(layer).map_err(unreadable)? {
        let Ok(manifest) = fs::read_to_string(entry.map_err(unreadable)?.path().join("Cargo.toml")) else { continue };
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        names.push(name.ok_or_else(|| format!("{}: a package without a name", layer.display()))?.to_owned());
    }
    names.sort();
    Ok(names)
}

/// Finds Miri and builds its standard library, once for each toolchain. The error says why that cannot be.
fn prepare(root: &Path) -> Result<(), String> {
    for arguments in [["--version"], ["setup"]] {
        let output = miri(root, &arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("rustup: {error}"))?;
        if !output.status.success() {
            return Err(reason(&String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(())
}

/// `cargo miri` of the nightly toolchain, whichever toolchain has built this program.
fn miri(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "miri"]).args(arguments).current_dir(root);
    command
}

/// Behind what the user has set: properties look at their environment.
fn miri_flags(own: Option<OsString>) -> OsString {
    let mut flags = own.unwrap_or_default();
    flags.push(" -Zmiri-disable-isolation");
    flags
}

/// The first line that is an error, or the last.
fn reason(said: &str) -> String {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines.clone().find(|line| line.starts_with("error"));
    error.or_else(|| lines.next_back()).unwrap_or("it says nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_one_line() {
        let said = "info: syncing\n\nerror: toolchain 'nightly' is not installed\nhelp: install it\n";
        assert_eq!(reason(said), "error: toolchain 'nightly' is not installed");
        assert_eq!(reason("one\ntwo\n"), "two");
        assert_eq!(reason(""), "it says nothing");
    }

    #[test]
    fn every_crate_of_core_is_interpreted() {
        let layer = crate::repository_root().join(PURE_LAYER);
        let found = packages(&layer).unwrap();
        let folders = fs::read_dir(&layer).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(found.len(), folders, "{found:?}");
        assert!(found.contains(&"yonder-units".to_owned()) && found.is_sorted(), "{found:?}");
    }

    #[test]
    fn the_users_flags_are_kept() {
        assert_eq!(miri_flags(Some("-Zmiri-seed=7".into())), "-Zmiri-seed=7 -Zmiri-disable-isolation");
    }
}
