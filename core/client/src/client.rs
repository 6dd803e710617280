//! [`Client`]: what is sent on a lane, and when.
//!
//! Here are submission and transmission, the way of a request to the lane; `receive` is the way of its answer, `timers`
//! what happens when none comes, `ending` what happens when the owner no longer waits.
//!
//! Order of transmission: what must be sent again, then operations in order of submission, past those that wait for
//! others (T2) and those that wait for the node's clock (T4).

use yonder_units::{Nanos, Narrow};
use yonder_wire::{Direction, Header, Kind, PAYLOAD_BYTES_MAX};

use crate::clock::NodeClock;
use crate::config::{Config, Transport};
use crate::event::event;
use crate::fragments::{Fragments, Owner, Purpose};
use crate::operation::{BODY_BYTES_MAX, Completion, Operation, OperationId, SubmitError};
use crate::operations::{Entry, Operations, Phase};
use crate::round_trip::RoundTrip;
use crate::scope::Scope;
use crate::window::{Admission, Window};

/// Fragments begin and end at multiples of this, so that no aligned word is ever in two.
const CUT_BYTES: u64 = 64;
/// Requests of one discard that are under way at once: enough to keep a node busy, and few enough to leave others their
/// turn.
const DISCARDS_MAX: u32 = 8;

/// The next message of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit<'a> {
    /// Its header, to be sealed with the payload.
    pub header: Header,
    /// The owner's name for the operation; 0 for a message of the lane's own.
    pub token: u64,
    /// What follows the header.
    pub payload: Payload<'a>,
}

/// The payload of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// There is none.
    None,
    /// These bytes.
    Inline(&'a [u8]),
    /// Bytes of the operation's data, which the client's owner has.
    Caller {
        /// Of the first byte in the operation's data.
        offset: u64,
        /// How many.
        length: usize,
    },
}

/// What a client has seen.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Stats {
    /// Requests sent, of all attempts.
    pub sent: u64,
    /// Requests sent that were not a first attempt.
    pub retried: u64,
    /// Bytes of the messages sent, of all attempts, with their headers but without those of the network below.
    pub sent_bytes: u64,
    /// Bytes of the messages received, counted the same way.
    pub received_bytes: u64,
    /// Answers to nothing that was asked, or to attempts for what was over already.
    pub late: u64,
    /// Answers of the wrong kind or length.
    pub unfit: u64,
    /// Requests that arrived corrupted.
    pub nacks: u64,
    /// Requests for which the node was busy.
    pub busy: u64,
    /// Attempts whose answer did not come in time.
    pub timeouts: u64,
    /// Requests that were given up by an abort.
    pub aborts: u64,
    /// Requests that claimed a time far ahead of the node's clock, and were given up to be asked for under another
    /// name.
    pub renewed: u64,
    /// The smoothed round trip.
    pub round_trip: Option<Nanos>,
    /// Packets in the congestion window.
    pub window_packets: f64,
}

