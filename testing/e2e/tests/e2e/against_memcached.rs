//! The same seeded commands, classic and meta, to `yonder kv` and to memcached itself: the answers are the same bytes,
//! but for what [`DIFFERENCES`] lists, which the guide has too (applications, "Beside memcached").
//!
//! The server has less local memory than its items take. Prints SKIP where memcached is not installed.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use yonder_e2e::{TIMEOUT, Yonder};

/// Commands of one conversation.
const COMMANDS: usize = 6_000;
/// Ends what each command is answered with.
const END: &str = "MN\r\n";
/// Keys of the classic commands; the meta commands have these too.
const KEYS: [&str; 6] = ["a", "b", "c", "key-with-more-letters", "Zm9v", "0"];
/// Keys in base64.
const BASE64_KEYS: [&str; 4] = ["YmluYXJ5", "Zm9vIGJhcg==", "dHdvd29yZHM=", "Zm9v"];
/// What they stand for.
const DECODED_KEYS: [&str; 4] = ["binary", "foo bar", "twowords", "foo"];

/// What the two answer differently on purpose, and how the words of an answer are made the same.
struct Difference {
    /// Also what the guide says.
    what: &'static str,
    alike: fn(&str) -> Option<String>,
}

/// Differences that are seen in answers. What leads to others is not asked for: flags that came after 1.6.18,
/// `flush_all` with a delay, lines and opaque tokens that are too long, and NUL in keys.
const DIFFERENCES: [Difference; 5] = [
    Difference {
        what: "`t` of an item that has just expired is 0, there 2^32 less the seconds; clocks differ by a second",
        alike: |word| {
            let seconds: i64 = word.strip_prefix('t')?.parse().ok()?;
            Some(format!("t{}", rounded(seconds)))
        },
    },
    Difference {
        what: "`exp` of `me` is the time that is left; there its negative",
        alike: |word| {
            let seconds: i64 = word.strip_prefix("exp=")?.parse().ok()?;
            Some(format!("exp={}", rounded(if seconds == -1 { -1 } else { seconds.abs() })))
        },
    },
    Difference {
        what: "`l` and `la` count every access, with `--access-times`, and are 0 without; there some are left out",
        alike: |word| {
            let seconds: u32 = word.strip_prefix("la=").or(word.strip_prefix('l'))?.parse().ok()?;
            (seconds < TIMEOUT.as_secs() as u32).then(|| "l".to_owned())
        },
    },
    Difference {
        what: "`cls` and `size` of `me` are of other classes and headers",
        alike: |word| (word.starts_with("cls=") || word.starts_with("size=")).then(String::new),
    },
    Difference {
        what: "a key that came in base64 is shown so for as long as the item lives; there not after `N`, `MA` and `MP`",
        alike: |word| {
            let (letter, key) = if let Some(key) = word.strip_prefix('k') { ("k", key) } else { ("", word) };
            let text = BASE64_KEYS.iter().position(|known| *known == key).map(|at| DECODED_KEYS[at].replace(' ', "_"));
            (word == "b").then(String::new).or(text.map(|text| format!("{letter}{text}")))
        },
    },
];

/// Seconds that are left, so that a second makes no difference.
fn rounded(seconds: i64) -> String {
    match seconds {
        -1 => "never".to_owned(),
        0 | 0x8000_0000.. => "expired".to_owned(),
        _ => ((seconds + 50) / 100 * 100).to_string(),
    }
}

/// An answer with its differences on purpose taken out. Values have no line that starts like an answer.
fn alike(answer: &str) -> String {
    let line = |line: &str| {
        if !["HD", "VA", "EN", "NF", "NS", "EX", "ME"].iter().any(|code| line.starts_with(code)) {
            return line.to_owned();
        }
        let line = line.replace("foo bar", "foo_bar");
        let word = |word: &str| {
            let made = DIFFERENCES.iter().find_map(|difference| (difference.alike)(word));
            made.unwrap_or_else(|| word.to_owned())
        };
        let words: Vec<String> = line.split(' ').map(word).filter(|word| !word.is_empty()).collect();
        words.join(" ")
    };
    answer.split("\r\n").map(line).collect::<Vec<_>>().join("\r\n")
}

/// A memcached on a socket of its own, which ends with its guard.
struct Memcached {
    process: Child,
    socket: PathBuf,
    _folder: TempDir,
}

