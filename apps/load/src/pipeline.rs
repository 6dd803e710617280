//! One connection's pipeline without its socket: requests in, bytes out; bytes in, verified outcomes out.
//!
//! Sans-IO: `connection` moves the bytes. Invariant: requests and replies correspond in order, and at most `depth`
//! requests are outstanding. A set is told to the ledger before its bytes can leave, and its end after its reply.

use std::collections::VecDeque;

use yonder_units::Nanos;

use crate::ledger::{Ledger, SetOutcome};
use crate::protocol::{NotAReply, Op, Reply, append_get, append_set, is_key_name, key_name, parse_reply};
use crate::value::verify_value;

/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// A request as it was planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) key: u64,
    /// When it should have started; its latency counts from here.
    pub(crate) intended: Nanos,
}

/// What the server made of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Hit,
    Miss,
    Stored,
    /// A value that cannot be right; the text says why.
    Wrong(String),
    /// An error line of the server.
    Refused(String),
}

struct Outstanding {
    request: Request,
    /// For a get: the least version that it must see.
    least: u32,
}

/// The pipeline of one connection.
pub(crate) struct Pipeline {
    depth: usize,
    value_bytes: usize,
    outstanding: VecDeque<Outstanding>,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    parsed: usize,
    filled: usize,
}

impl Pipeline {
    pub(crate) fn new(depth: usize, value_bytes: usize) -> Self {
        Self {
            depth,
            value_bytes,
            outstanding: VecDeque::with_capacity(depth),
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            parsed: 0,
            filled: 0,
        }
    }

    /// Whether one more request fits.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding.len() < self.depth
    }

    /// Requests that have no reply yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Encodes `request`. The caller has asked [`Pipeline::has_room`].
    pub(crate) fn push(&mut self, request: Request, ledger: &Ledger) {
        assert!(self.has_room(), "a request was pushed into a full pipeline");
        let least = match request.op {
            Op::Get => {
                append_get(&mut self.output, request.key);
                ledger.begin_get(request.key)
            }
            Op::Set => {
                append_set(&mut self.output, request.key, ledger.begin_set(request.key), self.value_bytes);
                0
            }
        };
        self.outstanding.push_back(Outstanding { request, least });
    }

    /// Bytes that are to be sent.
    pub(crate) fn outgoing(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// The socket has taken the first `bytes` of [`Pipeline::outgoing`].
    pub(crate) fn mark_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.output.len() {
            self.output.clear();
            self.sent = 0;
        }
    }

    /// Room for incoming bytes.
    pub(crate) fn incoming(&mut self) -> &mut [u8] {
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        } else if self.parsed > 0 && self.filled + READ_BYTES > self.input.len() {
            self.input.copy_within(self.parsed..self.filled, 0);
            (self.parsed, self.filled) = (0, self.filled - self.parsed);
        }
        if self.filled + READ_BYTES > self.input.len() {
            self.input.resize(self.filled + READ_BYTES, 0);
        }
        &mut self.input[self.filled..]
    }

    /// The socket has put `bytes` into [`Pipeline::incoming`].
    pub(crate) fn mark_received(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// The next request that is answered, and how. An error means that the connection cannot be used any more.
    pub(crate) fn next_outcome(&mut self, ledger: &Ledger) -> Result<Option<(Request, Outcome)>, NotAReply> {
        let input = &self.input[self.parsed..self.filled];
        let Some(due) = self.outstanding.front() else {
            return if input.is_empty() {
                Ok(None)
            } else {
                Err(NotAReply("a reply that nobody asked for".to_owned()))
            };
        };
        let Some((reply, bytes)) = parse_reply(due.request.op, input)? else { return Ok(None) };
        let request = due.request;
        let outcome = judge(due, reply, self.value_bytes, ledger);
        if request.op == Op::Set {
            let stored = outcome == Outcome::Stored;
            ledger.end_set(request.key, if stored { SetOutcome::Stored } else { SetOutcome::Refused });
        }
        self.parsed += bytes;
        self.outstanding.pop_front();
        Ok(Some((request, outcome)))
    }
}

