//! [`StreamLink`]: the connection of one lane, which mends itself while it is polled.
//!
//! Invariants: nothing here blocks (but [`StreamLink::wait`]), locks, allocates or logs after [`StreamLink::new`],
//! because a queue pair is polled inside the fault handler. Both buffers start empty on every connection. A new
//! connection asks for the thread of the node that served the one before, for that remembers what it has executed.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use yonder_intercept::Kept;
use yonder_units::Nanos;
use yonder_wire::{MESSAGE_BYTES_MAX, MessageBuffer};

use super::hello::{Greeted, hello, settle, welcome_in};
use super::protection::Protector;
use super::{Condition, NodeSession};

/// Bytes of each of the two buffers: some 60 pages a system call.
const BUFFER_BYTES: usize = 256 << 10;
/// Longest wait for a connection, or for the node's welcome.
const OPEN_TIME_MAX: Nanos = 5_000_000_000;
/// First and longest pause between two attempts to connect, in nanoseconds. The attempt after a loss has no pause.
const BACKOFF_MIN: Nanos = 1_000_000;
const BACKOFF_MAX: Nanos = 1_000_000_000;
/// A peer that acknowledges nothing for so long is gone, in milliseconds.
const SILENCE_MAX_MS: u32 = 5_000;

const _: () = assert!(BUFFER_BYTES >= 2 * MESSAGE_BYTES_MAX);

#[derive(Debug)]
enum State {
    /// The node has welcomed us.
    Up { socket: Kept },
    /// The kernel is connecting.
    Connecting { socket: Kept, deadline: Nanos },
    /// Connected and greeted, not yet welcomed.
    Greeting { socket: Kept, deadline: Nanos },
    /// No connection.
    Down { retry_at: Nanos },
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

/// A connection that mends itself, if its address is one of the network.
#[derive(Debug)]
pub(super) struct StreamLink {
    session: Arc<NodeSession>,
    /// `None`: a connection that is lost stays lost, and with it the node.
    address: Option<SocketAddr>,
    /// The thread of the node that serves this lane.
    home: u32,
    state: State,
    /// What messages are protected with, if they are.
    pub(super) protector: Option<Protector>,
    /// Pause before the attempt after next; 0 while the connection is known to work.
    backoff: Nanos,
    /// What has arrived and is not yet handled.
    pub(super) received: MessageBuffer,
    /// What is composed and not yet sent.
    pub(super) requests: MessageBuffer,
}

impl StreamLink {
    /// Takes over a connection whose peer has welcomed this client. It is made again at `address` when it is lost.
    pub(super) fn new(
        greeted: Greeted,
        address: Option<SocketAddr>,
        protector: Option<Protector>,
        session: Arc<NodeSession>,
    ) -> std::io::Result<Self> {
        let socket = Kept::new(greeted.socket);
        if address.is_some() {
            tune(&socket)?;
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, None)?;
        Ok(Self {
            session,
            address,
            home: greeted.welcome.home,
            state: State::Up { socket },
            protector,
            backoff: 0,
            received: MessageBuffer::new(BUFFER_BYTES),
            requests: MessageBuffer::new(BUFFER_BYTES),
        })
    }

    /// The socket, if there is a connection or one is being made.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Up { socket } | State::Connecting { socket, .. } | State::Greeting { socket, .. } => {
                Some(socket.as_fd())
            }
            State::Down { .. } => None,
        }
    }

    /// Goes one step further towards a connection, without waiting.
    pub(super) fn advance(&mut self, now: Nanos) -> Condition {
        match &self.state {
            State::Up { .. } if self.session.is_lost() => self.fail(now),
            State::Up { .. } => return Condition::Up,
            State::Down { .. } if self.session.is_lost() => {}
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
        if self.address.is_none() {
            self.session.lose();
        }
        self.state = State::Down { retry_at: now + self.backoff };
        self.backoff = (self.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
    }

    fn connect(&mut self, now: Nanos) {
        let Some(address) = self.address else { return self.session.lose() };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let connected = rustix::net::socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            let socket = Kept::new(socket);
            tune(&socket)?;
            match rustix::net::connect(&socket, &address) {
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
        if let Some(protector) = &mut self.protector {
            // A connection belongs to one session, so a lane goes over to another one here.
            protector.follow();
            protector.leave();
        }
        let Ok((hello, bytes)) = hello(Some(self.home), &mut self.protector) else { return self.fail(now) };
        self.requests.room()[..bytes].copy_from_slice(&hello[..bytes]);
        self.requests.received(bytes);
        // A fresh socket has room for a greeting; one that does not take it is broken.
        if send_pending(socket, &mut self.requests).is_err() || !self.requests.is_empty() {
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
        match welcome_in(self.received.pending_mut(), &mut self.protector) {
            Ok(None) => return,
            Ok(Some((welcome, bytes))) if self.session.accept(&welcome) => {
                self.received.consume(bytes);
                // Another thread would not know what was executed: no node sends a lane there, but somebody on the way
                // could.
                let is_elsewhere = self.protector.is_some() && welcome.home != self.home;
                if is_elsewhere || settle(&mut self.protector, &welcome).is_err() {
                    return self.fail(now);
                }
                self.home = welcome.home;
            }
            Ok(Some(_)) | Err(_) => return self.fail(now),
        }
        if let State::Greeting { socket, .. } = std::mem::replace(&mut self.state, State::Down { retry_at: now }) {
            self.state = State::Up { socket };
        }
    }
}

fn send_pending(socket: &impl AsFd, pending: &mut MessageBuffer) -> rustix::io::Result<()> {
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

fn receive_once(socket: &impl AsFd, received: &mut MessageBuffer) -> rustix::io::Result<Arrival> {
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
fn tune(socket: &impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE_MAX_MS)
}