impl Memcached {
    /// None, and a line that says why, where there is none.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    fn start_with(more: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("memcached");
        let path = socket.to_str().expect("a plain name");
        // The user only matters where tests run as root, which memcached refuses to do.
        // Its threads behind the scenes hold items now and then, and an item that is held is changed in another way: a
        // number that has become shorter is not padded.
        let arguments = ["-s", path, "-u", "root", "-m", "64", "-t", "1", "-o", "no_lru_maintainer,no_lru_crawler"];
        match Command::new("memcached").args(arguments).args(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(process) => Some(Self { process, socket, _folder: folder }),
            Err(error) => {
                println!("SKIP: memcached cannot be run ({error}): apt-get install memcached");
                None
            }
        }
    }

    fn connect(&self) -> UnixStream {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            if let Ok(client) = UnixStream::connect(&self.socket) {
                client.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
                return client;
            }
            assert!(Instant::now() < give_up, "memcached does not listen");
            thread::yield_now();
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One command, and what ends its answer.
fn ask<S: Read + Write>(server: &mut BufReader<S>, command: &str) -> String {
    server.get_mut().write_all(format!("{command}mn\r\n").as_bytes()).expect("the server listens");
    let mut answer = Vec::new();
    while !answer.ends_with(END.as_bytes()) {
        let read = server.read_until(b'\n', &mut answer).unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(read > 0, "{command:?} ends the connection after {}", answer.escape_ascii());
    }
    String::from_utf8(answer).expect("answers are text")
}

/// Random commands. Those of one seed are the same as long as the servers answer the same.
struct Commands {
    random: StdRng,
    /// A cas unique that a server has told of.
    cas: u64,
}

impl Commands {
    fn pick<'a>(&mut self, among: &[&'a str]) -> &'a str {
        among.choose(&mut self.random).expect("there is a choice")
    }

    fn value(&mut self) -> String {
        match self.random.random_range(0..6) {
            0..2 => self.random.random_range(0..1200_u64).to_string(),
            2 => String::new(),
            3 => "18446744073709551615".to_owned(),
            4 => "w".repeat(self.random.random_range(0..3000)),
            _ => "some text".to_owned(),
        }
    }

    fn exptime(&mut self) -> i64 {
        *[0, 0, 0, 1_000, 2_000, 50_000, -1].choose(&mut self.random).expect("there is a choice")
    }

    fn some_cas(&mut self) -> u64 {
        let near = self.random.random_range(0..3);
        *[self.cas, self.cas, self.cas.saturating_sub(near), self.cas + near, 0, 1]
            .choose(&mut self.random)
            .expect("there is a choice")
    }

    fn classic(&mut self) -> String {
        let (key, other) = (self.pick(&KEYS), self.pick(&KEYS));
        let noreply = self.pick(&["", "", "", " noreply"]);
        let (exptime, delta) = (self.exptime(), self.random.random_range(0..2000));
        match self.random.random_range(0..13) {
            0..4 => {
                let verb = self.pick(&["set", "add", "replace", "append", "prepend"]);
                let (flags, value) = (self.random.random_range(0..9), self.value());
                format!("{verb} {key} {flags} {exptime} {}{noreply}\r\n{value}\r\n", value.len())
            }
            4 => {
                let (cas, value) = (self.some_cas(), self.value());
                format!("cas {key} 0 {exptime} {} {cas}{noreply}\r\n{value}\r\n", value.len())
            }
            5..7 => format!("{} {key} {other}\r\n", self.pick(&["get", "gets"])),
            7 => format!("{} {exptime} {key} {other}\r\n", self.pick(&["gat", "gats"])),
            8 => format!("touch {key} {exptime}{noreply}\r\n"),
            9 => format!("delete {key}{noreply}\r\n"),
            10..12 => format!("{} {key} {delta}{noreply}\r\n", self.pick(&["incr", "decr"])),
            _ if self.random.random_ratio(1, 40) => format!("flush_all{noreply}\r\n"),
            _ => "verbosity 1\r\n".to_owned(),
        }
    }

    /// Flags in any order, each at most once but for a slip.
    fn flags(&mut self, among: &[&str]) -> String {
        let mut flags = String::new();
        for _ in 0..self.random.random_range(0..6) {
            let flag = self.pick(among);
            let token = match flag {
                "T" | "N" | "R" => self.exptime().to_string(),
                "C" => self.some_cas().to_string(),
                "O" => ["1", "opaque", "!", ""].choose(&mut self.random).expect("a choice").to_string(),
                "F" | "D" | "J" => self.random.random_range(0..300).to_string(),
                _ => String::new(),
            };
            // Two of a letter are an error, which is tried now and then.
            if !flags.contains(&format!(" {}", &flag[..1])) || self.random.random_ratio(1, 30) {
                flags += &format!(" {flag}{token}");
            }
        }
        if self.random.random_ratio(1, 60) {
            flags += self.pick(&[" !", " T", " Tx", " Cx", " Fx", " Mxx"]);
        }
        flags
    }

    fn meta(&mut self) -> String {
        let in_base64 = self.random.random_ratio(1, 4);
        let key = if in_base64 { self.pick(&BASE64_KEYS) } else { self.pick(&KEYS) };
        let form = if in_base64 || self.random.random_ratio(1, 40) { " b" } else { "" };
        match self.random.random_range(0..14) {
            0..5 => {
                let known = ["c", "f", "h", "k", "l", "O", "q", "s", "t", "u", "v", "v", "N", "R", "T", "P"];
                format!("mg {key}{form}{}\r\n", self.flags(&known))
            }
            5..9 => {
                let known = ["c", "k", "O", "q", "F", "I", "T", "C", "ME", "MA", "MP", "MR", "MS", "MX"];
                let (flags, value) = (self.flags(&known), self.value());
                let announced = if self.random.random_ratio(1, 60) { value.len() / 2 } else { value.len() };
                format!("ms {key} {announced}{form}{flags}\r\n{value}\r\n")
            }
            9..11 => format!("md {key}{form}{}\r\n", self.flags(&["k", "O", "q", "I", "I", "T", "C"])),
            11..13 => {
                let known = ["c", "k", "O", "t", "v", "v", "N", "J", "D", "T", "C", "MI", "MD", "M+", "M-", "MX"];
                let flags = self.flags(&known);
                // Only where nothing is made: that is not kept quiet there.
                let quiet = if !flags.contains(" N") && self.random.random_ratio(1, 5) { " q" } else { "" };
                format!("ma {key}{form}{flags}{quiet}\r\n")
            }
            _ => format!("me {key}{form}\r\n"),
        }
    }

    fn next(&mut self) -> String {
        match self.random.random_range(0..40) {
            0 => self.pick(&["mg\r\n", "ms a\r\n", "me\r\n", "ms a x\r\n", "mz a\r\n", "ma\r\n", "\r\n"]).to_owned(),
            1..14 => self.classic(),
            _ => self.meta(),
        }
    }

    /// Takes a cas unique from an answer.
    fn learn(&mut self, answer: &str) {
        let named = answer.split([' ', '\r', '\n']).find_map(|word| word.strip_prefix('c')?.parse().ok());
        self.cas = named.unwrap_or(self.cas);
    }
}

