//! [`Client`]: the work that a Redis or a memcached server is given: to keep values, and to give them back, each
//! checked whole.
//!
//! The work is a count of requests, not a time, so that every variant does the same. One connection asks, a few
//! requests under way: the server has a thread for it, and what is measured is how long its memory makes it wait.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore as _, SeedableRng};
use yonder::clock;
use yonder_load::LatencyRecorder;

use crate::BenchError;
use crate::flow::stamp;

/// Requests under way at a time.
const DEPTH: u64 = 8;
/// Room for replies.
const ROOM_BYTES: usize = 256 << 10;
/// Bytes of the text that values are cut from, beside the longest value.
const TEXT_BYTES: usize = 1 << 20;
/// The longest value.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Of so many bytes of that text the first half is random and the second is not: it compresses to about a half.
const GRAIN_BYTES: usize = 64;
/// Bytes that tell values apart, at the beginning of each.
const STAMP_BYTES: usize = 8;
/// Memory that memcached may use, in MiB: more than all values take.
const MEMCACHED_MIB: &str = "4096";

/// A server's language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// Redis' serialisation protocol, version 2.
    Redis,
    /// memcached's text protocol.
    Memcached,
}

/// Values of one size, and how often they are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    /// Bytes of a value.
    pub(super) bytes: usize,
    /// How many there are.
    pub(super) keys: u64,
    /// Requests for one of them, at random.
    pub(super) gets: u64,
}

/// What the work has come to.
#[derive(Debug)]
pub(super) struct Measured {
    /// For all of it.
    pub(super) seconds: f64,
    /// For the gets alone.
    pub(super) get_seconds: f64,
    /// Of each get, from when it was sent.
    pub(super) latency: LatencyRecorder,
    /// Values that were not there or not what they should be.
    pub(super) wrong: u64,
}

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Client {
    protocol: Protocol,
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    text: Vec<u8>,
    line: String,
    value: Vec<u8>,
    expected: Vec<u8>,
}

impl Protocol {
    /// What to type for a server without persistence at `port`.
    pub(crate) fn command(self, port: u16) -> Vec<OsString> {
        let port = port.to_string();
        let words: &[&str] = match self {
            Self::Redis => {
                &["redis-server", "--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            }
            // Root has to say as whom it wants to serve.
            Self::Memcached if rustix::process::geteuid().is_root() => {
                &["memcached", "-p", &port, "-U", "0", "-l", "127.0.0.1", "-m", MEMCACHED_MIB, "-u", "root"]
            }
            Self::Memcached => &["memcached", "-p", &port, "-U", "0", "-l", "127.0.0.1", "-m", MEMCACHED_MIB],
        };
        words.iter().map(Into::into).collect()
    }

    fn get(self, key: &str) -> String {
        match self {
            Self::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            Self::Memcached => format!("get {key}\r\n"),
        }
    }

    fn set(self, key: &str, bytes: usize) -> String {
        match self {
            Self::Redis => format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len()),
            Self::Memcached => format!("set {key} 0 0 {bytes}\r\n"),
        }
    }

    fn stored(self) -> &'static str {
        match self {
            Self::Redis => "+OK",
            Self::Memcached => "STORED",
        }
    }

    /// What comes behind a value.
    fn behind(self) -> &'static [u8] {
        match self {
            Self::Redis => b"\r\n",
            Self::Memcached => b"\r\nEND\r\n",
        }
    }

    /// The length that a reply's first line announces; `None` if there is no value. Another line is an error.
    fn length(self, line: &str) -> Result<Option<usize>, BenchError> {
        let length = match self {
            Self::Redis if line == "$-1" => return Ok(None),
            Self::Memcached if line == "END" => return Ok(None),
            Self::Redis => line.strip_prefix('$'),
            Self::Memcached => line.strip_prefix("VALUE ").and_then(|rest| rest.split(' ').nth(2)),
        };
        let length = length.and_then(|text| text.parse().ok());
        length.map(Some).ok_or_else(|| BenchError::Child(format!("the server answers '{line}'")))
    }
}

