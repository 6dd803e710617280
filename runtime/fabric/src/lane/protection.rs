//! Sessions with a node that wants to know who asks, and the lanes that speak under them.
//!
//! [`Sessions`] makes them over TLS, and another one before the present one is over; it belongs to what all lanes to a
//! node share. A [`Protector`] seals what one lane sends and opens what it receives, with keys that it derives by
//! itself, so that nothing here locks, allocates or waits on the path of a fault.
//!
//! Invariant: a lane has one counter as long as a session lasts, and no two lanes of a session have one number.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use yonder_client::NodeClock;
use yonder_identity::{Credential, Role, connect};
use yonder_session::{
    Frame, GrantBytes, LaneKeys, PREFIX_BYTES, Protection, RequestCounter, SessionGrant, SessionNumber, SessionRequest,
    SessionSecret, open, seal,
};
use yonder_units::Nanos;
use yonder_wire::{Header, PROOF_BYTES, WireError, split_proven};

use super::OpenError;

/// Longest that making a session may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Another session is made when this part of the present one is left.
const RENEWED_AT_DIVISOR: u32 = 4;
/// Shortest time between two attempts to make one.
const RETRY: Duration = Duration::from_secs(1);
/// Messages without an answer after which the node's clock is no longer believed to have gone on: every other one
/// carries the last time that was heard.
const UNANSWERED_MAX: u32 = 8;

/// The sessions with one node, if it wants any.
#[derive(Debug)]
pub(crate) struct Sessions {
    credential: OnceLock<Option<Arc<Credential>>>,
    protection: Protection,
    /// The first, from which the others follow.
    first: OnceLock<Arc<Made>>,
    making: Mutex<Option<Making>>,
    lanes: AtomicU8,
}

/// The last session that was made, and where.
#[derive(Debug)]
struct Making {
    last: Arc<Made>,
    address: SocketAddr,
    tried: Instant,
}

/// A session.
#[derive(Debug)]
struct Made {
    number: SessionNumber,
    secret: SessionSecret,
    incarnation: u64,
    /// The node's clock when it was made, and ours when we knew.
    time: u64,
    made: Nanos,
    renewed_at: Instant,
    next: OnceLock<Arc<Made>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            credential: OnceLock::new(),
            protection: Protection::Encrypted,
            first: OnceLock::new(),
            making: Mutex::default(),
            lanes: AtomicU8::new(0),
        }
    }
}

impl Sessions {
    /// Sessions of one with this credential, or none; each message is to be protected like this.
    pub(crate) fn of(credential: Option<Arc<Credential>>, protection: Protection) -> Self {
        Self { credential: OnceLock::from(credential), protection, ..Self::default() }
    }

    /// Sessions of one whom the environment names, if it does; each message is to be protected like this.
    pub(crate) fn protecting(protection: Protection) -> Self {
        Self { protection, ..Self::default() }
    }

    /// The protector of a new lane to the node at `address`, and the node's incarnation; `None` for plain lanes. Makes a
    /// session if there is none.
    pub(crate) fn lane(&self, address: SocketAddr) -> Result<Option<(Protector, u64)>, OpenError> {
        let Some(credential) = self.credential()? else { return Ok(None) };
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let last = match &*making {
            Some(making) => Arc::clone(&making.last),
            None => {
                let made = Arc::new(self.make(&credential, address)?);
                let first = self.first.set(Arc::clone(&made));
                assert!(first.is_ok(), "the first session is made once");
                *making = Some(Making { last: Arc::clone(&made), address, tried: Instant::now() });
                made
            }
        };
        drop(making);
        let next = |lanes: u8| lanes.checked_add(1).filter(|lane| *lane <= SessionNumber::LANE_MAX);
        let lane = self.lanes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let lane = lane.map_err(|_| io::Error::other("a process has too many lanes to one node"))? + 1;
        let incarnation = last.incarnation;
        Ok(Some((Protector::new(last, lane), incarnation)))
    }

    /// Makes another session if the present one is old, or if `is_lost`: nothing is heard of the node under it. The
    /// node's incarnation, if one was made.
    pub(crate) fn renew(&self, is_lost: bool) -> Option<u64> {
        let credential = self.credential().ok().flatten()?;
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let making = making.as_mut()?;
        let (is_old, is_early) = (Instant::now() >= making.last.renewed_at, making.tried.elapsed() < RETRY);
        if !(is_old || is_lost) || is_early {
            return None;
        }
        making.tried = Instant::now();
        let made = Arc::new(self.make(&credential, making.address).ok()?);
        let incarnation = made.incarnation;
        let next = making.last.next.set(Arc::clone(&made));
        assert!(next.is_ok(), "a session has one that follows it");
        making.last = made;
        Some(incarnation)
    }

    fn credential(&self) -> Result<Option<Arc<Credential>>, OpenError> {
        if let Some(known) = self.credential.get() {
            return Ok(known.clone());
        }
        let found = Credential::of_environment()?;
        Ok(self.credential.get_or_init(|| found).clone())
    }

