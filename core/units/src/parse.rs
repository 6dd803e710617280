//! Sizes, durations and shares of local memory, from the text a user types and back.

use std::time::Duration;

/// What is wrong with a typed quantity, and what to type instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{text}' is not {what}: type {example}")]
pub struct ParseError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// How much memory may be local: an absolute size, or a percentage of the total.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LocalSize {
    /// An absolute size in bytes.
    Bytes(u64),
    /// A share of the total, in percent, more than 0 and at most 100.
    Percent(f64),
}

impl LocalSize {
    /// The size in bytes when the total is `total_bytes`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a size is one, and `as` rounds down"
    )]
    pub fn resolve(self, total_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(share) => (total_bytes as f64 * share / 100.0) as u64,
        }
    }
}

impl std::str::FromStr for LocalSize {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError {
            text: text.to_owned(),
            what: "a size or a percentage",
            example: "a size such as 64MiB or a percentage such as 20%",
        };
        match text.trim().strip_suffix('%') {
            Some(number) => match number.trim().parse::<f64>() {
                Ok(share) if share > 0.0 && share <= 100.0 => Ok(Self::Percent(share)),
                _ => Err(bad()),
            },
            None => parse_bytes(text).map(Self::Bytes).map_err(|_| bad()),
        }
    }
}

/// Parses a size: a number with an optional unit `B`, `KiB`, `MiB`, `GiB` or `TiB`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes are positive and checked to be below 2^52"
)]
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    const UNITS: [(&str, f64); 5] = [
        ("TiB", (1u64 << 40) as f64),
        ("GiB", (1u64 << 30) as f64),
        ("MiB", (1u64 << 20) as f64),
        ("KiB", 1024.0),
        ("B", 1.0),
    ];
    let bad = || ParseError {
        text: text.to_owned(),
        what: "a size",
        example: "a number with KiB, MiB or GiB, such as 64MiB",
    };
    scaled(text, &UNITS, Some(1.0))
        .filter(|bytes| *bytes <= (1u64 << 52) as f64)
        .map(|bytes| bytes as u64)
        .ok_or_else(bad)
}

/// Parses a time: a number with a unit `ns`, `us`, `ms`, `s` or `m`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are positive and checked to be below 1e18 ns"
)]
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9)];
    let bad =
        || ParseError { text: text.to_owned(), what: "a time", example: "a number with us, ms or s, such as 2.5us" };
    scaled(text, &UNITS, None)
        .filter(|nanos| *nanos < 1e18)
        .map(|nanos| Duration::from_nanos(nanos.round() as u64))
        .ok_or_else(bad)
}

/// The size in the largest unit that shows it in at most four digits, such as `51.2 MiB`.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

fn scaled(text: &str, units: &[(&str, f64)], bare: Option<f64>) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let scale = if unit.is_empty() { bare? } else { units.iter().find(|(name, _)| *name == unit)?.1 };
    Some(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse() {
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["", "MiB", "64mb", "-1KiB", "1e9", "9999999TiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        let message = parse_bytes("64mb").unwrap_err().to_string();
        assert_eq!(message, "'64mb' is not a size: type a number with KiB, MiB or GiB, such as 64MiB");
    }

    #[test]
    fn durations_parse() {
        assert_eq!(parse_duration("2.5us"), Ok(Duration::from_nanos(2500)));
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        for bad in ["5", "us", "5 fortnights", "-1s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_parse_and_resolve() {
        assert_eq!("20%".parse::<LocalSize>().unwrap().resolve(1000), 200);
        assert_eq!("8KiB".parse::<LocalSize>().unwrap().resolve(1000), 8192);
        for bad in ["0%", "101%", "-5%", "%", "many"] {
            assert!(bad.parse::<LocalSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_format() {
        assert_eq!(format_bytes(512), "512 B");
        assert_eq!(format_bytes(64 << 20), "64 MiB");
        assert_eq!(format_bytes((51 << 20) + (1 << 18)), "51.2 MiB");
    }
}
