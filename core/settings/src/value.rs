//! [`Value`]: what a setting is set to, as it is typed and printed.

use std::fmt;

use yonder_units::{Nanos, parse_bytes, parse_duration};

/// Longest time that a setting takes, in nanoseconds: about a hundred days.
pub const TIME_NS_MAX: Nanos = 1 << 53;

/// How a quota is typed that does not limit.
const NONE: &str = "none";

/// What values a setting takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A limit in bytes, or none.
    Quota,
    /// A time.
    Time,
    /// A number of things.
    Count,
}

/// What a setting is set to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// A limit in bytes; `None` is none.
    Quota(Option<u64>),
    /// A time, at most [`TIME_NS_MAX`].
    Time(Nanos),
    /// A number of things.
    Count(u64),
}

impl Value {
    /// Parses a value of a setting of this kind.
    ///
    /// # Errors
    /// One line that says what to type.
    pub fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        match kind {
            Kind::Quota if text == NONE => Ok(Self::Quota(None)),
            Kind::Quota => parse_bytes(text).map(|bytes| Self::Quota(Some(bytes))).map_err(|_| {
                format!("'{shown}' is not a size: type a number with KiB, MiB or GiB, such as 64MiB, or {NONE}")
            }),
            Kind::Time => parse_duration(text)
                .ok()
                .and_then(|time| Nanos::try_from(time.as_nanos()).ok())
                .filter(|nanos| *nanos <= TIME_NS_MAX)
                .map(Self::Time)
                .ok_or_else(|| {
                    format!("'{shown}' is not a time up to 100 days: type a number with us, ms or s, such as 500ms")
                }),
            Kind::Count => {
                let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
                let count = if is_plain { text.parse().ok() } else { None };
                count
                    .map(Self::Count)
                    .ok_or_else(|| format!("'{shown}' is not a count: type a whole number, such as 4096"))
            }
        }
    }

    /// What kind of setting it is a value of.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Quota(_) => Kind::Quota,
            Self::Time(_) => Kind::Time,
            Self::Count(_) => Kind::Count,
        }
    }
}

/// Exactly, in the largest unit that makes it a whole number.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SIZES: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        const TIMES: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let mut whole = |amount: u64, units: &[(u64, &str)], least: &str| {
            let unit = units.iter().find(|(unit, _)| amount != 0 && amount.is_multiple_of(*unit));
            let (unit, name) = unit.copied().unwrap_or((1, least));
            write!(f, "{}{name}", amount / unit)
        };
        match *self {
            Self::Quota(None) => f.write_str(NONE),
            Self::Quota(Some(bytes)) => whole(bytes, &SIZES, "B"),
            Self::Time(nanos) => whole(nanos, &TIMES, "ns"),
            Self::Count(count) => write!(f, "{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_typed_and_printed_as_people_do() {
        for (kind, typed, printed) in [
            (Kind::Quota, "64MiB", "64MiB"),
            (Kind::Quota, "1.5 GiB", "1536MiB"),
            (Kind::Quota, "4097", "4097B"),
            (Kind::Quota, "0", "0B"),
            (Kind::Quota, "none", "none"),
            (Kind::Time, "0.5s", "500ms"),
            (Kind::Time, "2m", "120s"),
            (Kind::Time, "2500ns", "2500ns"),
            (Kind::Time, "0s", "0ns"),
            (Kind::Count, "4096", "4096"),
        ] {
            assert_eq!(Value::parse(kind, typed).unwrap().to_string(), printed, "{typed}");
        }
    }

    #[test]
    fn what_is_no_value_is_told_what_is() {
        for (kind, wrong) in [
            (Kind::Quota, "64mb"),
            (Kind::Quota, "None"),
            (Kind::Quota, "9999999TiB"),
            (Kind::Time, "none"),
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
                Value::Quota(Some(bytes)), Value::Quota(Some(round(bytes))), Value::Quota(None), Value::Time(nanos),
                Value::Time(millis), Value::Time(millis / 1000 * 1000), Value::Count(count),
            ] {
                prop_assert_eq!(Value::parse(value.kind(), &value.to_string()), Ok(value));
            }
        }

        #[test]
        fn any_text_is_a_value_or_none(text in "\\PC*") {
            for kind in [Kind::Quota, Kind::Time, Kind::Count] {
                if let Ok(value) = Value::parse(kind, &text) {
                    prop_assert_eq!((Value::parse(kind, &value.to_string()), value.kind()), (Ok(value), kind));
                }
            }
        }
    }
}
