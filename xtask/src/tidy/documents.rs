//! Rules for documents: every layer has its README, every crate stands on the map, and no link or path leads nowhere.
//!
//! Links are read from Markdown outside code, those to a file of the repository's own address among them; paths are
//! read from code spans that start with a folder of ours, such as `core/units`, in documents and in the comments of
//! code, except where history is told.

use super::Findings;
use super::layers::LAYERS;
use super::repository::Repository;

/// The map of the code.
const MAP: &str = "ARCHITECTURE.md";
/// Folders beside the layers whose crates stand on the map too.
const BESIDE: [&str; 1] = ["testing"];
/// What the addresses of this repository's files begin with.
const OURS: &str = "https://github.com/yonder-memory/yonder/blob/main/";
/// Documents that name paths of the past.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/adr/", "docs/perf/archive/"];

/// Checks all documents.
pub(crate) fn check(repository: &Repository, findings: &mut Findings) {
    check_readmes(repository, findings);
    check_map(repository, findings);
    for (path, text) in repository.files_ending(".md") {
        for (line, target) in links(text) {
            if let Some(problem) = link_problem(repository, path, text, &target) {
                findings.fail(path, line, problem, "mend the link, or remove it");
            }
        }
        if HISTORY.iter().any(|history| path.starts_with(history)) {
            continue;
        }
        check_paths(repository, path, prose(text), findings);
    }
    for (path, text) in repository.files_ending(".rs") {
        let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        check_paths(repository, path, comments.map(|(index, line)| (index + 1, line)), findings);
    }
}

fn check_paths<'a>(
    repository: &Repository,
    path: &str,
    lines: impl Iterator<Item = (usize, &'a str)>,
    findings: &mut Findings,
) {
    for (line, named) in paths_in_spans(lines) {
        if !repository.exists(named.trim_end_matches('/')) {
            let problem = format!("`{named}` does not exist");
            findings.fail(path, line, problem, "write the path as it is now");
        }
    }
}

fn check_readmes(repository: &Repository, findings: &mut Findings) {
    for layer in LAYERS.iter().chain(&BESIDE).filter(|layer| repository.exists(layer)) {
        let path = format!("{layer}/README.md");
        if repository.text(&path).is_none_or(|text| text.trim().is_empty()) {
            findings.fail(&path, 1, "the layer has no README", "write its rule in four lines");
        }
    }
}

fn check_map(repository: &Repository, findings: &mut Findings) {
    let map = repository.text(MAP).unwrap_or("");
    for folder in repository.crate_folders() {
        if !map.contains(&format!("`{folder}`")) {
            let problem = format!("crate {folder} is not on the map");
            findings.fail(MAP, 1, problem, format!("add a line with `{folder}` and what it does"));
        }
    }
}

/// Lines outside code fences, with their numbers.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        (!inside && !fence).then_some((index + 1, line))
    })
}

/// Targets of inline links `[text](target)` and of reference definitions `[name]: target`.
pub(super) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let outside: String = line.split('`').step_by(2).collect();
        for (start, _) in outside.match_indices("](") {
            let target = outside[start + 2..].split([')', ' ']).next().unwrap_or("");
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
        if outside.starts_with('[')
            && let Some((_, target)) = outside.split_once("]: ")
        {
            found.push((number, target.split(' ').next().unwrap_or("").to_owned()));
        }
    }
    found
}

fn link_problem(repository: &Repository, from: &str, text: &str, target: &str) -> Option<String> {
    if let Some(path) = target.strip_prefix(OURS) {
        let path = path.split('#').next().unwrap_or("").trim_end_matches('/');
        return (!repository.exists(path)).then(|| format!("the link to '{target}' leads nowhere"));
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) };
    let Some(path) = path.filter(|path| repository.exists(path)) else {
        return Some(format!("the link to '{target}' leads nowhere"));
    };
    let linked = if path == from { Some(text) } else { repository.text(&path) };
    let has_heading = heading.is_empty() || linked.is_some_and(|linked| headings(linked).any(|own| own == heading));
    (!has_heading).then(|| format!("the link to '{target}' names a heading that is not there"))
}

/// The path of `target` seen from the document `from`; none if it leaves the repository.
pub(super) fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The headings of a document as link fragments: lower case, hyphens for spaces, no other punctuation.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter(|(_, line)| line.starts_with('#')).map(|(_, line)| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_')).collect()
    })
}

/// Code spans that look like a path in one of our folders.
fn paths_in_spans<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, &'a str)> {
    let ours = |span: &&str| {
        let top = span.split('/').next().unwrap_or("");
        let plain = span.chars().all(|letter| letter.is_alphanumeric() || "/._-".contains(letter));
        span.contains('/')
            && plain
            && (LAYERS.contains(&top) || BESIDE.contains(&top) || top == "docs" || top == "xtask")
    };
    lines
        .flat_map(|(number, line)| line.split('`').skip(1).step_by(2).filter(ours).map(move |span| (number, span)))
        .collect()
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
    fn a_layer_has_a_readme_and_a_crate_stands_on_the_map() {
        let good =
            [("core/README.md", "# core\n"), ("core/units/Cargo.toml", ""), (MAP, "| `core/units` | quantities |\n")];
        assert_eq!(problems(&good), Vec::<String>::new());
        assert!(problems(&good[1..])[0].starts_with("core/README.md:1: the layer has no README"));
        assert!(problems(&good[..2])[0].starts_with("ARCHITECTURE.md:1: crate core/units is not on the map"));
    }

    #[test]
    fn links_lead_somewhere() {
        let count = |text: &str| {
            let beside = [("docs/perf/README.md", "# How we measure it\n"), ("LICENSE-MIT", "")];
            problems(&[("docs/design/page.md", text), beside[0], beside[1]]).len()
        };
        let good = [
            "[a](../perf/README.md)",
            "[a](../perf/)",
            "[a](../perf/README.md#how-we-measure-it \"title\")",
            "# Top\n[a](#top)",
            "[a](https://example.org/gone.md)",
            "[a](https://github.com/yonder-memory/yonder/blob/main/docs/perf/README.md#how)",
            "`[a](gone.md)`",
            "```\n[a](gone.md)\n```",
            "[a]: ../../LICENSE-MIT",
        ];
        for text in good {
            assert_eq!(count(text), 0, "{text}");
        }
        let bad = [
            "[a](gone.md)",
            "x\n[a]: ../gone.md",
            "[a](../perf/README.md#gone)",
            "[a](#gone)",
            "![a](../../../x)",
            "[a](https://github.com/yonder-memory/yonder/blob/main/docs/gone.md)",
        ];
        for text in bad {
            assert_eq!(count(text), 1, "{text}");
        }
    }

    #[test]
    fn named_paths_exist() {
        let files = |path| {
            [
                (path, "See `core/units` and `core/gone` and `core/{a,b}` and `other/x`.\n"),
                ("core/README.md", "x"),
                ("core/units/x", ""),
            ]
        };
        let found = problems(&files("docs/page.md"));
        assert_eq!(found, ["docs/page.md:1: `core/gone` does not exist: write the path as it is now"]);
        assert_eq!(problems(&files("CHANGELOG.md")), Vec::<String>::new());
        let code =
            ("core/units/src/lib.rs", "//! See `core/units`.\n/// And `core/gone`.\nconst X: &str = \"`core/no`\";\n");
        let found = problems(&[code, ("core/README.md", "x")]);
        assert_eq!(found, ["core/units/src/lib.rs:2: `core/gone` does not exist: write the path as it is now"]);
    }
}
