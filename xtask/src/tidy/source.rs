//! One Rust file as the rules see it: its lines, its tokens in a flat list, and its syntax tree.
//!
//! [`RustFile::tokens`] has no comments and no text from inside literals, so a rule that looks for a word cannot be
//! tripped by prose. It does contain macro bodies, which the syntax tree does not open. Lines count from 1.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;

/// What a token is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Word(String),
    Mark(char),
    Open(Delimiter),
    Close(Delimiter),
    Literal,
}

/// A token and the line it starts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

impl Token {
    /// Whether the token is this identifier or keyword.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    /// Whether the token is this punctuation mark.
    pub(crate) fn is_mark(&self, mark: char) -> bool {
        self.kind == Kind::Mark(mark)
    }

    /// Whether the token opens a group.
    pub(crate) fn opens(&self) -> bool {
        matches!(self.kind, Kind::Open(_))
    }
}

/// A parsed file.
pub(crate) struct RustFile<'a> {
    pub(crate) path: &'a str,
    pub(crate) lines: Vec<&'a str>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) syntax: syn::File,
    test_lines: Vec<(usize, usize)>,
}

impl<'a> RustFile<'a> {
    /// Parses `text`.
    pub(crate) fn parse(path: &'a str, text: &'a str) -> Result<Self, Finding> {
        let broken = |line: usize, cause: String| {
            Finding::new(path, line, format!("the file does not parse ({cause})"), "make it valid Rust")
        };
        let syntax = syn::parse_file(text).map_err(|error| broken(error.span().start().line, error.to_string()))?;
        let stream: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| broken(1, error.to_string()))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        let mut tests = TestLines::default();
        tests.visit_file(&syntax);
        Ok(Self { path, lines: text.lines().collect(), tokens, syntax, test_lines: tests.ranges })
    }

    /// Whether code on this line exists only for tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test_file() || self.test_lines.iter().any(|(first, last)| (*first..=*last).contains(&line))
    }

    fn is_test_file(&self) -> bool {
        self.path.starts_with("testing/") || self.path.split('/').any(|part| part == "tests" || part == "tests.rs")
    }

    /// The text of a line; empty beyond the file.
    pub(crate) fn line(&self, number: usize) -> &'a str {
        number.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or("")
    }
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(word) => into.push(Token { kind: Kind::Word(word.to_string()), line }),
            TokenTree::Punct(mark) => into.push(Token { kind: Kind::Mark(mark.as_char()), line }),
            TokenTree::Literal(_) => into.push(Token { kind: Kind::Literal, line }),
            TokenTree::Group(group) => {
                into.push(Token { kind: Kind::Open(group.delimiter()), line });
                flatten(group.stream(), into);
                let line = group.span_close().start().line;
                into.push(Token { kind: Kind::Close(group.delimiter()), line });
            }
        }
    }
}

/// Collects the line ranges of items marked `#[test]` or `#[cfg(test)]`.
#[derive(Default)]
struct TestLines {
    ranges: Vec<(usize, usize)>,
}

impl TestLines {
    fn note(&mut self, attributes: &[syn::Attribute], item: &impl Spanned) {
        if attributes.iter().any(marks_test) {
            let span = item.span();
            self.ranges.push((span.start().line, span.end().line));
        }
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.note(&item.attrs, item);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.attrs, item);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.attrs, item);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.note(&item.attrs, item);
        visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note(&item.attrs, item);
    }
}

/// `#[test]`, or a `cfg` that asks for tests, whatever else it asks for or negates.
fn marks_test(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && asks_for_tests(list.tokens.clone())
}

/// Whether the word `test` stands in a condition outside every `not(...)`.
fn asks_for_tests(condition: TokenStream) -> bool {
    let mut negated = false;
    condition.into_iter().any(|tree| match tree {
        TokenTree::Ident(word) => {
            negated = word == "not";
            word == "test"
        }
        TokenTree::Group(group) => !negated && asks_for_tests(group.stream()),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//! unsafe in prose\nfn f() { let s = r#\"unsafe { todo!() }\"#; /* unsafe /* nested */ */ }\n\
                        fn g<'a>(x: &'a str) -> char { 'u' }\n#[cfg(test)]\nmod tests {\n    fn h() {}\n}\n\
                        #[cfg(not(test))]\nmod real {}\n";

    #[test]
    fn comments_and_literals_are_no_tokens() {
        let file = RustFile::parse("core/units/src/x.rs", TEXT).unwrap();
        assert!(!file.tokens.iter().any(|token| token.is_word("unsafe") || token.is_word("todo")));
        assert!(file.tokens.iter().any(|token| token.is_word("g") && token.line == 3));
    }

    #[test]
    fn test_code_is_known_by_its_attribute_or_its_path() {
        let file = RustFile::parse("core/units/src/x.rs", TEXT).unwrap();
        let lines: Vec<usize> = (1..=9).filter(|line| file.is_test(*line)).collect();
        assert_eq!(lines, [4, 5, 6, 7]);
        let negated =
            "//! x\n#[cfg(all(test, not(yonder_loom)))]\nmod tests {}\n#[cfg(all(unix, not(test)))]\nmod real {}\n";
        let file = RustFile::parse("core/units/src/x.rs", negated).unwrap();
        assert!(file.is_test(3) && !file.is_test(5));
        assert!(RustFile::parse("core/units/tests/x.rs", TEXT).unwrap().is_test(2));
        assert!(RustFile::parse("core/units/src/tests.rs", TEXT).unwrap().is_test(2));
        assert!(RustFile::parse("testing/e2e/src/x.rs", TEXT).unwrap().is_test(2));
    }
}