#[test]
fn random_commands_are_answered_alike() {
    let Some(memcached) = Memcached::start() else { return };
    let Some(yonder) = Yonder::ready() else { return };
    let server =
        yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--local", "4MiB", "--access-times"]);
    for seed in 0..3 {
        let mut commands = Commands { random: StdRng::seed_from_u64(seed), cas: 1 };
        let mut theirs = BufReader::new(memcached.connect());
        let ours = TcpStream::connect(server.address()).expect("the server listens");
        ours.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
        let mut ours = BufReader::new(ours);
        let mut said: Vec<String> = Vec::new();
        // From here on, accesses are recorded.
        for command in ["flush_all\r\n", "me a\r\n"] {
            assert_eq!(ask(&mut ours, command), ask(&mut theirs, command));
        }
        for number in 0..COMMANDS {
            let command = commands.next();
            let (their_answer, our_answer) = (ask(&mut theirs, &command), ask(&mut ours, &command));
            commands.learn(&their_answer);
            assert_eq!(
                alike(&our_answer),
                alike(&their_answer),
                "{command:?}, number {number} of seed {seed}, after {:#?}",
                &said[said.len().saturating_sub(20)..]
            );
            said.push(command);
        }
        pipelined(&said, &memcached, &server);
    }
}

/// The same commands once more, without waiting for answers, and without numbers: memcached pads one that has become
/// shorter only if its value is not being sent.
fn pipelined(said: &[String], memcached: &Memcached, server: &yonder_e2e::Process) {
    let is_sum = |command: &String| ["incr", "decr", "ma"].iter().any(|verb| command.starts_with(verb));
    let said: Vec<&str> = said.iter().filter(|command| !is_sum(command)).map(String::as_str).collect();
    let script = format!("flush_all\r\n{}mn\r\n", said.concat());
    let theirs = {
        let client = memcached.connect();
        let sender = client.try_clone().expect("one file more");
        converse(client, sender, |sender| sender.shutdown(Shutdown::Write), &script)
    };
    let ours = {
        let client = TcpStream::connect(server.address()).expect("the server listens");
        client.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
        let sender = client.try_clone().expect("one file more");
        converse(client, sender, |sender| sender.shutdown(Shutdown::Write), &script)
    };
    let (theirs, ours) = (alike(&theirs), alike(&ours));
    for (number, (our_line, their_line)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our_line, their_line, "line {number} of the answer to all at once");
    }
    assert_eq!(ours.len(), theirs.len());
}

