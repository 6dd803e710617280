//! The part of memcached's text protocol, or of Redis', that a load needs: requests to bytes, bytes to replies. Pure.
//!
//! What a [`Protocol`] is spelt like is here for memcached's and in `redis` for the other. Replies carry no name of
//! their request; they come in the order of the requests on their connection, so a parser is told which kind of reply
//! is due.

mod redis;

use std::io::Write;
use std::ops::Range;

use serde::Serialize;

use crate::value::append_value;

/// Longest line of a reply; a longer one is not memcached's protocol.
const LINE_BYTES_MAX: usize = 512;

/// A server's language.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// memcached's text protocol.
    #[default]
    Memcached,
    /// Redis' serialisation protocol, version 2. Nothing is asked for that names several keys.
    Redis,
}

/// Kinds of requests on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// A get of one key.
    Get,
    /// A get of several keys, whose reply is read piece by piece.
    GetMany,
    /// A set.
    Set,
}

/// One reply, or one piece of the reply to a get of several keys; borrowed from the bytes that came in.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Reply<'a> {
    Stored,
    /// Nothing, or nothing more.
    End,
    Value {
        /// The name of the key, where the protocol tells it.
        key: Option<&'a [u8]>,
        data: &'a [u8],
    },
    /// An error line of the server.
    Refused(String),
}

/// What came in is not a reply to the request that is due.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no reply of the server's protocol")]
pub(crate) struct NotAReply(pub(crate) String);

/// The name of key `key` on the wire.
pub(crate) fn key_name(key: u64) -> String {
    format!("key-{key:012}")
}

/// Whether `name`, as it came from the wire, is the name of `key`.
pub(crate) fn is_key_name(name: &[u8], key: u64) -> bool {
    let digits =
        name.strip_prefix(b"key-").filter(|digits| digits.len() == 12 && digits.iter().all(u8::is_ascii_digit));
    digits.is_some_and(|digits| digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')) == key)
}

impl Protocol {
    /// Appends a get.
    pub(crate) fn append_get(self, out: &mut Vec<u8>, key: u64) {
        match self {
            Self::Memcached => append_get(out, key),
            Self::Redis => redis::append_get(out, key),
        }
    }

    /// Appends a set of the value that belongs to `version`.
    pub(crate) fn append_set(self, out: &mut Vec<u8>, key: u64, version: u64, value_bytes: usize) {
        match self {
            Self::Memcached => append_set(out, key, version, value_bytes),
            Self::Redis => redis::append_set(out, key, version, value_bytes),
        }
    }

    /// The first reply in `input` and its length, if it is there in full. Of the reply to a get of several keys, its
    /// next piece.
    pub(crate) fn parse_reply(self, verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
        match self {
            Self::Memcached => parse_reply(verb, input),
            Self::Redis => redis::parse_reply(verb, input),
        }
    }
}

/// Appends a get.
fn append_get(out: &mut Vec<u8>, key: u64) {
    write!(out, "get key-{key:012}\r\n").expect("a vector takes every write");
}

/// Appends a get of several keys, in memcached's protocol.
pub(crate) fn append_get_many(out: &mut Vec<u8>, keys: Range<u64>) {
    out.extend_from_slice(b"get");
    for key in keys {
        write!(out, " key-{key:012}").expect("a vector takes every write");
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a set of the value that belongs to `version`.
fn append_set(out: &mut Vec<u8>, key: u64, version: u64, value_bytes: usize) {
    write!(out, "set key-{key:012} 0 0 {value_bytes}\r\n").expect("a vector takes every write");
    append_value(out, key, version, value_bytes);
    out.extend_from_slice(b"\r\n");
}

fn parse_reply(verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
    let Some((line, line_bytes)) = first_line(input)? else { return Ok(None) };
    let reply = match (verb, line) {
        (Verb::Set, b"STORED") => Reply::Stored,
        (Verb::Get | Verb::GetMany, b"END") => Reply::End,
        (Verb::Get, _) if line.starts_with(b"VALUE ") => return parse_value(line, line_bytes, input, b"\r\nEND\r\n"),
        (Verb::GetMany, _) if line.starts_with(b"VALUE ") => return parse_value(line, line_bytes, input, b"\r\n"),
        _ if [&b"SERVER_ERROR"[..], b"CLIENT_ERROR", b"ERROR", b"NOT_STORED"].iter().any(|e| line.starts_with(e)) => {
            Reply::Refused(String::from_utf8_lossy(line).into_owned())
        }
        _ => return Err(not_a_reply(line)),
    };
    Ok(Some((reply, line_bytes)))
}

/// A value behind its `line`; `tail` is what comes behind its bytes.
fn parse_value<'a>(
    line: &'a [u8],
    line_bytes: usize,
    input: &'a [u8],
    tail: &[u8],
) -> Result<Option<(Reply<'a>, usize)>, NotAReply> {
    let mut words = line.split(|byte| *byte == b' ').skip(1);
    let (key, bytes) = (words.next(), words.nth(1));
    let bytes: Option<usize> = bytes.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    // A reply beyond any value that can be set would let a broken server fill this process's memory.
    let (Some(key), Some(bytes)) = (key, bytes.filter(|bytes| *bytes <= 2 * crate::VALUE_BYTES_MAX)) else {
        return Err(not_a_reply(line));
    };
    let end = line_bytes + bytes;
    match input.get(end..end + tail.len()) {
        None => Ok(None),
        Some(found) if found == tail => {
            Ok(Some((Reply::Value { key: Some(key), data: &input[line_bytes..end] }, end + tail.len())))
        }
        Some(found) => Err(not_a_reply(found)),
    }
}

/// The first line without its end, and how many bytes it takes with it.
fn first_line(input: &[u8]) -> Result<Option<(&[u8], usize)>, NotAReply> {
    let head = &input[..input.len().min(LINE_BYTES_MAX)];
    match head.iter().position(|byte| *byte == b'\n') {
        Some(newline) => Ok(Some((input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]), newline + 1))),
        None if input.len() >= LINE_BYTES_MAX => Err(not_a_reply(head)),
        None => Ok(None),
    }
}

