//! [`Link`]: the connection of one queue pair, which mends itself while it is polled.
//!
//! Invariants: nothing here blocks, locks, allocates or logs after [`Link::new`], because a queue pair is polled inside
//! the fault handler. A new connection is [`State::Up`] only after the node has acknowledged its epoch, and by then the
//! node executes nothing more of the old one. Both buffers start empty on every connection.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use yonder_units::Nanos;
use yonder_wire::{Greeting, Header, Kind, MESSAGE_BYTES_MAX, Message, MessageBuffer, Welcome};

use crate::identity::Identity;

/// Bytes of each of the two buffers: some 60 pages a system call.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest wait for a connection, or for the node's welcome.
const OPEN_TIME_MAX: Nanos = 5_000_000_000;
/// First and longest pause between two attempts to connect, in nanoseconds. The attempt after a loss has no pause.
const BACKOFF_MIN: Nanos = 1_000_000;
const BACKOFF_MAX: Nanos = 1_000_000_000;
/// A peer that acknowledges nothing for so long is gone, in milliseconds.
const SILENCE_MAX_MS: u32 = 5_000;

const _: () = assert!(BUFFER_BYTES >= MESSAGE_BYTES_MAX);

#[derive(Debug)]
enum State {
    /// The session is open.
    Up { socket: OwnedFd },
    /// The kernel is connecting.
    Connecting { socket: OwnedFd, deadline: Nanos },
    /// Connected and greeted, not yet welcomed.
    Greeting { socket: OwnedFd, deadline: Nanos },
    /// No connection.
    Down { retry_at: Nanos },
}

/// Whether operations can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The session is open.
    Up,
    /// There is none now; whatever was sent is lost.
    Down,
}

/// What one attempt to receive brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// As much as there was room for: there may be more.
    Full,
    /// All there was.
    Drained,
    /// The connection broke.
    Broken,
}

/// A connection that mends itself.
#[derive(Debug)]
pub(super) struct Link {
    identity: Arc<Identity>,
    number: u32,
    address: SocketAddr,
    state: State,
    /// Pause before the attempt after next; 0 while the connection is known to work.
    backoff: Nanos,
    /// What has arrived and is not yet handled.
    pub(super) received: MessageBuffer,
    /// What is composed and not yet sent.
    pub(super) requests: MessageBuffer,
}

