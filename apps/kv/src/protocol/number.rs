//! Numbers as memcached reads them: the C library's `strtoull` family with memcached's checks around it.
//!
//! Leading blanks and a sign are allowed, and the number ends at the end of the text, at a NUL or at a blank, after
//! which anything may follow. Clients do depend on this: `decr` pads values with blanks.

/// An unsigned number, as in deltas, cas uniques and numeric values.
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    let scanned = scan(text)?;
    let value = match scanned.sign {
        Sign::Plus => scanned.magnitude,
        Sign::Minus => scanned.magnitude.wrapping_neg(),
    };
    // A value that is negative as a signed number was written either as a huge number or with a minus; only the minus
    // is refused.
    if (value as i64) < 0 && text.contains(&b'-') { None } else { Some(value) }
}

/// Client flags: an unsigned number, of which 32 bits are kept.
pub(crate) fn parse_flags(text: &[u8]) -> Option<u32> {
    parse_u64(text).map(|value| value as u32)
}

/// A signed number, of which 32 bits are kept: expiry times and lengths.
pub(crate) fn parse_i32(text: &[u8]) -> Option<i32> {
    let scanned = scan(text)?;
    let value = match scanned.sign {
        Sign::Plus => i64::try_from(scanned.magnitude).ok()?,
        Sign::Minus => 0i64.checked_sub_unsigned(scanned.magnitude)?,
    };
    Some(value as i32)
}

enum Sign {
    Plus,
    Minus,
}

struct Scanned {
    sign: Sign,
    magnitude: u64,
}

fn scan(text: &[u8]) -> Option<Scanned> {
    let start = text.iter().position(|byte| !is_blank(*byte))?;
    let (sign, digits) = match text[start..].split_first()? {
        (b'-', rest) => (Sign::Minus, rest),
        (b'+', rest) => (Sign::Plus, rest),
        _ => (Sign::Plus, &text[start..]),
    };
    let count = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    let ended = digits.get(count).is_none_or(|byte| is_blank(*byte) || *byte == 0);
    if count == 0 || !ended {
        return None;
    }
    let mut magnitude = 0u64;
    for digit in &digits[..count] {
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(Scanned { sign, magnitude })
}

/// What C's `isspace` accepts.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_follow_strtoull() {
        for (text, value) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-1", None),
            (b"-18446744073709551615", Some(1)),
            (b"+7", Some(7)),
            (b"  7", Some(7)),
            (b"7  x-", Some(7)),
            (b"7\r\n", Some(7)),
            (b"7\0x", Some(7)),
            (b"7x", None),
            (b"", None),
            (b" ", None),
            (b"-", None),
            (b"+-7", None),
        ] {
            assert_eq!(parse_u64(text), value, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn signed_numbers_keep_32_bits() {
        assert_eq!(parse_i32(b"-1"), Some(-1));
        assert_eq!(parse_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"-9223372036854775808"), Some(0));
        assert_eq!(parse_i32(b"-9223372036854775809"), None);
        assert_eq!(parse_i32(b"9223372036854775808"), None);
        assert_eq!(parse_flags(b"4294967297"), Some(1));
    }
}
