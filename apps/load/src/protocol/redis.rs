//! Redis' serialisation protocol, version 2, as far as a load needs it: GET and SET.

use std::io::Write;

use super::{NotAReply, Reply, Verb, first_line, not_a_reply};
use crate::value::append_value;

/// What every reply ends with.
const END: &[u8] = b"\r\n";

/// Appends a GET.
pub(super) fn append_get(out: &mut Vec<u8>, key: u64) {
    write!(out, "*2\r\n$3\r\nGET\r\n$16\r\nkey-{key:012}\r\n").expect("a vector takes every write");
}

/// Appends a SET of the value that belongs to `version`.
pub(super) fn append_set(out: &mut Vec<u8>, key: u64, version: u64, value_bytes: usize) {
    write!(out, "*3\r\n$3\r\nSET\r\n$16\r\nkey-{key:012}\r\n${value_bytes}\r\n").expect("a vector takes every write");
    append_value(out, key, version, value_bytes);
    out.extend_from_slice(END);
}

/// The first reply in `input` and its length, if it is there in full.
pub(super) fn parse_reply(verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    let Some((line, line_bytes)) = first_line(input)? else { return Ok(None) };
    let reply = match (verb, line) {
        (Verb::Set, b"+OK") => Reply::Stored,
        (Verb::Get, b"$-1") => Reply::End,
        (Verb::Get, [b'$', bytes @ ..]) => {
            let bytes: Option<usize> = std::str::from_utf8(bytes).ok().and_then(|bytes| bytes.parse().ok());
            let Some(bytes) = bytes.filter(|bytes| *bytes <= 2 * crate::VALUE_BYTES_MAX) else {
                return Err(not_a_reply(line));
            };
            let end = line_bytes + bytes;
            return match input.get(end..end + END.len()) {
                None => Ok(None),
                Some(END) => Ok(Some((Reply::Value { key: None, data: &input[line_bytes..end] }, end + END.len()))),
                Some(found) => Err(not_a_reply(found)),
            };
        }
        (_, [b'-', ..]) => Reply::Refused(String::from_utf8_lossy(line).into_owned()),
        _ => return Err(not_a_reply(line)),
    };
    Ok(Some((reply, line_bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::key_name;

    #[test]
    fn requests_are_spelt_as_the_protocol_says() {
        let mut out = Vec::new();
        append_get(&mut out, 12);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$16\r\nkey-000000000012\r\n");
        assert_eq!(key_name(u64::from(u32::MAX)).len(), 16, "the length of a key is always that");
        out.clear();
        append_set(&mut out, 12, 1, 20);
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000012\r\n$20\r\n") && out.ends_with(b"\r\n"));
        assert_eq!(out.len(), b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000012\r\n$20\r\n".len() + 20 + 2);
    }

    #[test]
    fn replies_are_told_apart_and_wait_for_their_end() {
        let hit = b"$5\r\nab\r\nc\r\n";
        let value = Reply::Value { key: None, data: b"ab\r\nc" };
        assert_eq!(parse_reply(Verb::Get, hit), Ok(Some((value, hit.len()))));
        assert!((0..hit.len()).all(|cut| parse_reply(Verb::Get, &hit[..cut]) == Ok(None)));
        assert_eq!(parse_reply(Verb::Get, b"$-1\r\n+OK\r\n"), Ok(Some((Reply::End, 5))));
        assert_eq!(parse_reply(Verb::Set, b"+OK\r\n"), Ok(Some((Reply::Stored, 5))));
        let refused = Reply::Refused("-OOM command not allowed".to_owned());
        assert_eq!(parse_reply(Verb::Set, b"-OOM command not allowed\r\n"), Ok(Some((refused, 26))));
        for (verb, input) in [
            (Verb::Get, &b"+OK\r\n"[..]),
            (Verb::Get, b"$many\r\n"),
            (Verb::Get, b"$99999999999\r\n"),
            (Verb::Get, b"$1\r\nabc"),
            (Verb::Set, b"$-1\r\n"),
            (Verb::Set, b"STORED\r\n"),
        ] {
            assert!(parse_reply(verb, input).is_err(), "{}", input.escape_ascii());
        }
    }
}
