//! A conversation in memcached's text protocol: [`Client`], one command at a time or many at once.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};

use crate::{Content, TIMEOUT};

/// Commands sent before their replies are read.
const BATCH: usize = 100;

/// A connected client.
pub struct Client {
    socket: BufReader<TcpStream>,
}

/// The answer to a `get` of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Got {
    /// The item is there.
    Value(Vec<u8>),
    /// There is no such item.
    Miss,
    /// Any other line, without its end.
    Refused(String),
}

/// The answer to `stats`.
#[derive(Clone, Debug)]
pub struct Stats(HashMap<String, String>);

impl Stats {
    /// One number.
    ///
    /// # Panics
    /// If there is no such number.
    #[must_use]
    pub fn number(&self, name: &str) -> u64 {
        let text = self.0.get(name).unwrap_or_else(|| panic!("no statistic is named {name}"));
        text.parse().unwrap_or_else(|_| panic!("{name} is '{text}'"))
    }
}

impl Client {
    /// Connects to a server.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address} does not listen: {error}"));
        socket.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
        socket.set_write_timeout(Some(TIMEOUT)).expect("a valid time");
        socket.set_nodelay(true).expect("a socket option");
        Self { socket: BufReader::new(socket) }
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).expect("the server listens");
    }

    /// Sends bytes and then no more, on a thread of its own, so that answers can be taken meanwhile.
    ///
    /// # Panics
    /// If the system has no more threads or files.
    pub fn send_the_last(&self, bytes: Vec<u8>) -> JoinHandle<()> {
        let mut socket = self.socket.get_ref().try_clone().expect("one file more");
        thread::spawn(move || {
            socket.write_all(&bytes).expect("the server listens");
            socket.shutdown(Shutdown::Write).expect("the connection is open");
        })
    }

    /// Sends no more, and returns everything that the server still answers.
    ///
    /// # Panics
    /// If the server does not close the connection in the end.
    pub fn finish(self) -> Vec<u8> {
        // A server that has closed the connection already need not be told.
        let _ = self.socket.get_ref().shutdown(Shutdown::Write);
        self.rest()
    }

    /// Everything until the server closes the connection.
    ///
    /// # Panics
    /// If it does not close it.
    pub fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.socket.read_to_end(&mut rest).expect("the server closes the connection");
        rest
    }

    /// The next line of the answer, without its end.
    ///
    /// # Panics
    /// If the server closes the connection or does not answer.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("the server answers with text");
        line.strip_suffix("\r\n")
            .unwrap_or_else(|| panic!("the server closed the connection after '{line}'"))
            .to_owned()
    }

    /// Sends a command (without its line end), and returns the first line of the answer.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(format!("{command}\r\n").as_bytes());
        self.line()
    }

    /// Reads one item.
    pub fn get(&mut self, key: &str) -> Got {
        self.send(format!("get {key}\r\n").as_bytes());
        self.next_item(key)
    }

    /// The answer to a `get` of one key that was sent before.
    ///
    /// # Panics
    /// If it is not well formed, or of another key.
    pub fn next_item(&mut self, key: &str) -> Got {
        let line = self.line();
        if line == "END" {
            return Got::Miss;
        }
        let Some(header) = line.strip_prefix("VALUE ") else { return Got::Refused(line) };
        let words: Vec<&str> = header.split(' ').collect();
        assert_eq!(words[0], key, "the answer to 'get {key}' is of another key");
        let bytes: usize = words[2].parse().expect("a length");
        let mut value = vec![0; bytes + 2];
        self.socket.read_exact(&mut value).expect("the value is complete");
        assert!(value.ends_with(b"\r\n"), "the value of {key} has no end");
        value.truncate(bytes);
        assert_eq!(self.line(), "END");
        Got::Value(value)
    }

    /// Stores one item, and returns the server's answer.
    pub fn set(&mut self, key: &str, value: &[u8]) -> String {
        self.send(&set_command(key, value));
        self.line()
    }

    /// The server's statistics.
    pub fn stats(&mut self) -> Stats {
        let mut stats = HashMap::new();
        let mut line = self.ask("stats");
        while line != "END" {
            let mut words = line.splitn(3, ' ').skip(1).map(str::to_owned);
            stats.insert(words.next().expect("a name"), words.next().unwrap_or_default());
            line = self.line();
        }
        Stats(stats)
    }

    /// Stores a version of a content's keys.
    ///
    /// # Panics
    /// If one is not stored.
    pub fn fill(&mut self, content: &Content, keys: impl Iterator<Item = u64>, version: u64) {
        let keys: Vec<u64> = keys.collect();
        for batch in keys.chunks(BATCH) {
            let commands = batch.iter().map(|index| set_command(&content.key(*index), &content.value(*index, version)));
            self.send(&commands.collect::<Vec<_>>().concat());
            for index in batch {
                assert_eq!(self.line(), "STORED", "{}", content.key(*index));
            }
        }
    }

    /// Reads keys of a content and checks that each has the value of this version.
    ///
    /// # Panics
    /// If one is missing, refused or wrong.
    pub fn verify(&mut self, content: &Content, keys: impl Iterator<Item = u64>, version: u64) {
        let keys: Vec<u64> = keys.collect();
        for batch in keys.chunks(BATCH) {
            let commands = batch.iter().map(|index| format!("get {}\r\n", content.key(*index)));
            self.send(commands.collect::<String>().as_bytes());
            for index in batch {
                let key = content.key(*index);
                match self.next_item(&key) {
                    Got::Value(value) => assert!(value == content.value(*index, version), "{key} has a wrong value"),
                    other => panic!("{key} is not there: {other:?}"),
                }
            }
        }
    }
}

fn set_command(key: &str, value: &[u8]) -> Vec<u8> {
    let mut command = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
    command.extend_from_slice(value);
    command.extend_from_slice(b"\r\n");
    command
}
