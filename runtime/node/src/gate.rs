//! [`Gate`]: what comes from the network is looked at here before anything is made of it, and answers go out through
//! it.
//!
//! A node without a credential takes plain messages. A datagram must then carry the *cookie* of its address, which
//! every answer has: a request without it is answered with the cookie alone, which is no longer than the request, so
//! nothing longer goes where it was not asked for. A node with a credential takes *protected* messages only: they are
//! opened with the key of their lane, which is derived from the node's secret, the session's number and the sender's
//! IP address; so the key is a proof of the address too. The node keeps nothing of sessions but bounded caches.
//!
//! [`Doors`] is shared by all threads; each thread has a [`Gate`]. All messages of a lane are judged by one table of
//! windows, whichever thread gets them: an attacker who repeats a message chooses where from, and with that the thread.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_board::Source;
use yonder_datagram::Address;
use yonder_identity::{Credential, Peer};
use yonder_mapping::LockedBox;
use yonder_session::{
    AnswerCounter, Cipher, Frame, KeyCache, LaneKeys, NodeSecret, PREFIX_BYTES, Protection, ReplayWindows,
    SessionGrant, SessionNumber, seal,
};
use yonder_units::{Nanos, Narrow};
use yonder_wire::{ErrorCode, Header, Kind, Message, PROOF_BYTES, split, split_proven};

use crate::revoked::Revoked;
use crate::source;

/// For how long a cookie is given; it is taken for twice as long.
const COOKIE_PERIOD: Nanos = 64_000_000_000;
/// Tables of windows, each behind a lock: many, so that threads seldom meet.
const TABLES: usize = 64;
/// Sets of a table: 4096 lanes have a window at a time, as in one table of the usual size.
const SETS_PER_TABLE: usize = 16;
const NANOS_PER_HOUR: Nanos = 3_600_000_000_000;
/// For how long a session lasts: until this full hour.
const SESSION_HOURS: u32 = 2;
/// How often the log has a line of those who are refused.
const TELL_EVERY: Nanos = 1_000_000_000;
/// Sessions of one source in an hour: of a tenant, or of a host of those without names.
const SESSIONS_PER_HOUR: u32 = 1024;

/// What a node needs to know its clients.
#[derive(Debug)]
pub(crate) struct Doors {
    secret: LockedBox<NodeSecret>,
    cipher: Cipher,
    /// Who the node is; without it, it asks clients for nothing.
    pub(crate) credential: Option<Arc<Credential>>,
    windows: Box<[Mutex<ReplayWindows>]>,
    began: Nanos,
    serials: AtomicU32,
    /// When the log has the next line of one who is refused.
    tells_from: AtomicU64,
    revoked: Revoked,
    /// Sessions that sources have made in an hour of the node.
    made: Mutex<HashMap<Source, (u32, u32)>>,
    /// Numbers of tenants, by name.
    tenants: Mutex<HashMap<String, u16>>,
}

/// How the answer to a request goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wrap {
    /// As it is.
    Plain,
    /// Under the key of its lane.
    Protected { number: SessionNumber, protection: Protection, ip: Ipv6Addr },
}

impl Wrap {
    /// Bytes that it adds to an answer.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Protected { .. } => PROOF_BYTES,
        }
    }

    /// Whom the request is from, if the session says so.
    pub(crate) fn tenant(self) -> Option<Source> {
        match self {
            Self::Plain => None,
            Self::Protected { number, .. } => {
                Some(number.tenant()).filter(|tenant| *tenant != 0).map(Source::of_tenant)
            }
        }
    }
}

/// What became of a datagram.
pub(crate) enum Arrived<'a> {
    /// A request, or what looks like one, that may be looked at.
    Message(Message<'a>, Wrap),
    /// One that is not looked at: its sender is told why.
    Refused(Header, ErrorCode),
    /// Nothing that is answered.
    Dropped,
}

/// The lane of a stream whose messages are protected.
#[derive(Debug)]
pub(crate) struct ProtectedLane {
    wrap: Wrap,
    number: SessionNumber,
    keys: LaneKeys,
}

impl Doors {
    /// The doors of a node that began at `now`, with a secret that only it knows.
    pub(crate) fn new(secret: LockedBox<NodeSecret>, credential: Option<Arc<Credential>>, now: Nanos) -> Self {
        let tables = if credential.is_some() { TABLES } else { 0 };
        let table = |_| Mutex::new(ReplayWindows::with_sets(&secret, SETS_PER_TABLE, now));
        Self {
            windows: (0..tables).map(table).collect(),
            cipher: Cipher::best(),
            secret,
            credential,
            began: now,
            serials: AtomicU32::new(0),
            tells_from: AtomicU64::new(0),
            revoked: Revoked::new(),
            made: Mutex::default(),
            tenants: Mutex::default(),
        }
    }

