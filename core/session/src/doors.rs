//! [`Doors`]: what the threads of a node share to know its clients: a secret, and the windows that tell replays.
//!
//! Nothing here is of one client, and nothing grows with their number. A message of a session is opened with the key of
//! its lane, which is derived from the node's secret, the session's number and the sender's IP address; so the key is a
//! proof of the address too, and of the thread that the message is for. [`Gate`](crate::Gate) is one thread's part, for
//! datagrams; a stream whose messages are protected has a [`ProtectedLane`].
//!
//! All messages of a lane are judged by one [`Table`], whichever thread gets them: an attacker who repeats a greeting
//! chooses where from, and with that the thread. What a table does about threads that meet is the shell's affair, as
//! is where the secret lies.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::ops::Deref;

use yonder_units::{Nanos, Narrow};
use yonder_wire::PROOF_BYTES;

use crate::cipher::{Cipher, Protection};
use crate::counter::AnswerCounter;
use crate::frame::{Frame, PREFIX_BYTES};
use crate::grant::SessionGrant;
use crate::home::{Door, Home};
use crate::number::SessionNumber;
use crate::numbers::{Numbers, Visitor};
use crate::replay::ReplayWindows;
use crate::seal::{open, seal};
use crate::secret::{LaneKeys, NodeSecret};

/// For how long a session lasts: until this full hour.
pub const SESSION_HOURS: u32 = 2;

/// Which messages a node lets in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Plain ones; a datagram must have the cookie of its address.
    Plain,
    /// Those of sessions.
    Protected,
}

/// What a node decides once, about all its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Which messages it lets in.
    pub admission: Admission,
    /// What it protects messages with.
    pub cipher: Cipher,
    /// Tables of windows: many, so that threads seldom meet.
    pub tables: usize,
    /// Sets of a table, of four lanes each.
    pub sets_per_table: usize,
    /// What sessions count as an hour. A real node has real ones.
    pub hour: Nanos,
    /// For how long a cookie is given; it is taken for twice as long.
    pub cookie_period: Nanos,
}

impl Rules {
    /// Those of a real node. 4096 lanes have a window at a time, as in one table of the usual size.
    #[must_use]
    pub fn usual(admission: Admission) -> Self {
        Self {
            admission,
            cipher: Cipher::best(),
            tables: 64,
            sets_per_table: 16,
            hour: 3_600_000_000_000,
            cookie_period: 64_000_000_000,
        }
    }
}

/// A table of windows that threads share.
pub trait Table {
    /// Whether a message that was opened is seen for the first time: [`ReplayWindows::accept`].
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool;
}

/// What a node needs to know its clients. `S` keeps its secret, `T` is a table of windows.
pub struct Doors<S, T> {
    secret: S,
    rules: Rules,
    tables: Box<[T]>,
    began: Nanos,
}

/// How the answer to a request goes back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrap {
    /// As it is.
    Plain,
    /// Under the key of its lane.
    Protected {
        /// The lane.
        number: SessionNumber,
        /// What is done to its messages.
        protection: Protection,
        /// The address that its keys are good for.
        ip: Ipv6Addr,
        /// The thread that they are good for.
        home: Home,
    },
}

/// The lane of a stream whose messages are protected.
#[derive(Debug)]
pub struct ProtectedLane {
    number: SessionNumber,
    protection: Protection,
    ip: Ipv6Addr,
    home: Home,
    keys: LaneKeys,
}

/// A message that is no one's, or comes again, or from a session that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message is forged, repeated, or of a session that is over")]
pub struct Unwelcome;

impl Wrap {
    /// Bytes that it adds to an answer.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Protected { .. } => PROOF_BYTES,
        }
    }

    /// The tenant that the request is from, if the session says so.
    #[must_use]
    pub fn tenant(self) -> Option<u16> {
        match self {
            Self::Plain => None,
            Self::Protected { number, .. } => Some(number.tenant()).filter(|tenant| *tenant != 0),
        }
    }
}

impl<S: Deref<Target = NodeSecret>, T: Table> Doors<S, T> {
    /// The doors of a node that began at `now`, with a secret that only it knows. `table` makes a table of windows one
    /// that threads can share.
    pub fn new(secret: S, rules: Rules, now: Nanos, table: impl Fn(ReplayWindows) -> T) -> Self {
        let tables = match rules.admission {
            Admission::Plain => 0,
            Admission::Protected => rules.tables,
        };
        let made = |_| table(ReplayWindows::with_sets(&secret, rules.sets_per_table, now));
        Self { tables: (0..tables).map(made).collect(), secret, rules, began: now }
    }

