//! What the programs of the catalogue are installed from: Debian's packages, and an environment of Python's for those
//! that Debian does not have.
//!
//! `cargo xtask compat --install` does it, as root. A package that cannot be had keeps no other away: the programs that
//! need it are skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::catalogue::{Package, Program};
use super::trial::{Place, Tools};
use crate::cargo::{finish, typed};

/// Where the environment is.
pub(super) fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    // Programs run elsewhere.
    std::path::absolute(&target).unwrap_or(target).join("compat-python")
}

/// Installs what the programs need that are not there.
pub(super) fn install(programs: &[&Program], tools: &Tools) -> Result<(), String> {
    let place = Place { tools, folder: PathBuf::new() };
    let missing = programs.iter().filter(|program| place.find(program).is_none());
    let packages: Vec<Package> = missing.flat_map(|program| program.packages).copied().collect();
    if packages.iter().any(|package| matches!(package, Package::Debian(_))) {
        try_to(Command::new("apt-get").args(["-qq", "update"]));
    }
    for package in packages {
        match package {
            Package::Debian(name) => {
                let mut command = Command::new("apt-get");
                command.args(["-qq", "install", "--no-install-recommends", name]);
                try_to(command.env("DEBIAN_FRONTEND", "noninteractive"));
            }
            Package::Python(name) => {
                if !tools.python().is_file() {
                    try_to(Command::new("python3").args(["-m", "venv"]).arg(&tools.packages));
                }
                try_to(Command::new(tools.python()).args(["-m", "pip", "install", "--quiet", name]));
            }
            Package::Elsewhere(_) => {}
        }
    }
    Ok(())
}

/// Says what could not be done, and goes on.
fn try_to(command: &mut Command) {
    println!("{}", typed(command));
    if let Err(cause) = finish(command) {
        println!("it could not be installed: {cause}");
    }
}