/// The client of one memory node over one lane.
///
/// It does no I/O and reads no clock: its owner has both. The owner calls methods of four kinds:
///
/// - **Orders**: [`submit`](Self::submit), [`fence`](Self::fence) and [`cancel`](Self::cancel). An order sends nothing
///   by itself.
/// - **Events**: [`receive`](Self::receive) for each message of the node whose checksum holds,
///   [`advance`](Self::advance) when the time of the last [`timeout`](Self::timeout) has come,
///   [`reconnected`](Self::reconnected) when a stream is there again, and [`abandon`](Self::abandon) when the node is
///   not. The data that `receive` names is where the message is, so the owner copies it before the next message takes
///   that place.
/// - **Polls**: [`transmit`](Self::transmit), [`completion`](Self::completion) and [`timeout`](Self::timeout) say what
///   the owner has to do. Orders and events change all three, so the owner polls after each of them, or after several
///   at once: `transmit` until there is none, each message sent or lost before the next is asked for, since its payload
///   is lent; then `completion` until there is none; and `timeout` last, because the others change it. The data of an
///   operation is the client's to name until its completion is taken, or its cancellation.
/// - **Looks**: [`has_room`](Self::has_room), [`outstanding`](Self::outstanding), [`idle`](Self::idle),
///   [`has_unsent`](Self::has_unsent), [`may_still_change`](Self::may_still_change) and [`stats`](Self::stats) change
///   nothing, and may be called at any time.
///
/// A client that is not polled makes no progress, and breaks nothing: what it has to send waits, and what the node has
/// not answered in the meantime is asked for again.
///
/// **Time** is in nanoseconds of one clock of the owner's, whose zero is any. Each `now` is at least the one before, of
/// whatever method. An early `advance` does nothing; a late one repeats requests late.
///
/// **Threads and memory**: no method waits, sleeps or locks, and none but [`new`](Self::new) allocates, so a client may
/// be used in the handler of a signal that has it to itself (with the feature `tracing`, only as far as the subscriber
/// may). It is a plain value: the owner may hand it to another thread between two calls.
#[derive(Debug)]
pub struct Client {
    pub(crate) config: Config,
    page_shift: u32,
    pub(crate) operations: Operations,
    pub(crate) fragments: Fragments,
    pub(crate) round_trip: RoundTrip,
    pub(crate) window: Window,
    pub(crate) clock: NodeClock,
    /// What the node has last given to show that this client receives at its address.
    pub(crate) cookie: u64,
    /// Answers that fitted what was asked.
    pub(crate) heard: u64,
    /// Not later than the first overdue answer or ended pause.
    pub(crate) fragment_due: Nanos,
    /// Not later than the first deadline.
    pub(crate) deadline_due: Nanos,
    /// When the congestion window, which is below one packet, lets the next packet go; if that was why none was sent.
    pub(crate) pace_due: Nanos,
    pub(crate) stats: Stats,
}

impl Client {
    /// A client with these limits. Everything it will ever need is allocated here.
    ///
    /// # Panics
    /// If the limits are not what [`Config`] says they are.
    #[must_use]
    pub fn new(config: Config) -> Self {
        config.validate();
        Self {
            page_shift: config.dependency_page_bytes.ilog2(),
            operations: Operations::new(config.operations_max),
            fragments: Fragments::new(config.fragments_max, config.first_request_id),
            round_trip: RoundTrip::new(config.timeout_min, config.timeout_max),
            window: Window::new(config.window),
            clock: NodeClock::default(),
            cookie: 0,
            heard: 0,
            fragment_due: Nanos::MAX,
            deadline_due: Nanos::MAX,
            pace_due: Nanos::MAX,
            stats: Stats::default(),
            config,
        }
    }

    /// Takes an operation, to be sent by [`Client::transmit`]. An operation about no bytes completes without the node,
    /// when its turn comes.
    ///
    /// # Panics
    /// If the operation is an abort, has too long a body or reads or writes more than 2^32 - 1 bytes.
    #[inline]
    pub fn submit(&mut self, operation: &Operation<'_>, now: Nanos) -> Result<OperationId, SubmitError> {
        let Operation { kind, length, .. } = *operation;
        assert!(kind != Kind::Abort, "aborts are the client's own");
        assert!(operation.body.len() <= BODY_BYTES_MAX, "a body of {} bytes", operation.body.len());
        let extent = match kind {
            Kind::Read | Kind::Write => {
                assert!(u32::try_from(length).is_ok(), "a {kind:?} of {length} bytes");
                length
            }
            Kind::Discard => length,
            _ => 1,
        };
        if matches!(kind, Kind::Call | Kind::Adopt) && operation.body.is_empty() {
            assert!(length <= PAYLOAD_BYTES_MAX as u64, "a {kind:?} with {length} bytes of arguments");
        }
        let scope = Scope::of(operation, self.page_shift);
        let id = self.operations.submit(operation, scope, extent).ok_or(SubmitError::Full)?;
        self.deadline_due = self.deadline_due.min(operation.deadline.max(now));
        Ok(id)
    }

    /// Takes a fence: it completes when all operations before it are over, and nothing after it is sent before.
    pub fn fence(&mut self, token: u64, _now: Nanos) -> Result<OperationId, SubmitError> {
        self.operations.submit_fence(token).ok_or(SubmitError::Full)
    }