    /// Whether plain messages from the network are refused.
    #[must_use]
    pub const fn are_closed(&self) -> bool {
        matches!(self.rules.admission, Admission::Protected)
    }

    /// The node's secret.
    pub(crate) fn secret(&self) -> &NodeSecret {
        &self.secret
    }

    /// What the node has decided.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Makes a session for a client that was known by its certificate or key. `None` if there is no number for it.
    #[must_use]
    pub fn session(
        &self,
        numbers: &mut Numbers,
        visitor: Visitor<'_>,
        protection: Protection,
        incarnation: u64,
        now: Nanos,
    ) -> Option<SessionGrant> {
        let number = numbers.next(visitor, self.hours(now), SESSION_HOURS)?;
        let secret = self.secret.session_secret(number, mapped(visitor.ip), self.rules.cipher, protection);
        let seconds = (self.left(number, now) / 1_000_000_000).narrow_u32();
        Some(SessionGrant { number, secret, incarnation, time: now, seconds })
    }

    /// For how long the session `number` lasts from `now` on.
    #[must_use]
    pub fn left(&self, number: SessionNumber, now: Nanos) -> Nanos {
        let end = Nanos::from(number.expiry_hours()) * self.rules.hour;
        end.saturating_sub(now.saturating_sub(self.began))
    }

    /// Hours since the node began.
    pub(crate) fn hours(&self, now: Nanos) -> u32 {
        (now.saturating_sub(self.began) / self.rules.hour).narrow_u32()
    }

    /// Whether a message that was opened is seen for the first time.
    #[inline]
    pub(crate) fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        // A keyed hash, so that none aims at the windows of another.
        let table = self.secret.cookie(&number.0.to_le_bytes(), 0) % self.tables.len() as u64;
        self.tables[table.narrow_usize()].accept(number, counter, now)
    }

    /// The lane that the greeting at the start of a stream's bytes claims to be of; [`Doors::open_next`] sees whether
    /// it is. `None` until its prefix is there.
    ///
    /// # Errors
    /// If that is no greeting of a session that is under way.
    pub fn lane_of(&self, received: &[u8], ip: IpAddr, now: Nanos) -> Result<Option<ProtectedLane>, Unwelcome> {
        if received.len() < PREFIX_BYTES {
            return Ok(None);
        }
        let Frame { number, protection, .. } =
            Frame::parse(received).filter(|frame| frame.is_greeting).ok_or(Unwelcome)?;
        if number.lane() == 0 || !number.is_current(self.hours(now)) || !self.are_closed() {
            return Err(Unwelcome);
        }
        Ok(Some(self.lane_at(number, protection, mapped(ip), Home::Door(Door::Streams))))
    }

    /// The lane, once it was told which thread serves it: everything else is for that.
    #[must_use]
    pub fn settled(&self, lane: &ProtectedLane, thread: u16) -> ProtectedLane {
        let ProtectedLane { number, protection, ip, .. } = *lane;
        self.lane_at(number, protection, ip, Home::Thread(thread))
    }

    fn lane_at(&self, number: SessionNumber, protection: Protection, ip: Ipv6Addr, home: Home) -> ProtectedLane {
        let keys = self.secret.session_secret(number, ip, self.rules.cipher, protection).lane(number.lane(), home);
        ProtectedLane { number, protection, ip, home, keys }
    }

    /// Opens the protected message at the start of `received`: bytes of the message, and those that it took there.
    /// `None` until it is there as a whole.
    ///
    /// # Errors
    /// If it is not of this lane, comes again, or the session is over.
    pub fn open_next(
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
        let bytes = open(&lane.keys.requests, message).map_err(|_| Unwelcome)?;
        let is_current = lane.number.is_current(self.hours(now));
        if is_current && self.accept(lane.number, frame.counter, now) {
            Ok(Some((bytes, taken)))
        } else {
            Err(Unwelcome)
        }
    }
}

impl<S, T> fmt::Debug for Doors<S, T> {
    /// Without the secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Doors").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl ProtectedLane {
    /// How answers go back.
    #[must_use]
    pub const fn wrap(&self) -> Wrap {
        let Self { number, protection, ip, home, .. } = *self;
        Wrap::Protected { number, protection, ip, home }
    }

    /// Seals the answer of `bytes` at the start of `room`, and returns how long it is then.
    pub fn seal(&self, answers: &mut AnswerCounter, room: &mut [u8], bytes: usize) -> usize {
        seal(&self.keys.answers, self.number, answers.next(), &mut room[..bytes + PROOF_BYTES]);
        bytes + PROOF_BYTES
    }
}

/// The address as keys are derived from it.
pub(crate) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests;