    /// Whether plain messages from the network are refused.
    pub(crate) fn are_closed(&self) -> bool {
        self.credential.is_some()
    }

    /// Makes a session for a client at `ip` who was known by his certificate or key: as the tenant with a number, or
    /// without one, which is 0. `None` if there are no numbers left.
    pub(crate) fn session(
        &self,
        peer: &Peer,
        tenant: u16,
        ip: IpAddr,
        protection: Protection,
        incarnation: u64,
        now: Nanos,
    ) -> Option<SessionGrant> {
        let source = if tenant == 0 { source::of_address(ip) } else { Source::of_tenant(tenant) };
        if !self.may_make(source, self.hours(now)) {
            return None;
        }
        let more = |serial: u32| (serial < SessionNumber::SERIAL_MAX).then_some(serial + 1);
        let serial = self.serials.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let end = self.hours(now) + SESSION_HOURS;
        if !self.revoked.note(peer, tenant, end, self.hours(now)) {
            return None;
        }
        let number = SessionNumber::new(serial + 1, end, tenant);
        let secret = self.secret.session_secret(number, mapped(ip), self.cipher, protection);
        let left = Nanos::from(end) * NANOS_PER_HOUR - (now - self.began);
        Some(SessionGrant { number, secret, incarnation, time: now, seconds: (left / 1_000_000_000).narrow_u32() })
    }

    /// Whether a source may make another session in this hour: lanes of more would push the windows of others out.
    fn may_make(&self, source: Source, hour: u32) -> bool {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|_, (of, _)| *of == hour);
        let (_, count) = made.entry(source).or_insert((hour, 0));
        let may = *count < SESSIONS_PER_HOUR;
        *count += u32::from(may);
        may
    }

    /// Ends the sessions of those who were revoked. Looks at files: not for threads that serve data.
    pub(crate) fn end_revoked(&self) {
        if let Some(credential) = &self.credential {
            self.revoked.look(credential, || self.serials.load(Ordering::Relaxed));
        }
    }

    /// Whether the log has a line of one who is refused now: one in a while has.
    pub(crate) fn may_tell(&self, now: Nanos) -> bool {
        let next = |from: Nanos| (from <= now).then_some(now + TELL_EVERY);
        self.tells_from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// The number of the tenant with a name: always the same while the node runs. `None` if there are none left.
    pub(crate) fn tenant(&self, name: &str) -> Option<u16> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = tenants.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(tenants.len() + 1).ok().filter(|number| *number <= SessionNumber::TENANT_MAX)?;
        tenants.insert(name.to_owned(), number);
        Some(number)
    }

    /// The names of tenants that have numbers.
    pub(crate) fn tenants(&self) -> HashMap<u16, String> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.iter().map(|(name, number)| (*number, name.clone())).collect()
    }

    /// Whether a message that was opened is seen for the first time, and of a session that goes on.
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        if self.revoked.has(number) {
            return false;
        }
        // A keyed hash, so that none aims at the windows of another.
        let table = self.secret.cookie(&number.0.to_le_bytes(), 0) % TABLES as u64;
        let mut windows = self.windows[table.narrow_usize()].lock().unwrap_or_else(PoisonError::into_inner);
        windows.accept(number, counter, now)
    }

    fn hours(&self, now: Nanos) -> u32 {
        (now.saturating_sub(self.began) / NANOS_PER_HOUR).narrow_u32()
    }

    /// The lane that the message at the start of a stream's bytes claims to be of; [`Doors::open_next`] sees whether it
    /// is. `None` until its prefix is there.
    pub(crate) fn lane_of(&self, received: &[u8], ip: IpAddr, now: Nanos) -> Result<Option<ProtectedLane>, Unwelcome> {
        if received.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let Frame { number, protection, .. } = Frame::parse(received).ok_or(Unwelcome)?;
        if number.lane() == 0 || !number.is_current(self.hours(now)) || !self.are_closed() {
            return Err(Unwelcome);
        }
        let ip = mapped(ip);
        let keys = self.secret.session_secret(number, ip, self.cipher, protection).lane(number.lane());
        Ok(Some(ProtectedLane { wrap: Wrap::Protected { number, protection, ip }, number, keys }))
    }

    /// Opens the protected message at the start of `received`: bytes of the message, and those that it took there.
    /// `None` until it is there as a whole.
    pub(crate) fn open_next(
        &self,
        lane: &ProtectedLane,
        received: &mut [u8],
        now: Nanos,
    ) -> Result<Option<(usize, usize)>, Unwelcome> {
        if received.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let frame = Frame::parse(received).filter(|frame| frame.number == lane.number).ok_or(Unwelcome)?;
        let taken = frame.message_bytes();
        let Some(message) = received.get_mut(..taken) else { return Ok(None) };
        let bytes = yonder_session::open(&lane.keys.requests, message).map_err(|_| Unwelcome)?;
        let is_current = lane.number.is_current(self.hours(now));
        if is_current && self.accept(lane.number, frame.counter, now) {
            Ok(Some((bytes, taken)))
        } else {
            Err(Unwelcome)
        }
    }
}

