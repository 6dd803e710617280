//! A data thread that serves connections: an epoll, its connections, and the inbox through which others reach it.
//!
//! A connection belongs to one thread at a time. The [`Inbox`] is the only way in: connections whose peers have
//! greeted, and answers of the slow and the extend path. [`Poll`] is the part that the control thread has too.
//!
//! What is ready is served in [`Rounds`] of those who have sent it, so that one with many connections, or with long
//! requests, has as much of the thread as one with few. Who is faster than its limit is not read from for a while, and
//! so is held up by its own socket.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use yonder_board::{Admission, Source};
use yonder_units::Nanos;

use crate::Shared;
use crate::backlog::COST_OF_ITEM;
use crate::closed::Closed;
use crate::connection::Connection;
use crate::crowd::Crowd;
use crate::polling::{Polling, Waiting};
use crate::rounds::Rounds;
use crate::serve::Server;

/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 256;
/// Cost that a sender gets in each round while there are others, as of bytes; and that of one turn while there are
/// none.
const QUANTUM: u32 = 32 << 10;
const TURN_ALONE: usize = 256 << 10;
/// Turns in a crowd, of the cost of one round at most, before the kernel is asked for others.
const CROWDED_TURNS_MAX: usize = 8;
/// The token of the inbox.
const INBOX_TOKEN: u64 = u64::MAX;

/// What comes into a loop from other threads.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A connection whose peer has greeted.
    Connection(Connection),
    /// The answer to a request that was forwarded.
    Answer {
        /// The connection.
        token: u64,
        /// One whole message.
        bytes: Box<[u8]>,
    },
}

/// How other threads reach a loop.
#[derive(Debug)]
pub(crate) struct Inbox {
    arrived: Mutex<Vec<Arrival>>,
    event: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { arrived: Mutex::default(), event })
    }

    /// Hands something over.
    pub(crate) fn send(&self, arrival: Arrival) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
        self.wake();
    }

    /// Makes the loop look at its inbox, its deadlines and the order to stop.
    pub(crate) fn wake(&self) {
        // The only failure is a counter that is full, and then the loop is about to wake anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// What has arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        // Nothing to read means that the wake-up was taken together with an earlier one.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
        std::mem::take(&mut self.arrived.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An epoll that its inbox can wake.
#[derive(Debug)]
pub(crate) struct Poll {
    pub(crate) inbox: Arc<Inbox>,
    epoll: OwnedFd,
    next_token: u64,
}

impl Poll {
    pub(crate) fn new(inbox: Arc<Inbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.event, epoll::EventData::new_u64(INBOX_TOKEN), epoll::EventFlags::IN)?;
        Ok(Self { inbox, epoll, next_token: 0 })
    }

    /// Watches `socket`, and returns the token under which it is reported: one that nothing had before.
    pub(crate) fn watch(&mut self, socket: impl AsFd, flags: epoll::EventFlags) -> Result<u64, Errno> {
        self.next_token += 1;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(self.next_token), flags)?;
        Ok(self.next_token)
    }

    /// Changes what the socket with `token` is watched for.
    pub(crate) fn change(&self, socket: impl AsFd, token: u64, flags: epoll::EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, epoll::EventData::new_u64(token), flags)
    }

    /// Watches `socket` no longer.
    pub(crate) fn forget(&self, socket: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, socket)
    }

    /// Waits for events and puts the tokens of what is ready into `ready`. True if the inbox has something.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) -> bool {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_MAX];
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        let events: &[epoll::Event] = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &[],
            Err(errno) => panic!("waiting on an epoll of our own failed: {errno}"),
        };
        ready.extend(events.iter().map(|event| event.data.u64()).filter(|token| *token != INBOX_TOKEN));
        events.iter().any(|event| event.data.u64() == INBOX_TOKEN)
    }
}

#[derive(Debug)]
struct Served {
    connection: Connection,
    waits_for: epoll::EventFlags,
    /// Whether it is among those that are ready.
    is_ready: bool,
    /// Whether it waits until its sender may go on.
    is_held: bool,
}

/// The connections of one thread.
#[derive(Debug)]
pub(crate) struct EventLoop {
    server: Server,
    poll: Poll,
    connections: HashMap<u64, Served>,
    /// Those that have something to do, by sender.
    ready: Rounds<Source, VecDeque<u64>>,
    /// Those that are not read from until a time.
    /// In the order in which they were held, where the time is the same.
    held: BinaryHeap<Reverse<(Nanos, u64, u64)>>,
    held_count: u64,
    crowd: Crowd,
}

