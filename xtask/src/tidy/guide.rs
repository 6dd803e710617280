//! Rules for the guide, which `mdbook build docs/guide` makes: its table of contents has every chapter once, and its
//! chapters link to one another, or to the repository by address, because a book has no other files.

use super::Findings;
use super::documents::{links, resolve};
use super::repository::Repository;

/// Where the book's settings are, its chapters, and their order.
const SETTINGS: &str = "docs/guide/book.toml";
const CHAPTERS: &str = "docs/guide/src/";
const CONTENTS: &str = "docs/guide/src/SUMMARY.md";

/// Checks the guide, if there is one.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    if !repository.exists("docs/guide") {
        return;
    }
    let mut fail = |path: &str, line, problem: String, remedy: &str| {
        findings.fail(path, line, problem, remedy);
    };
    let title = repository.text(SETTINGS).and_then(|text| text.parse::<toml::Table>().ok());
    if title.as_ref().and_then(|table| table.get("book")?.get("title")?.as_str()).is_none() {
        fail(SETTINGS, 1, "the book has no title".to_owned(), "write [book] with a title");
    }
    let listed: Vec<(usize, Option<String>)> = repository
        .text(CONTENTS)
        .map_or_else(Vec::new, links)
        .into_iter()
        .map(|(line, target)| (line, resolve(CONTENTS, &target)))
        .collect();
    for (index, (line, path)) in listed.iter().enumerate() {
        if listed[..index].iter().any(|(_, earlier)| earlier == path) {
            fail(CONTENTS, *line, "the chapter is listed twice".to_owned(), "list it once");
        }
    }
    for (path, text) in repository.files_ending(".md").filter(|(path, _)| path.starts_with(CHAPTERS)) {
        if path != CONTENTS && !listed.iter().any(|(_, own)| own.as_deref() == Some(path)) {
            fail(CONTENTS, 1, format!("{path} is not listed"), "add a line for the chapter");
        }
        for (line, target) in links(text) {
            let leaves = !target.contains("://")
                && !target.starts_with('#')
                && resolve(path, target.split('#').next().unwrap_or("")).is_none_or(|to| !to.starts_with(CHAPTERS));
            if leaves {
                let problem = format!("the link to '{target}' leads out of the book");
                fail(path, line, problem, "write the address of the file in the repository");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(contents: &str, chapter: &str) -> Vec<String> {
        let mut findings = Findings::default();
        let chapter = ("docs/guide/src/a.md", chapter);
        let files = [(SETTINGS, "[book]\ntitle = \"x\"\n"), (CONTENTS, contents), chapter, ("docs/x.md", "x")];
        check(&Repository::of(&files), &mut findings);
        findings.failures.iter().map(|finding| format!("{}:{}", finding.line, finding.problem)).collect()
    }

    #[test]
    fn a_chapter_is_listed_once() {
        assert_eq!(problems("- [A](a.md)\n", "[c](SUMMARY.md) [x](https://x.org) [h](#h)"), Vec::<String>::new());
        assert_eq!(problems("", ""), ["1:docs/guide/src/a.md is not listed"]);
        assert_eq!(problems("- [A](a.md)\n- [B](./a.md)\n", ""), ["2:the chapter is listed twice"]);
    }

    #[test]
    fn chapters_link_within_the_book() {
        for target in ["../../x.md", "../book.toml#x", "../../../../x"] {
            let text = format!("x\n[x]({target})\n");
            let wanted = format!("2:the link to '{target}' leads out of the book");
            assert_eq!(problems("- [A](a.md)\n", &text), [wanted]);
        }
    }

    #[test]
    fn a_book_has_a_title() {
        let mut findings = Findings::default();
        check(&Repository::of(&[(SETTINGS, "[book]\n")]), &mut findings);
        assert_eq!(findings.failures[0].problem, "the book has no title");
        let mut findings = Findings::default();
        check(&Repository::of(&[("docs/x.md", "x")]), &mut findings);
        assert!(findings.failures.is_empty(), "there need not be a guide");
    }
}
