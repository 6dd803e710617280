//! [`Row`]: a line of a reply: fields with names, whose values are numbers, texts or nothing.
//!
//! ```text
//! pid=12 command="redis-server%20--save" quota_bytes=none
//! ```
//!
//! Texts come from anywhere (what a program was called), so everything in them that is not plain is written as `%` and
//! two digits: neither a line end nor what a terminal obeys gets through.

use std::fmt;

/// Longest text of a field in bytes; more of it is cut off.
pub const TEXT_BYTES_MAX: usize = 1024;
/// What stands for nothing.
const NOTHING: &str = "none";

/// What a field has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Datum {
    /// Nothing, such as a limit that is not there.
    Nothing,
    /// A number; the field's name says of what.
    Number(u64),
    /// A text of at most [`TEXT_BYTES_MAX`].
    Text(String),
}

impl From<u64> for Datum {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Option<u64>> for Datum {
    fn from(number: Option<u64>) -> Self {
        number.map_or(Self::Nothing, Self::Number)
    }
}

/// As much of the text as a field may have.
impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        let ends = text.char_indices().map(|(start, character)| start + character.len_utf8());
        let end = ends.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or(0);
        Self::Text(text[..end].to_owned())
    }
}

/// Fields in their order. Names are of the letters `a` to `z`, digits and `_`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Row {
    fields: Vec<(String, Datum)>,
}

impl Row {
    /// No fields.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The row with one more field.
    ///
    /// # Panics
    /// If no field can have this name.
    #[must_use]
    pub fn with(mut self, name: &str, datum: impl Into<Datum>) -> Self {
        assert!(is_field_name(name), "no field can be called '{name}'");
        self.fields.push((name.to_owned(), datum.into()));
        self
    }

    /// The fields, in their order.
    #[must_use]
    pub fn fields(&self) -> &[(String, Datum)] {
        &self.fields
    }

    /// What the field with this name has.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Datum> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, datum)| datum)
    }

    /// The number that the field with this name has.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Datum::Number(number) => Some(*number),
            Datum::Nothing | Datum::Text(_) => None,
        }
    }

    /// The text that the field with this name has.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Datum::Text(text) => Some(text),
            Datum::Nothing | Datum::Number(_) => None,
        }
    }

    /// Parses what a row prints as; `None` if it is none.
    #[must_use]
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let fields = line.split(' ').filter(|_| !line.is_empty()).map(|field| {
            let (name, datum) = field.split_once('=').filter(|(name, _)| is_field_name(name))?;
            Some((name.to_owned(), parse_datum(datum)?))
        });
        Some(Self { fields: fields.collect::<Option<_>>()? })
    }
}

fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn parse_datum(text: &str) -> Option<Datum> {
    if text == NOTHING {
        return Some(Datum::Nothing);
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return unescape(quoted.strip_suffix('"')?).map(Datum::Text);
    }
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok().map(Datum::Number) } else { None }
}

/// Whether a byte of a text is written as it is.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'"')
}

/// Undoes what [`Row`]'s `Display` does; `None` if it cannot have been done by that.
fn unescape(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        rest = behind;
        if is_plain(*first) {
            bytes.push(*first);
            continue;
        }
        let [high, low, behind @ ..] = behind else { return None };
        let digit = |byte: u8| (byte as char).to_digit(16).filter(|_| !byte.is_ascii_lowercase());
        let byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
        if *first != b'%' || is_plain(byte) {
            return None;
        }
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, datum)) in self.fields.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{name}=")?;
            match datum {
                Datum::Nothing => f.write_str(NOTHING)?,
                Datum::Number(number) => write!(f, "{number}")?,
                Datum::Text(text) => {
                    f.write_str("\"")?;
                    for byte in text.bytes() {
                        if is_plain(byte) { write!(f, "{}", byte as char)? } else { write!(f, "%{byte:02X}")? }
                    }
                    f.write_str("\"")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_print_as_documented() {
        let row = Row::new().with("pid", 12).with("command", "redis-server --save").with("quota_bytes", None);
        let line = "pid=12 command=\"redis-server%20--save\" quota_bytes=none";
        assert_eq!((row.to_string().as_str(), Row::parse(line)), (line, Some(row.clone())));
        assert_eq!((row.number("pid"), row.text("pid"), row.number("quota_bytes")), (Some(12), None, None));
        assert_eq!((row.text("command"), row.get("quota_bytes")), (Some("redis-server --save"), Some(&Datum::Nothing)));
        assert_eq!((Row::parse(""), Row::new().to_string().as_str()), (Some(Row::new()), ""));
    }

    #[test]
    fn what_a_terminal_obeys_does_not_get_through() {
        let line = Row::new().with("command", "a\n\u{1b}[2J\u{7f}\"%é").to_string();
        assert_eq!(line, "command=\"a%0A%1B[2J%7F%22%25%C3%A9\"");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "é".repeat(TEXT_BYTES_MAX);
        let Datum::Text(text) = Datum::from(format!("a{long}").as_str()) else { panic!("a text") };
        assert_eq!((text.len(), text.starts_with("aé")), (TEXT_BYTES_MAX - 1, true));
        assert!(Row::parse(&format!("a=\"{}\"", "b".repeat(TEXT_BYTES_MAX + 1))).is_none());
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for wrong in [
            "a",
            "a=",
            "=1",
            "A=1",
            "a b=1",
            "a=1  b=2",
            " a=1",
            "a=01",
            "a=-1",
            "a=1x",
            "a=\"",
            "a=b",
            "a=\"%4\"",
            "a=\"%41\"",
            "a=\"%0a\"",
            "a=\"%FF\"",
            "a=\"é\"",
            "a=\"b\"c",
            "a=18446744073709551616",
        ] {
            assert_eq!(Row::parse(wrong), None, "{wrong}");
        }
    }

    pub(crate) fn any_row() -> impl Strategy<Value = Row> {
        let datum = prop_oneof![
            Just(Datum::Nothing),
            any::<u64>().prop_map(Datum::Number),
            any::<String>().prop_map(|text| Datum::from(text.as_str())),
        ];
        prop::collection::vec(("[a-z0-9_]{1,8}", datum), 0..6).prop_map(|fields| Row { fields })
    }

    proptest! {
        #[test]
        fn rows_parse_as_they_print(row in any_row()) {
            let line = row.to_string();
            prop_assert!(line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{}", line);
            prop_assert_eq!(Row::parse(&line), Some(row));
        }

        #[test]
        fn what_parses_prints_as_it_was(line in "([a-z]{0,2}=(none|[0-9]{0,3}|\"[a%02-9A]{0,6}\"?) ?){0,3}") {
            if let Some(row) = Row::parse(&line) {
                prop_assert_eq!(row.to_string(), line);
            }
        }
    }
}
