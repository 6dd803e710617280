//! One connection's pipeline without its socket: requests in, bytes out; bytes in, verified outcomes out.
//!
//! Sans-IO: `connection` moves the bytes. Invariant: requests and replies correspond in order, and at most `depth`
//! operations are outstanding. A set is told to the ledger before its bytes can leave, and its end after its reply. An
//! operation of two requests, a get and then a set, takes its place at the end of the pipeline again for the second
//! one.

mod due;

use std::collections::VecDeque;

use yonder_units::Nanos;

use crate::ledger::Ledger;
use crate::protocol::{NotAReply, Protocol, append_get_many, key_name};
use crate::value::append_value;

use due::{Due, Outstanding, Scan, Step};

/// Bytes read from a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// Stands for the key of an insert until it is sent and gets the next one.
pub(crate) const KEY_OF_INSERT: u64 = u64::MAX;

/// Kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Get,
    Set,
    /// A set of a key that was not there before.
    Insert,
    /// A get of several keys at once, from the request's key on.
    Scan {
        /// How many; at least one.
        keys: u8,
    },
    /// A get, and when it is answered a set of the same key.
    ReadModifyWrite,
}

impl Op {
    /// Its kind, counted from 0.
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Get => 0,
            Self::Set => 1,
            Self::Insert => 2,
            Self::Scan { .. } => 3,
            Self::ReadModifyWrite => 4,
        }
    }
}

/// An operation as it was planned.
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

