//! A running `yonder`, or a program of a test: [`Process`] collects what it prints, waits for it with an end, and kills
//! it when dropped.
//!
//! Two threads read the process's streams to their ends and hand over lines; whoever waits for the process waits for
//! those lines, so no wait is a sleep and none is for ever.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::TIMEOUT;

/// What a server's first line ends with.
const LISTENS: &str = "Ctrl-C ends it";

/// The variable that says where processes keep sockets at which their user may ask them.
pub const RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";

/// Which stream a line came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Output,
    Errors,
}

/// What came of waiting for a line.
enum Next {
    Line(String),
    /// Both streams are at their ends.
    Closed,
    /// The time is over.
    Late,
}

/// A started process. Dropping it kills it.
pub struct Process {
    child: Child,
    /// What it reads, if anybody says anything there.
    input: Option<ChildStdin>,
    command: String,
    lines: Receiver<(Stream, String)>,
    stdout: String,
    stderr: String,
    banner: String,
    /// Where it keeps its sockets, if nobody else is to find them.
    _runtime: Option<TempDir>,
}

/// How a command ended, and what it printed.
#[derive(Clone, Debug)]
pub struct Ended {
    /// What was typed, for messages.
    pub command: String,
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Process {
    /// Starts a process that nobody finds, and that finds nobody.
    pub(crate) fn spawn(path: &Path, args: &[&str]) -> Self {
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let mut process = Self::spawn_in(path, args, runtime.path(), Stdio::null());
        process._runtime = Some(runtime);
        process
    }

    /// Starts a process that finds the others of this folder, and is found by them.
    pub(crate) fn spawn_in(path: &Path, args: &[&str], runtime: &Path, input: Stdio) -> Self {
        let mut command = Command::new(path);
        command.env(RUNTIME_DIR, runtime);
        // Messages are part of what is tested; the environment must not add any.
        command.args(args).env_remove("YONDER_LOG").env_remove("RUST_BACKTRACE");
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{} cannot be started: {error}", path.display()));
        let (sender, lines) = channel();
        read_lines(child.stdout.take().expect("piped"), Stream::Output, sender.clone());
        read_lines(child.stderr.take().expect("piped"), Stream::Errors, sender);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let command = format!("{name} {}", args.join(" "));
        let (stdout, stderr, banner) = (String::new(), String::new(), String::new());
        let input = child.stdin.take();
        Self { child, input, command, lines, stdout, stderr, banner, _runtime: None }
    }

    /// Waits until a server has said where it listens.
    ///
    /// # Panics
    /// If it ends instead, or says nothing for long.
    #[must_use]
    pub fn listening(mut self) -> Self {
        self.banner = self.next_with(LISTENS, |line| line.ends_with(LISTENS).then(|| line.to_owned()));
        self
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has printed a line with `text`, and returns that line.
    ///
    /// # Panics
    /// If it ends instead, or never does.
    pub fn wait_for(&mut self, text: &str) -> String {
        self.next_with(text, |line| line.contains(text).then(|| line.to_owned()))
    }

    /// Waits for a line in which `look` finds something.
    fn next_with<T>(&mut self, what: &str, look: impl Fn(&str) -> Option<T>) -> T {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            match self.next_line(give_up) {
                Next::Line(line) => {
                    if let Some(found) = look(&line) {
                        return found;
                    }
                }
                Next::Closed | Next::Late => panic!("'{}' does not say '{what}', but: {}", self.command, self.stderr),
            }
        }
    }

    /// The address and port of a `kv` server.
    ///
    /// # Panics
    /// If its banner names none.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let found = self.banner.split_whitespace().find_map(|word| word.trim_end_matches([',', ';']).parse().ok());
        found.unwrap_or_else(|| panic!("no address in '{}'", self.banner))
    }

    /// The address and port at which a `kv` server takes datagrams.
    ///
    /// # Panics
    /// If its banner names none.
    #[must_use]
    pub fn udp_address(&self) -> SocketAddr {
        let named = self.banner.split_once("UDP ").and_then(|(_, rest)| rest.split([',', ' ']).next()?.parse().ok());
        named.unwrap_or_else(|| panic!("no address for UDP in '{}'", self.banner))
    }

    /// Where a server that was started with `--metrics` serves them. Waits until it has said so.
    ///
    /// # Panics
    /// If it does not say so.
    #[must_use]
    pub fn metrics_address(&mut self) -> SocketAddr {
        const SAID_BEFORE: &str = "metrics on ";
        let named = |said: &str| said.split_once(SAID_BEFORE)?.1.split([';', '\n']).next().map(str::to_owned);
        let address = named(&self.stderr).unwrap_or_else(|| self.next_with(SAID_BEFORE, named));
        address.parse().unwrap_or_else(|_| panic!("'{address}' is no address"))
    }