impl Link {
    /// Takes over a connection whose session of queue pair `number` is open.
    pub(super) fn new(
        stream: TcpStream,
        address: SocketAddr,
        identity: Arc<Identity>,
        number: u32,
    ) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        let socket = OwnedFd::from(stream);
        tune(&socket)?;
        Ok(Self {
            identity,
            number,
            address,
            state: State::Up { socket },
            backoff: 0,
            received: MessageBuffer::new(BUFFER_BYTES),
            requests: MessageBuffer::new(BUFFER_BYTES),
        })
    }

    /// Goes one step further towards an open session, without waiting.
    pub(super) fn advance(&mut self, now: Nanos) -> Condition {
        match &self.state {
            State::Up { .. } if self.identity.is_lost() => self.fail(now),
            State::Up { .. } => return Condition::Up,
            State::Down { .. } if self.identity.is_lost() => {}
            State::Down { retry_at } if now < *retry_at => {}
            State::Down { .. } => self.connect(now),
            State::Connecting { deadline, .. } | State::Greeting { deadline, .. } if now >= *deadline => self.fail(now),
            State::Connecting { .. } => self.finish_connecting(now),
            State::Greeting { .. } => self.finish_greeting(now),
        }
        match self.state {
            State::Up { .. } => Condition::Up,
            _ => Condition::Down,
        }
    }

    /// Sends what the socket takes of `requests`.
    pub(super) fn send(&mut self, now: Nanos) -> Condition {
        let State::Up { socket } = &self.state else { return Condition::Down };
        match send_pending(socket, &mut self.requests) {
            Ok(()) => Condition::Up,
            Err(_) => {
                self.fail(now);
                Condition::Down
            }
        }
    }

    /// Receives into `received`, once.
    pub(super) fn receive(&mut self, now: Nanos) -> Arrival {
        let State::Up { socket } = &self.state else { return Arrival::Broken };
        match receive_once(socket, &mut self.received) {
            Ok(arrival) => {
                if !self.received.is_empty() {
                    self.backoff = 0;
                }
                arrival
            }
            Err(_) => {
                self.fail(now);
                Arrival::Broken
            }
        }
    }

    /// Gives the connection up: it broke, or what arrives on it makes no sense.
    pub(super) fn fail(&mut self, now: Nanos) {
        self.received.clear();
        self.requests.clear();
        self.state = State::Down { retry_at: now + self.backoff };
        self.backoff = (self.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
    }

    fn connect(&mut self, now: Nanos) {
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let connected = rustix::net::socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            tune(&socket)?;
            match rustix::net::connect(&socket, &self.address) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(errno) => Err(errno),
            }
        });
        match connected {
            Ok(socket) => self.state = State::Connecting { socket, deadline: now + OPEN_TIME_MAX },
            Err(_) => self.fail(now),
        }
    }

    fn finish_connecting(&mut self, now: Nanos) {
        let State::Connecting { socket, deadline } = &self.state else { return };
        let no_time = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut interest = [PollFd::new(socket, PollFlags::OUT)];
        match rustix::event::poll(&mut interest, Some(&no_time)) {
            Ok(0) | Err(Errno::INTR) => return,
            Ok(_) => {}
            Err(_) => return self.fail(now),
        }
        let deadline = *deadline;
        if !matches!(sockopt::socket_error(socket), Ok(Ok(()))) {
            return self.fail(now);
        }
        let greeting = self.identity.greeting(self.number).to_bytes();
        let hello = Header::request(Kind::Hello, 0, 0, Greeting::BYTES as u64);
        let composed = self.requests.compose(&hello, |payload| payload.copy_from_slice(&greeting));
        // A fresh socket has room for a greeting; one that does not take it is broken.
        if composed.is_err() || send_pending(socket, &mut self.requests).is_err() || !self.requests.is_empty() {
            return self.fail(now);
        }
        if let State::Connecting { socket, .. } = std::mem::replace(&mut self.state, State::Down { retry_at: now }) {
            self.state = State::Greeting { socket, deadline };
        }
    }

    fn finish_greeting(&mut self, now: Nanos) {
        let State::Greeting { socket, .. } = &self.state else { return };
        if receive_once(socket, &mut self.received).is_err() {
            return self.fail(now);
        }
        let bytes = match self.received.message() {
            Ok(None) => return,
            Ok(Some(message)) if is_welcome(&message, &self.identity) => message.bytes(),
            Ok(Some(_)) | Err(_) => return self.fail(now),
        };
        self.received.consume(bytes);
        if let State::Greeting { socket, .. } = std::mem::replace(&mut self.state, State::Down { retry_at: now }) {
            self.state = State::Up { socket };
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.identity.return_number(self.number);
    }
}

/// Whether the node has opened the session and still has this client's memory.
fn is_welcome(message: &Message<'_>, identity: &Identity) -> bool {
    message.header.kind == Kind::HelloAck
        && message.verify().is_ok()
        && Welcome::from_bytes(message.payload).is_ok_and(|welcome| identity.accept(&welcome).is_ok())
}

fn send_pending(socket: &OwnedFd, pending: &mut MessageBuffer) -> rustix::io::Result<()> {
    while !pending.is_empty() {
        match rustix::net::send(socket, pending.pending(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(bytes) => pending.consume(bytes),
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn receive_once(socket: &OwnedFd, received: &mut MessageBuffer) -> rustix::io::Result<Arrival> {
    let room = received.room();
    let room_bytes = room.len();
    match rustix::net::recv(socket, room, RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(Errno::PIPE),
        Ok((_, bytes)) => {
            received.received(bytes);
            Ok(if bytes == room_bytes { Arrival::Full } else { Arrival::Drained })
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(Arrival::Drained),
        Err(errno) => Err(errno),
    }
}

/// Small messages go out at once, and a peer that has vanished is noticed within seconds.
fn tune(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE_MAX_MS)
}