    fn make(&self, credential: &Credential, address: SocketAddr) -> Result<Made, OpenError> {
        let began = Instant::now();
        let socket = TcpStream::connect_timeout(&address, TIME_MAX)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIME_MAX))?;
        socket.set_write_timeout(Some(TIME_MAX))?;
        let (stream, _) = connect(credential, socket, Role::Node, began + TIME_MAX)?;
        (&stream).write_all(&SessionRequest { protection: self.protection }.to_bytes())?;
        let mut bytes = GrantBytes::new([0; SessionGrant::BYTES]);
        (&stream).read_exact(&mut bytes[..])?;
        let made = yonder_clock::now();
        let no_grant =
            || io::Error::other("it answers with something else than a session: use the same release on both");
        let grant = SessionGrant::from_bytes(&bytes).ok_or_else(no_grant)?;
        let lasts = Duration::from_secs(grant.seconds.into());
        let SessionGrant { number, secret, incarnation, time, .. } = grant;
        let renewed_at = began + lasts - lasts / RENEWED_AT_DIVISOR;
        Ok(Made { number, secret, incarnation, time, made, renewed_at, next: OnceLock::new() })
    }
}

/// What one lane seals and opens with.
#[derive(Debug)]
pub(crate) struct Protector {
    lane: u8,
    made: Arc<Made>,
    keys: LaneKeys,
    counter: RequestCounter,
    /// The keys of the session before, under which answers may still come.
    before: Option<(SessionNumber, LaneKeys)>,
    clock: NodeClock,
    /// The latest time of the node that was heard.
    heard: u64,
    unanswered: u32,
}

impl Protector {
    fn new(made: Arc<Made>, lane: u8) -> Self {
        let keys = made.secret.lane(lane);
        let mut clock = NodeClock::default();
        clock.hear(made.time, made.made);
        let heard = made.time;
        Self { lane, made, keys, counter: RequestCounter::new(), before: None, clock, heard, unanswered: 0 }
    }

    /// Goes over to the session that was made last, if there is a newer one than that of the lane.
    #[inline]
    pub(crate) fn follow(&mut self) {
        if self.made.next.get().is_some() {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        while let Some(next) = self.made.next.get() {
            // What it leaves stays in the chain, so nothing is freed here.
            self.made = Arc::clone(next);
        }
        let keys = self.made.secret.lane(self.lane);
        let number = self.number();
        let before = std::mem::replace(&mut self.keys, keys);
        self.before = Some((number, before));
        self.counter = RequestCounter::new();
        self.clock.hear(self.made.time, self.made.made);
        (self.heard, self.unanswered) = (self.heard.max(self.made.time), 0);
    }

    fn number(&self) -> SessionNumber {
        self.made.number.with_lane(self.lane)
    }

    /// Seals the plain message of `bytes` at the start of `room`, sent at `now`, and returns how long it is then; `None`
    /// if the lane may send nothing more in its session.
    #[inline]
    pub(crate) fn seal(&mut self, room: &mut [u8], bytes: usize, now: Nanos) -> Option<usize> {
        self.unanswered = self.unanswered.saturating_add(1);
        // A node refuses what is from its future, which is where a lane is after the node's clock has stood still.
        let is_doubtful = self.unanswered > UNANSWERED_MAX && self.unanswered.is_multiple_of(2);
        let bound = self.clock.bound(now).filter(|_| !is_doubtful);
        let counter = self.counter.next(bound.unwrap_or(self.heard))?;
        seal(&self.keys.requests, self.number(), counter, &mut room[..bytes + PROOF_BYTES]);
        Some(bytes + PROOF_BYTES)
    }

    /// Opens the protected message in `received`, all of it or at its start: bytes of the message, and those that it
    /// took. `None` until it is there as a whole.
    #[inline]
    pub(crate) fn open(&mut self, received: &mut [u8], now: Nanos) -> Result<Option<(usize, usize)>, Foreign> {
        if received.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let frame = Frame::parse(received).ok_or(Foreign)?;
        let keys = match &self.before {
            _ if frame.number == self.number() => &self.keys,
            Some((number, keys)) if frame.number == *number => keys,
            _ => return Err(Foreign),
        };
        let Some(message) = received.get_mut(..frame.message_bytes()) else { return Ok(None) };
        let bytes = open(&keys.answers, message).map_err(|_| Foreign)?;
        if let Ok(Some(answer)) = split_proven(&message[..bytes]) {
            self.hear(&answer.header, now);
        }
        Ok(Some((bytes, frame.message_bytes())))
    }

    fn hear(&mut self, answer: &Header, now: Nanos) {
        self.heard = self.heard.max(answer.time);
        self.clock.hear(answer.time, now);
        if std::mem::take(&mut self.unanswered) > UNANSWERED_MAX {
            self.clock.fall_back(now);
        }
    }
}

/// A message that is not one for this lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Foreign;

impl From<Foreign> for WireError {
    fn from(_: Foreign) -> Self {
        Self::Checksum
    }
}
