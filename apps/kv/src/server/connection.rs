//! One client that is connected: [`Connection`] moves bytes between its socket and its [`Session`].
//!
//! Readiness is edge-triggered: `readable` stays set until a read has found nothing more. A failing socket ends only
//! its own connection.
//!
//! What it has allocated beyond [`FREE_BYTES`] is charged to the budget of all connections: input before it grows, a
//! reply before it comes, everything else after each turn ([`Connection::settle`]).

use std::io;
use std::net::Shutdown;
use std::sync::Arc;

use mio::event::{Event, Source};
use yonder_units::Nanos;

use super::budget::Charge;
use super::buffers::{IDLE_BYTES_MAX, Input, Output};
use super::channel::{Channel, UNFINISHED};
use super::passwords::Passwords;
use super::progress::Progress;
use super::report::Traffic;
use super::session::{Inquiry, Next, Session};
use crate::protocol::{Command, Parser, reply};
use crate::store::Execution;

/// Waiting output beyond which a client is not listened to.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Reads in one turn before other clients get theirs.
const READS_MAX: usize = 16;
/// What a refused client may go on to send while it has not seen why.
const LINGER_BYTES_MAX: usize = 4 << 20;
/// What a connection may allocate and is not charged for: two buffers at rest.
const FREE_BYTES: usize = 2 * IDLE_BYTES_MAX;
/// What each is charged for beside that, so that there is room for the key of a command that is refused, and for an
/// error.
const SLACK_BYTES: usize = 512;

const _: () = assert!(reply::NO_ROOM_FOR_REPLY.len() < SLACK_BYTES && reply::NO_ROOM_FOR_COMMAND.len() < SLACK_BYTES);

/// What one connection can have allocated at most: a command, the value that it changes, the input behind it, and a
/// reply behind others.
pub(super) fn bytes_max(value_bytes_max: usize) -> usize {
    3 * Parser::input_bytes_max(value_bytes_max) + 4 * OUTPUT_BYTES_MAX
}

/// What becomes of a connection after its turn.
#[derive(Debug)]
pub(super) enum Fate {
    /// It waits for its socket.
    Waits,
    /// It wants another turn.
    Again,
    /// It has no room for the input that comes next: it wants another turn once it does, or once that is refused.
    Starved,
    /// It wants to be told which connections there are, and then another turn.
    Lists,
    /// It wants this executed, and then another turn.
    Executes(Command),
    /// It is over.
    Over,
}

/// What a read attempt led to.
enum Filled {
    Some,
    Nothing,
    NoRoom,
    /// There may be more to be read at once.
    Unfinished,
    /// What was sent is not the TLS that is wanted.
    Refused,
    Failed,
}

/// One client.
pub(super) struct Connection {
    socket: Channel,
    session: Session,
    readable: bool,
    /// The peer has shut down its side, so reads go on until they say so.
    read_closed: bool,
    executing: bool,
    charge: Charge,
    /// What its input is about to grow by, or a reply to bring.
    growth_bytes: usize,
    /// What was executed and is not sent yet.
    answered: Execution,
    progress: Progress,
    /// Once the client was refused: how much more is read and thrown away. Closing a socket with unread input would
    /// take the error away from the client.
    linger_bytes: Option<usize>,
    /// Whether it is in the queue of those that want a turn.
    pub(super) queued: bool,
}

impl Connection {
    /// A client of which nothing is known; it has to say one of the passwords, if there are any.
    pub(super) fn new(socket: Channel, value_bytes_max: usize, passwords: Option<Arc<Passwords>>, now: Nanos) -> Self {
        let mut session = Session::new(value_bytes_max, OUTPUT_BYTES_MAX, Input::default());
        if let Some(passwords) = passwords {
            session.ask_who_it_is(passwords);
        }
        Self {
            socket,
            session,
            readable: false,
            read_closed: false,
            executing: false,
            charge: Charge::default(),
            growth_bytes: 0,
            answered: Execution::default(),
            progress: Progress::new(now),
            linger_bytes: None,
            queued: false,
        }
    }

