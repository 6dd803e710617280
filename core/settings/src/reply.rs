//! [`ReplyLine`]: a line of what is answered.
//!
//! ```text
//! row FIELDS       any number of them, then one of
//! done
//! refused "WHY"    whoever asked can ask better
//! failed "WHY"     what was asked could not be done
//! ```

use std::fmt;

use crate::row::{Datum, Row};

/// Why a request is not done. The texts are one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It cannot be: the text says what to ask instead.
    Refused(String),
    /// It could not be.
    Failed(String),
}

impl Refusal {
    /// What is wrong, on one line.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Refused(text) | Self::Failed(text) => text,
        }
    }
}

/// A line of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplyLine {
    /// A part of the answer; others follow.
    Row(Row),
    /// All has been answered.
    Done,
    /// Nothing more is answered.
    Not(Refusal),
}

/// A line that is not of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyError;

/// The name of a text's field, which is not printed.
const WHY: &str = "why";

impl ReplyLine {
    /// Parses a line, without its end.
    ///
    /// # Errors
    /// If no reply has it.
    pub fn parse(line: &[u8]) -> Result<Self, ReplyError> {
        let text = std::str::from_utf8(line).map_err(|_| ReplyError)?;
        let why = |quoted: &str| match Row::parse(&format!("{WHY}={quoted}")).as_ref().map(Row::fields) {
            Some([(_, Datum::Text(text))]) => Ok(text.clone()),
            _ => Err(ReplyError),
        };
        match text.split_once(' ') {
            None if text == "done" => Ok(Self::Done),
            Some(("row", fields)) => Row::parse(fields).map(Self::Row).ok_or(ReplyError),
            Some(("refused", quoted)) => Ok(Self::Not(Refusal::Refused(why(quoted)?))),
            Some(("failed", quoted)) => Ok(Self::Not(Refusal::Failed(why(quoted)?))),
            _ => Err(ReplyError),
        }
    }
}

/// The line, without its end.
impl fmt::Display for ReplyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |text: &str| Row::new().with(WHY, text).to_string()[WHY.len() + 1..].to_owned();
        match self {
            Self::Row(row) => write!(f, "row {row}"),
            Self::Done => f.write_str("done"),
            Self::Not(Refusal::Refused(text)) => write!(f, "refused {}", quoted(text)),
            Self::Not(Refusal::Failed(text)) => write!(f, "failed {}", quoted(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::TEXT_BYTES_MAX;
    use crate::row::tests::any_row;

    #[test]
    fn lines_of_replies_print_as_documented() {
        let line = ReplyLine::Not(Refusal::Refused("no region 7".into()));
        assert_eq!(line.to_string(), "refused \"no%20region%207\"");
        assert_eq!(ReplyLine::parse(b"row "), Ok(ReplyLine::Row(Row::new())));
        for wrong in [
            &b""[..],
            b"row",
            b"done ",
            b"done 1",
            b"refused",
            b"refused 1",
            b"failed none",
            b"failed \"a\" b=1",
            b"\xff",
        ] {
            assert_eq!(ReplyLine::parse(wrong), Err(ReplyError), "{}", wrong.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn lines_parse_as_they_print(row in any_row(), why: String) {
            prop_assume!(why.len() <= TEXT_BYTES_MAX);
            for line in [
                ReplyLine::Row(row), ReplyLine::Done, ReplyLine::Not(Refusal::Refused(why.clone())),
                ReplyLine::Not(Refusal::Failed(why)),
            ] {
                let text = line.to_string();
                prop_assert!(!text.contains('\n'));
                prop_assert_eq!(ReplyLine::parse(text.as_bytes()), Ok(line));
            }
        }

        #[test]
        fn any_bytes_are_a_line_or_none(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                "(row|failed|refused|done) ?[a=%0-9A-F\" ]{0,12}".prop_map(String::into_bytes),
            ],
        ) {
            if let Ok(line) = ReplyLine::parse(&bytes) {
                prop_assert_eq!(line.to_string().into_bytes(), bytes);
            }
        }
    }
}