impl Client {
    pub(super) fn new(protocol: Protocol, stream: TcpStream) -> Result<Self, BenchError> {
        stream.set_nodelay(true)?;
        let replies = BufReader::with_capacity(ROOM_BYTES, stream.try_clone()?);
        let (line, value, expected) = (String::new(), Vec::new(), Vec::new());
        Ok(Self { protocol, stream, replies, text: text(), line, value, expected })
    }

    /// Stores every value of every load, then asks for them.
    pub(super) fn work(&mut self, loads: &[Load]) -> Result<Measured, BenchError> {
        let start = Instant::now();
        for load in loads {
            self.store(*load)?;
        }
        let middle = Instant::now();
        let (mut latency, mut wrong) = (LatencyRecorder::new(), 0);
        for load in loads {
            wrong += self.ask(*load, &mut latency)?;
        }
        let (seconds, get_seconds) = (start.elapsed().as_secs_f64(), middle.elapsed().as_secs_f64());
        Ok(Measured { seconds, get_seconds, latency, wrong })
    }

    fn store(&mut self, load: Load) -> Result<(), BenchError> {
        let mut requests = Vec::new();
        for first in (0..load.keys).step_by(DEPTH as usize) {
            let items = first..(first + DEPTH).min(load.keys);
            requests.clear();
            for item in items.clone() {
                requests.extend_from_slice(self.protocol.set(&key(load, item), load.bytes).as_bytes());
                write_value(&self.text, load, item, &mut requests);
                requests.extend_from_slice(b"\r\n");
            }
            self.stream.write_all(&requests)?;
            for _ in items {
                self.read_line()?;
                if self.line != self.protocol.stored() {
                    return Err(BenchError::Child(format!("the server stores nothing and says '{}'", self.line)));
                }
            }
        }
        Ok(())
    }

    /// Returns how many values were wrong.
    fn ask(&mut self, load: Load, latency: &mut LatencyRecorder) -> Result<u64, BenchError> {
        let mut random = SmallRng::seed_from_u64(load.gets);
        let (mut asked, mut left, mut wrong) = (VecDeque::new(), load.gets, 0);
        loop {
            while left > 0 && (asked.len() as u64) < DEPTH {
                let item = random.random_range(0..load.keys);
                asked.push_back((item, clock::now()));
                self.stream.write_all(self.protocol.get(&key(load, item)).as_bytes())?;
                left -= 1;
            }
            let Some((item, begun)) = asked.pop_front() else { return Ok(wrong) };
            wrong += u64::from(!self.is_answer_right(load, item)?);
            latency.record(clock::now() - begun);
        }
    }

    fn is_answer_right(&mut self, load: Load, item: u64) -> Result<bool, BenchError> {
        self.read_line()?;
        let Some(bytes) = self.protocol.length(&self.line)? else { return Ok(false) };
        let behind = self.protocol.behind();
        self.value.resize(bytes + behind.len(), 0);
        self.replies.read_exact(&mut self.value)?;
        self.expected.clear();
        write_value(&self.text, load, item, &mut self.expected);
        Ok(self.value.strip_suffix(behind) == Some(&self.expected))
    }

    fn read_line(&mut self) -> Result<(), BenchError> {
        self.line.clear();
        if self.replies.read_line(&mut self.line)? == 0 {
            return Err(BenchError::Child("the server has hung up".to_owned()));
        }
        self.line.truncate(self.line.trim_end().len());
        Ok(())
    }
}

fn key(load: Load, item: u64) -> String {
    format!("{}:{item}", load.bytes)
}

/// What values are cut from: every place of it is different, and it compresses as usual data does.
fn text() -> Vec<u8> {
    let mut text = vec![b'.'; TEXT_BYTES + VALUE_BYTES_MAX];
    let mut random = SmallRng::seed_from_u64(11);
    for grain in text.chunks_mut(GRAIN_BYTES) {
        let half = grain.len().div_ceil(2);
        random.fill_bytes(&mut grain[..half]);
    }
    text
}

