//! [`Protector`]: what one lane of a client seals and opens with.
//!
//! It derives its keys by itself, when it begins, is welcomed, greets again, and goes over to another session of its
//! [`Chain`], so nothing here locks, allocates or waits on the path of a fault.
//!
//! Invariant: a lane has one counter as long as a session lasts.

use core::net::IpAddr;
use core::sync::atomic::Ordering;
use std::sync::Arc;

use yonder_client::NodeClock;
use yonder_units::Nanos;
use yonder_wire::{Header, PROOF_BYTES, WireError, split_proven};

use crate::chain::{Chain, Session};
use crate::counter::{NODE_THREADS_MAX, RequestCounter};
use crate::frame::{Frame, PREFIX_BYTES};
use crate::home::{Door, Home};
use crate::number::SessionNumber;
use crate::seal::{open, seal};
use crate::secret::LaneKeys;

/// Messages without an answer after which the node's clock is no longer believed to have gone on: every other one
/// carries the last time that was heard.
const UNANSWERED_MAX: u32 = 8;

/// The protection of one lane.
#[derive(Debug)]
pub struct Protector {
    lane: u8,
    /// Where the lane greets, and whom it speaks to.
    door: Door,
    home: Home,
    chain: Arc<Chain>,
    /// The session of the lane. That from which it began is held too, and with it all between: nothing is freed when
    /// the lane goes over.
    session: Arc<Session>,
    _first: Arc<Session>,
    keys: LaneKeys,
    counter: RequestCounter,
    /// The keys of the session before, under which answers may still come.
    before: Option<(SessionNumber, LaneKeys)>,
    clock: NodeClock,
    /// Messages since the last answer, whatever their session.
    unanswered: u32,
    /// When the first message of the session since the last answer was sent.
    asking_since: Option<Nanos>,
}

/// A message that is not one for this lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a message is not one for this lane")]
pub struct Foreign;

impl Protector {
    /// The protection of a new lane, with a number that [`Chain::next_lane`] has given, under `session` of the chain.
    /// It greets at a door of the node.
    #[must_use]
    pub fn new(chain: &Arc<Chain>, session: &Arc<Session>, lane: u8, door: Door) -> Self {
        let home = Home::Door(door);
        let keys = session.secret.lane(lane, home);
        let mut clock = NodeClock::default();
        clock.hear(session.time, session.made);
        Self {
            lane,
            door,
            home,
            chain: Arc::clone(chain),
            session: Arc::clone(session),
            _first: Arc::clone(session),
            keys,
            counter: RequestCounter::new(),
            before: None,
            clock,
            unanswered: 0,
            asking_since: None,
        }
    }

    /// The address that the lane must send from.
    #[must_use]
    pub fn own(&self) -> IpAddr {
        self.session.own()
    }

    /// Whether this is the process that made it.
    #[inline]
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.chain.is_here()
    }

    /// The number of the lane in its session.
    #[must_use]
    pub fn number(&self) -> SessionNumber {
        self.session.number.with_lane(self.lane)
    }

    /// A thread of the node has welcomed the lane: from now on everything is for it.
    ///
    /// # Errors
    /// If no node has such a thread.
    pub fn settle(&mut self, thread: u32) -> Result<(), Foreign> {
        let thread = u16::try_from(thread).ok().filter(|thread| *thread < NODE_THREADS_MAX).ok_or(Foreign)?;
        self.go_to(Home::Thread(thread));
        Ok(())
    }

    /// Nothing but a greeting can be sent from now on.
    pub fn leave(&mut self) {
        self.go_to(Home::Door(self.door));
    }

    fn go_to(&mut self, home: Home) {
        (self.home, self.keys) = (home, self.session.secret.lane(self.lane, home));
    }

    /// Goes over to the session that was made last, if there is a newer one than that of the lane.
    #[inline]
    pub fn follow(&mut self) {
        if self.session.next.get().is_some() {
            self.change();
        }
    }

    #[cold]
    fn change(&mut self) {
        let number = self.number();
        while let Some(next) = self.session.next.get() {
            self.session = Arc::clone(next);
        }
        let keys = self.session.secret.lane(self.lane, self.home);
        let before = std::mem::replace(&mut self.keys, keys);
        self.before = Some((number, before));
        self.counter = RequestCounter::new();
        // The node has just said its time. A bound that was too high would go on to be: a lane that sends little and
        // hears nothing changes sessions again before its messages are enough to doubt it.
        self.clock.hear(self.session.time, self.session.made);
        self.clock.fall_back(self.session.made);
        self.asking_since = None;
    }

    /// Seals the plain message of `bytes` at the start of `room`, sent at `now`, and returns how long it is then;
    /// `None` if the lane may send nothing more in its session, or is another process's.
    #[inline]
    pub fn seal(&mut self, room: &mut [u8], bytes: usize, now: Nanos) -> Option<usize> {
        if !self.is_own() {
            return None;
        }
        let asking_since = *self.asking_since.get_or_insert(now);
        self.unanswered = self.unanswered.saturating_add(1);
        // A node refuses what is from its future, which is where a lane is after the node's clock has stood still.
        let is_doubtful = self.unanswered > UNANSWERED_MAX && self.unanswered.is_multiple_of(2);
        if now.saturating_sub(asking_since) > self.chain.silent {
            self.chain.is_silent.store(true, Ordering::Relaxed);
        }
        // What another lane has heard is later than what this one knows, if it was idle.
        let heard = self.chain.heard.load(Ordering::Relaxed);
        let bound = self.clock.bound(now).filter(|_| !is_doubtful);
        let counter = self.counter.next(bound.map_or(heard, |bound| bound.max(heard)))?;
        seal(&self.keys.requests, self.number(), counter, &mut room[..bytes + PROOF_BYTES]);
        Some(bytes + PROOF_BYTES)
    }

    /// Opens the protected message in `received`, all of it or at its start: bytes of the message, and those that it
    /// took. `None` until it is there as a whole.
    ///
    /// # Errors
    /// If it is no answer to this lane.
    #[inline]
    pub fn open(&mut self, received: &mut [u8], now: Nanos) -> Result<Option<(usize, usize)>, Foreign> {
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
        if answer.time > self.chain.heard.load(Ordering::Relaxed) {
            self.chain.heard.fetch_max(answer.time, Ordering::Relaxed);
        }
        self.clock.hear(answer.time, now);
        self.asking_since = None;
        if std::mem::take(&mut self.unanswered) > UNANSWERED_MAX {
            self.clock.fall_back(now);
        }
    }
}

impl From<Foreign> for WireError {
    fn from(_: Foreign) -> Self {
        Self::Checksum
    }
}

#[cfg(test)]
mod tests;
