//! A rule against what a merge that was not finished leaves in a file: lines that begin with git's marks of a conflict.
//!
//! The line between the two sides is no mark here: headings of documents are underlined with it.

use super::Findings;
use super::repository::Repository;

/// What the first and the last line of a conflict begin with.
const MARKS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

/// Checks all files that are text.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.files_ending("") {
        for (index, line) in text.lines().enumerate() {
            if MARKS.iter().any(|mark| line.starts_with(mark)) {
                let remedy = "keep what is right of both sides, and remove the marks";
                findings.fail(path, index + 1, "a conflict of a merge is left", remedy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Findings::default();
        check(&Repository::of(&[(path, text)]), &mut findings);
        findings.failures.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn marks_of_conflicts_are_found_in_any_file() {
        let [first, last] = MARKS;
        let text = format!("a\n{first}HEAD\nb\n=======\nc\n{last}branch\n");
        for path in ["CHANGELOG.md", "core/units/src/x.rs", "edge/cli/systemd/x.service", ".ci/run"] {
            assert_eq!(problem_lines(path, &text), [2, 6], "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_one_is_left_alone() {
        let [first, last] = MARKS;
        let text = format!("Heading\n=======\n {first}HEAD\n`{last}` ends it\n{}\n", first.trim_end());
        assert_eq!(problem_lines("docs/page.md", &text), Vec::<usize>::new());
    }
}
