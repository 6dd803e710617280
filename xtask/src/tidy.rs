//! `cargo xtask tidy`: the rules of the repository that the compiler does not check.
//!
//! [`Repository`] holds every file in memory, so each rule is a pure function from a repository to [`Finding`]s and its
//! tests are snippets. A rule adds *failures*, which fail the run, or *notes*, which are only printed.
//!
//! Rules by file: `layers` (who may depend on whom), `unsafety` (where `unsafe` may stand and what must stand beside
//! it), `shape` (headers, names, lengths), `leftovers` (unfinished or sleeping code), `conflicts` (merges that were not
//! finished), `documents` (READMEs, the map, links), `guide` (the manual's table of contents), `prose` (widths and
//! words of documents), `targets` (tests that cargo leaves out).

mod conflicts;
mod documents;
mod guide;
mod layers;
mod leftovers;
mod prose;
mod repository;
mod shape;
mod source;
mod targets;
mod unsafety;

use std::fmt;
use std::path::Path;

use repository::Repository;
use source::RustFile;

/// One broken rule: where, what is wrong, and what to do about it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    problem: String,
    remedy: String,
}

impl Finding {
    fn new(path: &str, line: usize, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.problem, self.remedy)
    }
}

/// What all the rules found.
#[derive(Default, Debug)]
pub(crate) struct Findings {
    failures: Vec<Finding>,
    notes: Vec<Finding>,
}

impl Findings {
    /// A rule is broken.
    fn fail(&mut self, path: &str, line: usize, problem: impl Into<String>, remedy: impl Into<String>) {
        self.failures.push(Finding::new(path, line, problem, remedy));
    }
}

/// Checks the repository at `root`, prints what was found, and fails if a rule is broken.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let repository = Repository::read(root)?;
    let findings = check(&repository);
    for note in &findings.notes {
        println!("note: {note}");
    }
    for failure in &findings.failures {
        println!("{failure}");
    }
    match findings.failures.len() {
        0 => {
            println!("tidy: {} files, every rule holds", repository.paths().count());
            Ok(())
        }
        1 => Err("tidy: 1 rule is broken: mend the line above".to_owned()),
        count => Err(format!("tidy: {count} rules are broken: mend the lines above")),
    }
}

/// Applies every rule.
fn check(repository: &Repository) -> Findings {
    let mut findings = Findings::default();
    layers::check_manifests(repository, &mut findings);
    unsafety::check_crate_roots(repository, &mut findings);
    conflicts::check(repository, &mut findings);
    documents::check(repository, &mut findings);
    guide::check(repository, &mut findings);
    prose::check(repository, &mut findings);
    targets::check(repository, &mut findings);
    for (path, text) in repository.files_ending(".rs") {
        shape::check_text(path, text, &mut findings);
        match RustFile::parse(path, text) {
            Ok(file) => {
                shape::check_code(&file, &mut findings);
                layers::check_purity(&file, &mut findings);
                unsafety::check(&file, &mut findings);
                leftovers::check(&file, &mut findings);
            }
            Err(finding) => findings.failures.push(finding),
        }
    }
    findings.failures.sort();
    findings.notes.sort();
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_tidy() {
        let repository = Repository::read(&crate::repository_root()).unwrap();
        assert!(repository.paths().count() > 10, "the walk found almost nothing: is the root right?");
        let lines: Vec<String> = check(&repository).failures.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} rules are broken:\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn a_finding_is_one_line() {
        let finding = Finding::new("core/units/src/lib.rs", 3, "it is wrong", "mend it");
        assert_eq!(finding.to_string(), "core/units/src/lib.rs:3: it is wrong: mend it");
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_failure() {
        let repository = Repository::of(&[("core/units/src/broken.rs", "//! Broken.\nfn (\n")]);
        assert!(check(&repository).failures.iter().any(|finding| finding.problem.contains("does not parse")));
    }
}
