//! Rules for the shape of a file: it opens with its description, its name says something, and it stays short.
//!
//! Lengths are reported first and fail later: the first limit asks for a thought, the second ends the discussion.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::source::{Kind, RustFile};
use super::{Finding, Findings};

/// Lines of a file that are reported, and that fail.
const FILE_LINES: Limits = Limits { reported_over: 500, failed_over: 900 };
/// Lines of a function that are reported, and that fail.
const FUNCTION_LINES: Limits = Limits { reported_over: 70, failed_over: 150 };
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 9] = ["util", "utils", "common", "base", "misc", "manager", "helper", "helpers", "stuff"];

struct Limits {
    reported_over: usize,
    failed_over: usize,
}

const _: () = assert!(FILE_LINES.reported_over < FILE_LINES.failed_over);
const _: () = assert!(FUNCTION_LINES.reported_over < FUNCTION_LINES.failed_over);

impl Limits {
    /// Checks the length of `what`, which begins at a line.
    fn check(&self, findings: &mut Findings, (path, line): (&str, usize), what: &str, lines: usize) {
        let remedy = format!("split it below {}", self.reported_over);
        let finding = Finding::new(path, line, format!("{what} has {lines} lines"), remedy);
        if lines > self.failed_over {
            findings.failures.push(finding);
        } else if lines > self.reported_over {
            findings.notes.push(finding);
        }
    }
}

/// Rules that need no parsing.
pub(crate) fn check_text(path: &str, text: &str, findings: &mut Findings) {
    if !text.starts_with("//!") {
        findings.fail(
            path,
            1,
            "the file does not open with a //! header",
            "say in its first lines what it is, its key types, its neighbours and its invariants",
        );
    }
    FILE_LINES.check(findings, (path, 1), "the file", text.lines().count());
    for part in path.trim_end_matches(".rs").split('/').filter(|part| EMPTY_NAMES.contains(part)) {
        findings.failures.push(empty_name(path, 1, part));
    }
}

fn empty_name(path: &str, line: usize, name: &str) -> Finding {
    Finding::new(path, line, format!("the name '{name}' says nothing"), "name the module after what it holds")
}

/// Rules on parsed code.
pub(crate) fn check_code(file: &RustFile<'_>, findings: &mut Findings) {
    for pair in file.tokens.windows(2).filter(|pair| pair[0].is_word("mod")) {
        match &pair[1].kind {
            Kind::Word(name) if EMPTY_NAMES.contains(&name.as_str()) => {
                findings.failures.push(empty_name(file.path, pair[1].line, name));
            }
            _ => {}
        }
    }
    let mut functions = Functions::default();
    functions.visit_file(&file.syntax);
    for (name, first, last) in functions.found {
        FUNCTION_LINES.check(findings, (file.path, first), &format!("function {name}"), last + 1 - first);
    }
}

/// Collects name, first line and last line of every function with a body.
#[derive(Default)]
struct Functions {
    found: Vec<(String, usize, usize)>,
}

impl Functions {
    fn note(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let last = body.brace_token.span.close().end().line;
        self.found.push((signature.ident.to_string(), signature.span().start().line, last));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.note(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(path: &str, text: &str) -> (usize, usize) {
        let mut findings = Findings::default();
        check_text(path, text, &mut findings);
        (findings.failures.len(), findings.notes.len())
    }

    fn of_code(text: &str) -> (usize, usize) {
        let mut findings = Findings::default();
        check_code(&RustFile::parse("core/units/src/x.rs", text).unwrap(), &mut findings);
        (findings.failures.len(), findings.notes.len())
    }

    #[test]
    fn a_file_opens_with_its_header() {
        assert_eq!(of_text("core/units/src/x.rs", "//! What it is.\n"), (0, 0));
        for text in ["", "fn main() {}\n", "// What it is.\n", "\n//! Late.\n", "/// Of the item.\nfn f() {}\n"] {
            assert_eq!(of_text("core/units/build.rs", text), (1, 0), "{text:?}");
        }
    }

    #[test]
    fn long_files_are_reported_and_very_long_ones_fail() {
        let of = |lines: usize| of_text("core/units/src/x.rs", &format!("//! x\n{}", "\n".repeat(lines - 1)));
        assert_eq!([of(500), of(501), of(900), of(901)], [(0, 0), (0, 1), (0, 1), (1, 0)]);
    }

    #[test]
    fn long_functions_are_reported_and_very_long_ones_fail() {
        let of = |lines: usize| {
            let body = "    g();\n".repeat(lines - 2);
            let free = of_code(&format!("/// Documentation\n/// does not count.\nfn f() {{\n{body}}}\n"));
            let method = of_code(&format!("impl X {{\nfn f() {{\n{body}}}\n}}\n"));
            let provided = of_code(&format!("trait X {{\nfn f() {{\n{body}}}\n}}\n"));
            assert!(free == method && method == provided);
            free
        };
        assert_eq!([of(70), of(71), of(150), of(151)], [(0, 0), (0, 1), (0, 1), (1, 0)]);
    }

    #[test]
    fn names_say_something() {
        for path in [
            "core/units/src/util.rs",
            "core/common/src/lib.rs",
            "runtime/x/src/helpers/mod.rs",
            "core/units/tests/common/mod.rs",
        ] {
            assert_eq!(of_text(path, "//! x\n").0, 1, "{path}");
        }
        assert_eq!(of_text("core/units/src/database.rs", "//! x\n").0, 0);
        assert_eq!(of_code("mod misc { }\nmod manager;\nmod timing;\n").0, 2);
    }
}
