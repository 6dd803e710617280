//! One thread of a load: asks when it is time, puts replies together, judges them, and gives up what is not answered.
//!
//! The server does not look at a request before the address of its socket is proven: it replies with a token, and the
//! request is sent again with that, as are those that the token has become too old for. Its time goes on meanwhile.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use yonder_datagram::{DATAGRAM_BYTES_MAX, ReceiveBatch, SendBatch, Wait};
use yonder_load::{LatencyRecorder, Pace, RequestSource, WakeTimer};
use yonder_units::Nanos;

use crate::Protocol;
use crate::wire::{Assembly, Piece, RECEIVE_BUFFER_BYTES, REQUEST_BYTES_MAX, REQUEST_HEAD, Status, request_head};

/// Trains of datagrams received with one system call, and datagrams sent with one.
const TRAINS_MAX: usize = 16;
const SENT_MAX: usize = 64;
/// A sleep shorter than this costs more than it saves.
const SLEEP_NS_MIN: Nanos = 5_000;

const SOCKET: Token = Token(0);
const TIMER: Token = Token(1);

/// What one thread is to do. Times are from the start of the load.
pub(crate) struct Assignment {
    pub(crate) pace: Pace,
    /// Requests on their way at a time.
    pub(crate) window: usize,
    /// Requests that are meant to start then count; none starts later.
    pub(crate) measured: Range<Nanos>,
    /// How long an answer is waited for.
    pub(crate) patience: Nanos,
}

/// What one thread has seen, or all have.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Latencies by kinds. What was lost or dropped counts as of the first, with the time that it was waited for.
    pub(crate) latency: Vec<LatencyRecorder>,
    /// Right answers that came in the measured time.
    pub(crate) answered: u64,
    /// Requests that were not sent, for want of room.
    pub(crate) dropped: u64,
    /// Requests that were not answered in time.
    pub(crate) lost: u64,
    /// Requests that the server has refused or could not answer, and the first of its reasons.
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// Answers that are not what was stored.
    pub(crate) wrong: u64,
}

