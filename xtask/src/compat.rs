//! `cargo xtask compat`: programs that others have written, each with a workload of seconds, alone and under
//! `yonder run` with a quarter of the memory that they took alone.
//!
//! [`catalogue`] has the programs. [`trial`] runs one and compares what it answers, [`process`] watches it, and
//! [`table`] shows what became of all. A program that is not installed is skipped, and the line says what has it;
//! `--install` installs what can be had. The chore fails if a program behaves otherwise than the catalogue says, also
//! if that is better, so that the table in the guide (`--markdown`) is what happens.

mod catalogue;
mod packages;
mod process;
mod table;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;

use crate::cargo::{cargo, made, typed};
use catalogue::{PROGRAMS, Program};
use table::Row;
use trial::{Place, Tools, Verdict};

/// Where the table is, in the guide.
const PAGE: &str = "docs/guide/src/compatibility.md";
/// What to type.
const USAGE: &str = "type cargo xtask compat [--install] [--markdown] [NAME...]";

/// What the arguments ask for.
#[derive(Default)]
struct Wish {
    programs: Vec<&'static Program>,
    installs: bool,
    writes_page: bool,
}

/// Runs all programs that are installed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    run_with(root, &[])
}

/// Runs those that `arguments` name, or all; fails if one behaves otherwise than the catalogue says.
pub(crate) fn run_with(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let wish = wish(arguments)?;
    let tools = Tools { packages: packages::folder(root), ..build(root)? };
    if wish.installs {
        packages::install(&wish.programs, &tools)?;
    }
    let folder = scratch()?;
    let tools = tools.copied_to(folder.path())?;
    let mut rows = Vec::new();
    for program in &wish.programs {
        let place = Place { tools: &tools, folder: folder.path().join(program.name) };
        let row = Row { program, trial: trial::run(program, &place) };
        println!("{}", table::line(&row));
        // What a program leaves behind may be large.
        let _ = fs::remove_dir_all(&place.folder);
        rows.push(row);
    }
    println!("\n{}", table::text(&rows));
    if wish.writes_page {
        write_page(root, &rows)?;
    }
    let surprises: Vec<&Row<'_>> = rows.iter().filter(|row| !row.is_expected()).collect();
    match surprises.as_slice() {
        [] => Ok(()),
        _ => {
            let names: Vec<&str> = surprises.iter().map(|row| row.program.name).collect();
            Err(format!("otherwise than the catalogue says: {}", names.join(", ")))
        }
    }
}

/// Reads the arguments after `compat`.
fn wish(arguments: &[&str]) -> Result<Wish, String> {
    let mut wish = Wish::default();
    for argument in arguments {
        match *argument {
            "--install" => wish.installs = true,
            "--markdown" => wish.writes_page = true,
            name => match PROGRAMS.iter().find(|program| program.name == name) {
                Some(program) => wish.programs.push(program),
                None => {
                    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
                    return Err(format!("'{name}' is no program of the catalogue: {USAGE}, of {}", names.join(", ")));
                }
            },
        }
    }
    if wish.writes_page && !wish.programs.is_empty() {
        return Err(format!("the page has all programs: {USAGE}, without names"));
    }
    if wish.programs.is_empty() {
        wish.programs = PROGRAMS.iter().collect();
    }
    Ok(wish)
}

/// Builds the command and what it preloads, for release.
fn build(root: &Path) -> Result<Tools, String> {
    let mut command = cargo(root, &["build", "--release", "--package=yonder-cli", "--package=yonder-preload"]);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{}: {error}", typed(&command)))?;
    if !output.status.success() {
        return Err(format!("'{}' ended with {}", typed(&command), output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let (yonder, library) = (made(&messages, "yonder", "/yonder")?, made(&messages, "yonder_preload", ".so")?);
    Ok(Tools { yonder, library, packages: PathBuf::new() })
}

fn write_page(root: &Path, rows: &[Row<'_>]) -> Result<(), String> {
    let path = root.join(PAGE);
    fs::write(&path, table::page(rows)).map_err(|error| format!("'{}' cannot be written: {error}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// A folder for all that programs read and write, which other users may look into; removed at the end.
fn scratch() -> Result<TempDir, String> {
    let permissions = fs::Permissions::from_mode(0o755);
    let made = tempfile::Builder::new().prefix("yonder-compat-").permissions(permissions).tempdir();
    made.map_err(|error| format!("a temporary folder cannot be made: {error}"))
}

impl Row<'_> {
    /// Whether the program has done what the catalogue says, or could not be run here.
    fn is_expected(&self) -> bool {
        matches!(self.trial.verdict, Verdict::Skipped(_)) || self.program.expected.is(&self.trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_programs_and_what_to_do() {
        assert_eq!(wish(&[]).unwrap().programs.len(), PROGRAMS.len());
        let some = wish(&["node", "--install"]).unwrap();
        assert!(some.installs && !some.writes_page && some.programs.len() == 1);
        assert!(wish(&["no-such-program"]).err().unwrap().contains("postgres"));
        assert!(wish(&["--markdown", "node"]).err().unwrap().contains("all programs"));
    }
}
