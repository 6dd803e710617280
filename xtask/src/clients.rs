//! `cargo xtask clients`: suites that others wrote for memcached, run against `yonder kv`.
//!
//! The script `testing/e2e/clients/suites.py` gets them with pip and go, and says what it skips. The binary is the
//! release build, which the nightly run has made before.

use std::path::Path;
use std::process::Command;

use crate::cargo::{finish, target_folder};

/// What runs them.
const SUITES: &str = "testing/e2e/clients/suites.py";

/// Runs all suites that can be had.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let target = target_folder(root);
    let yonder = target.join("release").join("yonder");
    if !yonder.is_file() {
        return Err(format!("{} is not there: type cargo build --release first", yonder.display()));
    }
    if Command::new("python3").arg("--version").output().is_err() {
        println!("SKIP: python3 cannot be run: apt-get install python3 python3-venv");
        return Ok(());
    }
    finish(Command::new("python3").arg(root.join(SUITES)).arg(yonder).arg(target.join("clients")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_where_it_is_looked_for() {
        assert!(crate::repository_root().join(SUITES).is_file());
    }
}
