//! [`Dialect`]: how a peer is asked and what it answers; [`PeerFlow`]: a plain client with a pipeline, which waits as
//! ours do: it asks again before it sleeps, if that has helped before.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use yonder::{AdaptiveSpin, clock};

use crate::BenchError;
use crate::flow::{Flow, check, stamp};

/// Bytes of a reply around its value, at most.
const REPLY_MORE_BYTES: usize = 128;
/// Least room for replies.
const ROOM_BYTES_MIN: usize = 256 << 10;
/// How long a peer may take for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A server that keeps values by keys, and its language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    /// Redis' serialisation protocol, version 2.
    Redis,
    /// memcached's text protocol.
    Memcached,
}

impl Dialect {
    /// What results call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// The server's program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Memcached => "memcached",
        }
    }

    /// The package that has it.
    pub(super) fn package(self) -> &'static str {
        self.program()
    }

    fn get(self, item: u64, into: &mut Vec<u8>) {
        let key = key(item);
        let asked = match self {
            Self::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            Self::Memcached => format!("get {key}\r\n"),
        };
        into.extend_from_slice(asked.as_bytes());
    }

    fn set(self, item: u64, value: &[u8], into: &mut Vec<u8>) {
        let (key, bytes) = (key(item), value.len());
        let asked = match self {
            Self::Redis => format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${bytes}\r\n", key.len()),
            Self::Memcached => format!("set {key} 0 0 {bytes}\r\n"),
        };
        into.extend_from_slice(asked.as_bytes());
        into.extend_from_slice(value);
        into.extend_from_slice(b"\r\n");
    }

    fn stored(self) -> &'static [u8] {
        match self {
            Self::Redis => b"+OK\r\n",
            Self::Memcached => b"STORED\r\n",
        }
    }

    /// Where the value is in the reply that `bytes` begin with, and the reply's length; `None` if it is not whole.
    fn value(self, bytes: &[u8]) -> Result<Option<(Range<usize>, usize)>, BenchError> {
        let Some(line_end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = String::from_utf8_lossy(&bytes[..line_end]);
        let (length, behind) = match self {
            Self::Redis => (line.strip_prefix('$'), b"\r\n".len()),
            Self::Memcached => {
                (line.strip_prefix("VALUE ").and_then(|rest| rest.split(' ').nth(2)), b"\r\nEND\r\n".len())
            }
        };
        let length = length.and_then(|text| text.trim().parse::<usize>().ok());
        let length = length.ok_or_else(|| BenchError::Child(format!("{} answers '{}'", self.name(), line.trim())))?;
        let value = line_end + 1..line_end + 1 + length;
        let end = value.end + behind;
        Ok((bytes.len() >= end).then_some((value, end)))
    }
}

fn key(item: u64) -> String {
    format!("item:{item}")
}

/// A connection to a peer, and the requests that are under way on it.
#[derive(Debug)]
pub(super) struct PeerFlow {
    dialect: Dialect,
    stream: TcpStream,
    bytes: usize,
    requests: Vec<u8>,
    asked: std::collections::VecDeque<u64>,
    replies: Vec<u8>,
    /// Part of `replies` that has arrived and was not handled.
    arrived: Range<usize>,
    spin: AdaptiveSpin,
}