impl Seen {
    pub(crate) fn new(kinds: usize) -> Self {
        let latency = (0..kinds).map(|_| LatencyRecorder::new()).collect();
        Self { latency, answered: 0, dropped: 0, lost: 0, failed: 0, first_failure: None, wrong: 0 }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.latency.iter_mut().zip(&other.latency).for_each(|(all, its)| all.merge(its));
        self.answered += other.answered;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.failed += other.failed;
        self.wrong += other.wrong;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

/// A request on its way.
struct Pending<R> {
    intended: Nanos,
    request: R,
    /// What it was sent with last.
    token: u64,
    reply: Assembly,
}

/// Requests that are composed and not sent yet.
struct Outbox {
    datagrams: SendBatch,
    body: Vec<u8>,
    /// The last that the server has given this socket; at first one that is none.
    token: u64,
}

impl Outbox {
    fn new() -> Self {
        let datagrams = SendBatch::new(SENT_MAX, REQUEST_HEAD + REQUEST_BYTES_MAX);
        Self { datagrams, body: Vec::with_capacity(REQUEST_BYTES_MAX), token: 0 }
    }

    /// Composes a request.
    fn put<P: Protocol>(&mut self, id: u64, request: &P::Request, socket: &UdpSocket) {
        self.body.clear();
        P::put_request(request, &mut self.body);
        assert!((1..=REQUEST_BYTES_MAX).contains(&self.body.len()), "a request of {} bytes", self.body.len());
        if self.datagrams.is_full() {
            self.send(socket);
        }
        if let Some(room) = self.datagrams.room() {
            let bytes = REQUEST_HEAD + self.body.len();
            room[..REQUEST_HEAD].copy_from_slice(&request_head(id, self.token));
            room[REQUEST_HEAD..bytes].copy_from_slice(&self.body);
            self.datagrams.push(bytes, None);
        }
    }

    /// Sends what the socket takes. A request that the network loses, or that has no room, is one that is not answered.
    fn send(&mut self, socket: &UdpSocket) {
        let _ = self.datagrams.send(socket.as_fd());
    }
}

/// One thread of a load.
pub(crate) struct Loader<P: Protocol, Q> {
    assignment: Assignment,
    source: Q,
    start: Instant,
    socket: UdpSocket,
    poll: Poll,
    timer: WakeTimer,
    outbox: Outbox,
    replies: ReceiveBatch,
    pending: HashMap<u64, Pending<P::Request>>,
    /// When requests were sent, in order; some are answered meanwhile.
    sent: VecDeque<(Nanos, u64)>,
    next_id: u64,
    seen: Seen,
}

impl<P, Q> Loader<P, Q>
where
    P: Protocol,
    Q: RequestSource<Request = P::Request, Answer = P::Answer>,
{
    /// A thread with a socket of its own.
    pub(crate) fn new(assignment: Assignment, source: Q, server: SocketAddr, start: Instant) -> io::Result<Self> {
        let mut socket = UdpSocket::from_std(connected(server)?);
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
        let timer = WakeTimer::new(poll.registry(), TIMER)?;
        let replies = ReceiveBatch::new(TRAINS_MAX, DATAGRAM_BYTES_MAX);
        replies.accept_trains(socket.as_fd());
        Ok(Self {
            assignment,
            source,
            start,
            socket,
            poll,
            timer,
            outbox: Outbox::new(),
            replies,
            pending: HashMap::new(),
            sent: VecDeque::new(),
            // No reply to an earlier load is taken for one to this.
            next_id: RandomState::new().hash_one(start),
            seen: Seen::new(Q::KINDS.len()),
        })
    }

    /// Asks until the time is over, and waits for what is under way.
    pub(crate) fn run(mut self) -> io::Result<Seen> {
        let mut events = Events::with_capacity(8);
        loop {
            // First what makes room for more.
            self.receive();
            let now = self.now();
            self.give_up(now);
            self.ask(now);
            self.outbox.send(&self.socket);
            if now >= self.assignment.measured.end && self.pending.is_empty() {
                return Ok(self.seen);
            }
            self.wait(&mut events)?;
        }
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// Sends every request that is due.
    fn ask(&mut self, now: Nanos) {
        loop {
            let with_room = self.assignment.window.saturating_sub(self.pending.len());
            let Some(intended) = self.assignment.pace.next_due(now, self.assignment.measured.end, with_room) else {
                return;
            };
            if with_room == 0 {
                self.seen.dropped += u64::from(self.assignment.measured.contains(&intended));
                continue;
            }
            let (id, request, token) = (self.next_id, self.source.next_request(), self.outbox.token);
            self.next_id = id.wrapping_add(1);
            self.outbox.put::<P>(id, &request, &self.socket);
            self.pending.insert(id, Pending { intended, request, token, reply: Assembly::default() });
            self.sent.push_back((now, id));
        }
    }

    /// Takes every reply that has come.
    fn receive(&mut self) {
        loop {
            // An error of the socket is that of a request that nobody listened to.
            let count = self.replies.receive(self.socket.as_fd(), Wait::Never).unwrap_or(0);
            let now = self.now();
            let Self { replies, pending, seen, source, assignment, outbox, socket, .. } = self;
            for datagram in replies.datagrams() {
                let Some(piece) = Piece::of(datagram.bytes) else { continue };
                // One that was given up, or is answered already.
                let Some(waiting) = pending.get_mut(&piece.id) else { continue };
                if let Some(token) = piece.token() {
                    // Once with each token: the network may repeat what says so.
                    if waiting.token != token {
                        (outbox.token, waiting.token) = (token, token);
                        outbox.put::<P>(piece.id, &waiting.request, socket);
                    }
                    continue;
                }
                let Some((status, body)) = waiting.reply.take(piece) else { continue };
                let intended = waiting.intended;
                pending.remove(&piece.id);
                let judgement = match status {
                    Status::Answer => P::answer(&body).and_then(|answer| source.verify(&answer)),
                    // A reply that asks for a proof and has no token is none that a server sends.
                    Status::BadRequest | Status::Failed | Status::Prove => {
                        seen.failed += 1;
                        seen.first_failure.get_or_insert_with(|| String::from_utf8_lossy(&body).into_owned());
                        continue;
                    }
                };
                let Some(kind) = judgement else {
                    seen.wrong += 1;
                    continue;
                };
                seen.answered += u64::from(assignment.measured.contains(&now));
                if assignment.measured.contains(&intended) {
                    seen.latency[kind].record(now.saturating_sub(intended));
                }
            }
            if count < TRAINS_MAX {
                return;
            }
        }
    }

    /// Counts as lost what has not been answered in time.
    fn give_up(&mut self, now: Nanos) {
        while let Some((sent, id)) = self.sent.front() {
            let is_late = now >= sent + self.assignment.patience;
            if !is_late && self.pending.contains_key(id) {
                return;
            }
            if let Some(pending) = self.pending.remove(id)
                && self.assignment.measured.contains(&pending.intended)
            {
                self.seen.lost += 1;
                self.seen.latency[0].record(now - pending.intended);
            }
            self.sent.pop_front();
        }
    }

    /// Waits for a reply, or until something is due.
    fn wait(&mut self, events: &mut Events) -> io::Result<()> {
        let given_up = self.sent.front().map_or(Nanos::MAX, |(sent, _)| sent + self.assignment.patience);
        let end = self.assignment.measured.end;
        let now = self.now();
        let arrival = self.assignment.pace.next_arrival().filter(|arrival| *arrival < end);
        let due = arrival.unwrap_or(if now < end { end } else { Nanos::MAX }).min(given_up);
        if due <= now + SLEEP_NS_MIN {
            return Ok(());
        }
        self.timer.set(Duration::from_nanos(due - now))?;
        match self.poll.poll(events, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }
}

/// A socket that sends to `server` and receives from it alone.
pub(crate) fn connected(server: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(server)?;
    set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
