//! Rules for prose: documents and comments are no wider than [`COLUMNS_MAX`], and sentences of documents name a
//! subject.
//!
//! A line that cannot be broken is excused: a row of a table, a line with an address, a single long word. Words in code
//! spans and in code fences are not prose. Code itself is the formatter's.

use super::Findings;
use super::documents::prose;
use super::repository::Repository;

/// The widest line.
const COLUMNS_MAX: usize = 120;
/// Words that stand where a sentence could name who or what it is about.
const NAMELESS: [&str; 5] = ["whoever", "nobody", "somebody", "anybody", "everybody"];

/// Checks all documents, and the comments of all code.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.files_ending(".md") {
        check_widths(path, text, Some, findings);
        for (number, line) in prose(text) {
            for word in nameless(line) {
                findings.fail(path, number, format!("'{word}' names no subject"), "name it");
            }
        }
    }
    for (path, text) in repository.files_ending(".rs") {
        check_widths(path, text, |line| line.trim_start().strip_prefix("//"), findings);
    }
}

/// Finds lines that are too wide, of those in which `words_of` finds prose.
fn check_widths<'a>(path: &str, text: &'a str, words_of: fn(&'a str) -> Option<&'a str>, findings: &mut Findings) {
    for (index, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && words_of(line).is_some_and(can_be_broken) {
            let problem = format!("the line has {columns} columns");
            findings.fail(path, index + 1, problem, format!("break it before {COLUMNS_MAX}"));
        }
    }
}

/// Whether there is a place where a line of prose may end: between two words, unless it is a row of a table.
fn can_be_broken(words: &str) -> bool {
    let words = words.trim_start_matches(['/', '!', '-', ' ']);
    words.contains(' ') && !words.starts_with('|') && !words.contains("://")
}

/// The words of a line, outside code spans, that name nothing.
fn nameless(line: &str) -> impl Iterator<Item = &'static str> + '_ {
    line.split('`')
        .step_by(2)
        .flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()))
        .filter_map(|word| NAMELESS.into_iter().find(|nameless| nameless.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Repository::of(&[("docs/page.md", text)]), &mut findings);
        findings.failures.iter().map(|finding| format!("{}: {}", finding.line, finding.problem)).collect()
    }

    #[test]
    fn lines_have_a_width() {
        let wide = format!("{} {}", "é".repeat(60), "b".repeat(60));
        assert_eq!(problems(&format!("x\n{wide}\n")), ["2: the line has 121 columns"]);
        assert_eq!(problems(&format!("```\n{wide}\n```\n")), ["2: the line has 121 columns"]);
        let fits = &wide[..wide.len() - 1];
        let excused =
            [fits.to_owned(), format!("| {wide} |"), format!("{wide} https://x"), format!("- {}", "a".repeat(140))];
        for text in excused {
            assert_eq!(problems(&text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn comments_have_a_width_and_code_has_none() {
        let wide = format!("{} {}", "a".repeat(60), "b".repeat(60));
        let text = format!("//! {wide}\n    /// {wide}\n// | {wide} |\nlet wide = \"{wide}\"; // {wide}\n");
        let mut findings = Findings::default();
        check(&Repository::of(&[("core/units/src/x.rs", &text)]), &mut findings);
        assert_eq!(findings.failures.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn sentences_name_their_subject() {
        let text = "Nobody knows, says whoever asks.\n`nobody` owns it\n```\nnobody\n```\nnobodys\n";
        assert_eq!(problems(text), ["1: 'nobody' names no subject", "1: 'whoever' names no subject"]);
    }
}