impl PeerFlow {
    /// A flow for values of `bytes` bytes, at most `depth` at a time, which asks again for `spin` before it sleeps.
    pub(super) fn new(
        dialect: Dialect,
        stream: TcpStream,
        bytes: usize,
        depth: usize,
        spin: Duration,
    ) -> Result<Self, BenchError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let room = (depth * (bytes + REPLY_MORE_BYTES)).max(ROOM_BYTES_MIN);
        let asked = std::collections::VecDeque::with_capacity(depth);
        let (replies, spin) = (vec![0; room], AdaptiveSpin::new(spin));
        Ok(Self { dialect, stream, bytes, requests: Vec::new(), asked, replies, arrived: 0..0, spin })
    }

    /// Stores items 0 to `count`.
    pub(super) fn fill(&mut self, count: u64) -> Result<(), BenchError> {
        let mut value = vec![b'.'; self.bytes];
        for item in 0..count {
            stamp(item, &mut value);
            self.requests.clear();
            self.dialect.set(item, &value, &mut self.requests);
            self.stream.write_all(&self.requests)?;
            let answer = &mut self.replies[..self.dialect.stored().len()];
            self.stream.read_exact(answer)?;
            if answer != self.dialect.stored() {
                let said = String::from_utf8_lossy(answer).trim().to_owned();
                return Err(BenchError::Child(format!("{} stores nothing and says '{said}'", self.dialect.name())));
            }
        }
        self.requests.clear();
        Ok(())
    }

    /// Handles the whole replies that have arrived, and returns how many.
    fn take_arrived(&mut self) -> Result<usize, BenchError> {
        let mut taken = 0;
        while let Some((value, length)) = self.dialect.value(&self.replies[self.arrived.clone()])? {
            let value = &self.replies[self.arrived.start + value.start..self.arrived.start + value.end];
            let item = self.asked.pop_front().ok_or_else(|| BenchError::Child("a reply to nothing".to_owned()))?;
            if value.len() != self.bytes {
                return Err(BenchError::WrongValues(1));
            }
            check(item, value)?;
            self.arrived.start += length;
            taken += 1;
        }
        if self.arrived.is_empty() {
            self.arrived = 0..0;
        }
        Ok(taken)
    }

    fn receive(&mut self) -> Result<(), BenchError> {
        if self.arrived.end == self.replies.len() {
            self.replies.copy_within(self.arrived.clone(), 0);
            self.arrived = 0..self.arrived.len();
        }
        let room = &mut self.replies[self.arrived.end..];
        let asks_again = self.spin.asks_again(clock::now());
        let flags = if asks_again { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        match rustix::net::recv(&self.stream, room, flags).map(|(_, bytes)| bytes) {
            Ok(0) => Err(BenchError::Child(format!("{} has hung up", self.dialect.name()))),
            Ok(bytes) => {
                self.arrived.end += bytes;
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) if asks_again => {
                AdaptiveSpin::pause();
                Ok(())
            }
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }
}

impl Flow for PeerFlow {
    fn post(&mut self, item: u64) -> Result<(), BenchError> {
        self.dialect.get(item, &mut self.requests);
        self.asked.push_back(item);
        Ok(())
    }

    fn wait(&mut self) -> Result<usize, BenchError> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        self.spin.begin(clock::now());
        loop {
            self.receive()?;
            let taken = self.take_arrived()?;
            if taken > 0 {
                self.spin.end(clock::now());
                return Ok(taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn replies_are_found_whole_or_not_at_all() {
        for (dialect, reply) in [
            (Dialect::Redis, &b"$5\r\na\r\nbc\r\n"[..]),
            (Dialect::Memcached, b"VALUE item:7 0 5\r\na\r\nbc\r\nEND\r\n"),
        ] {
            let twice = [reply, reply].concat();
            for cut in 0..reply.len() {
                assert_eq!(dialect.value(&twice[..cut]).unwrap(), None, "{cut} bytes");
            }
            let (value, length) = dialect.value(&twice).unwrap().unwrap();
            assert_eq!((&twice[value], length), (&b"a\r\nbc"[..], reply.len()));
        }
        for (dialect, refusal) in
            [(Dialect::Redis, &b"$-1\r\n"[..]), (Dialect::Redis, b"-ERR\r\n"), (Dialect::Memcached, b"END\r\n")]
        {
            assert!(dialect.value(refusal).is_err());
        }
    }

    /// A peer that answers requests of either dialect, however they are cut.
    #[test]
    fn a_pipeline_matches_replies_with_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 36];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(&asked, b"get item:1\r\nget item:2\r\nget item:3\r\n");
            let mut replies = Vec::new();
            for item in [1, 2, 3] {
                let mut value = [b'.'; 10];
                stamp(item, &mut value);
                replies.extend_from_slice(format!("VALUE item:{item} 0 10\r\n").as_bytes());
                replies.extend_from_slice(&value);
                replies.extend_from_slice(b"\r\nEND\r\n");
            }
            for piece in replies.chunks(7) {
                stream.write_all(piece).unwrap();
            }
        });
        let stream = TcpStream::connect(address).unwrap();
        let mut flow = PeerFlow::new(Dialect::Memcached, stream, 10, 3, Duration::from_micros(50)).unwrap();
        for item in [1, 2, 3] {
            flow.post(item).unwrap();
        }
        let mut ended = 0;
        while ended < 3 {
            ended += flow.wait().unwrap();
        }
        server.join().unwrap();
        assert!(flow.wait().is_err(), "the peer has hung up");
    }
}