impl EventLoop {
    pub(crate) fn new(server: Server, poll: Poll) -> Self {
        let ready = Rounds::new(QUANTUM, usize::MAX);
        Self {
            server,
            poll,
            connections: HashMap::new(),
            ready,
            held: BinaryHeap::new(),
            held_count: 0,
            crowd: Crowd::new(),
        }
    }

    /// The body of the thread: serves until the node stops.
    pub(crate) fn serve(mut self, polling: Polling) {
        let shared = Arc::clone(&self.server.shared);
        let mut waiting = Waiting::new(polling);
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        while !shared.stop.load(Ordering::Acquire) {
            let at_once = self.ready.len() > 0 || waiting.asks_again();
            let timeout = if at_once { Some(Duration::ZERO) } else { self.until_one_may_go_on() };
            let has_arrivals = self.poll.wait(timeout, &mut ready);
            self.let_go_on();
            if !has_arrivals && ready.is_empty() && self.ready.len() == 0 {
                self.ready.forgive();
                waiting.pause();
                continue;
            }
            waiting.end();
            if has_arrivals {
                self.take_arrivals();
            }
            match ready[..] {
                [token] if self.ready.len() == 0 && !self.crowd.is_there(yonder_clock::now()) => self.serve_only(token),
                _ => {
                    for token in &ready {
                        self.has_event(*token);
                    }
                    self.serve_ready();
                }
            }
            ready.clear();
            waiting.begin();
        }
        let arrived = self.poll.inbox.take();
        let served = std::mem::take(&mut self.connections).into_values().map(|served| served.connection);
        let arrived = arrived.into_iter().filter_map(|arrival| match arrival {
            Arrival::Connection(connection) => Some(connection),
            Arrival::Answer { .. } => None,
        });
        for connection in served.chain(arrived) {
            close(&shared, &connection, Closed::Gone(Errno::CANCELED));
        }
    }

    /// Each of those that are ready now has a turn before the kernel is asked for others, unless they have much to do:
    /// who comes does not wait for all of them. In a crowd it is asked sooner.
    fn serve_ready(&mut self) {
        let (mut turns, mut cost_max) = (self.ready.len(), TURN_ALONE);
        if self.crowd.is_there(yonder_clock::now()) {
            (turns, cost_max) = (turns.min(CROWDED_TURNS_MAX), QUANTUM as usize);
        }
        let mut cost = 0;
        while turns > 0
            && cost < cost_max
            && let Some((sender, token)) = self.ready.next()
        {
            cost += self.turn(sender, token);
            turns -= 1;
        }
    }

    fn take_arrivals(&mut self) {
        for arrival in self.poll.inbox.take() {
            match arrival {
                Arrival::Connection(connection) => self.adopt(connection),
                Arrival::Answer { token, bytes } => {
                    // A connection that has ended meanwhile needs no answer.
                    if let Some(served) = self.connections.get_mut(&token) {
                        served.connection.answered(bytes);
                        self.is_ready(token);
                    }
                }
            }
        }
    }

    /// Takes a connection in. What it has received already is served at once.
    fn adopt(&mut self, connection: Connection) {
        let flags = epoll::EventFlags::IN;
        match self.poll.watch(&connection, flags) {
            Ok(token) => {
                let served = Served { connection, waits_for: flags, is_ready: false, is_held: false };
                self.connections.insert(token, served);
                self.is_ready(token);
            }
            Err(errno) => close(&self.server.shared, &connection, Closed::Gone(errno)),
        }
    }

    /// The kernel says something of a connection, while nothing else is ready and there is no crowd: it goes first of
    /// all, and is charged nothing, so it takes no part in a round.
    fn serve_only(&mut self, token: u64) {
        if let Some(sender) = self.sender_of(token) {
            self.turn(sender, token);
        }
    }

    /// The kernel says something of a connection.
    fn has_event(&mut self, token: u64) {
        if self.sender_of(token).is_some() {
            self.is_ready(token);
        }
    }

