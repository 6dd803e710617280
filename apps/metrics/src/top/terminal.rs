//! [`Terminal`]: the user's terminal while the live view is up. It tells keys at once, and shows a screen of its own;
//! what was there before comes back when this is dropped.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::screen::Screen;

/// A screen of its own, without a cursor; and back again.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const CLEAR: &str = "\x1b[2J";
/// Most bytes of keys that are read at once.
const KEYS_MAX: usize = 64;

/// A terminal that has been taken over.
pub(super) struct Terminal {
    keys: OwnedFd,
    before: Termios,
    /// The size that was last drawn on.
    size: (usize, usize),
}

impl Terminal {
    /// Takes over the terminal that standard output goes to.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let keys =
            if stdin.is_terminal() { stdin.as_fd().try_clone_to_owned()? } else { File::open("/dev/tty")?.into() };
        let before = tcgetattr(&keys)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&keys, OptionalActions::Now, &raw)?;
        let terminal = Self { keys, before, size: (0, 0) };
        send(ENTER)?;
        // What a panic says must not go with the screen on which it would be said.
        let said = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = send(LEAVE);
            said(panic);
        }));
        Ok(terminal)
    }

    /// Shows what `view` draws on a screen of the terminal's size.
    pub(super) fn draw(&mut self, view: impl FnOnce(&mut Screen)) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())?;
        let size = (usize::from(size.ws_col), usize::from(size.ws_row));
        let mut screen = Screen::new(size.0, size.1);
        view(&mut screen);
        let clear = if size == self.size { "" } else { CLEAR };
        self.size = size;
        send(&format!("{clear}{}", screen.to_terminal()))
    }

    /// Whether a key that quits is pressed within this time.
    pub(super) fn quits_within(&self, wait: Duration) -> io::Result<bool> {
        let wait = wait.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut [PollFd::new(&self.keys, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            outcome => outcome?,
        };
        let mut keys = [0; KEYS_MAX];
        let count = rustix::io::read(&self.keys, &mut keys)?;
        Ok(quits(&keys[..count]))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that has gone.
        let _ = send(LEAVE);
        let _ = tcsetattr(&self.keys, OptionalActions::Now, &self.before);
    }
}

fn send(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Whether these keys, read at once, have q, Ctrl-C or Escape among them. Escape alone is itself; before something else
/// it begins the sequence of another key. No keys at all: the terminal has gone.
fn quits(keys: &[u8]) -> bool {
    match keys {
        [] | [b'\x1b'] => true,
        [b'\x1b', ..] => false,
        _ => keys.iter().any(|key| matches!(key, b'q' | b'\x03')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_quit() {
        for keys in [b"q".as_slice(), b"\x03", b"\x1b", b"abq", b""] {
            assert!(quits(keys), "{keys:?}");
        }
        for keys in [b"c".as_slice(), b"\x1b[A", b"\x1bOq"] {
            assert!(!quits(keys), "{keys:?}");
        }
    }
}
