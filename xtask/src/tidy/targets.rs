//! Rules for what cargo builds of a crate: nothing that has tests is switched off, and a crate has one program of
//! integration tests, because each is compiled and linked for itself.

use toml::{Table, Value};

use super::Findings;
use super::repository::Repository;

/// What the head of a file of integration tests says that cannot share its process with the crate's others.
const ALONE: &str = "process of its own";

/// Checks every crate.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    for folder in repository.crate_folders() {
        let manifest = format!("{folder}/Cargo.toml");
        // A manifest that is none is told by another rule.
        let Ok(table) = repository.text(&manifest).unwrap_or("").parse::<Table>() else { continue };
        check_library(repository, folder, &manifest, &table, findings);
        check_programs(repository, folder, findings);
    }
}

/// A library whose tests are switched off has none.
fn check_library(repository: &Repository, folder: &str, manifest: &str, table: &Table, findings: &mut Findings) {
    let is_off =
        |switch: &str| table.get("lib").and_then(|lib| lib.get(switch)).and_then(Value::as_bool) == Some(false);
    let sources = format!("{folder}/src/");
    for (path, text) in repository.files_ending(".rs").filter(|(path, _)| path.starts_with(&sources)) {
        if is_off("doctest")
            && let Some(line) = example_line(text)
        {
            let problem = format!("cargo does not run the example: {manifest} has doctest = false");
            findings.fail(path, line, problem, "take that out, or mark the example as text");
        }
        if is_off("test")
            && let Some(line) = text.lines().position(|line| line.trim() == "#[test]")
        {
            let problem = format!("cargo does not run the test: {manifest} has test = false for the library");
            findings.fail(path, line + 1, problem, "take that out");
        }
    }
}

/// The first line of an example in Rust among the comments that document something.
fn example_line(text: &str) -> Option<usize> {
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else { continue };
        let Some(kind) = rest.trim().strip_prefix("```") else { continue };
        let is_rust = ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&kind);
        if !is_inside && is_rust {
            return Some(index + 1);
        }
        is_inside = !is_inside;
    }
    None
}

/// Of the programs of integration tests, all but one say why they are others.
fn check_programs(repository: &Repository, folder: &str, findings: &mut Findings) {
    let tests = format!("{folder}/tests/");
    let is_program = |path: &str| match path.strip_prefix(&tests) {
        Some(rest) => !rest.contains('/') || rest.strip_suffix("/main.rs").is_some_and(|name| !name.contains('/')),
        None => false,
    };
    let programs = repository.files_ending(".rs").filter(|(path, _)| is_program(path));
    let shared = programs.filter(|(_, text)| !head(text).any(|line| line.contains(ALONE)));
    for (path, _) in shared.skip(1) {
        findings.fail(
            path,
            1,
            "the crate has several programs of integration tests",
            format!("make them modules of one, tests/it/main.rs, or say in its head why it needs a {ALONE}"),
        );
    }
}

/// The lines in which a file says what it is.
fn head(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| line.starts_with("//!"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Repository::of(files), &mut findings);
        findings.failures.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tests_that_are_switched_off_are_found() {
        let off = ("core/a/Cargo.toml", "[package]\nname = \"a\"\n[lib]\ndoctest = false\ntest = false\n");
        let example = ("core/a/src/lib.rs", "//! A.\n//!\n//! ```\n//! assert!(true);\n//! ```\n");
        let drawing = ("core/a/src/b.rs", "//! B.\n//!\n//! ```text\n//! a -> b\n//! ```\n");
        let test = ("core/a/src/c.rs", "//! C.\n\n#[test]\nfn it_works() {}\n");
        let found = problems(&[off, example, drawing, test]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("core/a/src/c.rs:3: ") && found[1].starts_with("core/a/src/lib.rs:3: "));
        let on = ("core/a/Cargo.toml", "[package]\nname = \"a\"\n");
        assert!(problems(&[on, example, drawing, test]).is_empty());
    }

    #[test]
    fn a_crate_has_one_program_of_integration_tests() {
        let manifest = ("core/a/Cargo.toml", "[package]\nname = \"a\"\n");
        let main = ("core/a/tests/it/main.rs", "//! All.\n");
        let module = ("core/a/tests/it/one.rs", "//! One.\n");
        let alone = ("core/a/tests/signals.rs", "//! Signals, in a process of its own.\n");
        assert!(problems(&[manifest, main, module, alone]).is_empty());
        let other = ("core/a/tests/other.rs", "//! Another.\n");
        let found = problems(&[manifest, main, module, alone, other]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("tests/it/main.rs"), "{found:?}");
    }
}
