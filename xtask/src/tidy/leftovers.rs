//! Rules against what should not be left in code: unfinished parts, debugging output, switched-off and sleeping tests,
//! temporary files with names that can be guessed.
//!
//! A test that sleeps to let something happen is slow when it passes and wrong when the machine is busy. The few that
//! must let time pass say why: `// tidy: sleep: reason` on the line of the call or the one above it.

use super::Findings;
use super::source::{RustFile, Token};

/// Macros that mark unfinished code or debugging output.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
/// Words that mark unfinished work in a comment, in halves so that this file does not find itself.
const MARKS: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];
/// What allows a test to sleep; a reason must follow.
const SLEEP_REASON: &str = concat!("// tidy", ": sleep:");

/// Checks one file.
pub(crate) fn check(file: &RustFile<'_>, findings: &mut Findings) {
    for index in 0..file.tokens.len() {
        if let Some((problem, remedy)) = problem_at(file, index) {
            findings.fail(file.path, file.tokens[index].line, problem, remedy);
        }
    }
    for (index, line) in file.lines.iter().enumerate() {
        let comment = line.find("//").map_or("", |start| &line[start..]);
        let mut words = comment.split(|letter: char| !letter.is_alphanumeric());
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            let problem = format!("a comment marked {mark}");
            findings.fail(file.path, index + 1, problem, "do it now, or open an issue");
        }
    }
}

fn problem_at(file: &RustFile<'_>, index: usize) -> Option<(String, &'static str)> {
    let tokens = &file.tokens[index..];
    if let Some(name) = MACROS.iter().find(|name| is_macro_call(tokens, name)) {
        return Some((format!("{name}! is left in the code"), "finish the code, or return an error"));
    }
    if let [mark, open, word, ..] = tokens
        && mark.is_mark('#')
        && open.opens()
        && word.is_word("ignore")
    {
        return Some(("a test is switched off".to_owned(), "mend it, delete it, or print 'SKIP: reason' and return"));
    }
    if names_temporary(tokens) {
        let remedy = "another user may have put something there: use tempfile::tempdir()";
        return Some(("a temporary file has a name that can be guessed".to_owned(), remedy));
    }
    if is_sleep(&file.tokens, index) && file.is_test(tokens[0].line) && !has_sleep_reason(file, tokens[0].line) {
        let remedy = "wait for the event itself, or add '// tidy: sleep: reason' to the line";
        return Some(("a test sleeps".to_owned(), remedy));
    }
    None
}

fn is_macro_call(tokens: &[Token], name: &str) -> bool {
    matches!(tokens, [word, mark, open, ..] if word.is_word(name) && mark.is_mark('!') && open.opens())
}

/// A path made of the folder for temporary files and a name.
fn names_temporary(tokens: &[Token]) -> bool {
    /// Parentheses and a point.
    const BETWEEN_MAX: usize = 3;
    matches!(tokens, [word, rest @ ..]
        if word.is_word("temp_dir") && rest.iter().take(BETWEEN_MAX + 1).any(|word| word.is_word("join")))
}

/// A call of a function named `sleep`, by any path, but neither a method nor the definition.
fn is_sleep(tokens: &[Token], index: usize) -> bool {
    let before = index.checked_sub(1).map(|before| &tokens[before]);
    tokens[index].is_word("sleep")
        && tokens.get(index + 1).is_some_and(Token::opens)
        && !before.is_some_and(|before| before.is_mark('.') || before.is_word("fn"))
}

fn has_sleep_reason(file: &RustFile<'_>, line: usize) -> bool {
    [file.line(line), file.line(line - 1)]
        .iter()
        .filter_map(|text| text.split_once(SLEEP_REASON))
        .any(|(_, reason)| reason.trim().len() > 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Findings::default();
        check(&RustFile::parse(path, text).unwrap(), &mut findings);
        findings.failures.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn unfinished_code_is_found() {
        let text = "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\nfn h() { dbg!(1); }\n#[test]\n#[ignore]\nfn i() {}\n\
                    #[ignore = \"slow\"]\nfn j() { k!(todo!()) }\n";
        assert_eq!(problem_lines("apps/kv/src/x.rs", text), [1, 2, 3, 5, 7, 8]);
    }

    #[test]
    fn prose_and_other_names_are_left_alone() {
        let text = "/// Never todo!() here.\nfn f() { let todo = 1; g(\"dbg!(1)\"); todo != 2; }\n#[cfg(feature = \"ignore\")]\nfn g() {}\n";
        assert_eq!(problem_lines("apps/kv/src/x.rs", text), Vec::<usize>::new());
    }

    #[test]
    fn marked_comments_are_found() {
        let text = format!("fn f() {{}} // {}: later\n// MASTODON is a word\n", MARKS[0]);
        assert_eq!(problem_lines("apps/kv/src/x.rs", &text), [1]);
    }

    #[test]
    fn temporary_files_have_names_of_chance() {
        let problems = |line: &str| problem_lines("apps/kv/src/x.rs", &format!("fn f() {{ {line} }}\n"));
        assert_eq!(problems("let path = std::env::temp_dir().join(name);"), [1]);
        assert_eq!(problems("let path = temp_dir()\n.join(name);"), [1]);
        assert_eq!(problems("let all = std::fs::read_dir(std::env::temp_dir()); a.join(b)"), Vec::<usize>::new());
    }

    #[test]
    fn tests_do_not_sleep_without_a_reason() {
        let call = "#[test]\nfn f() {\n    std::thread::sleep(D);\n}\n";
        assert_eq!(problem_lines("apps/kv/src/x.rs", call), [3]);
        assert_eq!(problem_lines("testing/e2e/src/x.rs", "fn f() { sleep(D) }\n"), [1]);
        assert_eq!(problem_lines("apps/kv/src/x.rs", "fn f() { std::thread::sleep(D) }\n"), Vec::<usize>::new());
        assert_eq!(problem_lines("testing/e2e/src/x.rs", "fn sleep() { x.sleep() }\n"), Vec::<usize>::new());
    }

    #[test]
    fn a_reason_allows_a_sleep() {
        let with = |reason: &str| {
            problem_lines(
                "testing/e2e/src/x.rs",
                &format!("fn f() {{\n    {SLEEP_REASON}{reason}\n    sleep(D);\n}}\n"),
            )
        };
        assert_eq!(with(" the kernel offers no event for this"), Vec::<usize>::new());
        assert_eq!(with(""), [3]);
        let beside = format!("fn f() {{\n    sleep(D); {SLEEP_REASON} back-off between polls\n}}\n");
        assert_eq!(problem_lines("testing/e2e/src/x.rs", &beside), Vec::<usize>::new());
    }
}
