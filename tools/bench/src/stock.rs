//! Stock servers, Redis and memcached: how they are started, and [`Client`], a plain connection to one, with many
//! requests under way at a time. It waits as ours do: it asks again before it sleeps, if that has helped before.
//!
//! Neighbours: `programs`, `redis`, `del_get` and `peers_get` fill servers and check what they answer; what they answer
//! is read by `apps/load`, whose own load is made of verifiable values.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use yonder::{AdaptiveSpin, clock};
use yonder_load::{Protocol, Reply, Verb};

use crate::BenchError;
use crate::children::not_installed;

/// Room for replies, to begin with.
const ROOM_BYTES: usize = 256 << 10;
/// How long an answer may take. It only decides when a hang is called one.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// Memory that memcached may use, in MiB: more than all values take.
const MEMCACHED_MIB: &str = "4096";

/// The server that speaks `protocol`: its program, and the package that has it.
pub(crate) fn program(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Memcached => "memcached",
        Protocol::Redis => "redis-server",
    }
}

/// Why there is no such server, and what to type.
pub(crate) fn missing(protocol: Protocol) -> Option<String> {
    not_installed(program(protocol), program(protocol))
}

/// What to type for a server without persistence at `port`.
pub(crate) fn command(protocol: Protocol, port: u16) -> Vec<OsString> {
    let port = port.to_string();
    let words: &[&str] = match protocol {
        Protocol::Redis => &["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        // Root has to say as whom it wants to serve.
        Protocol::Memcached if rustix::process::geteuid().is_root() => {
            &["-p", &port, "-U", "0", "-l", "127.0.0.1", "-m", MEMCACHED_MIB, "-u", "root"]
        }
        Protocol::Memcached => &["-p", &port, "-U", "0", "-l", "127.0.0.1", "-m", MEMCACHED_MIB],
    };
    std::iter::once(program(protocol)).chain(words.iter().copied()).map(Into::into).collect()
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    protocol: Protocol,
    stream: TcpStream,
    /// What is sent next.
    requests: Vec<u8>,
    replies: Vec<u8>,
    /// What of `replies` has arrived and is not taken yet.
    arrived: Range<usize>,
    spin: AdaptiveSpin,
}

impl Client {
    /// A client that asks again for `spin` before it sleeps.
    pub(crate) fn new(protocol: Protocol, stream: TcpStream, spin: Duration) -> Result<Self, BenchError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        let (replies, spin) = (vec![0; ROOM_BYTES], AdaptiveSpin::new(spin));
        Ok(Self { protocol, stream, requests: Vec::new(), replies, arrived: 0..0, spin })
    }

    /// Adds a get to what is sent next.
    pub(crate) fn get(&mut self, key: &str) {
        self.protocol.append_get(&mut self.requests, key);
    }

    /// Adds a set of a value of `bytes` bytes, which `append_value` appends.
    pub(crate) fn set(&mut self, key: &str, bytes: usize, append_value: impl FnOnce(&mut Vec<u8>)) {
        self.protocol.append_set(&mut self.requests, key, bytes, append_value);
    }

    /// Adds a command of Redis' of `words`, which may have any bytes.
    pub(crate) fn command(&mut self, words: &[&[u8]]) {
        self.requests.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.requests.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.requests.extend_from_slice(word);
            self.requests.extend_from_slice(b"\r\n");
        }
    }

    /// Sends what was added.
    pub(crate) fn send(&mut self) -> Result<(), BenchError> {
        self.stream.write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// Sends what `ask` adds for each item, `depth` at a time, and returns for how many `is_right` has found the answer
    /// wrong.
    pub(crate) fn all<Item: Copy>(
        &mut self,
        depth: usize,
        items: impl IntoIterator<Item = Item>,
        mut ask: impl FnMut(&mut Self, Item),
        mut is_right: impl FnMut(&mut Self, Item) -> Result<bool, BenchError>,
    ) -> Result<u64, BenchError> {
        let (mut items, mut wrong) = (items.into_iter(), 0);
        loop {
            let some: Vec<Item> = items.by_ref().take(depth).collect();
            if some.is_empty() {
                return Ok(wrong);
            }
            some.iter().for_each(|item| ask(self, *item));
            self.send()?;
            for item in some {
                wrong += u64::from(!is_right(self, item)?);
            }
        }
    }

    /// Waits for the answer to the oldest request, which is one of `verb`, and gives it to `read`. That the server
    /// refuses is an error.
    pub(crate) fn reply<T>(&mut self, verb: Verb, mut read: impl FnMut(Reply<'_>) -> T) -> Result<T, BenchError> {
        self.spin.begin(clock::now());
        loop {
            if let Some(read) = self.arrived(verb, &mut read)? {
                self.spin.end(clock::now());
                return Ok(read);
            }
            self.receive()?;
        }
    }

    /// The same without waiting, if the answer has arrived.
    pub(crate) fn arrived<T>(
        &mut self,
        verb: Verb,
        read: impl FnOnce(Reply<'_>) -> T,
    ) -> Result<Option<T>, BenchError> {
        let parsed = self.protocol.parse_reply(verb, &self.replies[self.arrived.clone()]);
        let read = match parsed.map_err(|error| BenchError::Child(error.to_string()))? {
            None => return Ok(None),
            Some((Reply::Refused(line), _)) => return Err(self.complaint(&format!("answers '{line}'"))),
            Some((reply, bytes)) => {
                self.arrived.start += bytes;
                read(reply)
            }
        };
        Ok(Some(read))
    }

    /// The answer to a set.
    pub(crate) fn is_stored(&mut self) -> Result<bool, BenchError> {
        self.reply(Verb::Set, |reply| reply == Reply::Stored)
    }

    /// The answer to a get: whether the value is there and `is_right`.
    pub(crate) fn is_value(&mut self, mut is_right: impl FnMut(&[u8]) -> bool) -> Result<bool, BenchError> {
        self.reply(Verb::Get, |reply| matches!(reply, Reply::Value { data, .. } if is_right(data)))
    }

    /// The answer to a command that counts; the head of a list.
    pub(crate) fn count(&mut self) -> Result<usize, BenchError> {
        self.reply(Verb::Count, |reply| if let Reply::Count(count) = reply { count } else { 0 })
    }

    /// A number that Redis tells of itself.
    pub(crate) fn info(&mut self, section: &str, name: &str) -> Result<u64, BenchError> {
        self.command(&[b"INFO", section.as_bytes()]);
        self.send()?;
        let mut text = String::new();
        self.is_value(|told| {
            text = String::from_utf8_lossy(told).into_owned();
            true
        })?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
        value.ok_or_else(|| self.complaint(&format!("tells no {name}: {text}")))
    }

    /// Takes what has arrived, or waits for it.
    fn receive(&mut self) -> Result<(), BenchError> {
        if self.arrived.is_empty() || self.arrived.end == self.replies.len() {
            self.replies.copy_within(self.arrived.clone(), 0);
            self.arrived = 0..self.arrived.len();
        }
        if self.arrived.end == self.replies.len() {
            self.replies.resize(2 * self.replies.len(), 0);
        }
        let asks_again = self.spin.asks_again(clock::now());
        let flags = if asks_again { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        match rustix::net::recv(&self.stream, &mut self.replies[self.arrived.end..], flags).map(|(_, bytes)| bytes) {
            Ok(0) => return Err(self.complaint("has hung up")),
            Ok(bytes) => self.arrived.end += bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if asks_again => AdaptiveSpin::pause(),
            Err(Errno::AGAIN) => {
                return Err(self.complaint(&format!("has not answered for {} s", ANSWER_TIME_MAX.as_secs())));
            }
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        Ok(())
    }

    fn complaint(&self, what: &str) -> BenchError {
        BenchError::Child(format!("{} {what}", program(self.protocol)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// A client of Redis, and the server's end.
    fn pair() -> (Client, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Client::new(Protocol::Redis, stream, Duration::ZERO).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn answers_are_read_whole() {
        let (mut client, mut stream) = pair();
        let server = std::thread::spawn(move || {
            let mut asked = [0; 2 * 26];
            stream.read_exact(&mut asked).unwrap();
            stream.write_all(b"$4\r\na\r\nb\r\n$-1\r\n*2\r\n-OOM command not allowed\r\n").unwrap();
            asked
        });
        let is_right = |client: &mut Client, item| client.is_value(|value| value == [b"a\r\nb", &b"else"[..]][item]);
        let wrong = client.all(32, [0, 1], |client, _| client.get("the key"), is_right).unwrap();
        assert_eq!((wrong, client.count().unwrap()), (1, 2));
        assert!(client.is_value(|_| true).unwrap_err().to_string().contains("-OOM command not allowed"));
        assert_eq!(server.join().unwrap(), b"*2\r\n$3\r\nGET\r\n$7\r\nthe key\r\n".repeat(2)[..]);
    }

    #[test]
    fn who_hangs_up_or_says_something_else_is_told() {
        let (mut client, stream) = pair();
        drop(stream);
        assert!(client.is_stored().unwrap_err().to_string().contains("redis-server has hung up"));
        let (mut client, mut stream) = pair();
        stream.write_all(b"ERROR\r\n").unwrap();
        assert!(client.is_stored().unwrap_err().to_string().contains("no reply"));
    }

    #[test]
    fn commands_may_have_any_bytes() {
        let (mut client, _stream) = pair();
        client.command(&[b"GET", b"a\r\n b"]);
        assert_eq!(client.requests, b"*2\r\n$3\r\nGET\r\n$5\r\na\r\n b\r\n");
    }

    #[test]
    fn an_answer_that_is_larger_than_the_room_is_read() {
        let (mut client, mut stream) = pair();
        let value = vec![b'x'; 3 * ROOM_BYTES];
        let head = format!("${}\r\n", value.len());
        let server =
            std::thread::spawn(move || stream.write_all(&[head.as_bytes(), &value, b"\r\n"].concat()).unwrap());
        assert!(client.is_value(|value| value.len() == 3 * ROOM_BYTES).unwrap());
        server.join().unwrap();
    }
}
