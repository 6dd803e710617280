//! [`Session`], and a [`Chain`] of those that follow one another: what a client has of its sessions with a node.
//!
//! As many lanes as a session has numbers for speak under one chain. Before its last session is over, and earlier if
//! nothing is heard of the node, the client's owner makes the next one: [`Renewal`] says when. A lane goes over to it
//! by itself ([`Protector`](crate::Protector)).
//!
//! Who touches what: a session does not change but for what follows it, which is set once, by the one who has the
//! renewal. A chain's fields are single words that any lane may read and write.
//!
//! Invariant: no two lanes of a chain have one number, and the chain's sessions none in common. A forked child has
//! copies of both, so it seals nothing with what its parent has made.

use core::fmt;
use core::net::IpAddr;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use yonder_units::Nanos;

use crate::grant::SessionGrant;
use crate::number::SessionNumber;
use crate::secret::SessionSecret;

/// Another session is made when this part of the present one is left.
const RENEWED_AT_DIVISOR: u64 = 4;
/// Sessions in a row that are made soon after one another because nothing is heard, and how often the pause doubles
/// from then on: some fifty in an hour.
const SOON_MAX: u32 = 3;
pub(crate) const DOUBLINGS_MAX: u32 = 6;

/// A session, as its client has it.
#[derive(Debug)]
pub struct Session {
    pub(crate) number: SessionNumber,
    pub(crate) secret: Box<dyn Kept>,
    /// The node's incarnation.
    incarnation: u64,
    /// Our address, which the keys are good for.
    own: IpAddr,
    /// The node's clock when it was made, and ours when we knew.
    pub(crate) time: u64,
    pub(crate) made: Nanos,
    renewed_at: Nanos,
    over_at: Nanos,
    pub(crate) next: OnceLock<Arc<Session>>,
}

/// A session's secret in memory where its owner keeps such.
pub trait Kept: Deref<Target = SessionSecret> + fmt::Debug + Send + Sync {}

impl<S: Deref<Target = SessionSecret> + fmt::Debug + Send + Sync> Kept for S {}

/// Whether this is the process that has made something: what is forked has copies of it.
pub trait Process: fmt::Debug + Send + Sync {
    /// Whether it is. Neither allocates nor waits.
    fn is_here(&self) -> bool;
}

/// Sessions that follow one another, and the lanes that speak under them.
#[derive(Debug)]
pub struct Chain {
    /// Numbers of lanes that were given.
    lanes: AtomicU8,
    /// The latest time of the node that any lane has heard.
    pub(crate) heard: AtomicU64,
    /// A lane hears nothing of the node.
    pub(crate) is_silent: AtomicBool,
    pub(crate) silent: Nanos,
    /// The process whose lanes they are; `None` where nothing forks.
    process: Option<Box<dyn Process>>,
}

/// Which session of a chain was made last, and when another one is to be made.
#[derive(Debug)]
pub struct Renewal {
    last: Arc<Session>,
    /// When another one was last tried, and whether because nothing was heard.
    tried: Nanos,
    was_silent: bool,
    /// How many were made for that, one after the other: they bring nothing if it is the way that is broken.
    made_in_vain: u32,
}

/// When sessions are made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenewalTimes {
    /// A lane that has asked for so long, and has heard nothing since, wants another session. Not counted in messages:
    /// of many that are sent at once none is answered before the last.
    pub silent: Nanos,
    /// Shortest time between two attempts to make one; longer while those that were made bring nothing.
    pub retry: Nanos,
}

impl RenewalTimes {
    /// Those of a real client.
    pub const USUAL: Self = Self { silent: 1_000_000_000, retry: 1_000_000_000 };
}

impl Session {
    /// The session that a node has granted to a client at `own`, which began to ask at `began` and knew at `made`. It
    /// lasts for `lasts` from `began` on, or longer.
    #[must_use]
    pub fn new(grant: SessionGrant, lasts: Nanos, own: IpAddr, began: Nanos, made: Nanos) -> Self {
        let SessionGrant { number, secret, incarnation, time, .. } = grant;
        let renewed_at = began.saturating_add(lasts - lasts / RENEWED_AT_DIVISOR);
        let (over_at, next) = (began.saturating_add(lasts), OnceLock::new());
        Self { number, secret: Box::new(Box::new(secret)), incarnation, own, time, made, renewed_at, over_at, next }
    }

