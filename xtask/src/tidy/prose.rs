//! Rules for prose: documents are no wider than [`COLUMNS_MAX`], and their sentences name a subject.
//!
//! A line that cannot be broken is excused: a row of a table, a line with an address, a single long word. Words in code
//! spans and in code fences are not prose.

use super::documents::prose;
use super::repository::Repository;
use super::{Finding, Findings};

/// The widest line.
const COLUMNS_MAX: usize = 120;
/// Words that stand where a sentence could name who or what it is about.
const NAMELESS: [&str; 5] = ["whoever", "nobody", "somebody", "anybody", "everybody"];

/// Checks all documents.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.files_ending(".md") {
        for (index, line) in text.lines().enumerate().filter(|(_, line)| is_too_wide(line)) {
            let problem = format!("the line has {} columns", line.chars().count());
            findings.failures.push(Finding::new(path, index + 1, problem, format!("break it before {COLUMNS_MAX}")));
        }
        for (number, line) in prose(text) {
            for word in nameless(line) {
                findings.failures.push(Finding::new(path, number, format!("'{word}' names no subject"), "name it"));
            }
        }
    }
}

fn is_too_wide(line: &str) -> bool {
    let has_a_break = line.trim_start().trim_start_matches(['-', ' ']).contains(' ');
    line.chars().count() > COLUMNS_MAX && has_a_break && !line.trim_start().starts_with('|') && !line.contains("://")
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
    fn sentences_name_their_subject() {
        let text = "Nobody knows, says whoever asks.\n`nobody` owns it\n```\nnobody\n```\nnobodys\n";
        assert_eq!(problems(text), ["1: 'nobody' names no subject", "1: 'whoever' names no subject"]);
    }
}