fn not_a_reply(bytes: &[u8]) -> NotAReply {
    NotAReply(bytes[..bytes.len().min(40)].escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HIT: &[u8] = b"VALUE key-1 0 5\r\nab\r\nc\r\nEND\r\n";

    #[test]
    fn requests_are_spelt_as_the_protocol_says() {
        let mut out = Vec::new();
        append_get(&mut out, 12);
        assert_eq!(out, b"get key-000000000012\r\n");
        assert_eq!(key_name(12).as_bytes(), &out[4..out.len() - 2]);
        assert!(is_key_name(b"key-000000000012", 12));
        for other in
            ["key-000000000013", "key-00000000012", "key-0000000000012", "kex-000000000012", "key-00000000 012"]
        {
            assert!(!is_key_name(other.as_bytes(), 12), "{other}");
        }
        out.clear();
        append_set(&mut out, 12, 1, 20);
        assert!(out.starts_with(b"set key-000000000012 0 0 20\r\n"));
        assert_eq!(out.len(), b"set key-000000000012 0 0 20\r\n".len() + 20 + 2);
    }

    #[test]
    fn replies_are_told_apart() {
        let hit = Reply::Value { key: Some(b"key-1"), data: b"ab\r\nc" };
        assert_eq!(parse_reply(Verb::Get, HIT), Ok(Some((hit, HIT.len()))));
        assert_eq!(parse_reply(Verb::Get, b"END\r\nEND\r\n"), Ok(Some((Reply::End, 5))));
        assert_eq!(parse_reply(Verb::Set, b"STORED\r\n"), Ok(Some((Reply::Stored, 8))));
        let refused = Reply::Refused("SERVER_ERROR out of memory".to_owned());
        assert_eq!(parse_reply(Verb::Set, b"SERVER_ERROR out of memory\r\n"), Ok(Some((refused, 28))));
    }

    #[test]
    fn several_keys_are_asked_for_at_once_and_answered_piece_by_piece() {
        let mut out = Vec::new();
        append_get_many(&mut out, 8..11);
        assert_eq!(out, b"get key-000000000008 key-000000000009 key-000000000010\r\n");
        let mut input = &b"VALUE key-1 0 2\r\nab\r\nVALUE key-2 0 0\r\n\r\nEND\r\nSTORED\r\n"[..];
        let value = |key, data| Reply::Value { key: Some(key), data };
        for expected in [value(&b"key-1"[..], &b"ab"[..]), value(b"key-2", b""), Reply::End] {
            let (reply, bytes) = parse_reply(Verb::GetMany, input).unwrap().unwrap();
            assert_eq!(reply, expected);
            input = &input[bytes..];
        }
        assert!(parse_reply(Verb::GetMany, input).is_err());
        assert!(parse_reply(Verb::GetMany, b"VALUE key-1 0 1\r\nabcEND\r\n").is_err());
    }

    #[test]
    fn anything_else_is_an_error() {
        for (verb, input) in [
            (Verb::Get, &b"STORED\r\n"[..]),
            (Verb::Set, b"END\r\n"),
            (Verb::Get, b"HTTP/1.1 400 Bad Request\r\n"),
            (Verb::Get, b"VALUE key-1 0 many\r\n"),
            (Verb::Get, b"VALUE key-1 0 99999999999\r\n"),
            (Verb::Get, b"VALUE key-1 0 1\r\nabcEND\r\n"),
            (Verb::Get, &[b'x'; LINE_BYTES_MAX]),
        ] {
            assert!(parse_reply(verb, input).is_err(), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn every_prefix_of_a_reply_waits_for_more() {
        for cut in 0..HIT.len() {
            assert_eq!(parse_reply(Verb::Get, &HIT[..cut]), Ok(None), "{cut} bytes");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(input in prop::collection::vec(any::<u8>(), 0..700), with_value: bool) {
            let input = if with_value { [b"VALUE ".as_slice(), &input].concat() } else { input };
            for verb in [Verb::Get, Verb::GetMany, Verb::Set] {
                for protocol in [Protocol::Memcached, Protocol::Redis] {
                    let _ = protocol.parse_reply(verb, &input);
                }
            }
        }
    }
}