    /// The same, with its secret where its owner keeps such.
    #[must_use]
    pub fn kept_in(self, secret: impl Kept + 'static) -> Self {
        Self { secret: Box::new(secret), ..self }
    }

    /// The same, to be followed by another one from `at` on, and not in its last quarter. Tests need not wait then.
    #[must_use]
    pub fn renewed_from(self, at: Nanos) -> Self {
        Self { renewed_at: at, ..self }
    }

    /// The node's incarnation.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The address that lanes must send from.
    #[must_use]
    pub const fn own(&self) -> IpAddr {
        self.own
    }

    /// Whether the node takes nothing of it any more.
    #[must_use]
    pub const fn is_over(&self, now: Nanos) -> bool {
        now >= self.over_at
    }

    /// Whether another one is to be made.
    #[must_use]
    pub const fn is_old(&self, now: Nanos) -> bool {
        now >= self.renewed_at
    }
}

impl Chain {
    /// The chain that begins with `first`.
    #[must_use]
    pub const fn new(first: &Session, times: RenewalTimes) -> Self {
        Self {
            lanes: AtomicU8::new(0),
            heard: AtomicU64::new(first.time),
            is_silent: AtomicBool::new(false),
            silent: times.silent,
            process: None,
        }
    }

    /// The same, whose lanes are those of one process: in a child of it they seal nothing, and no others are given.
    #[must_use]
    pub fn of_process(first: &Session, times: RenewalTimes, process: impl Process + 'static) -> Self {
        Self { process: Some(Box::new(process)), ..Self::new(first, times) }
    }

    /// Whether this is the process whose lanes they are.
    #[inline]
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.is_here())
    }

    /// A number that no lane has had; `None` once there are none, and in a child of the process.
    pub fn next_lane(&self) -> Option<u8> {
        if !self.is_here() {
            return None;
        }
        let next = |lanes: u8| lanes.checked_add(1);
        let before = self.lanes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.ok().map(|lanes| lanes + 1)
    }

    /// Whether there are numbers for more lanes.
    #[must_use]
    pub fn has_numbers(&self) -> bool {
        self.lanes.load(Ordering::Relaxed) < SessionNumber::LANE_MAX
    }
}

impl Renewal {
    /// Of a chain that has begun at `now` with `first`.
    #[must_use]
    pub const fn new(first: Arc<Session>, now: Nanos) -> Self {
        Self { last: first, tried: now, was_silent: false, made_in_vain: 0 }
    }

    /// The session that was made last.
    #[must_use]
    pub const fn last(&self) -> &Arc<Session> {
        &self.last
    }

    /// Whether another one was last tried because nothing was heard of the node.
    #[must_use]
    pub const fn was_silent(&self) -> bool {
        self.was_silent
    }

    /// Whether another session is to be made now, for a chain that lanes speak under or not; it is taken to be tried.
    /// Without a lane one is made when one is opened.
    pub fn is_due(&mut self, chain: &Chain, has_lanes: impl FnOnce() -> bool, times: RenewalTimes, now: Nanos) -> bool {
        let is_old = self.last.is_old(now);
        let is_silent = chain.is_silent.swap(false, Ordering::Relaxed);
        let since = now.saturating_sub(self.tried);
        let pause = times.retry << self.made_in_vain.saturating_sub(SOON_MAX).min(DOUBLINGS_MAX);
        if since > pause + 4 * times.silent {
            self.made_in_vain = 0;
        }
        if !(is_old && since >= times.retry || is_silent && since >= pause) {
            return false;
        }
        (self.tried, self.was_silent) = (now, is_silent);
        !is_old || has_lanes()
    }

    /// Lanes go over to `session` from now on.
    ///
    /// # Panics
    /// If something else has made the chain go on: there is one renewal for each chain.
    pub fn follow_with(&mut self, chain: &Chain, session: Session, now: Nanos) {
        let session = Arc::new(session);
        chain.heard.fetch_max(session.time, Ordering::Relaxed);
        let next = self.last.next.set(Arc::clone(&session));
        assert!(next.is_ok(), "a session has one that follows it");
        let made_in_vain = if self.was_silent { self.made_in_vain + 1 } else { self.made_in_vain };
        *self = Self { last: session, tried: now, was_silent: false, made_in_vain };
    }
}
