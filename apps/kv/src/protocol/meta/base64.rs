//! Keys in base64, as memcached reads them: bytes outside the alphabet are passed by, and what follows the padding is
//! not looked at.

/// The digits, by their value.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Fills the last group.
const PADDING: u8 = b'=';
/// Digits of a group, which stands for three bytes.
const GROUP_DIGITS: usize = 4;

/// The bytes that `text` stands for; None if that is none, or the text is no base64.
#[must_use]
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte == PADDING || value(*byte).is_some()).collect();
    if digits.is_empty() || !digits.len().is_multiple_of(GROUP_DIGITS) {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / GROUP_DIGITS * 3);
    for group in digits.chunks_exact(GROUP_DIGITS) {
        let word = group.iter().fold(0, |word, digit| word << 6 | u32::from(value(*digit).unwrap_or(0)));
        let padding = group.iter().filter(|digit| **digit == PADDING).count();
        let kept = 3usize.checked_sub(padding).filter(|kept| *kept > 0)?;
        bytes.extend_from_slice(&word.to_be_bytes()[1..1 + kept]);
        if padding > 0 {
            break;
        }
    }
    Some(bytes)
}

/// Appends what stands for `bytes`.
pub(crate) fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..1 + group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(word);
        for digit in 0..GROUP_DIGITS {
            let shown = ALPHABET[(word >> (6 * (GROUP_DIGITS - 1 - digit))) as usize % ALPHABET.len()];
            into.push(if digit <= group.len() { shown } else { PADDING });
        }
    }
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_read_as_memcached_reads_them() {
        for (text, bytes) in [
            (&b"Zm9v"[..], Some(&b"foo"[..])),
            (b"Zm9vYg==", Some(b"foob")),
            (b"Zm9vYmE=", Some(b"fooba")),
            (b"Z.m9\tv", Some(b"foo")),
            (b"Zg==Zm9v", Some(b"f")),
            (b"Zm9", None),
            (b"Zm9vY", None),
            (b"Z===", None),
            (b"====", None),
            (b"!", None),
            (b"", None),
        ] {
            assert_eq!(decode(text).as_deref(), bytes, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in prop::collection::vec(any::<u8>(), 1..300)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(text.len(), bytes.len().div_ceil(3) * 4);
            prop_assert_eq!(decode(&text), Some(bytes));
        }

        #[test]
        fn any_text_is_no_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&text);
        }
    }
}