    /// What is registered with a poll.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        self.socket.source()
    }

    /// The socket is ready for something.
    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.read_closed |= event.is_read_closed();
    }

    /// Goes on until the connection waits for something, or others should have their turn.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        traffic: &mut Traffic,
        ask: &mut dyn FnMut(Inquiry, &mut Output, &mut Traffic),
    ) -> Fate {
        let fate = if self.executing { Fate::Waits } else { self.advance(now, traffic, ask) };
        if matches!(fate, Fate::Over) || self.flush(now, traffic).is_err() {
            Fate::Over
        } else if !self.is_over() {
            if !self.executing && !self.is_stranger() && self.session.is_between_commands() {
                self.progress.made(now);
            }
            fate
        } else if self.session.is_refused() {
            self.linger()
        } else {
            Fate::Over
        }
    }

    /// The command that was handed out has been executed. What its reply was charged for is the client's from now on,
    /// and is to be settled before [`Connection::answer`].
    pub(super) fn executed(&mut self, execution: Execution, charge: Charge) {
        self.charge.add(charge);
        self.session.replace_command(execution.rest.as_ref());
        self.growth_bytes = execution.reply.capacity();
        self.answered = execution;
    }

    /// Sends the reply, or that there is no room for it. Returns whether the connection is over.
    pub(super) fn answer(&mut self, has_room: bool, now: Nanos, traffic: &mut Traffic) -> bool {
        let Execution { mut reply, mut rest } = std::mem::take(&mut self.answered);
        if !has_room && reply.len() > SLACK_BYTES {
            (reply, rest) = (reply::NO_ROOM_FOR_REPLY.to_vec(), None);
        }
        (self.executing, self.growth_bytes) = (false, 0);
        if self.session.output.len() == 0 {
            // The client has its second from now on. One that has not taken earlier replies had it already.
            self.progress.made(now);
        }
        self.session.executed(reply, rest);
        self.flush(now, traffic).is_err() || self.is_over()
    }

    /// Charges the client for what it has allocated and is about to, and for an error. Returns whether there was room.
    #[must_use]
    pub(super) fn settle(&mut self, traffic: &mut Traffic) -> bool {
        let bytes = self.session.allocated_bytes() + self.growth_bytes + SLACK_BYTES;
        traffic.buffers.charge(&mut self.charge, bytes.saturating_sub(FREE_BYTES))
    }

    /// There is no room for the command that was handed out. Returns what is to be executed in its place; else it is
    /// answered.
    pub(super) fn shed(&mut self, command: Command) -> Option<Command> {
        let instead = command.without_room();
        self.session.replace_command(instead.as_ref().ok());
        let answer = |error: &'static [u8]| {
            self.executing = false;
            self.session.output.push(error);
        };
        instead.map_err(answer).ok()
    }

    /// There was no room for the input that comes next, and none could be made.
    pub(super) fn refuse_input(&mut self) {
        self.growth_bytes = 0;
        self.session.refuse_input();
    }

    /// Whether memory would be free without it.
    pub(super) fn is_charged(&self) -> bool {
        self.charge.bytes() > 0
    }

    /// Whether it has begun something and not ended it, or has never asked for anything: if it is silent, it is no
    /// loss.
    pub(super) fn may_give_way(&self) -> bool {
        !self.session.is_between_commands() || !self.progress.has_begun() || self.is_stranger()
    }

    /// Whether the client has not shown yet what is asked of it: a handshake, or a password. Nothing that it does is
    /// progress.
    pub(super) fn is_stranger(&self) -> bool {
        self.session.is_strange() || self.is_handshaking()
    }

    /// Whether the handshake of TLS is not over.
    pub(super) fn is_handshaking(&self) -> bool {
        self.socket.is_handshaking()
    }

    /// What `stats conns` says of it: its peer, and what it is doing.
    pub(super) fn describe(&self) -> (String, &'static str) {
        let state = match &self.session {
            _ if self.executing => "conn_parse_cmd",
            session if session.is_ended() => "conn_closing",
            session if session.output.len() > 0 => "conn_mwrite",
            session if !session.input.data().is_empty() => "conn_nread",
            _ => "conn_read",
        };
        (self.socket.peer(), state)
    }

    /// Tells the client which connections there are.
    pub(super) fn list(&mut self, connections: &[u8]) {
        self.session.output.push(connections);
    }

    /// How long the client has got on with nothing, while the server has waited for nothing else.
    pub(super) fn silent_ns(&self, now: Nanos) -> Nanos {
        if self.executing || self.queued { 0 } else { self.progress.silent_ns(now) }
    }

    /// It is over: what it was charged for, to be released.
    pub(super) fn into_charge(self) -> Charge {
        self.charge
    }

    /// The server ends: what is being executed is answered, nothing else is begun.
    pub(super) fn stop(&mut self) {
        self.session.end();
    }

    fn advance(
        &mut self,
        now: Nanos,
        traffic: &mut Traffic,
        ask: &mut dyn FnMut(Inquiry, &mut Output, &mut Traffic),
    ) -> Fate {
        let mut reads = 0;
        loop {
            let next = self.session.next(&mut |inquiry, output| ask(inquiry, output, traffic));
            match next {
                Next::Execute(command) => {
                    self.executing = true;
                    return Fate::Executes(command);
                }
                Next::List => return Fate::Lists,
                Next::Turn => return Fate::Again,
                Next::End => return Fate::Waits,
                Next::Output => {
                    let before = self.session.output.len();
                    let failed = self.flush(now, traffic).is_err();
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
                    match self.fill(bytes, now, traffic) {
                        Filled::Some => {}
                        Filled::Nothing => return Fate::Waits,
                        Filled::NoRoom => return Fate::Starved,
                        Filled::Unfinished => return Fate::Again,
                        Filled::Refused => {
                            self.session.refuse();
                            return Fate::Waits;
                        }
                        Filled::Failed => return Fate::Over,
                    }
                }
            }
        }
    }

    fn fill(&mut self, bytes: usize, now: Nanos, traffic: &mut Traffic) -> Filled {
        while self.readable {
            self.growth_bytes = self.session.input.growth(bytes);
            if self.growth_bytes > 0 && !self.settle(traffic) {
                return Filled::NoRoom;
            }
            let filled = self.session.input.fill(&mut self.socket, bytes);
            self.growth_bytes = 0;
            match filled {
                Ok((0, _)) => {
                    self.readable = false;
                    self.session.input_ended();
                    return Filled::Some;
                }
                Ok((read, asked)) => {
                    traffic.bytes_read += read as u64;
                    if self.session.output.len() == 0 && !self.is_stranger() {
                        self.progress.moved(read, now);
                    }
                    // A short read has emptied the socket. Whatever comes later, its end included, is a new event.
                    self.readable = read == asked || self.read_closed || !self.socket.short_read_empties();
                    return Filled::Some;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == UNFINISHED => return Filled::Unfinished,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Filled::Refused,
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
            match self.socket.discard(&mut scratch) {
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

    fn flush(&mut self, now: Nanos, traffic: &mut Traffic) -> io::Result<()> {
        let written = self.session.output.flush(&mut self.socket)?;
        traffic.bytes_written += written as u64;
        if !self.is_stranger() {
            self.progress.moved(written, now);
        }
        if self.has_said_all() {
            self.socket.end();
        }
        self.socket.send()
    }

    fn is_over(&self) -> bool {
        self.has_said_all() && self.socket.is_sent()
    }

    fn has_said_all(&self) -> bool {
        !self.executing && self.session.is_ended() && self.session.output.len() == 0
    }
}
