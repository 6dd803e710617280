//! The part of memcached's text protocol, or of Redis', that a load needs: requests to bytes, bytes to replies. Pure.
//!
//! Replies carry no name of their request; they come in the order of the requests on their connection, so a parser is
//! told which kind of reply is due ([`Verb`]). Neighbours: `pipeline` asks for verifiable values; benchmarks have
//! clients of their own, with other keys and values.

use std::io::Write;
use std::ops::Range;

use serde::Serialize;

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
pub enum Verb {
    /// A get of one key.
    Get,
    /// A get of several keys, whose reply is read piece by piece; memcached's.
    GetMany,
    /// A set.
    Set,
    /// A command that is answered with a number, or with a list, of which this is the head; Redis'.
    Count,
}

/// One reply, or one piece of the reply to a get of several keys; borrowed from the bytes that came in.
#[derive(PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// The value is kept.
    Stored,
    /// Nothing, or nothing more.
    End,
    /// A value.
    Value {
        /// The name of the key, where the protocol tells it.
        key: Option<&'a [u8]>,
        /// Its bytes.
        data: &'a [u8],
    },
    /// A number, or how many elements of a list follow.
    Count(usize),
    /// An error line of the server.
    Refused(String),
}

/// What came in is not a reply to the request that is due.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("'{0}' is no reply of the server's protocol")]
pub struct NotAReply(pub(crate) String);

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
    pub fn append_get(self, out: &mut Vec<u8>, key: &str) {
        let written = match self {
            Self::Memcached => write!(out, "get {key}\r\n"),
            Self::Redis => write!(out, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
        };
        written.expect("a vector takes every write");
    }

    /// Appends a set of a value of `bytes` bytes, which `append_value` appends.
    pub fn append_set(self, out: &mut Vec<u8>, key: &str, bytes: usize, append_value: impl FnOnce(&mut Vec<u8>)) {
        let written = match self {
            Self::Memcached => write!(out, "set {key} 0 0 {bytes}\r\n"),
            Self::Redis => write!(out, "*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len()),
        };
        written.expect("a vector takes every write");
        append_value(out);
        out.extend_from_slice(b"\r\n");
    }

    /// The first reply in `input` and its length, if it is there in full. Of the reply to a get of several keys, its
    /// next piece.
    pub fn parse_reply(self, verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
        let Some((line, line_bytes)) = first_line(input)? else { return Ok(None) };
        let refusals: &[&[u8]] = match self {
            Self::Memcached => &[b"SERVER_ERROR", b"CLIENT_ERROR", b"ERROR", b"NOT_STORED"],
            Self::Redis => &[b"-"],
        };
        let reply = match (self, verb, line) {
            _ if refusals.iter().any(|refusal| line.starts_with(refusal)) => {
                Reply::Refused(String::from_utf8_lossy(line).into_owned())
            }
            (Self::Memcached, Verb::Set, b"STORED") | (Self::Redis, Verb::Set, b"+OK") => Reply::Stored,
            (Self::Memcached, Verb::Get | Verb::GetMany, b"END") | (Self::Redis, Verb::Get, b"$-1") => Reply::End,
            (Self::Memcached, Verb::Get | Verb::GetMany, _) if line.starts_with(b"VALUE ") => {
                let mut words = line.split(|byte| *byte == b' ').skip(1);
                let (key, bytes) = (words.next(), words.nth(1).and_then(number));
                let tail = if verb == Verb::Get { &b"\r\nEND\r\n"[..] } else { b"\r\n" };
                return parse_value(key, bytes.ok_or_else(|| not_a_reply(line))?, (input, line_bytes), tail);
            }
            (Self::Redis, Verb::Get, [b'$', bytes @ ..]) => {
                let bytes = number(bytes).ok_or_else(|| not_a_reply(line))?;
                return parse_value(None, bytes, (input, line_bytes), b"\r\n");
            }
            (Self::Redis, Verb::Count, [b':' | b'*', count @ ..]) => {
                Reply::Count(number(count).ok_or_else(|| not_a_reply(line))?)
            }
            _ => return Err(not_a_reply(line)),
        };
        Ok(Some((reply, line_bytes)))
    }
}

/// Appends a get of several keys, in memcached's protocol.
pub(crate) fn append_get_many(out: &mut Vec<u8>, keys: Range<u64>) {
    out.extend_from_slice(b"get");
    for key in keys {
        write!(out, " key-{key:012}").expect("a vector takes every write");
    }
    out.extend_from_slice(b"\r\n");
}

/// A value of `bytes` bytes behind its line; `tail` is what comes behind it.
fn parse_value<'a>(
    key: Option<&'a [u8]>,
    bytes: usize,
    (input, line_bytes): (&'a [u8], usize),
    tail: &[u8],
) -> Result<Option<(Reply<'a>, usize)>, NotAReply> {
    // A reply beyond any value that can be set would let a broken server fill this process's memory.
    if bytes > 2 * crate::VALUE_BYTES_MAX {
        return Err(not_a_reply(input));
    }
    let end = line_bytes + bytes;
    match input.get(end..end + tail.len()) {
        None => Ok(None),
        Some(found) if found == tail => {
            Ok(Some((Reply::Value { key, data: &input[line_bytes..end] }, end + tail.len())))
        }
        Some(found) => Err(not_a_reply(found)),
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
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
    use crate::value::append_value;

    const HIT: &[u8] = b"VALUE key-1 0 5\r\nab\r\nc\r\nEND\r\n";

    fn memcached(verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
        Protocol::Memcached.parse_reply(verb, input)
    }

    fn redis(verb: Verb, input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, NotAReply> {
        Protocol::Redis.parse_reply(verb, input)
    }

    #[test]
    fn requests_are_spelt_as_the_protocol_says() {
        let mut out = Vec::new();
        Protocol::Memcached.append_get(&mut out, &key_name(12));
        assert_eq!(out, b"get key-000000000012\r\n");
        assert_eq!(key_name(12).as_bytes(), &out[4..out.len() - 2]);
        assert!(is_key_name(b"key-000000000012", 12));
        for other in
            ["key-000000000013", "key-00000000012", "key-0000000000012", "kex-000000000012", "key-00000000 012"]
        {
            assert!(!is_key_name(other.as_bytes(), 12), "{other}");
        }
        out.clear();
        Protocol::Memcached.append_set(&mut out, &key_name(12), 20, |out| append_value(out, 12, 1, 20));
        assert!(out.starts_with(b"set key-000000000012 0 0 20\r\n"));
        assert_eq!(out.len(), b"set key-000000000012 0 0 20\r\n".len() + 20 + 2);
    }

    #[test]
    fn replies_are_told_apart() {
        let hit = Reply::Value { key: Some(b"key-1"), data: b"ab\r\nc" };
        assert_eq!(memcached(Verb::Get, HIT), Ok(Some((hit, HIT.len()))));
        assert_eq!(memcached(Verb::Get, b"END\r\nEND\r\n"), Ok(Some((Reply::End, 5))));
        assert_eq!(memcached(Verb::Set, b"STORED\r\n"), Ok(Some((Reply::Stored, 8))));
        let refused = Reply::Refused("SERVER_ERROR out of memory".to_owned());
        assert_eq!(memcached(Verb::Set, b"SERVER_ERROR out of memory\r\n"), Ok(Some((refused, 28))));
    }

    #[test]
    fn several_keys_are_asked_for_at_once_and_answered_piece_by_piece() {
        let mut out = Vec::new();
        append_get_many(&mut out, 8..11);
        assert_eq!(out, b"get key-000000000008 key-000000000009 key-000000000010\r\n");
        let mut input = &b"VALUE key-1 0 2\r\nab\r\nVALUE key-2 0 0\r\n\r\nEND\r\nSTORED\r\n"[..];
        let value = |key, data| Reply::Value { key: Some(key), data };
        for expected in [value(&b"key-1"[..], &b"ab"[..]), value(b"key-2", b""), Reply::End] {
            let (reply, bytes) = memcached(Verb::GetMany, input).unwrap().unwrap();
            assert_eq!(reply, expected);
            input = &input[bytes..];
        }
        assert!(memcached(Verb::GetMany, input).is_err());
        assert!(memcached(Verb::GetMany, b"VALUE key-1 0 1\r\nabcEND\r\n").is_err());
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
            assert!(memcached(verb, input).is_err(), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn every_prefix_of_a_reply_waits_for_more() {
        for cut in 0..HIT.len() {
            assert_eq!(memcached(Verb::Get, &HIT[..cut]), Ok(None), "{cut} bytes");
        }
    }

    #[test]
    fn requests_to_redis_are_spelt_as_its_protocol_says() {
        let mut out = Vec::new();
        Protocol::Redis.append_get(&mut out, &key_name(12));
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$16\r\nkey-000000000012\r\n");
        assert_eq!(key_name(u64::from(u32::MAX)).len(), 16, "the length of a key is always that");
        out.clear();
        Protocol::Redis.append_set(&mut out, &key_name(12), 20, |out| append_value(out, 12, 1, 20));
        assert!(out.starts_with(b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000012\r\n$20\r\n") && out.ends_with(b"\r\n"));
        assert_eq!(out.len(), b"*3\r\n$3\r\nSET\r\n$16\r\nkey-000000000012\r\n$20\r\n".len() + 20 + 2);
    }

    #[test]
    fn replies_of_redis_are_told_apart_and_wait_for_their_end() {
        let hit = b"$5\r\nab\r\nc\r\n";
        let value = Reply::Value { key: None, data: b"ab\r\nc" };
        assert_eq!(redis(Verb::Get, hit), Ok(Some((value, hit.len()))));
        assert!((0..hit.len()).all(|cut| redis(Verb::Get, &hit[..cut]) == Ok(None)));
        assert_eq!(redis(Verb::Get, b"$-1\r\n+OK\r\n"), Ok(Some((Reply::End, 5))));
        assert_eq!(redis(Verb::Set, b"+OK\r\n"), Ok(Some((Reply::Stored, 5))));
        let refused = Reply::Refused("-OOM command not allowed".to_owned());
        assert_eq!(redis(Verb::Set, b"-OOM command not allowed\r\n"), Ok(Some((refused, 26))));
        assert_eq!(redis(Verb::Count, b"*2\r\n"), Ok(Some((Reply::Count(2), 4))));
        assert_eq!(redis(Verb::Count, b":17\r\n:"), Ok(Some((Reply::Count(17), 5))));
        for (verb, input) in [
            (Verb::Count, &b"$2\r\n"[..]),
            (Verb::Count, b"*many\r\n"),
            (Verb::Get, b"+OK\r\n"),
            (Verb::Get, b"$many\r\n"),
            (Verb::Get, b"$99999999999\r\n"),
            (Verb::Get, b"$1\r\nabc"),
            (Verb::Set, b"$-1\r\n"),
            (Verb::Set, b"STORED\r\n"),
        ] {
            assert!(redis(verb, input).is_err(), "{}", input.escape_ascii());
        }
    }

    #[test]
    fn replies_are_found_whole_or_not_at_all() {
        for (protocol, reply) in [
            (Protocol::Redis, &b"$5\r\na\r\nbc\r\n"[..]),
            (Protocol::Memcached, b"VALUE item:7 0 5\r\na\r\nbc\r\nEND\r\n"),
        ] {
            let twice = [reply, reply].concat();
            for cut in 0..reply.len() {
                assert_eq!(protocol.parse_reply(Verb::Get, &twice[..cut]).unwrap(), None, "{cut} bytes");
            }
            let Some((Reply::Value { data, .. }, length)) = protocol.parse_reply(Verb::Get, &twice).unwrap() else {
                panic!("{protocol:?}");
            };
            assert_eq!((data, length), (&b"a\r\nbc"[..], reply.len()));
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(input in prop::collection::vec(any::<u8>(), 0..700), with_value: bool) {
            let input = if with_value { [b"VALUE ".as_slice(), &input].concat() } else { input };
            for verb in [Verb::Get, Verb::GetMany, Verb::Set, Verb::Count] {
                for protocol in [Protocol::Memcached, Protocol::Redis] {
                    let _ = protocol.parse_reply(verb, &input);
                }
            }
        }
    }
}