    /// The next message to send; `None` if none may be sent now. The owner sends it, or loses it as a network would.
    #[inline]
    pub fn transmit(&mut self, now: Nanos) -> Option<Transmit<'_>> {
        self.pace_due = Nanos::MAX;
        if (self.fragments.again().is_empty() && self.operations.ready().is_empty()) || !self.window_admits(now) {
            return None;
        }
        let slot = self.fragments.again().first().or_else(|| self.next_fragment(now))?;
        Some(self.launch(slot, now))
    }

    /// Takes the cookie that shows that this client receives at its address, as the node has told it in its welcome;
    /// every answer tells the latest one.
    pub fn prove(&mut self, cookie: u64) {
        self.cookie = cookie;
    }

    /// Counts the bytes of a message that [`Client::transmit`] has given, once its owner knows them.
    #[inline]
    pub fn count_sent(&mut self, bytes: usize) {
        self.stats.sent_bytes += bytes as u64;
    }

    /// The next completion.
    #[inline]
    pub fn completion(&mut self) -> Option<Completion> {
        self.operations.take_completion()
    }

    /// Whether another operation can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.operations.has_room()
    }

    /// Operations whose completion has not been taken yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.operations.outstanding()
    }

    /// Whether there is nothing to send, to wait for or to take: neither operations nor aborts nor completions.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.operations.outstanding() == 0 && self.operations.live().is_empty()
    }

    /// Whether something waits to be sent: for room in a window, or for the next [`Client::transmit`].
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        !self.fragments.again().is_empty() || !self.operations.ready().is_empty()
    }

    /// Whether an operation that was given up may still change what is at `address`: the node has not answered its
    /// abort.
    #[must_use]
    pub fn may_still_change(&self, pid: u32, address: u64, bytes: u64) -> bool {
        self.operations.may_still_change(&Scope::of_range(pid, address, bytes, self.page_shift))
    }

    /// Answers of the node to what it was asked, also those that say that it is to be asked again.
    #[must_use]
    pub fn answers_heard(&self) -> u64 {
        self.heard
    }

    /// What the client has seen.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { round_trip: self.round_trip.smoothed(), window_packets: self.window.packets(), ..self.stats }
    }

    fn window_admits(&mut self, now: Nanos) -> bool {
        if self.config.transport == Transport::Stream {
            return true;
        }
        match self.window.admit(self.fragments.in_flight(), self.round_trip.expected(), now) {
            Admission::Open => true,
            Admission::Full => {
                event!(trace, in_flight = self.fragments.in_flight(), "the lane is blocked: its window is full");
                false
            }
            Admission::Later(due) => {
                event!(trace, now, due, "the lane is blocked: its window is below one packet");
                self.pace_due = due;
                false
            }
        }
    }

    /// Cuts the next fragment from the first operation that may be sent, or asks for the node's clock if the first one
    /// that needs it is to be sent.
    #[inline]
    fn next_fragment(&mut self, now: Nanos) -> Option<u32> {
        let mut candidate = self.operations.ready().first();
        while let Some(index) = candidate {
            if !self.operations.entry(index).is_exactly_once() || self.clock.is_fresh(now) {
                return self.cut(index, now);
            }
            if !self.fragments.is_pinging() {
                return Some(self.fragments.claim_ping(self.clock.bound(now).unwrap_or(0)));
            }
            candidate = self.operations.ready().after(index);
        }
        None
    }

    /// Cuts a fragment from an operation, if there is a slot for it and the incast window has room for its answer.
    #[inline]
    fn cut(&mut self, index: u32, now: Nanos) -> Option<u32> {
        let fragment_bytes = self.config.fragment_bytes as u64;
        let entry = self.operations.entry(index);
        let (offset, rest) = (entry.cut, entry.extent - entry.cut);
        let address = entry.address.wrapping_add(offset);
        let (advance, length) = match entry.kind {
            Some(Kind::Read | Kind::Write) => both(piece(address, rest, fragment_bytes)),
            Some(Kind::Discard) if entry.fragments >= DISCARDS_MAX => return None,
            // Cut where pages of the node end.
            Some(Kind::Discard) => both(rest.min(self.config.discard_bytes - address % self.config.discard_bytes)),
            _ => (rest, request_length(entry)),
        };
        let expects = match entry.kind {
            Some(Kind::Read) => u64::from(length),
            Some(Kind::Call) => fragment_bytes,
            _ => 0,
        };
        let expected = self.fragments.expected();
        if expects > 0 && expected > 0 && expected + expects > self.config.incast_bytes {
            event!(trace, expected, expects, "the lane is blocked: its incast window is full");
            return None;
        }
        let slot = self.fragments.claim(index, expects)?;
        let fragment = self.fragments.slot_mut(slot);
        (fragment.offset, fragment.address, fragment.length) = (offset, address, length);
        fragment.time = self.clock.bound(now).unwrap_or(0);
        let entry = self.operations.entry_mut(index);
        entry.cut += advance;
        entry.fragments += 1;
        if entry.cut == entry.extent {
            self.operations.stop_cutting(index, Phase::Sent);
        }
        Some(slot)
    }

    /// Sends the fragment in `slot`.
    #[inline]
    fn launch(&mut self, slot: u32, now: Nanos) -> Transmit<'_> {
        let due = match self.config.transport {
            Transport::Datagram => {
                let fragment = self.fragments.slot(slot);
                let is_fast = is_fast(fragment.owner, &self.operations);
                let timeout = if is_fast { RoundTrip::timeout } else { RoundTrip::slow_timeout };
                now.saturating_add(timeout(&self.round_trip, fragment.failed))
            }
            Transport::Stream => Nanos::MAX,
        };
        self.fragment_due = self.fragment_due.min(due);
        self.window.on_sent(now);
        let attempt = self.fragments.launch(slot, now, due);
        self.stats.sent += 1;
        self.stats.retried += u64::from(attempt.request_id != attempt.first_id);
        let fragment = self.fragments.slot(slot);
        let mut header = Header {
            first_id: attempt.first_id,
            time: fragment.time,
            cookie: self.cookie,
            direction: Direction::Request,
            ..Header::request(Kind::Ping, attempt.request_id, fragment.address, fragment.length)
        };
        let Owner::Operation(index) = fragment.owner else {
            (header.address, header.length) = (0, 0);
            return Transmit { header, token: 0, payload: Payload::None };
        };
        let entry = self.operations.entry(index);
        let kind = entry.kind.expect("a fence has no fragments");
        (header.pid, header.capability) = (entry.pid, entry.capability);
        if attempt.purpose == Purpose::Abort {
            // The path that would execute the operation is the one that must give it up.
            (header.kind, header.length, header.fragment_offset) = (Kind::Abort, 0, abort_offset(kind));
            return Transmit { header, token: 0, payload: Payload::None };
        }
        header.kind = kind;
        if matches!(kind, Kind::Read | Kind::Write) {
            header.fragment_offset =
                u32::try_from(fragment.offset).expect("a read or write is shorter than 2^32 bytes");
        }
        let payload = match entry.body() {
            _ if !kind.carries_payload(Direction::Request) || fragment.length == 0 => Payload::None,
            [] => Payload::Caller { offset: fragment.offset, length: fragment.length as usize },
            body => Payload::Inline(body),
        };
        Transmit { header, token: entry.token, payload }
    }
}

