//! Rules for `unsafe`: it stands only in `sys/`, where other libraries are called, and at the boundaries to C and
//! Python, its file says why, and each use is argued for.
//!
//! Uses are found in the token list, so macro bodies are covered. The comment of a use may stand above the use itself
//! or above the statement that holds it; statements come from the syntax tree. Clippy checks the blocks too, with less
//! reach.

use std::collections::BTreeMap;

use proc_macro2::Delimiter;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Findings;
use super::repository::Repository;
use super::source::{Kind, RustFile, Token};

/// Folders that may hold `unsafe` code.
const ALLOWED: [&str; 7] = [
    "sys/",
    "preload/library/",
    "adapters/rocksdb/src/library",
    "adapters/faiss/src/library",
    "edge/capi/",
    "edge/python/",
    "fuzz/",
];

fn is_allowed(path: &str) -> bool {
    ALLOWED.iter().any(|folder| path.starts_with(folder))
}

/// Checks that the crates that may hold no `unsafe` code have the compiler refuse it.
pub(crate) fn check_crate_roots(repository: &Repository, findings: &mut Findings) {
    for folder in repository.crate_folders().filter(|folder| !is_allowed(&format!("{folder}/"))) {
        for (path, text) in repository.files_ending(".rs") {
            let Some(inside) = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix("/src/")) else { continue };
            let is_root = inside == "lib.rs" || inside == "main.rs" || inside.starts_with("bin/");
            // Where one module may hold it, the root denies it and that module alone allows it again.
            let level = if ALLOWED.iter().any(|allowed| allowed.starts_with(folder)) { "deny" } else { "forbid" };
            let refuses = |attribute: &syn::Attribute| refuses_unsafe(attribute, level);
            if is_root && !syn::parse_file(text).is_ok_and(|file| file.attrs.iter().any(refuses)) {
                findings.fail(
                    path,
                    1,
                    "the crate may hold no unsafe code, and its root does not say so",
                    format!("add #![{level}(unsafe_code)] under the header"),
                );
            }
        }
    }
}

fn refuses_unsafe(attribute: &syn::Attribute, level: &str) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident(level) && list.tokens.to_string().contains("unsafe_code"),
        _ => false,
    }
}

/// Checks every use of `unsafe` in one file.
pub(crate) fn check(file: &RustFile<'_>, findings: &mut Findings) {
    let uses: Vec<usize> = (0..file.tokens.len()).filter(|index| file.tokens[*index].is_word("unsafe")).collect();
    let Some(first) = uses.first() else { return };
    if !is_allowed(file.path) {
        for index in &uses {
            let line = file.tokens[*index].line;
            findings.fail(
                file.path,
                line,
                "unsafe code outside sys/, the adapters' libraries, the preloaded library and the boundaries to C and Python",
                "put the unsafe part behind a safe function of a crate in sys/",
            );
        }
        return;
    }
    if !file.lines.iter().any(|line| says_why(line)) {
        findings.fail(
            file.path,
            file.tokens[*first].line,
            "the file uses unsafe and does not say why",
            "end the header with a line '//! UNSAFETY: why this file needs it'",
        );
    }
    let mut statements = Statements::default();
    statements.visit_file(&file.syntax);
    for index in uses {
        let line = file.tokens[index].line;
        if needs_argument(&file.tokens[index + 1..]) && !is_argued(file, line, &statements.starts) {
            findings.fail(
                file.path,
                line,
                "an unsafe block or impl without its argument",
                "write '// SAFETY: why the conditions hold' directly above it or above its statement",
            );
        }
    }
}

/// `// UNSAFETY:` or `//! UNSAFETY:`, with a reason behind it.
fn says_why(line: &str) -> bool {
    let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches('!').trim_start());
    comment.and_then(|comment| comment.strip_prefix("UNSAFETY:")).is_some_and(|reason| !reason.trim().is_empty())
}

/// A block and an impl make a promise; an `unsafe fn` asks for one, in its documentation.
fn needs_argument(following: &[Token]) -> bool {
    following.first().is_some_and(|next| next.kind == Kind::Open(Delimiter::Brace) || next.is_word("impl"))
}

fn is_argued(file: &RustFile<'_>, line: usize, starts: &BTreeMap<usize, Vec<usize>>) -> bool {
    let of_syntax = starts.get(&line).into_iter().flatten().copied();
    of_syntax.chain([line, start_by_layout(file, line)]).any(|line| has_comment_above(file, line))
}

/// Where the statement that holds `line` seems to start, for macro bodies, which the syntax tree does not open.
fn start_by_layout(file: &RustFile<'_>, line: usize) -> usize {
    let mut start = line;
    while start > 1 {
        let above = file.line(start - 1).trim();
        if above.is_empty()
            || above.starts_with("//")
            || above.ends_with([';', '{', '}', ','])
            || above.starts_with("#[")
        {
            break;
        }
        start -= 1;
    }
    start
}

/// Whether the comment directly above `line` (attributes may stand between) contains an argument.
fn has_comment_above(file: &RustFile<'_>, line: usize) -> bool {
    (1..line)
        .rev()
        .map(|above| file.line(above).trim())
        .skip_while(|above| above.starts_with("#["))
        .take_while(|above| above.starts_with("//"))
        .any(|above| above.trim_start_matches('/').trim_start().starts_with("SAFETY:"))
}

/// For each line with an `unsafe` block, the first lines of what may carry its comment: its match arm, its field and
/// its statement.
#[derive(Default)]
struct Statements {
    open: Vec<usize>,
    starts: BTreeMap<usize, Vec<usize>>,
}

