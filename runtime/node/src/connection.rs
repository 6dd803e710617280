//! One connection: its socket, its two bounded buffers, and how far it has come.
//!
//! [`Connection::advance`] is called when the socket is ready: it sends what is pending, receives once, executes what
//! has arrived as a whole and its turn allows, and sends the answers together. A peer that does not read its answers is
//! not read from either, so the buffers bound what it costs. Owned by one event loop at a time.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use yonder_board::{AccountNumber, Accounts, Source, needs_capability};
use yonder_mapping::{Inherited, LockedBox};
use yonder_session::AnswerCounter;
use yonder_wire::{
    Body, Direction, ErrorCode, Greeting, Header, Kind, MESSAGE_BYTES_MAX, Message, MessageBuffer, PROOF_BYTES,
    Welcome, WireError, split, split_proven,
};

use crate::Shared;
use crate::backlog::COST_OF_ITEM;
use crate::closed::Closed;
use crate::connections::Guest;
use crate::event_loop::Inbox;
use crate::forward::{AnswerTo, Peer};
use crate::gate::{ProtectedLane, Wrap, tenant_of};
use crate::serve::{Asker, Served, Server, code_of, compose_welcome, refuse};
use crate::stats::Batch;

/// Bytes of each of the two buffers: some 60 pages a system call.
const BUFFER_BYTES: usize = 256 << 10;
/// How long a peer may take until it has greeted.
const GREETING_TIME_MAX: Duration = Duration::from_secs(5);
/// First byte of a plain message.
const PLAIN_LEAD: u8 = b'Y';
/// Requests of one connection that may wait for the slow or the extend path.
const FORWARDED_MAX: usize = 64;

const _: () = assert!(BUFFER_BYTES >= 2 * MESSAGE_BYTES_MAX);

/// How a peer reached the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    /// Over the network: reads and writes are messages.
    Tcp,
    /// From this machine: the peer is handed the memory itself.
    Shm,
}

/// What one turn of a connection has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    /// What to wait for.
    pub(crate) waits_for: EventFlags,
    /// Cost of what was executed: as many bytes of messages, both ways, and more for each.
    pub(crate) cost: usize,
    /// Whether there is more that has arrived.
    pub(crate) has_more: bool,
}

/// Why a batch of requests has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// No whole message is there.
    NothingLeft,
    /// There is no room for the next answer.
    NoRoom,
    /// The turn is over.
    Turn,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Greeting { deadline: Instant },
    Open,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    guest: Arc<Guest>,
    /// Who has the node's memory, if it was handed over.
    peer: Option<Arc<Peer>>,
    stage: Stage,
    /// Where it comes from, if that is the network.
    ip: Option<IpAddr>,
    /// Whether more than sessions is to be had where it came in.
    is_served: bool,
    /// Who pays.
    account: AccountNumber,
    /// The lane, if its messages are protected.
    lane: Option<LockedBox<ProtectedLane>>,
    received: MessageBuffer,
    replies: MessageBuffer,
    /// Answers of other threads that wait for room in `replies`.
    late: VecDeque<Box<[u8]>>,
    /// Requests that other threads have and have not answered.
    forwarded: usize,
    /// The next answer did not fit; nothing is received until it does.
    is_stalled: bool,
    /// Its last turn ended before what has arrived; nothing is received until that is executed.
    has_more: bool,
}

impl Connection {
    /// A connection, from an address of the network or of this machine, whose peer has not greeted yet. It came in
    /// where more than sessions is to be had, or not.
    pub(crate) fn new(guest: Guest, ip: Option<IpAddr>, is_served: bool, now: Instant) -> Self {
        Self {
            peer: (guest.transport == Transport::Shm).then(Arc::default),
            guest: Arc::new(guest),
            stage: Stage::Greeting { deadline: now + GREETING_TIME_MAX },
            ip,
            is_served,
            account: AccountNumber::SHARED,
            lane: None,
            received: MessageBuffer::new(BUFFER_BYTES),
            replies: MessageBuffer::new(BUFFER_BYTES),
            late: VecDeque::new(),
            forwarded: 0,
            is_stalled: false,
            has_more: false,
        }
    }