/// Appends an item's value: its stamp, and a part of the text that begins somewhere else for each item.
fn write_value(text: &[u8], load: Load, item: u64, into: &mut Vec<u8>) {
    let mut first = [0; STAMP_BYTES];
    stamp(item, &mut first);
    into.extend_from_slice(&first);
    let place = (u64::from_le_bytes(first) >> 20) as usize % TEXT_BYTES;
    into.extend_from_slice(&text[place..place + load.bytes - STAMP_BYTES]);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LOAD: Load = Load { bytes: 100, keys: 20, gets: 50 };

    /// A memcached whose replies go through `mend`.
    fn served(mend: fn(Vec<u8>) -> Vec<u8>) -> Result<Measured, BenchError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut values = std::collections::HashMap::new();
            let mut requests = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while requests.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let words: Vec<&str> = line.split_whitespace().collect();
                let key = words[1].to_owned();
                let reply = if words[0] == "set" {
                    let mut value = vec![0; words[4].parse::<usize>().unwrap() + 2];
                    requests.read_exact(&mut value).unwrap();
                    values.insert(key, value);
                    b"STORED\r\n".to_vec()
                } else {
                    let value: &Vec<u8> = &values[&key];
                    mend([format!("VALUE {key} 0 {}\r\n", value.len() - 2).as_bytes(), value, b"END\r\n"].concat())
                };
                if stream.write_all(&reply).is_err() {
                    return;
                }
                line.clear();
            }
        });
        let mut client = Client::new(Protocol::Memcached, TcpStream::connect(address).unwrap()).unwrap();
        let measured = client.work(&[LOAD]);
        drop(client);
        server.join().unwrap();
        measured
    }

    #[test]
    fn right_values_are_right() {
        let measured = served(|reply| reply).unwrap();
        assert_eq!((measured.wrong, measured.latency.len()), (0, LOAD.gets));
        assert!(measured.get_seconds <= measured.seconds);
    }

    #[test]
    fn values_that_are_lost_or_damaged_are_counted() {
        assert_eq!(served(|_| b"END\r\n".to_vec()).unwrap().wrong, LOAD.gets);
        let last = |mut reply: Vec<u8>| {
            let place = reply.len() - b"\r\nEND\r\n".len() - 1;
            reply[place] ^= 1;
            reply
        };
        assert_eq!(served(last).unwrap().wrong, LOAD.gets);
        let error = served(|_| b"SERVER_ERROR out of memory\r\n".to_vec()).unwrap_err();
        assert!(error.to_string().contains("SERVER_ERROR out of memory"), "{error}");
    }

    #[test]
    fn values_differ_and_compress() {
        let text = text();
        let value = |item| {
            let mut value = Vec::new();
            write_value(&text, LOAD, item, &mut value);
            value
        };
        let mut values: Vec<_> = (0..LOAD.keys).map(value).collect();
        assert!(values.iter().all(|value| value.len() == LOAD.bytes));
        values.iter_mut().for_each(|value| drop(value.drain(..STAMP_BYTES)));
        values.sort();
        values.dedup();
        assert_eq!(values.len() as u64, LOAD.keys, "values differ behind their stamps too");
        let dots = text.iter().filter(|byte| **byte == b'.').count();
        assert!(dots > text.len() * 2 / 5 && dots < text.len() * 3 / 5);
    }

    #[test]
    fn lengths_are_read_in_both_languages() {
        for (protocol, line, length) in [
            (Protocol::Redis, "$5", Some(5)),
            (Protocol::Redis, "$-1", None),
            (Protocol::Memcached, "VALUE 4096:7 0 5", Some(5)),
            (Protocol::Memcached, "END", None),
        ] {
            assert_eq!(protocol.length(line).unwrap(), length, "{line}");
        }
        assert!(Protocol::Redis.length("-OOM command not allowed").is_err());
        assert!(Protocol::Memcached.length("ERROR").is_err());
    }
}