    /// What `yonder top --web` has said to open.
    ///
    /// # Panics
    /// If it has not.
    #[must_use]
    pub fn opened(&self) -> String {
        let found = self.banner.split_whitespace().find(|word| word.starts_with("http://"));
        found.unwrap_or_else(|| panic!("nothing to open in '{}'", self.banner)).to_owned()
    }

    /// The first address of a node or controller with this scheme (`tcp`, `udp` or `shm`), as a URL.
    ///
    /// # Panics
    /// If its banner names none.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        let start = format!("{scheme}://");
        let found = self.banner.split_whitespace().find(|word| word.starts_with(&start));
        found
            .unwrap_or_else(|| panic!("no {scheme} address in '{}'", self.banner))
            .trim_end_matches([',', ';'])
            .to_owned()
    }

    /// Says a line to a process that was started together with others.
    ///
    /// # Panics
    /// If it reads nothing.
    pub fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap_or_else(|| panic!("'{}' has no input", self.command));
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("'{}' reads no more: {error}", self.command));
    }

    /// Says no more to it.
    pub fn say_no_more(&mut self) {
        self.input = None;
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("'{}' is gone: {error}", self.command));
    }

    /// Kills it as a crash would, and returns once it is gone.
    pub fn kill(mut self) {
        self.destroy();
    }

    /// Whether it ends within `time`. Reads what it prints meanwhile.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.next_line(until) {
                Next::Line(_) => {}
                Next::Closed => return true,
                Next::Late => return false,
            }
        }
    }

    /// Asks it to end, as Ctrl-C does, and waits for that.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn stop(self) -> Ended {
        self.signal(Signal::INT);
        self.end()
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn end(self) -> Ended {
        self.end_within(TIMEOUT)
    }

    /// Waits until it ends by itself, for at most `time`.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn end_within(mut self, time: Duration) -> Ended {
        assert!(self.ends_within(time), "'{}' does not end; it said: {}", self.command, self.stderr);
        // Both of its streams are closed, so it is ending.
        let status = self.child.wait().expect("a child can be waited for");
        Ended {
            command: self.command.clone(),
            code: status.code(),
            stdout: std::mem::take(&mut self.stdout),
            stderr: std::mem::take(&mut self.stderr),
        }
    }

    /// Waits for the next line of either stream, at most until `until`.
    fn next_line(&mut self, until: Instant) -> Next {
        let (stream, line) = match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(received) => received,
            Err(RecvTimeoutError::Disconnected) => return Next::Closed,
            Err(RecvTimeoutError::Timeout) => return Next::Late,
        };
        let kept = if stream == Stream::Output { &mut self.stdout } else { &mut self.stderr };
        kept.push_str(&line);
        kept.push('\n');
        Next::Line(line)
    }

    fn destroy(&mut self) {
        // It may have ended by itself; nothing else can be wrong with a child of ours.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.destroy();
        if thread::panicking() {
            self.ends_within(Duration::from_secs(1));
            eprintln!("'{}' had said:\n{}", self.command, self.stderr);
        }
    }
}

/// Hands over the lines of a stream until its end.
fn read_lines(stream: impl Read + Send + 'static, name: Stream, lines: Sender<(Stream, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            // A guard that is gone wants no more lines, but a process whose pipe is closed would get an error.
            let _ = lines.send((name, String::from_utf8_lossy(&line).into_owned()));
        }
    });
}

impl Ended {
    /// Standard output as JSON Lines.
    ///
    /// # Panics
    /// If a line of it is not a JSON object.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let parse = |line: &str| match serde_json::from_str(line) {
            Ok(Value::Object(object)) => Value::Object(object),
            _ => panic!("'{}' printed '{line}', which is no JSON object", self.command),
        };
        self.stdout.lines().map(parse).collect()
    }

    /// The only JSON object on standard output of a command that succeeded.
    ///
    /// # Panics
    /// If it failed, or printed anything else.
    #[must_use]
    pub fn object(&self) -> Value {
        assert_eq!(self.code, Some(0), "'{}' failed: {}", self.command, self.stderr);
        let mut objects = self.objects();
        assert_eq!(objects.len(), 1, "'{}' printed {}", self.command, self.stdout);
        objects.remove(0)
    }

    /// The one line of standard error of a command that failed with `code`.
    ///
    /// # Panics
    /// If it ended in another way, or said anything else.
    #[must_use]
    pub fn complaint(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "'{}' said: {}", self.command, self.stderr);
        let lines: Vec<&str> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "'{}' said: {}", self.command, self.stderr);
        lines[0]
    }
}