impl Statements {
    /// Visits below a node that starts a statement of its own: what is open outside it does not count inside.
    fn fresh(&mut self, line: usize, below: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.open, vec![line]);
        below(self);
        self.open = outside;
    }

    fn nested(&mut self, line: usize, below: impl FnOnce(&mut Self)) {
        self.open.push(line);
        below(self);
        self.open.pop();
    }
}

impl<'ast> Visit<'ast> for Statements {
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        self.fresh(statement.span().start().line, |visitor| visit::visit_stmt(visitor, statement));
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        self.fresh(item.span().start().line, |visitor| visit::visit_item(visitor, item));
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        self.fresh(item.span().start().line, |visitor| visit::visit_impl_item(visitor, item));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.nested(arm.span().start().line, |visitor| visit::visit_arm(visitor, arm));
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.nested(field.span().start().line, |visitor| visit::visit_field_value(visitor, field));
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        let line = block.unsafe_token.span.start().line;
        let open = self.open.clone();
        self.starts.entry(line).or_default().extend(open);
        visit::visit_expr_unsafe(self, block);
    }
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
    fn unsafe_stands_only_where_it_may() {
        let text = "//! x\n// UNSAFETY: y\n// SAFETY: z\nunsafe impl Send for X {}\n";
        let allowed = ["sys/uffd", "edge/capi", "edge/python", "preload/library", "fuzz"];
        for path in allowed.map(|folder| format!("{folder}/src/lib.rs")) {
            let path = path.as_str();
            assert_eq!(problem_lines(path, text), Vec::<usize>::new(), "{path}");
        }
        for path in ["core/units/src/lib.rs", "edge/cli/src/main.rs", "runtime/paging/src/lib.rs", "xtask/src/main.rs"]
        {
            assert_eq!(problem_lines(path, text), [4], "{path}");
        }
    }

    #[test]
    fn words_that_only_contain_unsafe_do_not_count() {
        let text = "//! unsafe\n#![forbid(unsafe_code)]\n#![deny(unsafe_op_in_unsafe_fn)]\nfn f() { let _ = \"unsafe { }\"; } // unsafe\n";
        assert_eq!(problem_lines("core/units/src/lib.rs", text), Vec::<usize>::new());
    }

    #[test]
    fn unsafe_in_a_macro_body_or_an_attribute_counts() {
        let text = "//! x\nmacro_rules! m { () => { unsafe { f() } } }\n#[unsafe(no_mangle)]\nfn g() {}\n";
        assert_eq!(problem_lines("core/units/src/lib.rs", text), [2, 3]);
    }

    #[test]
    fn a_file_says_why_it_needs_unsafe() {
        let with =
            |line: &str| problem_lines("sys/uffd/src/lib.rs", &format!("//! x\n{line}\n\npub unsafe fn f() {{}}\n"));
        assert_eq!(with("//! UNSAFETY: it calls the kernel"), Vec::<usize>::new());
        assert_eq!(with("// UNSAFETY: it calls the kernel"), Vec::<usize>::new());
        assert_eq!([with("// UNSAFETY:"), with("// It is unsafe."), with("const UNSAFETY: u8 = 1;")], [[4], [4], [4]]);
    }

    #[test]
    fn each_block_and_impl_is_argued_for() {
        let argued = [
            "// SAFETY: s\nunsafe { g() };",
            "// SAFETY: s\n// goes on\nlet x = unsafe { g() };",
            "// SAFETY: s\nlet x =\n    unsafe { g() };",
            "// SAFETY: s\nlet x = call(\n    a,\n    unsafe { g() },\n);",
            "// SAFETY: s\n#[cfg(unix)]\nunsafe { g() };",
            "match x {\n    // SAFETY: s\n    1 => unsafe { g() },\n    _ => {}\n}",
            "let x = X {\n    // SAFETY: s\n    a: unsafe { g() },\n};",
            "// SAFETY: s\nm!(unsafe { g() });",
        ];
        for body in argued {
            let text = format!("//! x\n// UNSAFETY: y\nfn f() {{\n{body}\n}}\n");
            assert_eq!(problem_lines("sys/uffd/src/lib.rs", &text), Vec::<usize>::new(), "{body}");
        }
        let bare = [
            ("unsafe { g() };", 4),
            ("// SAFETY: s\n\nunsafe { g() };", 6),
            ("// SAFETY: s\nlet a = 1;\nunsafe { g() };", 6),
            ("// safe enough\nunsafe { g() };", 5),
            ("// SAFETY: s\nlet a = || {\n    h();\n    unsafe { g() }\n};", 7),
            ("h();\nm!(unsafe { g() });", 5),
        ];
        for (body, line) in bare {
            let text = format!("//! x\n// UNSAFETY: y\nfn f() {{\n{body}\n}}\n");
            assert_eq!(problem_lines("sys/uffd/src/lib.rs", &text), [line], "{body}");
        }
        let impls = "//! x\n// UNSAFETY: y\n// SAFETY: s\nunsafe impl Send for X {}\nunsafe impl Sync for X {}\n";
        assert_eq!(problem_lines("sys/uffd/src/lib.rs", impls), [5]);
    }

    #[test]
    fn crate_roots_forbid_unsafe_code() {
        let problems = |root: &str| {
            let files = [
                ("core/units/Cargo.toml", ""),
                ("core/units/src/lib.rs", root),
                ("core/units/src/index.rs", "//! x\n"),
            ];
            let mut findings = Findings::default();
            check_crate_roots(&Repository::of(&files), &mut findings);
            findings.failures.len()
        };
        assert_eq!(problems("//! x\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(problems("//! x\n// #![forbid(unsafe_code)]\n"), 1);
        let mut findings = Findings::default();
        check_crate_roots(
            &Repository::of(&[("sys/uffd/Cargo.toml", ""), ("sys/uffd/src/lib.rs", "//! x\n")]),
            &mut findings,
        );
        assert!(findings.failures.is_empty());
    }
}