/// The pipeline of one connection.
pub(crate) struct Pipeline {
    protocol: Protocol,
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
    pub(crate) fn new(protocol: Protocol, depth: usize, value_bytes: usize) -> Self {
        Self {
            protocol,
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
    pub(crate) fn push(&mut self, mut request: Request, ledger: &Ledger) {
        assert!(self.has_room(), "a request was pushed into a full pipeline");
        let due = match request.op {
            Op::Get | Op::ReadModifyWrite => {
                self.protocol.append_get(&mut self.output, &key_name(request.key));
                Due::Value { least: ledger.begin_get(request.key) }
            }
            Op::Scan { keys } => {
                let keys = request.key..request.key + u64::from(keys);
                append_get_many(&mut self.output, keys.clone());
                let least = keys.map(|key| ledger.begin_get(key)).collect();
                Due::Values(Scan::new(least))
            }
            Op::Insert => {
                request.key = ledger.keys().begin_insert();
                self.begin_set(request.key, ledger, false)
            }
            Op::Set => self.begin_set(request.key, ledger, false),
        };
        self.outstanding.push_back(Outstanding { request, due });
    }

    fn begin_set(&mut self, key: u64, ledger: &Ledger, missed: bool) -> Due {
        let (version, bytes) = (ledger.begin_set(key), self.value_bytes);
        let append_value = |out: &mut Vec<u8>| append_value(out, key, version, bytes);
        self.protocol.append_set(&mut self.output, &key_name(key), bytes, append_value);
        Due::Stored { missed }
    }

    /// The connection is lost. Inserts that were not answered keep nobody from reading later keys.
    pub(crate) fn abandon(self, ledger: &Ledger) {
        let inserts = self.outstanding.iter().filter(|due| due.request.op == Op::Insert);
        inserts.for_each(|due| ledger.keys().end_insert(due.request.key));
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
        loop {
            let input = &self.input[self.parsed..self.filled];
            let Some(first) = self.outstanding.front_mut() else {
                return if input.is_empty() {
                    Ok(None)
                } else {
                    Err(NotAReply("a reply that nobody asked for".to_owned()))
                };
            };
            let Some((reply, bytes)) = self.protocol.parse_reply(first.due.verb(), input)? else { return Ok(None) };
            let step = first.step(reply, self.value_bytes, ledger);
            let request = first.request;
            self.parsed += bytes;
            match step {
                Step::More => {}
                Step::Modify { missed } => {
                    self.outstanding.pop_front();
                    let due = self.begin_set(request.key, ledger, missed);
                    self.outstanding.push_back(Outstanding { request, due });
                }
                Step::End(outcome) => {
                    self.outstanding.pop_front();
                    return Ok(Some((request, outcome)));
                }
            }
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
        let mut pipeline = Pipeline::new(Protocol::Memcached, 3, VALUE_BYTES);
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
        let mut pipeline = Pipeline::new(Protocol::Memcached, 1, VALUE_BYTES);
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
    fn a_value_without_a_name_is_known_by_its_header() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(Protocol::Redis, 2, VALUE_BYTES);
        pipeline.push(request(Op::Set, 4), &ledger);
        let set = send(&mut pipeline);
        let value = [format!("${VALUE_BYTES}\r\n").as_bytes(), &set[set.len() - VALUE_BYTES - 2..]].concat();
        receive(&mut pipeline, b"+OK\r\n");
        assert_eq!(pipeline.next_outcome(&ledger).unwrap().unwrap().1, Outcome::Stored);
        for (key, reply, expected) in
            [(4, &value[..], "Hit"), (5, &value, "it is the value of key 4"), (5, b"$-1\r\n", "Miss")]
        {
            pipeline.push(request(Op::Get, key), &ledger);
            assert!(send(&mut pipeline).ends_with(format!("key-{key:012}\r\n").as_bytes()));
            receive(&mut pipeline, reply);
            let (_, outcome) = pipeline.next_outcome(&ledger).unwrap().unwrap();
            assert!(format!("{outcome:?}").contains(expected), "{outcome:?}, not {expected}");
        }
    }

    #[test]
    fn a_reply_for_another_key_is_wrong() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(Protocol::Memcached, 1, VALUE_BYTES);
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

    /// A pipeline that has stored `keys`, and the sets that it has sent.
    fn stored(ledger: &Ledger, depth: usize, keys: std::ops::Range<u64>) -> (Pipeline, Vec<Vec<u8>>) {
        let mut pipeline = Pipeline::new(Protocol::Memcached, depth, VALUE_BYTES);
        let store = |key| {
            pipeline.push(request(Op::Set, key), ledger);
            let set = send(&mut pipeline);
            receive(&mut pipeline, b"STORED\r\n");
            assert_eq!(pipeline.next_outcome(ledger).unwrap().unwrap().1, Outcome::Stored);
            set
        };
        let sets = keys.map(store).collect();
        (pipeline, sets)
    }

    /// The value of a set in a reply to a get of several keys.
    fn piece(key: u64, sent: &[u8]) -> Vec<u8> {
        hit(key, sent).strip_suffix(b"END\r\n").unwrap().to_vec()
    }

    #[test]
    fn a_scan_is_judged_value_by_value() {
        let ledger = Ledger::new(10, 1);
        let (mut pipeline, sets) = stored(&ledger, 4, 0..3);
        let scan = request(Op::Scan { keys: 3 }, 0);
        let damaged = {
            let mut value = piece(1, &sets[1]);
            value[60] ^= 1;
            value
        };
        let whole: Vec<Vec<u8>> = (0..3).map(|key| piece(key, &sets[key as usize])).collect();
        for (values, expected) in [
            (vec![&whole[0], &whole[1], &whole[2]], "Hit"),
            (vec![&whole[0], &whole[2]], "Miss"),
            (vec![&whole[0], &whole[1]], "Miss"),
            (vec![], "Miss"),
            (vec![&whole[0], &damaged, &whole[2]], "damaged"),
            (vec![&whole[1], &whole[0], &whole[2]], "the reply to a get of 3 keys from there on names"),
            (vec![&whole[0], &whole[0]], "the reply to a get of 3 keys"),
        ] {
            pipeline.push(scan, &ledger);
            let asked = send(&mut pipeline);
            assert_eq!(asked, b"get key-000000000000 key-000000000001 key-000000000002\r\n");
            let reply = [values.into_iter().flatten().copied().collect::<Vec<u8>>(), b"END\r\n".to_vec()].concat();
            let (last, pieces) = reply.split_last().unwrap();
            for byte in pieces {
                receive(&mut pipeline, &[*byte]);
                assert_eq!(pipeline.next_outcome(&ledger).unwrap(), None);
            }
            receive(&mut pipeline, &[*last]);
            let (done, outcome) = pipeline.next_outcome(&ledger).unwrap().unwrap();
            assert_eq!(done, scan);
            assert!(format!("{outcome:?}").contains(expected), "{outcome:?}, not {expected}");
        }
        pipeline.push(scan, &ledger);
        receive(&mut pipeline, b"SERVER_ERROR busy\r\n");
        let refused = Outcome::Refused("SERVER_ERROR busy".to_owned());
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), Some((scan, refused)));
    }

    #[test]
    fn a_read_modify_write_ends_with_its_set() {
        let ledger = Ledger::new(10, 1);
        let (mut pipeline, sets) = stored(&ledger, 2, 0..1);
        let modify = |key| request(Op::ReadModifyWrite, key);
        // The key's get and another request are sent; the set follows behind both.
        pipeline.push(modify(0), &ledger);
        pipeline.push(request(Op::Get, 5), &ledger);
        assert_eq!(send(&mut pipeline), b"get key-000000000000\r\nget key-000000000005\r\n");
        receive(&mut pipeline, &hit(0, &sets[0]));
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), None);
        assert!(!pipeline.has_room(), "the operation is not over");
        let set = send(&mut pipeline);
        assert!(set.starts_with(b"set key-000000000000 0 0 100\r\n"));
        receive(&mut pipeline, b"END\r\n");
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), Some((request(Op::Get, 5), Outcome::Miss)));
        receive(&mut pipeline, b"STORED\r\n");
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), Some((modify(0), Outcome::Stored)));
        // What it has written is what must be read from now on.
        pipeline.push(request(Op::Get, 0), &ledger);
        receive(&mut pipeline, &hit(0, &sets[0]));
        assert!(matches!(pipeline.next_outcome(&ledger).unwrap(), Some((_, Outcome::Wrong(_)))));
        // A key that is not there is written all the same, and missed; a wrong value is not written over.
        pipeline.push(modify(7), &ledger);
        receive(&mut pipeline, b"END\r\nSTORED\r\n");
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), Some((modify(7), Outcome::Miss)));
        pipeline.push(modify(0), &ledger);
        receive(&mut pipeline, &hit(0, &sets[0]));
        assert!(matches!(pipeline.next_outcome(&ledger).unwrap(), Some((_, Outcome::Wrong(_)))));
        assert_eq!(pipeline.outstanding(), 0);
    }

    #[test]
    fn inserts_get_the_next_key_when_they_are_sent() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(Protocol::Memcached, 2, VALUE_BYTES);
        let insert = request(Op::Insert, KEY_OF_INSERT);
        pipeline.push(insert, &ledger);
        pipeline.push(insert, &ledger);
        let sent = send(&mut pipeline);
        assert!(sent.starts_with(b"set key-000000000010 ") && sent.windows(16).any(|name| name == b"key-000000000011"));
        assert_eq!(ledger.keys().stored(), 10, "nobody may read it yet");
        receive(&mut pipeline, b"STORED\r\n");
        assert_eq!(pipeline.next_outcome(&ledger).unwrap(), Some((request(Op::Insert, 10), Outcome::Stored)));
        assert_eq!(ledger.keys().stored(), 11);
        // The connection is lost, and what it has sent may be stored or not.
        pipeline.abandon(&ledger);
        assert_eq!(ledger.keys().stored(), 12);
    }

    #[test]
    fn a_reply_that_nobody_asked_for_ends_the_connection() {
        let ledger = Ledger::new(10, 1);
        let mut pipeline = Pipeline::new(Protocol::Memcached, 1, VALUE_BYTES);
        receive(&mut pipeline, b"END\r\n");
        assert!(pipeline.next_outcome(&ledger).is_err());
    }

    #[test]
    fn values_larger_than_a_read_are_put_together() {
        let value_bytes = 3 * READ_BYTES;
        let ledger = Ledger::new(2, 1);
        let mut pipeline = Pipeline::new(Protocol::Memcached, 2, value_bytes);
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