/// A message that is no one's, or comes again, or from a session that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unwelcome;

impl ProtectedLane {
    /// How answers go back.
    pub(crate) fn wrap(&self) -> Wrap {
        self.wrap
    }

    /// Seals the answer of `bytes` at the start of `room`, and returns how long it is then.
    pub(crate) fn seal(&self, answers: &mut AnswerCounter, room: &mut [u8], bytes: usize) -> usize {
        seal(&self.keys.answers, self.number, answers.next(), &mut room[..bytes + PROOF_BYTES]);
        bytes + PROOF_BYTES
    }
}

/// One thread's part.
#[derive(Debug)]
pub(crate) struct Gate {
    doors: Arc<Doors>,
    keys: KeyCache,
    /// Numbers of the thread's answers.
    pub(crate) answers: AnswerCounter,
    /// The address that was seen last, and its cookie in a period.
    last: Option<(Address, u64, u64)>,
}

impl Gate {
    /// The part of a thread with this number among those that answer.
    pub(crate) fn new(doors: &Arc<Doors>, thread: usize) -> Self {
        let keys = KeyCache::new(&doors.secret, doors.cipher);
        let answers = AnswerCounter::new(thread.narrow_u16());
        Self { doors: Arc::clone(doors), keys, answers, last: None }
    }

    /// Looks at a datagram, and opens it where it is.
    #[inline]
    pub(crate) fn open<'a>(&mut self, datagram: &'a mut [u8], from: &Address, now: Nanos) -> Arrived<'a> {
        if Frame::parse(datagram).is_some() {
            return self.open_protected(datagram, from, now);
        }
        let Ok(Some(mut message)) = split(datagram) else { return Arrived::Dropped };
        if message.bytes() != datagram.len() {
            return Arrived::Dropped;
        }
        if self.doors.are_closed() {
            return Arrived::Refused(message.header, ErrorCode::Unprotected);
        }
        let cookie = self.cookie(from, now / COOKIE_PERIOD);
        let claimed = message.header.cookie;
        let is_proven = claimed == cookie || claimed == self.cookie_before(from, now / COOKIE_PERIOD);
        // The answer brings the cookie of this period, whichever it was.
        message.header.cookie = cookie;
        // A greeting is as long as its answer.
        if is_proven || message.header.kind == Kind::Hello {
            Arrived::Message(message, Wrap::Plain)
        } else {
            Arrived::Refused(message.header, ErrorCode::Unproven)
        }
    }

    #[inline]
    fn open_protected<'a>(&mut self, datagram: &'a mut [u8], from: &Address, now: Nanos) -> Arrived<'a> {
        let Self { doors, keys, .. } = self;
        let Some(ip) = from.to_socket_addr().map(|from| mapped(from.ip())) else { return Arrived::Dropped };
        if !doors.are_closed() {
            return Arrived::Dropped;
        }
        let Ok(opened) = keys.open_request(&doors.secret, doors.hours(now), ip, datagram) else {
            return Arrived::Dropped;
        };
        let (number, protection) = (opened.number, opened.protection);
        if !doors.accept(number, opened.counter, now) {
            return Arrived::Dropped;
        }
        match split_proven(&datagram[..opened.bytes]) {
            Ok(Some(message)) => Arrived::Message(message, Wrap::Protected { number, protection, ip }),
            _ => Arrived::Dropped,
        }
    }

    /// Makes the answer of `bytes` at the start of `room` one that goes back as `wrap` says; how long it is then.
    #[inline]
    pub(crate) fn close(&mut self, wrap: Wrap, room: &mut [u8], bytes: usize) -> usize {
        let Wrap::Protected { number, protection, ip } = wrap else { return bytes };
        let key = &self.keys.keys(&self.doors.secret, number, ip, protection).answers;
        seal(key, number, self.answers.next(), &mut room[..bytes + PROOF_BYTES]);
        bytes + PROOF_BYTES
    }

    /// The cookie of an address in a period. Datagrams of one sender follow one another, so the last is remembered.
    fn cookie(&mut self, of: &Address, period: u64) -> u64 {
        match &self.last {
            Some((address, in_period, cookie)) if *in_period == period && address == of => *cookie,
            _ => {
                let cookie = self.doors.secret.cookie(of.as_bytes(), period);
                self.last = Some((*of, period, cookie));
                cookie
            }
        }
    }

    #[cold]
    fn cookie_before(&self, of: &Address, period: u64) -> u64 {
        self.doors.secret.cookie(of.as_bytes(), period.wrapping_sub(1))
    }
}

/// The address as keys are derived from it.
fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