    /// Who sends on a connection of which the kernel says something; `None` if there is none, or no more.
    fn sender_of(&mut self, token: u64) -> Option<Source> {
        let served = self.connections.get(&token)?;
        if !(served.is_held && served.waits_for.is_empty()) {
            return Some(served.connection.source());
        }
        // Nothing is waited for, so it is broken, and the kernel would go on saying so.
        if let Some(served) = self.connections.remove(&token) {
            close(&self.server.shared, &served.connection, Closed::Gone(Errno::PIPE));
        }
        None
    }

    /// A connection is to have a turn.
    fn is_ready(&mut self, token: u64) {
        if let Some(served) = self.connections.get_mut(&token)
            && !std::mem::replace(&mut served.is_ready, true)
        {
            self.ready.change(served.connection.source(), |line| line.push_back(token));
        }
    }

    /// Lets a connection do what it can at one turn, and charges its sender while there are others. What it has cost.
    fn turn(&mut self, sender: Source, token: u64) -> usize {
        let is_alone = !self.crowd.is_there(yonder_clock::now());
        // Also a turn in which no message was whole, or that had no connection any more.
        let cost = self.advance(sender, token, is_alone).max(COST_OF_ITEM);
        if !is_alone {
            self.ready.charge(sender, cost as u64);
        }
        cost
    }

    fn advance(&mut self, sender: Source, token: u64, is_alone: bool) -> usize {
        let Some(served) = self.connections.get_mut(&token) else { return 0 };
        served.is_ready = false;
        let now = yonder_clock::now();
        let account = self.server.shared.board.accounts().get(served.connection.account());
        let credit = match account.admits(now) {
            // One that has little under way is seldom seen to wait, and waits for the whole turn that has just begun.
            Admission::Now if is_alone && !account.has_rates() => TURN_ALONE,
            Admission::Now => QUANTUM as usize,
            Admission::From(due) => {
                if !std::mem::replace(&mut served.is_held, true) {
                    self.held_count += 1;
                    self.held.push(Reverse((due, self.held_count, token)));
                }
                0
            }
        };
        let advanced = served.connection.advance(&mut self.server, &self.poll.inbox, token, credit).and_then(|turn| {
            if turn.waits_for != served.waits_for {
                self.poll.change(&served.connection, token, turn.waits_for).map_err(Closed::Gone)?;
                served.waits_for = turn.waits_for;
            }
            Ok(turn)
        });
        match advanced {
            Ok(turn) => {
                if turn.cost > 0 {
                    self.crowd.meets(sender, now);
                }
                if turn.has_more && credit > 0 {
                    self.is_ready(token);
                }
                turn.cost
            }
            Err(reason) => {
                if let Some(served) = self.connections.remove(&token) {
                    close(&self.server.shared, &served.connection, reason);
                }
                // What it has executed before that is not known.
                credit
            }
        }
    }

    /// How long none of those that are held up may go on; `None` if none is.
    fn until_one_may_go_on(&self) -> Option<Duration> {
        let Reverse((due, ..)) = self.held.peek()?;
        Some(Duration::from_nanos(due.saturating_sub(yonder_clock::now())))
    }

    /// Those that were held up until now are ready.
    fn let_go_on(&mut self) {
        while let Some(Reverse((due, _, token))) = self.held.peek().copied()
            && due <= yonder_clock::now()
        {
            self.held.pop();
            if let Some(served) = self.connections.get_mut(&token) {
                served.is_held = false;
            }
            self.is_ready(token);
        }
    }
}

/// Accounts for the end of a connection. It is closed when it is dropped.
pub(crate) fn close(shared: &Shared, connection: &Connection, reason: Closed) {
    if reason.is_violation() {
        shared.counters.bad_peer();
        // Who breaks it again and again is not to fill the log.
        if shared.doors.may_tell(yonder_clock::now()) {
            tracing::warn!("connection closed: {reason}");
        }
    } else {
        tracing::debug!("connection closed: {reason}");
    }
    shared.connections.leave(connection.guest(), shared.board.accounts());
    shared.counters.disconnected();
    // Whoever broke the protocol is alive, and may have memory mapped for as long as it lives: nothing says when it
    // ends.
    if let (Closed::Gone(_), Some(peer)) = (reason, connection.peer()) {
        peer.go();
        shared.slow.wake();
    }
    // A peer sees the end now, whatever else still holds the socket.
    let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
}
