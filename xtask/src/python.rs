//! `cargo xtask python`: the wheel of the Python package `yonder-memory`, and its tests.
//!
//! Everything of Python's is in an environment under the target folder, into which pip gets maturin, and for the tests
//! NumPy and its kin. Where there is no Python, or pip gets nothing, it prints `SKIP` and the reason. Tests that use
//! more (Jupyter's client for the notebooks, a type checker, what the examples are about) say `SKIP` themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, finish, target_folder};

const USAGE: &str = "type cargo xtask python for the wheel, with --try to install it and run its tests";
/// The oldest Python that the wheel is for, as `edge/python/pyproject.toml` says.
const PYTHON_MIN: &str = "3.11";
/// What builds the wheel.
const BUILDERS: [&str; 1] = ["maturin>=1.9.4,<2"];
/// Environment variable that names the binary whose nodes the tests use, as in the end-to-end tests; without it, it is
/// built.
const BINARY_VARIABLE: &str = "YONDER_BIN";
/// What the tests use.
const TESTED_WITH: [&str; 4] = ["numpy>=2.0", "pytest>=8", "pandas>=2.2", "scikit-learn>=1.5"];
/// What some of them use, and say so where it is not there.
const SOME_TESTED_WITH: [&str; 5] =
    ["nbclient>=0.10", "ipykernel>=6.29", "mypy>=1.15", "faiss-cpu>=1.9", "duckdb>=1.1"];

/// Why something was not done: the machine lacks it, or it failed.
enum Refusal {
    Missing(String),
    Failed(String),
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

/// Builds the wheel, and tries it if that was asked for.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let is_tried = match arguments {
        [] => false,
        ["--try"] => true,
        _ => return Err(format!("'{}' is not understood: {USAGE}", arguments.join(" "))),
    };
    match make(root, is_tried) {
        Err(Refusal::Missing(what)) => {
            println!("SKIP: {what}");
            Ok(())
        }
        Err(Refusal::Failed(message)) => Err(message),
        Ok(()) => Ok(()),
    }
}

/// What a night builds is tried.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &["--try"])
}

fn make(root: &Path, is_tried: bool) -> Result<(), Refusal> {
    let folder = target_folder(root).join("python");
    let python = environment(&folder.join("environment"))?;
    install(&python, &BUILDERS)?;
    let wheels = folder.join("wheels");
    // There is one wheel then, the new one.
    let _ = fs::remove_dir_all(&wheels);
    let mut build = Command::new(&python);
    build.args(["-m", "maturin", "build", "--release", "--locked", "--out"]).arg(&wheels);
    finish(build.current_dir(root.join("edge/python")))?;
    let wheel = only_file(&wheels)?;
    println!("made {}", wheel.display());
    if !is_tried {
        return Ok(());
    }
    try_alone(root, &folder.join("empty"), &wheel)?;
    install(&python, &TESTED_WITH)?;
    for package in SOME_TESTED_WITH {
        match install(&python, &[package]) {
            Err(Refusal::Missing(what)) => println!("SKIP: {what}"),
            outcome => outcome?,
        }
    }
    let mut put = pip(&python);
    finish(put.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    let mut tests = Command::new(&python);
    if std::env::var_os(BINARY_VARIABLE).is_none() {
        finish(&mut cargo(root, &["build", "--release", "--package", "yonder-cli"]))?;
        tests.env(BINARY_VARIABLE, target_folder(root).join("release/yonder"));
    }
    Ok(finish(tests.args(["-m", "pytest"]).current_dir(root.join("edge/python")))?)
}

/// Installs the wheel in an environment that has nothing else, as its users do, and sums up a far array there.
fn try_alone(root: &Path, folder: &Path, wheel: &Path) -> Result<(), Refusal> {
    let _ = fs::remove_dir_all(folder);
    let python = environment(folder)?;
    // What may be missing is got first: a wheel that cannot be installed then is none.
    install(&python, &TESTED_WITH[..1])?;
    finish(pip(&python).args(["install", "--quiet"]).arg(wheel))?;
    Ok(finish(Command::new(&python).arg(root.join("edge/python/examples/first_array.py")))?)
}

/// The Python of the environment in this folder, which is made if it is not there.
fn environment(folder: &Path) -> Result<PathBuf, Refusal> {
    let python = folder.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    let looks = format!("import sys, venv, ensurepip; sys.exit(sys.version_info < ({}))", PYTHON_MIN.replace('.', ","));
    let is_there = Command::new("python3").args(["-c", &looks]).output().is_ok_and(|output| output.status.success());
    if !is_there {
        let what = format!("no python3 of {PYTHON_MIN} or later with venv: type apt-get install python3-venv");
        return Err(Refusal::Missing(what));
    }
    finish(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    Ok(python)
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "--disable-pip-version-check"]);
    pip
}

/// Gets packages that are not there.
fn install(python: &Path, packages: &[&str]) -> Result<(), Refusal> {
    let mut get = pip(python);
    get.args(["install", "--quiet", "--retries=1", "--prefer-binary"]).args(packages);
    let output = get.output().map_err(|error| format!("{}: {error}", python.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let why = errors.lines().last().unwrap_or("it says nothing");
    Err(Refusal::Missing(format!("pip gets no {}: {why}", packages.join(" "))))
}

fn only_file(folder: &Path) -> Result<PathBuf, String> {
    let mut files = fs::read_dir(folder).map_err(|error| format!("'{}': {error}", folder.display()))?;
    let file = files.next().and_then(Result::ok).map(|entry| entry.path());
    file.ok_or_else(|| format!("maturin has made no wheel in '{}'", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        for bad in [&["--tried"][..], &["--try", "it"]] {
            assert!(
                run_with(&crate::repository_root(), bad).unwrap_err().contains("type cargo xtask python"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn the_package_asks_for_what_is_got_here() {
        let text = fs::read_to_string(crate::repository_root().join("edge/python/pyproject.toml")).unwrap();
        for package in BUILDERS.iter().chain(&TESTED_WITH).chain(&SOME_TESTED_WITH) {
            assert!(text.contains(&format!("\"{package}\"")), "{package}");
        }
        assert!(text.contains(&format!("requires-python = \">={PYTHON_MIN}\"")));
    }
}