/// Whether a data thread answers what a fragment asks, within a round trip.
pub(crate) fn is_fast(owner: Owner, operations: &Operations) -> bool {
    match owner {
        Owner::Operation(index) => operations.entry(index).kind.is_some_and(Kind::is_fast),
        Owner::Ping => true,
    }
}

/// The fragment offset by which an abort finds the part of a node that would execute a request of `kind`.
fn abort_offset(kind: Kind) -> u32 {
    match kind {
        Kind::Call => 2,
        kind => u32::from(!kind.is_fast()),
    }
}

/// The `length` field of a request that is not cut.
fn request_length(entry: &Entry) -> u32 {
    match entry.body() {
        [] => u32::try_from(entry.length).unwrap_or(u32::MAX),
        body => body.len().narrow_u32(),
    }
}

/// How much of `rest` bytes at `address` goes into one fragment of at most `bytes_max`.
fn piece(address: u64, rest: u64, bytes_max: u64) -> u64 {
    if rest <= bytes_max {
        return rest;
    }
    bytes_max - (address.wrapping_add(bytes_max) % CUT_BYTES)
}

/// A piece as what an operation is cut by and as what the header says.
fn both(piece: u64) -> (u64, u32) {
    (piece, u32::try_from(piece).expect("a fragment is shorter than 2^32 bytes"))
}
