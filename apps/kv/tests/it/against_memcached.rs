//! The same bytes to memcached and to this server: the replies must be the same bytes.
//!
//! Prints SKIP where memcached is not installed. Left out on purpose: what this server answers differently (NUL in
//! keys, over-long lines), the version, the values of cas uniques, a fault of memcached 1.6.18, which forgets earlier
//! replies of a pipeline when a `get` is refused, and meta commands, which `testing/e2e` compares.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use tempfile::TempDir;

use crate::harness::Running;
use crate::memory::FlatMemory;

/// A memcached process on a socket of its own.
struct Memcached {
    process: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Memcached {
    /// None, and a line that says why, if there is no memcached here.
    fn start(name: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join(name);
        let path = socket.to_str().expect("a temporary directory with a plain name");
        // The user only matters where tests run as root, which memcached refuses to do.
        let started = Command::new("memcached")
            .args(["-s", path, "-u", "root", "-m", "64", "-t", "1"])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        match started {
            Ok(process) => {
                let memcached = Self { process, socket, _folder: folder };
                let deadline = Instant::now() + Duration::from_secs(20);
                while UnixStream::connect(&memcached.socket).is_err() {
                    assert!(Instant::now() < deadline, "memcached does not listen");
                    std::thread::yield_now();
                }
                Some(memcached)
            }
            Err(error) => {
                println!("SKIP: memcached cannot be started ({error}): apt-get install memcached");
                None
            }
        }
    }

    fn converse(&self, input: &[u8]) -> Vec<u8> {
        let mut client = UnixStream::connect(&self.socket).expect("memcached listens");
        let mut sender = client.try_clone().expect("the socket is open");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // memcached may have ended the connection already.
                let _ = sender.write_all(input);
                let _ = sender.shutdown(Shutdown::Write);
            });
            let mut output = Vec::new();
            client.read_to_end(&mut output).expect("memcached answers");
            output
        })
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Replies as text, with what may differ blotted out.
fn comparable(reply: &[u8]) -> String {
    let lines = reply.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let text = line.escape_ascii().to_string();
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["VERSION", ..] => "VERSION".to_owned(),
            ["VALUE", key, flags, bytes, _cas] => format!("VALUE {key} {flags} {bytes} *"),
            _ => text,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn scripts_get_the_same_replies() {
    let Some(memcached) = Memcached::start("scripts") else { return };
    let server = Running::start(FlatMemory::new(64 << 20), |_| {});
    let key = "k".repeat(250);
    let long = "k".repeat(251);
    let large = "x".repeat(2_000_000);
    let scripts = [
        "\r\n \r\nx\r\nxx\r\nget\r\ngets\r\ngat\r\ngat 1\r\ngat x a\r\nGET a\r\nversion x\r\nget a".to_owned(),
        format!("get {key} {long}\r\nset {key} 1 0 2\r\nhi\r\nget {key}\r\nset {long} 0 0 7\r\nversion\r\n"),
        "set a x 0 1\r\nset a 0 x 1\r\nset a 0 0 -1\r\nset a 0 0 x noreply\r\nset a 0 0\r\nset a 0 0 1 noreply x\r\n".to_owned(),
        "set f -1 0 1\r\nset f 4294967297 0 1\r\n1\r\nget f\r\nset f +5 0 1\r\n1\r\nget f\r\nset f 0 2147483648 1\r\n1\r\nget f\r\n".to_owned(),
        "set b 0 0 3\r\nabcde\r\nset b 0 0 3\r\nab\r\nversion\r\nset b 0 0 3 noreply\r\nabcdef\r\nset b 0 0 3\nabc\r\nget b\n".to_owned(),
        format!("set l 0 0 2\r\nhi\r\nadd l 0 0 {0}\r\n{large}\r\nget l\r\nset l 0 0 {0} noreply\r\n{large}\r\nget l\r\nset l 0 0 {0}\r\n{large}\r\n", large.len()),
        format!("delete\r\ndelete d\r\ndelete d 0\r\ndelete d 1\r\ndelete d x\r\ndelete d 1 noreply\r\ndelete d 0 noreply\r\ndelete {long}\r\ndelete a b c d\r\n"),
        format!("incr i\r\nincr i 1\r\nincr i x\r\nincr i -1\r\nincr i 1 x\r\nincr {long} 1\r\nincr i x noreply\r\nset i 0 0 1\r\n5\r\nincr i +3\r\nincr i 18446744073709551616\r\n"),
        "set n 7 0 2\r\n99\r\nincr n 1\r\nget n\r\ndecr n 1\r\nget n\r\ndecr n 5000\r\nget n\r\nset n 0 0 4\r\n5  x\r\nincr n 1\r\nget n\r\n".to_owned(),
        "set n 0 0 0\r\n\r\nincr n 1\r\nset n 0 0 2\r\n-5\r\nincr n 1\r\nset n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n\r\nset n 0 0 2\r\n5x\r\ndecr n 1\r\n".to_owned(),
        format!("touch t\r\ntouch t x\r\ntouch t 0\r\nset t 0 0 1\r\n1\r\ntouch t 100\r\ntouch t 0 noreply\r\ntouch {long} 0\r\ngat -1 t\r\nget t\r\n"),
        "flush_all x\r\nflush_all 1 2 3\r\nverbosity\r\nverbosity 1\r\nverbosity x\r\nverbosity x y\r\nverbosity noreply\r\nverbosity 1 noreply\r\nverbosity 1 2 3\r\n".to_owned(),
        "stats foo\r\nstats detail\r\nstats cachedump\r\nstats sizes\r\nstats reset\r\nstats noreply\r\nquit\r\nversion\r\n".to_owned(),
        "foo bar HTTP/1.0\r\nversion\r\n".to_owned(),
        format!("get {}\r\nversion\r\n", "absent ".repeat(20_000)),
        "set c 0 0 1\r\n1\r\ngets c\r\ncas c 0 0 1 0\r\n2\r\ncas c 0 0 1\r\ncas c 0 0 1 x\r\ncas zz 0 0 1 1\r\n1\r\ncas c 0 0 1 -1\r\n".to_owned(),
        "append p 0 0 1\r\n1\r\nset p 3 0 1\r\n1\r\nappend p 7 0 1\r\n2\r\nprepend p 9 0 1\r\n0\r\nget p p\r\nreplace zz 0 0 1\r\n1\r\nadd p 0 0 1\r\n9\r\n".to_owned(),
        "set e 0 -1 1\r\n1\r\nget e\r\nadd e 0 0 1\r\n2\r\nget e\r\nset e 0 0 1\r\n3\r\nflush_all\r\nget e\r\nflush_all noreply\r\nflush_all 0 noreply\r\n".to_owned(),
    ];
    for script in scripts {
        let (theirs, ours) = (memcached.converse(script.as_bytes()), server.converse(script.as_bytes()));
        assert_eq!(comparable(&ours), comparable(&theirs), "{:.200}", script.escape_debug());
    }
}

/// A command of any kind, right or slightly wrong.
fn command() -> impl Strategy<Value = String> {
    let key = || "[a-c]";
    let number =
        || prop_oneof![Just("0".to_owned()), "[0-9]{1,3}", "-?[0-9]{1,20}", "[0-9] ?[a-z]", Just(" ".to_owned())];
    let noreply = || prop_oneof![4 => Just(""), 1 => Just(" noreply"), 1 => Just(" x")];
    let value = || prop_oneof!["[0-9]{1,4} ?", "[a-ln-z][a-ln-z ]{0,40}", Just(String::new())];
    let verb = prop::sample::select(vec!["set", "add", "replace", "append", "prepend", "cas"]);
    prop_oneof![
        6 => (verb, key(), number(), value(), noreply()).prop_map(|(verb, key, flags, value, noreply)| {
            let cas = if verb == "cas" { " 1" } else { "" };
            format!("{verb} {key} {flags} 0 {}{cas}{noreply}\r\n{value}\r\n", value.len())
        }),
        4 => prop::collection::vec(key(), 0..4).prop_map(|keys| format!("get {}\r\n", keys.join(" "))),
        // At once or long after the test: in between they would expire here a moment before they do there.
        1 => (number(), key()).prop_map(|(number, key)| format!("gats 90{} {key}\r\n", number.replace('-', ""))),
        3 => ("incr|decr", key(), number(), noreply()).prop_map(|(verb, key, number, noreply)| format!("{verb} {key} {number}{noreply}\r\n")),
        1 => (key(), noreply()).prop_map(|(key, noreply)| format!("delete {key}{noreply}\r\n")),
        1 => (key(), noreply()).prop_map(|(key, noreply)| format!("touch {key} 0{noreply}\r\n")),
        1 => "[a-ln-z ]{0,12}\r\n",
        1 => noreply().prop_map(|noreply| format!("flush_all{noreply}\r\n")),
    ]
}

#[test]
fn random_commands_get_the_same_replies() {
    let Some(memcached) = Memcached::start("random") else { return };
    let server = Running::start(FlatMemory::new(64 << 20), |_| {});
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    let streams = prop::collection::vec(command(), 1..60);
    // Always the same streams: another version of memcached may well differ somewhere.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let compared = TestRunner::new_with_rng(config, rng).run(&streams, |commands| {
        // Every stream starts from nothing.
        let input = format!("delete a\r\ndelete b\r\ndelete c\r\n{}", commands.concat());
        let (theirs, ours) = (memcached.converse(input.as_bytes()), server.converse(input.as_bytes()));
        prop_assert_eq!(comparable(&ours), comparable(&theirs), "{}", input);
        Ok(())
    });
    compared.unwrap_or_else(|error| panic!("{error}"));
}
