//! [`Connection`]: one client of a server: a line comes, lines go, and that is all.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::PollFlags;
use yonder_settings::{Lines, REQUEST_BYTES_MAX, Refusal};

use crate::answer::{Controlled, answer, refused_or};
use crate::checked_socket::CheckedSocket;

/// A client, until it has its answer or `deadline` is over.
pub(crate) struct Connection {
    pub(crate) socket: CheckedSocket<UnixStream>,
    pub(crate) deadline: Instant,
    stage: Stage,
}

enum Stage {
    /// The request has not come yet.
    Asked(Lines),
    /// So much of the answer has gone.
    Answered { answer: Vec<u8>, sent: usize },
}

/// Whether there is more to do with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Going {
    On,
    Over,
}

impl Connection {
    /// A client on a socket that does not wait.
    pub(crate) fn new(socket: CheckedSocket<UnixStream>, deadline: Instant) -> Self {
        Self { socket, deadline, stage: Stage::Asked(Lines::new(REQUEST_BYTES_MAX)) }
    }

    /// A client that is told why it is told nothing.
    pub(crate) fn refused(socket: CheckedSocket<UnixStream>, deadline: Instant, why: String) -> Self {
        let answer = refused_or(Err(Refusal::Refused(why))).into_bytes();
        Self { socket, deadline, stage: Stage::Answered { answer, sent: 0 } }
    }

    /// What the socket must be ready for.
    pub(crate) fn awaits(&self) -> PollFlags {
        match self.stage {
            Stage::Asked(_) => PollFlags::IN,
            Stage::Answered { .. } => PollFlags::OUT,
        }
    }

    /// Does what can be done without waiting.
    pub(crate) fn step(&mut self, controlled: &dyn Controlled) -> Going {
        if let Stage::Asked(lines) = &mut self.stage {
            let Some(mut socket) = self.socket.get() else { return Going::Over };
            let mut bytes = [0; REQUEST_BYTES_MAX];
            match socket.read(&mut bytes) {
                Ok(0) => return Going::Over,
                Ok(count) => lines.push(&bytes[..count]),
                Err(error) => return later(error.kind()),
            }
            let said = match lines.next_line() {
                Ok(None) => return Going::On,
                Ok(Some(line)) => answer(controlled, &line),
                Err(_) => {
                    let why = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                    refused_or(Err(Refusal::Refused(why)))
                }
            };
            self.stage = Stage::Answered { answer: said.into_bytes(), sent: 0 };
        }
        self.send()
    }

    fn send(&mut self) -> Going {
        let Stage::Answered { answer, sent } = &mut self.stage else { return Going::On };
        while *sent < answer.len() {
            let Some(mut socket) = self.socket.get() else { return Going::Over };
            match socket.write(&answer[*sent..]) {
                Ok(count) => *sent += count,
                Err(error) => return later(error.kind()),
            }
        }
        Going::Over
    }
}

fn later(kind: ErrorKind) -> Going {
    if matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted) { Going::On } else { Going::Over }
}
