//! A `yonder` on a terminal of its own: [`Terminal`] is what a person would see and type on.
//!
//! The terminal is a pseudo-terminal whose other end is read by a thread; what was written is kept as a screen. Waits
//! are for what the screen shows, with an end.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use tempfile::TempDir;
use vt100::Parser;

use crate::TIMEOUT;
use crate::process::RUNTIME_DIR;

const ROWS: u16 = 30;
const COLUMNS: u16 = 100;

/// A command on a terminal. Dropping it kills the command.
pub struct Terminal {
    child: Child,
    command: String,
    /// The end that the person is at.
    master: File,
    /// The end that the command is at, kept open so that its settings can be read when the command is gone.
    slave: File,
    before: Termios,
    written: Receiver<Vec<u8>>,
    screen: Parser,
    /// Where it looks for sockets of processes.
    _runtime: TempDir,
}

/// What a command left behind on its terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What the screen shows, without blank lines at its end.
    pub text: String,
    /// Whether echo, line editing and signals of the terminal are set as they were before.
    pub settings_restored: bool,
    /// Whether the screen is still the alternate one.
    pub alternate_screen: bool,
    /// Whether the cursor is still hidden.
    pub cursor_hidden: bool,
}

impl Terminal {
    pub(crate) fn spawn(path: &Path, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("the system has pseudo-terminals");
        grantpt(&master).expect("a new pseudo-terminal");
        unlockpt(&master).expect("a new pseudo-terminal");
        let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("a plain name");
        let slave = OpenOptions::new().read(true).write(true).open(name).expect("the other end");
        tcsetwinsize(&slave, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).expect("a size");
        let before = tcgetattr(&slave).expect("it is a terminal");
        let end = || Stdio::from(slave.try_clone().expect("one file more"));
        let runtime = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(path);
        command.env(RUNTIME_DIR, runtime.path());
        command.args(args).env_remove("YONDER_LOG").env_remove("RUST_BACKTRACE").env("TERM", "xterm-256color");
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().unwrap_or_else(|error| panic!("{} cannot be started: {error}", path.display()));
        // The command holds copies of the other end, which the child has of its own by now.
        drop(command);
        let master = File::from(master);
        let written = read_all(master.try_clone().expect("one file more"));
        let screen = Parser::new(ROWS, COLUMNS, 0);
        let command = format!("yonder {}", args.join(" "));
        Self { child, command, master, slave, before, written, screen, _runtime: runtime }
    }

    /// Types keys.
    ///
    /// # Panics
    /// If the terminal is gone.
    pub fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("the terminal takes keys");
    }

    /// Waits until the screen shows what `shows` looks for, and returns the screen.
    ///
    /// # Panics
    /// If it never does.
    pub fn wait_until(&mut self, what: &str, shows: impl Fn(&str) -> bool) -> String {
        let give_up = Instant::now() + TIMEOUT;
        loop {
            let text = self.screen.screen().contents();
            if shows(&text) {
                return text;
            }
            match self.written.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(_) => panic!("'{}' does not show {what}, but:\n{text}", self.command),
            }
        }
    }

    /// Whether the command has changed the terminal's settings and draws on the alternate screen.
    ///
    /// # Panics
    /// If the terminal is gone.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        let now = tcgetattr(&self.slave).expect("it is a terminal");
        settings(&now) != settings(&self.before) && self.screen.screen().alternate_screen()
    }

    /// Waits until the command ends, and returns what it left behind.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn end(mut self) -> Left {
        let give_up = Instant::now() + TIMEOUT;
        let code = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status.code();
            }
            assert!(Instant::now() < give_up, "'{}' does not end:\n{}", self.command, self.screen.screen().contents());
            // What it writes must be taken, or it could wait for that.
            self.take_one(Instant::now() + TIMEOUT / 1000);
        };
        let after = tcgetattr(&self.slave).expect("it is a terminal");
        self.take_the_rest();
        let screen = self.screen.screen();
        Left {
            code,
            text: screen.contents().trim_end().to_owned(),
            settings_restored: settings(&after) == settings(&self.before),
            alternate_screen: screen.alternate_screen(),
            cursor_hidden: screen.hide_cursor(),
        }
    }

    /// Takes what was written, waiting for it until `until`. Returns whether there was anything.
    fn take_one(&mut self, until: Instant) -> bool {
        match self.written.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                self.screen.process(&bytes);
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Takes everything that was written before this.
    fn take_the_rest(&mut self) {
        /// Ends the output: no command writes it.
        const MARK: &[u8] = b"\x1b]0;the end\x07";
        self.slave.write_all(MARK).expect("the terminal takes bytes");
        let mut seen = Vec::new();
        while !seen.ends_with(MARK) {
            let bytes = self.written.recv_timeout(TIMEOUT).expect("what was written arrives");
            self.screen.process(&bytes);
            seen.extend(bytes);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended by itself; nothing else can be wrong with a child of ours.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Input, output, control and local modes.
fn settings(termios: &Termios) -> [u64; 4] {
    [
        termios.input_modes.bits().into(),
        termios.output_modes.bits().into(),
        termios.control_modes.bits().into(),
        termios.local_modes.bits().into(),
    ]
}

/// Hands over everything that is written to the other end, until that is closed.
fn read_all(mut master: File) -> Receiver<Vec<u8>> {
    let (sender, written) = channel();
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        // An error says that the other end is closed.
        while let Ok(count) = master.read(&mut bytes) {
            if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    written
}
