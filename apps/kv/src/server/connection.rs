//! One TCP client: [`Connection`] moves bytes between its socket and its [`Session`].
//!
//! Readiness is edge-triggered: `readable` stays set until a read has found nothing more. A failing socket ends only
//! its own connection.

use std::io::{self, Read};
use std::net::Shutdown;

use mio::event::Event;
use mio::net::TcpStream;

use super::buffers::{Input, Output};
use super::report::Traffic;
use super::session::{Next, Session};
use crate::protocol::{Command, StatsKind};

/// Waiting output beyond which a client is not listened to.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Reads in one turn before other clients get theirs.
const READS_MAX: usize = 16;
/// What a refused client may go on to send while it has not seen why.
const LINGER_BYTES_MAX: usize = 4 << 20;

/// What becomes of a connection after its turn.
#[derive(Debug)]
pub(super) enum Fate {
    /// It waits for its socket.
    Waits,
    /// It wants another turn.
    Again,
    /// It wants this executed, and then another turn.
    Executes(Command),
    /// It is over.
    Over,
}

/// What a read attempt led to.
enum Filled {
    Some,
    Nothing,
    Failed,
}

/// One TCP client.
pub(super) struct Connection {
    socket: TcpStream,
    session: Session,
    readable: bool,
    /// The peer has shut down its side, so reads go on until they say so.
    read_closed: bool,
    executing: bool,
    /// Once the client was refused: how much more is read and thrown away. Closing a socket with unread input would
    /// take the error away from the client.
    linger_bytes: Option<usize>,
    /// Whether it is in the queue of those that want a turn.
    pub(super) queued: bool,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, value_bytes_max: usize) -> Self {
        Self {
            socket,
            session: Session::new(value_bytes_max, OUTPUT_BYTES_MAX, Input::default()),
            readable: false,
            read_closed: false,
            executing: false,
            linger_bytes: None,
            queued: false,
        }
    }

    pub(super) fn socket(&mut self) -> &mut TcpStream {
        &mut self.socket
    }

    /// The socket is ready for something.
    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.read_closed |= event.is_read_closed();
    }

    /// Goes on until the connection waits for something, or others should have their turn.
    pub(super) fn turn(
        &mut self,
        traffic: &mut Traffic,
        describe: &mut dyn FnMut(StatsKind, &mut Output, &mut Traffic),
    ) -> Fate {
        let fate = if self.executing { Fate::Waits } else { self.advance(traffic, describe) };
        if matches!(fate, Fate::Over) || self.flush(traffic).is_err() {
            Fate::Over
        } else if !self.is_over() {
            fate
        } else if self.session.is_refused() {
            self.linger()
        } else {
            Fate::Over
        }
    }

    /// The command that was handed out has been executed. Returns whether the connection is over.
    pub(super) fn executed(&mut self, reply: Vec<u8>, rest: Option<Command>, traffic: &mut Traffic) -> bool {
        self.executing = false;
        self.session.executed(reply, rest);
        self.flush(traffic).is_err() || self.is_over()
    }

    /// The server ends: what is being executed is answered, nothing else is begun.
    pub(super) fn stop(&mut self) {
        self.session.end();
    }

    fn advance(
        &mut self,
        traffic: &mut Traffic,
        describe: &mut dyn FnMut(StatsKind, &mut Output, &mut Traffic),
    ) -> Fate {
        let mut reads = 0;
        loop {
            let next = self.session.next(&mut |kind, output| describe(kind, output, traffic));
            match next {
                Next::Execute(command) => {
                    self.executing = true;
                    return Fate::Executes(command);
                }
                Next::Turn => return Fate::Again,
                Next::End => return Fate::Waits,
                Next::Output => {
                    let before = self.session.output.len();
                    let failed = self.flush(traffic).is_err();
                    return if failed {
                        Fate::Over
                    } else if self.session.output.len() < before {
                        Fate::Again
                    } else {
                        Fate::Waits
                    };
                }
                Next::Input { bytes } => {
                    if reads == READS_MAX {
                        return Fate::Again;
                    }
                    reads += 1;
                    match self.fill(bytes, traffic) {
                        Filled::Some => {}
                        Filled::Nothing => return Fate::Waits,
                        Filled::Failed => return Fate::Over,
                    }
                }
            }
        }
    }

    fn fill(&mut self, bytes: usize, traffic: &mut Traffic) -> Filled {
        while self.readable {
            match self.session.input.fill(&mut self.socket, bytes) {
                Ok((0, _)) => {
                    self.readable = false;
                    self.session.input_ended();
                    return Filled::Some;
                }
                Ok((read, asked)) => {
                    traffic.bytes_read += read as u64;
                    // A short read has emptied the socket. Whatever comes later, its end included, is a new event.
                    self.readable = read == asked || self.read_closed;
                    return Filled::Some;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Filled::Failed,
            }
        }
        Filled::Nothing
    }

    /// Reads what a refused client still sends, until it closes its side.
    fn linger(&mut self) -> Fate {
        if self.linger_bytes.is_none() {
            self.linger_bytes = Some(LINGER_BYTES_MAX);
            if self.socket.shutdown(Shutdown::Write).is_err() {
                return Fate::Over;
            }
        }
        let mut scratch = [0; 4096];
        for _ in 0..READS_MAX {
            match self.socket.read(&mut scratch) {
                Ok(read) => {
                    self.linger_bytes = self.linger_bytes.and_then(|left| left.checked_sub(read));
                    if read == 0 || self.linger_bytes.is_none() {
                        return Fate::Over;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Fate::Waits,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Fate::Over,
            }
        }
        Fate::Again
    }

    fn flush(&mut self, traffic: &mut Traffic) -> io::Result<()> {
        traffic.bytes_written += self.session.output.flush(&mut self.socket)? as u64;
        Ok(())
    }

    fn is_over(&self) -> bool {
        !self.executing && self.session.is_ended() && self.session.output.len() == 0
    }
}