    /// Who sends what comes over it.
    pub(crate) fn source(&self) -> Source {
        self.guest.source
    }

    /// Who pays for it.
    pub(crate) fn account(&self) -> AccountNumber {
        self.account
    }

    /// Where it comes from, if that is the network.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Whether nothing of what its peer has sent was received.
    pub(crate) fn has_sent_nothing(&self) -> bool {
        self.received.is_empty()
    }

    /// Whether more than sessions is to be had where it came in.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served
    }

    /// Another descriptor of its socket.
    pub(crate) fn clone_socket(&self) -> std::io::Result<OwnedFd> {
        self.guest.socket.try_clone()
    }

    /// What others know of it.
    pub(crate) fn guest(&self) -> &Arc<Guest> {
        &self.guest
    }

    /// The process that has the node's memory, if it was handed over.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }

    /// Until when the peer must have greeted; `None` once it has.
    pub(crate) fn greeting_deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Greeting { deadline } => Some(deadline),
            Stage::Open => None,
        }
    }

    /// Waits for the greeting without blocking, and answers it. Whoever serves the connection from then on, or `None`.
    /// `choose` says who that is for a peer that names the thread that served it before, or none. Refuses it as busy if
    /// there is no place for it.
    pub(crate) fn greet(
        &mut self,
        shared: &Shared,
        answers: &mut AnswerCounter,
        choose: impl FnOnce(Option<u32>) -> u32,
    ) -> Result<Option<u32>, Closed> {
        self.receive()?;
        if let Some(ip) = self.ip
            && self.lane.is_none()
            && self.received.pending().first().is_some_and(|lead| *lead != PLAIN_LEAD)
        {
            match shared.doors.lane_of(self.received.pending(), ip, yonder_clock::now())? {
                Some(lane) => self.lane = Some(LockedBox::new(lane, Inherited::Missing)?),
                None => return Ok(None),
            }
        }
        let Some((bytes, taken)) = self.open_next(shared)? else { return Ok(None) };
        let message = self.message(bytes)?;
        let hello = message.header;
        if self.lane.is_none() && self.ip.is_some() && shared.doors.are_closed() {
            return Err(self.refuse(ErrorCode::Unprotected));
        }
        if hello.kind != Kind::Hello || hello.direction != Direction::Request {
            return Err(Closed::Unexpected(hello.kind));
        }
        message.verify()?;
        let greeting = Greeting::from_bytes(message.payload)?;
        self.received.consume(taken);
        self.know(shared.board.accounts());
        if !shared.connections.enter(&self.guest, shared.board.accounts()) {
            return Err(self.refuse(ErrorCode::Busy));
        }
        let home = choose(greeting.home);
        // Another thread does not know what was executed; whoever has a session names a thread that there is.
        if self.lane.is_some() && greeting.home.is_some_and(|named| named != home) {
            return Err(Closed::Unwelcome);
        }
        self.stage = Stage::Open;
        self.welcome(&hello, &shared.welcome(home), shared, answers)?;
        // What comes next is for the thread that serves it.
        if let Some(lane) = &mut self.lane {
            **lane = shared.doors.settled(lane, home);
        }
        Ok(Some(home))
    }

    /// A tenant that has shown its name is that, wherever it comes from.
    fn know(&mut self, accounts: &Accounts) {
        let tenant = self.lane.as_ref().and_then(|lane| tenant_of(lane.wrap()));
        if let (Some(tenant), Some(guest)) = (tenant, Arc::get_mut(&mut self.guest)) {
            guest.source = tenant;
        }
        self.account = accounts.number_of(self.guest.source);
    }

    /// Does what can be done without waiting, at a cost of about `credit` at most. The connection is `token` of the
    /// loop with `inbox`.
    pub(crate) fn advance(
        &mut self,
        server: &mut Server,
        inbox: &Arc<Inbox>,
        token: u64,
        credit: usize,
    ) -> Result<Turn, Closed> {
        self.send()?;
        if !self.is_stalled && !self.has_more && credit > 0 {
            self.receive()?;
        }
        let cost = self.serve(server, inbox, token, credit)?;
        let wants_room = if self.replies.is_empty() { EventFlags::empty() } else { EventFlags::OUT };
        // Also while there is more here: what is not waited for takes a system call to be waited for again.
        let wants_requests = if !self.is_stalled && credit > 0 { EventFlags::IN } else { EventFlags::empty() };
        Ok(Turn { waits_for: wants_room | wants_requests, cost, has_more: self.has_more })
    }

    /// Takes the answer of another thread.
    pub(crate) fn answered(&mut self, bytes: Box<[u8]>) {
        assert!(self.forwarded > 0, "an answer to nothing");
        self.forwarded -= 1;
        // Whose lease begins is not to lose its lane before it has used it.
        if split(&bytes).is_ok_and(|answer| answer.is_some_and(|answer| has_made_a_space(&answer.header))) {
            self.guest.trust();
        }
        self.late.push_back(bytes);
    }

    /// Tells the peer why it is not served, as far as its socket takes it.
    pub(crate) fn refuse(&mut self, code: ErrorCode) -> Closed {
        let reply = self.replies.room_for_message().expect("nothing was sent before the refusal");
        let bytes = refuse(&Header::request(Kind::Hello, 1, 0, 0), yonder_clock::now(), code, reply);
        self.replies.composed(bytes);
        match self.send() {
            Ok(()) => Closed::Refused(code),
            Err(closed) => closed,
        }
    }

    /// Executes requests and sends the answers, again and again while only the answers' room is missing. What that
    /// has cost.
    fn serve(&mut self, server: &mut Server, inbox: &Arc<Inbox>, token: u64, credit: usize) -> Result<usize, Closed> {
        let mut cost = 0;
        loop {
            let (ended, more) = self.serve_batch(server, inbox, token, credit.saturating_sub(cost))?;
            cost += more;
            self.is_stalled = ended == Ended::NoRoom;
            self.has_more = ended == Ended::Turn;
            self.send()?;
            if !(self.is_stalled && self.replies.is_empty()) {
                return Ok(cost);
            }
            if credit > 0 && cost >= credit {
                (self.is_stalled, self.has_more) = (false, true);
                return Ok(cost);
            }
        }
    }

    /// Executes the requests that are there, until something ends that.
    fn serve_batch(
        &mut self,
        server: &mut Server,
        inbox: &Arc<Inbox>,
        token: u64,
        credit: usize,
    ) -> Result<(Ended, usize), Closed> {
        let shared = Arc::clone(&server.shared);
        let mut batch = Batch::default();
        let visit = Server::begin(&shared, server.number());
        let served = self.serve_received(server, inbox, token, credit, &mut batch);
        drop(visit);
        server.end_batch(&mut batch);
        served
    }

    fn serve_received(
        &mut self,
        server: &mut Server,
        inbox: &Arc<Inbox>,
        token: u64,
        credit: usize,
        batch: &mut Batch,
    ) -> Result<(Ended, usize), Closed> {
        let mut requests = 0;
        loop {
            let cost = requests * COST_OF_ITEM + batch.bytes();
            let Some(reply) = self.replies.room_for_message() else { return Ok((Ended::NoRoom, cost)) };
            let seal = |reply: &mut [u8], bytes, answers: &mut AnswerCounter| match &self.lane {
                Some(lane) => lane.seal(answers, reply, bytes),
                None => bytes,
            };
            // One that is held up still has the answers to what it was let ask.
            if credit > 0 && cost >= credit && !self.late.is_empty() {
                return Ok((Ended::Turn, cost));
            }
            if let Some(answer) = self.late.pop_front() {
                requests += 1;
                let accounts = server.shared.board.accounts();
                batch.spend_later(self.account, answer.len(), accounts, yonder_clock::now());
                reply[..answer.len()].copy_from_slice(&answer);
                let composed = seal(reply, answer.len(), server.gate.answers());
                self.replies.composed(composed);
                continue;
            }
            if cost >= credit {
                // Also if there is none: a socket that is asked once more does no harm.
                let has_some = !self.received.is_empty();
                return Ok((if has_some { Ended::Turn } else { Ended::NothingLeft }, cost));
            }
            let opened = open_next(&mut self.received, self.lane.as_deref(), &server.shared)?;
            let Some((bytes, taken)) = opened else { return Ok((Ended::NothingLeft, cost)) };
            requests += 1;
            let message = message_in(&self.received, bytes, self.lane.is_some())?;
            let request = message.header;
            let may_forward = self.forwarded < FORWARDED_MAX;
            let (peer, source) = (&self.peer, self.guest.source);
            let wrap = self.lane.as_ref().map_or(Wrap::Plain, |lane| lane.wrap());
            let answer_to = || {
                let (inbox, peer) = (Arc::clone(inbox), peer.clone());
                may_forward.then(|| AnswerTo::Stream { inbox, token, source, wrap, peer })
            };
            let room = reply.len() - PROOF_BYTES;
            let asker = Asker { wrap, account: self.account };
            let is_right = match server.serve(&message, &mut reply[..room], batch, asker, answer_to) {
                Served::Answered(composed) => {
                    let is_right = code_of(reply) == 0;
                    let composed = seal(reply, composed, server.gate.answers());
                    self.replies.composed(composed);
                    is_right
                }
                Served::Forwarded => {
                    self.forwarded += 1;
                    true
                }
                Served::NotARequest => return Err(Closed::Unexpected(request.kind)),
            };
            if is_right && needs_capability(&request) {
                self.guest.trust();
            }
            self.received.consume(taken);
        }
    }

    /// The next message that is there as a whole, opened: its bytes, and those that it took.
    fn open_next(&mut self, shared: &Shared) -> Result<Option<(usize, usize)>, Closed> {
        open_next(&mut self.received, self.lane.as_deref(), shared)
    }

    fn message(&self, bytes: usize) -> Result<Message<'_>, Closed> {
        message_in(&self.received, bytes, self.lane.is_some())
    }

    fn welcome(
        &mut self,
        hello: &Header,
        welcome: &Welcome,
        shared: &Shared,
        answers: &mut AnswerCounter,
    ) -> Result<(), Closed> {
        let reply = self.replies.room_for_message().expect("nothing was sent before the welcome");
        let bytes = compose_welcome(hello, yonder_clock::now(), welcome, reply);
        let bytes = self.lane.as_ref().map_or(bytes, |lane| lane.seal(answers, reply, bytes));
        self.replies.composed(bytes);
        if self.guest.transport == Transport::Tcp {
            return self.send();
        }
        let files = [shared.memory.file()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let pushed = control.push(SendAncillaryMessage::ScmRights(&files));
        assert!(pushed, "the space is made for one descriptor");
        let slices = [IoSlice::new(self.replies.pending())];
        let sent = rustix::net::sendmsg(&self.guest.socket, &slices, &mut control, SendFlags::NOSIGNAL);
        self.replies.consume(sent.map_err(Closed::Gone)?);
        Ok(())
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> Result<(), Closed> {
        while !self.replies.is_empty() {
            match rustix::net::send(
                &self.guest.socket,
                self.replies.pending(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
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
            match rustix::net::recv(&self.guest.socket, self.received.room(), RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Closed::Gone(Errno::PIPE)),
                Ok((_, bytes)) => {
                    self.received.received(bytes);
                    self.guest.touch(yonder_clock::now());
                    return Ok(());
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Closed::Gone(errno)),
            }
        }
    }
}

/// The message that was opened at the start of `received`.
fn message_in(received: &MessageBuffer, bytes: usize, is_proven: bool) -> Result<Message<'_>, Closed> {
    let opened = &received.pending()[..bytes];
    let message = if is_proven { split_proven(opened) } else { split(opened) }?;
    message.ok_or(Closed::Wire(WireError::Length(bytes)))
}

/// Opens the next message that is there as a whole: its bytes, and those that it took.
fn open_next(
    received: &mut MessageBuffer,
    lane: Option<&ProtectedLane>,
    shared: &Shared,
) -> Result<Option<(usize, usize)>, Closed> {
    match lane {
        Some(lane) => Ok(shared.doors.open_next(lane, received.pending_mut(), yonder_clock::now())?),
        None => Ok(received.message()?.map(|message| (message.bytes(), message.bytes()))),
    }
}

fn has_made_a_space(answer: &Header) -> bool {
    answer.kind == Kind::CreateSpace && !answer.is_refusal()
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guest.socket.as_fd()
    }
}
