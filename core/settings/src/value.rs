//! [`Value`]: what a setting is set to, as it is typed and printed.

use std::fmt;

use yonder_units::{Nanos, parse_bytes, parse_duration};

/// Longest time that a setting takes, in nanoseconds: about a hundred days.
pub const TIME_NS_MAX: Nanos = 1 << 53;

/// How it is typed that there is no limit.
const NONE: &str = "none";

/// What values a setting takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes.
    Size,
    /// A time.
    Time,
    /// A number of things.
    Count,
}

/// What a setting is set to; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// Bytes.
    Size(Option<u64>),
    /// A time in nanoseconds, at most [`TIME_NS_MAX`].
    Time(Option<Nanos>),
    /// A number of things.
    Count(Option<u64>),
}

impl Value {
    /// Parses a value of a setting of this kind.
    ///
    /// # Errors
    /// One line that says what to type.
    pub fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let (value, what, example) = match kind {
            Kind::Size => {
                (amount(text, size).map(Self::Size), "a size", "a number with KiB, MiB or GiB, such as 64MiB")
            }
            Kind::Time => (
                amount(text, time).map(Self::Time),
                "a time up to 100 days",
                "a number with us, ms or s, such as 500ms",
            ),
            Kind::Count => (amount(text, count).map(Self::Count), "a count", "a whole number, such as 4096"),
        };
        value.ok_or_else(|| format!("'{}' is not {what}: type {example}, or {NONE}", text.escape_debug()))
    }

    /// What kind of setting it is a value of.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Size(_) => Kind::Size,
            Self::Time(_) => Kind::Time,
            Self::Count(_) => Kind::Count,
        }
    }

    /// The value as a number of its unit (see [`Kind::unit`]); `None` is no limit.
    #[must_use]
    pub fn amount(self) -> Option<u64> {
        match self {
            Self::Size(amount) | Self::Time(amount) | Self::Count(amount) => amount,
        }
    }
}

impl Kind {
    /// What [`Value::amount`] counts.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Size => "bytes",
            Self::Time => "ns",
            Self::Count => "count",
        }
    }
}

/// No limit, or what `limit` makes of the text.
fn amount(text: &str, limit: impl Fn(&str) -> Option<u64>) -> Option<Option<u64>> {
    if text == NONE { Some(None) } else { limit(text).map(Some) }
}

fn size(text: &str) -> Option<u64> {
    parse_bytes(text).ok()
}

fn time(text: &str) -> Option<Nanos> {
    let nanos = Nanos::try_from(parse_duration(text).ok()?.as_nanos()).ok();
    nanos.filter(|nanos| *nanos <= TIME_NS_MAX)
}

fn count(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_plain { text.parse().ok() } else { None }
}

/// Exactly, in the largest unit that makes it a whole number.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (units, least): (&[(u64, &str)], _) = match self {
            Self::Size(_) => (&[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")], "B"),
            Self::Time(_) => (&[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")], "ns"),
            Self::Count(_) => (&[], ""),
        };
        let Some(amount) = self.amount() else { return f.write_str(NONE) };
        let unit = units.iter().find(|(unit, _)| amount != 0 && amount.is_multiple_of(*unit));
        let (unit, name) = unit.copied().unwrap_or((1, least));
        write!(f, "{}{name}", amount / unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_typed_and_printed_as_people_do() {
        for (kind, typed, printed) in [
            (Kind::Size, "64MiB", "64MiB"),
            (Kind::Size, "1.5 GiB", "1536MiB"),
            (Kind::Size, "4097", "4097B"),
            (Kind::Size, "0", "0B"),
            (Kind::Size, "none", "none"),
            (Kind::Time, "0.5s", "500ms"),
            (Kind::Time, "2m", "120s"),
            (Kind::Time, "2500ns", "2500ns"),
            (Kind::Time, "0s", "0ns"),
            (Kind::Time, "none", "none"),
            (Kind::Count, "4096", "4096"),
            (Kind::Count, "none", "none"),
        ] {
            assert_eq!(Value::parse(kind, typed).unwrap().to_string(), printed, "{typed}");
        }
    }

    #[test]
    fn what_is_no_value_is_told_what_is() {
        for (kind, wrong) in [
            (Kind::Size, "64mb"),
            (Kind::Size, "None"),
            (Kind::Size, "9999999TiB"),
            (Kind::Time, "5"),
            (Kind::Time, "-1s"),
            (Kind::Time, "9007200s"),
            (Kind::Count, "1.5"),
            (Kind::Count, "+1"),
            (Kind::Count, ""),
            (Kind::Count, "18446744073709551616"),
        ] {
            let said = Value::parse(kind, wrong).unwrap_err();
            assert!(said.starts_with(&format!("'{wrong}' is not a ")) && said.contains(": type a "), "{said}");
        }
        assert!(!Value::parse(Kind::Count, "1\n2").unwrap_err().contains('\n'));
    }

    proptest! {
        #[test]
        fn values_parse_as_they_print(bytes in 0u64..=1 << 52, nanos in 0..=TIME_NS_MAX, count: u64, unit in 0u32..53) {
            // Round numbers have larger units.
            let round = |number: u64| number >> unit << unit;
            let millis = nanos / 1_000_000 * 1_000_000;
            for value in [
                Value::Size(Some(bytes)), Value::Size(Some(round(bytes))), Value::Size(None), Value::Time(Some(nanos)),
                Value::Time(Some(millis)), Value::Time(Some(millis / 1000 * 1000)), Value::Count(Some(count)),
            ] {
                prop_assert_eq!(Value::parse(value.kind(), &value.to_string()), Ok(value));
            }
        }

        #[test]
        fn any_text_is_a_value_or_none(text in "\\PC*") {
            for kind in [Kind::Size, Kind::Time, Kind::Count] {
                if let Ok(value) = Value::parse(kind, &text) {
                    prop_assert_eq!((Value::parse(kind, &value.to_string()), value.kind()), (Ok(value), kind));
                }
            }
        }
    }
}