/// What strangers say, each in a connection of its own, and what each is answered with one line before the next.
const OF_STRANGERS: [&[&str]; 6] = [
    &["get a\r\n", "mn\r\n", "stats\r\n", "version\r\n", "mg a v\r\n", "quit\r\n", "\r\n", "set a 0 0 x\r\n"],
    &["set a 0 0 12\r\nalice secreX\r\n", "set a 0 0 12\r\nalice secret\r\n", "version x\r\n", "mn\r\n"],
    &["set a 0 0 5\r\nalice\r\n", "set a 0 0 0\r\n\r\n", "set a 0 0 5\r\nalice\nX", "set a 0 0 -1\r\n"],
    &["add a 0 0 12\r\n", "set a x y 12 noreply\r\nalice secret\r\n", "set k 0 0 1\r\n1\r\n", "get k\r\n"],
    &["  set   a 0  0 14\r\n alice  secret\r\n", "incr none 1\r\n", "bad\r\n"],
    &["set a 0 0 7\nbob x:y\r\n", "set a 0 0 9\r\nalice x:y\r\n", "refresh_certs\r\n"],
];

#[test]
fn who_is_let_in_is_answered_alike() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let users = folder.path().join("users");
    std::fs::write(&users, "alice:secret\nbob:x:y\n").expect("a temporary folder takes files");
    std::fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("the file is ours");
    let users = users.to_str().expect("a plain name");
    let Some(memcached) = Memcached::start_with(&["-Y", users]) else { return };
    let Some(yonder) = Yonder::ready() else { return };
    let server = yonder.serve(&["kv", "--listen", "127.0.0.1:0", "--memory", "64MiB", "--auth-file", users]);
    for conversation in OF_STRANGERS {
        let mut theirs = BufReader::new(memcached.connect());
        let ours = TcpStream::connect(server.address()).expect("the server listens");
        ours.set_read_timeout(Some(TIMEOUT)).expect("a valid time");
        let mut ours = BufReader::new(ours);
        for said in conversation {
            let (our_line, their_line) = (line_after(&mut ours, said), line_after(&mut theirs, said));
            // They are of other versions.
            let same = |line: &str| line.split(' ').next() == Some("VERSION");
            assert!(our_line == their_line || (same(&our_line) && same(&their_line)), "{said:?}: {our_line:?}");
        }
    }
}

/// The first line of the answer.
fn line_after<S: Read + Write>(server: &mut BufReader<S>, said: &str) -> String {
    server.get_mut().write_all(said.as_bytes()).expect("the server listens");
    let mut line = String::new();
    server.read_line(&mut line).unwrap_or_else(|error| panic!("{said:?}: {error}"));
    line
}

fn converse<S: Read, W: Write + Send>(
    mut client: S,
    mut sender: W,
    end: impl FnOnce(&W) -> std::io::Result<()> + Send,
    script: &str,
) -> String {
    thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(script.as_bytes()).expect("the server listens");
            end(&sender).expect("the connection is open");
        });
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("the server answers with text");
        answer
    })
}

#[test]
fn the_guide_lists_the_differences() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/src/applications.md");
    let guide = std::fs::read_to_string(path).expect("the guide is there");
    for Difference { what, .. } in DIFFERENCES {
        assert!(guide.contains(what), "{what}");
    }
}