fn judge(due: &Outstanding, reply: Reply<'_>, value_bytes: usize, ledger: &Ledger) -> Outcome {
    let key = due.request.key;
    match reply {
        Reply::Stored => Outcome::Stored,
        Reply::Miss => Outcome::Miss,
        Reply::Refused(line) => Outcome::Refused(line),
        Reply::Value { key: name, .. } if !is_key_name(name, key) => {
            Outcome::Wrong(format!("{}: the reply names '{}'", key_name(key), name.escape_ascii()))
        }
        Reply::Value { data, .. } => {
            let verdict =
                verify_value(data, key, value_bytes).and_then(|version| ledger.judge(key, version, due.least));
            verdict.map_or_else(|wrong| Outcome::Wrong(format!("{}: {wrong}", key_name(key))), |()| Outcome::Hit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE_BYTES: usize = 100;

    fn request(op: Op, key: u64) -> Request {
        Request { op, key, intended: 0 }
    }

    fn receive(pipeline: &mut Pipeline, bytes: &[u8]) {
        pipeline.incoming()[..bytes.len()].copy_from_slice(bytes);
        pipeline.mark_received(bytes.len());
    }

    /// Takes everything to be sent, as the socket would.
    fn send(pipeline: &mut Pipeline) -> Vec<u8> {
        let bytes = pipeline.outgoing().to_vec();
        pipeline.mark_sent(bytes.len());
        bytes
    }

    /// The reply to a get of `key` that a server with the set `sent` would give.
    fn hit(key: u64, sent: &[u8]) -> Vec<u8> {
        let data = &sent[sent.len() - 2 - VALUE_BYTES..sent.len() - 2];
        [format!("VALUE {} 0 {VALUE_BYTES}\r\n", key_name(key)).as_bytes(), data, b"\r\nEND\r\n"].concat()
    }

    #[test]
    fn replies_in_pieces_find_their_requests() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(3, VALUE_BYTES);
        pipeline.push(request(Op::Set, 4), &ledger);
        let set = send(&mut pipeline);
        pipeline.push(request(Op::Get, 4), &ledger);
        pipeline.push(request(Op::Get, 5), &ledger);
        assert!(!pipeline.has_room());
        let replies = [b"STORED\r\n".as_slice(), &hit(4, &set), b"END\r\n"].concat();
        let mut outcomes = Vec::new();
        for byte in replies {
            receive(&mut pipeline, &[byte]);
            outcomes.extend(pipeline.next_outcome(&ledger).unwrap());
        }
        let expected = [
            (request(Op::Set, 4), Outcome::Stored),
            (request(Op::Get, 4), Outcome::Hit),
            (request(Op::Get, 5), Outcome::Miss),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(pipeline.outstanding(), 0);
    }

    #[test]
    fn a_stale_value_is_wrong_though_it_is_whole() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(1, VALUE_BYTES);
        pipeline.push(request(Op::Set, 4), &ledger);
        let old = send(&mut pipeline);
        receive(&mut pipeline, b"STORED\r\n");
        pipeline.next_outcome(&ledger).unwrap();
        pipeline.push(request(Op::Set, 4), &ledger);
        receive(&mut pipeline, b"STORED\r\n");
        pipeline.next_outcome(&ledger).unwrap();
        pipeline.push(request(Op::Get, 4), &ledger);
        receive(&mut pipeline, &hit(4, &old));
        let (_, outcome) = pipeline.next_outcome(&ledger).unwrap().unwrap();
        let Outcome::Wrong(why) = outcome else { panic!("{outcome:?}") };
        assert_eq!(why, "key-000000000004: it is of version 1, but version 2 had been stored before it was asked for");
    }

    #[test]
    fn a_reply_for_another_key_is_wrong() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(1, VALUE_BYTES);
        pipeline.push(request(Op::Set, 4), &ledger);
        let set = send(&mut pipeline);
        receive(&mut pipeline, b"STORED\r\n");
        pipeline.next_outcome(&ledger).unwrap();
        for reply in [hit(4, &set), hit(5, &set)] {
            pipeline.push(request(Op::Get, 5), &ledger);
            receive(&mut pipeline, &reply);
            let (_, outcome) = pipeline.next_outcome(&ledger).unwrap().unwrap();
            assert!(matches!(outcome, Outcome::Wrong(_)), "{outcome:?}");
        }
    }

    #[test]
    fn a_reply_that_nobody_asked_for_ends_the_connection() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(1, VALUE_BYTES);
        receive(&mut pipeline, b"END\r\n");
        assert!(pipeline.next_outcome(&ledger).is_err());
    }

    #[test]
    fn values_larger_than_a_read_are_put_together() {
        let value_bytes = 3 * READ_BYTES;
        let ledger = Ledger::new(2, 1);
        let mut pipeline = Pipeline::new(2, value_bytes);
        let mut replies = Vec::new();
        for key in [0, 1] {
            pipeline.push(request(Op::Set, key), &ledger);
            let set = send(&mut pipeline);
            receive(&mut pipeline, b"STORED\r\n");
            pipeline.next_outcome(&ledger).unwrap();
            replies.extend_from_slice(format!("VALUE {} 0 {value_bytes}\r\n", key_name(key)).as_bytes());
            replies.extend_from_slice(&set[set.len() - 2 - value_bytes..]);
            replies.extend_from_slice(b"END\r\n");
        }
        pipeline.push(request(Op::Get, 0), &ledger);
        pipeline.push(request(Op::Get, 1), &ledger);
        let mut hits = 0;
        for piece in replies.chunks(READ_BYTES - 7) {
            receive(&mut pipeline, piece);
            while let Some((_, outcome)) = pipeline.next_outcome(&ledger).unwrap() {
                assert_eq!(outcome, Outcome::Hit);
                hits += 1;
            }
        }
        assert_eq!(hits, 2);
    }
}
