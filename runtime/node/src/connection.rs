//! One connection of a client: its socket, its two bounded buffers, and how far it has come.
//!
//! [`Connection::advance`] is called when the socket is ready: it sends what is pending, receives once, executes what
//! has arrived as a whole, and sends the replies together. A peer that does not read its replies is not read from
//! either, so the buffers bound what it costs. Owned by one event loop at a time.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use yonder_wire::{ErrorCode, Greeting, Header, Kind, MESSAGE_BYTES_MAX, MessageBuffer, Welcome};

use crate::Shared;
use crate::execute::{Pause, Violation, serve};
use crate::session::{Admitted, Session};
use crate::stats::Batch;

/// Bytes of each of the two buffers: some 60 pages a system call.
const BUFFER_BYTES: usize = 256 << 10;
/// How long a peer may take until it has said who it is.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);

const _: () = assert!(BUFFER_BYTES >= MESSAGE_BYTES_MAX);

/// How a peer reached the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Over the network: reads and writes are messages.
    Tcp,
    /// From this machine: the peer is handed the memory itself.
    Shm,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Closed {
    /// The peer has closed it, or it broke.
    #[error("the peer has gone: {0}")]
    Gone(Errno),
    /// A newer session of the queue pair has taken over.
    #[error("a newer session has taken over")]
    Fenced,
    /// The greeting was refused.
    #[error("refused: {0}")]
    Refused(ErrorCode),
    /// The peer did not say who it is in time.
    #[error("no greeting in time")]
    Silent,
    /// The peer does not follow the protocol.
    #[error("{0}")]
    Violation(#[from] Violation),
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Greeting { deadline: Instant },
    Open(Admitted),
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    session: Arc<Session>,
    transport: Transport,
    stage: Stage,
    received: MessageBuffer,
    replies: MessageBuffer,
    /// The next reply did not fit; nothing is received until it does.
    stalled: bool,
}

impl Connection {
    /// A connection whose peer has not greeted yet.
    pub(crate) fn new(session: Session, transport: Transport, now: Instant) -> Self {
        Self {
            session: Arc::new(session),
            transport,
            stage: Stage::Greeting { deadline: now + GREETING_TIME_MAX },
            received: MessageBuffer::new(BUFFER_BYTES),
            replies: MessageBuffer::new(BUFFER_BYTES),
            stalled: false,
        }
    }

    /// The socket, for an epoll.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Whose session this is, once it is open.
    pub(crate) fn admitted(&self) -> Option<&Admitted> {
        match &self.stage {
            Stage::Greeting { .. } => None,
            Stage::Open(admitted) => Some(admitted),
        }
    }

    /// Until when the peer must have greeted; `None` once it has.
    pub(crate) fn greeting_deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Greeting { deadline } => Some(deadline),
            Stage::Open(_) => None,
        }
    }

    /// Does what can be done without waiting, and returns what to wait for.
    pub(crate) fn advance(&mut self, shared: &Shared) -> Result<EventFlags, Closed> {
        self.send()?;
        if !self.stalled {
            self.receive()?;
        }
        if let Stage::Greeting { .. } = self.stage {
            self.greet(shared)?;
        }
        if let Stage::Open(admitted) = self.stage {
            self.serve(admitted, shared)?;
        }
        let wants_room = if self.replies.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
        let wants_requests = if self.stalled { EventFlags::empty() } else { EventFlags::IN };
        Ok(wants_room | wants_requests)
    }

    /// Executes what has arrived and sends the replies, again and again while only the replies' room is missing.
    fn serve(&mut self, admitted: Admitted, shared: &Shared) -> Result<(), Closed> {
        loop {
            let mut batch = Batch::default();
            let pass = self.session.enter().ok_or(Closed::Fenced)?;
            let paused = serve(&mut self.received, &mut self.replies, admitted.owner, &shared.memory, &mut batch);
            drop(pass);
            shared.counters.add(&batch);
            self.stalled = paused? == Pause::RepliesFull;
            self.send()?;
            if !(self.stalled && self.replies.is_empty()) {
                return Ok(());
            }
        }
    }

    /// Opens the session once the greeting has arrived.
    fn greet(&mut self, shared: &Shared) -> Result<(), Closed> {
        let Some(message) = self.received.message().map_err(Violation::Wire)? else { return Ok(()) };
        let (header, bytes) = (message.header, message.bytes());
        if header.kind != Kind::Hello {
            return Err(Violation::Unexpected(header.kind).into());
        }
        message.verify().map_err(Violation::Wire)?;
        let greeting = Greeting::from_bytes(message.payload).map_err(Violation::Wire)?;
        self.received.consume(bytes);
        match shared.clients.admit(greeting, &self.session) {
            Ok(admitted) => {
                self.stage = Stage::Open(admitted);
                self.welcome(&header, &admitted, shared)
            }
            Err(code) => Err(self.refuse(&header, code)),
        }
    }

    fn welcome(&mut self, hello: &Header, admitted: &Admitted, shared: &Shared) -> Result<(), Closed> {
        let space_bytes = shared.memory.space_bytes();
        let welcome = Welcome { incarnation: admitted.incarnation, address_space_bytes: space_bytes }.to_bytes();
        let header = Header { length: Welcome::BYTES as u64, ..hello.answer(Kind::HelloAck) };
        let composed = self.replies.compose(&header, |payload| payload.copy_from_slice(&welcome));
        composed.expect("nothing was sent before the welcome");
        if self.transport == Transport::Tcp {
            return self.send();
        }
        let files = [shared.memory.file()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let pushed = control.push(SendAncillaryMessage::ScmRights(&files));
        assert!(pushed, "the space is made for one descriptor");
        let slices = [IoSlice::new(self.replies.pending())];
        let sent = rustix::net::sendmsg(&*self.session, &slices, &mut control, SendFlags::NOSIGNAL);
        self.replies.consume(sent.map_err(Closed::Gone)?);
        Ok(())
    }

    /// Tells the peer why it is not served, as far as its socket takes it.
    pub(crate) fn refuse(&mut self, request: &Header, code: ErrorCode) -> Closed {
        let told = self.replies.compose(&request.refusal(code), |_| {});
        told.expect("nothing was sent before the refusal");
        match self.send() {
            Ok(()) => Closed::Refused(code),
            Err(closed) => closed,
        }
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> Result<(), Closed> {
        while !self.replies.is_empty() {
            match rustix::net::send(&*self.session, self.replies.pending(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(bytes) => self.replies.consume(bytes),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Closed::Gone(errno)),
            }
        }
        Ok(())
    }

    /// Receives once. More that has arrived makes the socket ready again, after the other connections had their turn.
    fn receive(&mut self) -> Result<(), Closed> {
        loop {
            match rustix::net::recv(&*self.session, self.received.room(), RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Closed::Gone(Errno::PIPE)),
                Ok((_, bytes)) => {
                    self.received.received(bytes);
                    return Ok(());
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Closed::Gone(errno)),
            }
        }
    }
}
