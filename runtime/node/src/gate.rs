//! The node's doors, as its threads share them: `yonder_session::Doors` with each table of windows behind a lock, and
//! the numbers of sessions behind another. The secret is in locked memory, and so is what has keys of lanes.
//!
//! [`Doors`] is shared by all threads; each thread has a [`Gate`]. What they decide is `core/session`'s.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yonder_board::Source;
use yonder_datagram::Address;
use yonder_identity::{Credential, Peer, Role};
use yonder_mapping::{Inherited, LockedBox, MapError};
use yonder_session::{
    Admission, AnswerCounter, NodeSecret, Numbers, Origin, Protection, ReplayWindows, Rules, SESSION_HOURS,
    SessionGrant, SessionNumber, Table, Visitor,
};
pub(crate) use yonder_session::{Arrived, ProtectedLane, Unwelcome, Wrap};
use yonder_units::{Nanos, Narrow};

use crate::revoked::Revoked;
use crate::source;

/// How often the log has a line of those who are refused.
const TELL_EVERY: Nanos = 1_000_000_000;

/// What a node needs to know its clients.
#[derive(Debug)]
pub(crate) struct Doors {
    inner: yonder_session::Doors<LockedBox<NodeSecret>, Locked>,
    /// Who the node is; without it, it asks clients for nothing.
    pub(crate) credential: Option<Arc<Credential>>,
    /// When the log has the next line of one who is refused.
    tells_from: AtomicU64,
    revoked: Arc<Revoked>,
    numbers: Mutex<Numbers>,
}

/// A table of windows behind a lock, and which sessions are over before their time.
#[derive(Debug)]
struct Locked {
    windows: Mutex<ReplayWindows>,
    revoked: Arc<Revoked>,
}

impl Table for Locked {
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        let accept = || self.windows.lock().unwrap_or_else(PoisonError::into_inner).accept(number, counter, now);
        !self.revoked.has(number) && accept()
    }
}

/// The tenant that a request is from, if its session says so.
pub(crate) fn tenant_of(wrap: Wrap) -> Option<Source> {
    wrap.tenant().map(Source::of_tenant)
}

impl Doors {
    /// The doors of a node that began at `now`, with a secret that only it knows.
    pub(crate) fn new(secret: LockedBox<NodeSecret>, credential: Option<Arc<Credential>>, now: Nanos) -> Self {
        let admission = if credential.is_some() { Admission::Protected } else { Admission::Plain };
        let revoked = Arc::new(Revoked::new());
        let table = |windows| Locked { windows: Mutex::new(windows), revoked: Arc::clone(&revoked) };
        let inner = yonder_session::Doors::new(secret, Rules::usual(admission), now, table);
        Self { inner, credential, tells_from: AtomicU64::new(0), revoked, numbers: Mutex::default() }
    }

    /// Whether plain messages from the network are refused.
    pub(crate) fn are_closed(&self) -> bool {
        self.inner.are_closed()
    }

    /// Makes a session for a client at `ip` who was known by his certificate or key: as a tenant with a name, or
    /// without one. `None` if there are no numbers left, or none for him in this hour.
    pub(crate) fn session(
        &self,
        peer: &Peer,
        ip: IpAddr,
        protection: Protection,
        incarnation: u64,
        now: Nanos,
    ) -> Option<SessionGrant> {
        // Nodes move what is others', and operators see to all; a shared key is anybody's.
        let tenant = (peer.role() == Some(Role::Tenant)).then(|| peer.name()).flatten();
        let visitor = Visitor { tenant, ip, host: source::of_address(ip).0 };
        let grant = self.inner.session(&mut self.numbers(), visitor, protection, incarnation, now)?;
        let SessionGrant { number, .. } = grant;
        let end = number.expiry_hours();
        self.revoked.note(peer, number.tenant(), end, end.saturating_sub(SESSION_HOURS)).then_some(grant)
    }

    /// Ends the sessions of those who were revoked. Looks at files: not for threads that serve data.
    pub(crate) fn end_revoked(&self) {
        if let Some(credential) = &self.credential {
            self.revoked.look(credential, || self.numbers().last_serial());
        }
    }

    /// Whether the log has a line of one who is refused now: one in a while has.
    pub(crate) fn may_tell(&self, now: Nanos) -> bool {
        let next = |from: Nanos| (from <= now).then_some(now + TELL_EVERY);
        self.tells_from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// The number of the tenant with a name: always the same while the node runs. `None` if there are none left.
    pub(crate) fn tenant(&self, name: &str) -> Option<u16> {
        self.numbers().tenant(name)
    }

    /// The names of tenants that have numbers.
    pub(crate) fn tenants(&self) -> HashMap<u16, String> {
        self.numbers().tenants().map(|(number, name)| (number, name.to_owned())).collect()
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane that the greeting at the start of a stream's bytes claims to be of; [`Doors::open_next`] sees whether
    /// it is. `None` until its prefix is there.
    pub(crate) fn lane_of(&self, received: &[u8], ip: IpAddr, now: Nanos) -> Result<Option<ProtectedLane>, Unwelcome> {
        self.inner.lane_of(received, ip, now)
    }

    /// The lane, once it was told which thread serves it.
    pub(crate) fn settled(&self, lane: &ProtectedLane, thread: u32) -> ProtectedLane {
        self.inner.settled(lane, thread.narrow_u16())
    }

    /// Opens the protected message at the start of `received`: bytes of the message, and those that it took there.
    /// `None` until it is there as a whole.
    pub(crate) fn open_next(
        &self,
        lane: &ProtectedLane,
        received: &mut [u8],
        now: Nanos,
    ) -> Result<Option<(usize, usize)>, Unwelcome> {
        self.inner.open_next(lane, received, now)
    }
}

/// Where a datagram came from.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sender(Address);

impl Origin for Sender {
    fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    fn ip(&self) -> Option<Ipv6Addr> {
        match self.0.to_socket_addr()? {
            SocketAddr::V4(from) => Some(from.ip().to_ipv6_mapped()),
            SocketAddr::V6(from) => Some(*from.ip()),
        }
    }
}

/// One thread's part.
#[derive(Debug)]
pub(crate) struct Gate {
    doors: Arc<Doors>,
    /// With the keys of lanes, which are in the locked memory.
    inner: LockedBox<yonder_session::Gate<Sender>>,
}

impl Gate {
    /// The part of a thread with this number among those that answer.
    pub(crate) fn new(doors: &Arc<Doors>, thread: usize) -> Result<Self, MapError> {
        let inner = yonder_session::Gate::new(&doors.inner, thread.narrow_u16());
        Ok(Self { inner: LockedBox::new(inner, Inherited::Missing)?, doors: Arc::clone(doors) })
    }

    /// Looks at a datagram, and opens it where it is.
    #[inline]
    pub(crate) fn open<'a>(&mut self, datagram: &'a mut [u8], from: &Address, now: Nanos) -> Arrived<'a> {
        self.inner.open(&self.doors.inner, datagram, &Sender(*from), now)
    }

    /// Makes the answer of `bytes` at the start of `room` one that goes back as `wrap` says; how long it is then.
    #[inline]
    pub(crate) fn close(&mut self, wrap: Wrap, room: &mut [u8], bytes: usize) -> usize {
        self.inner.close(&self.doors.inner, wrap, room, bytes)
    }

    /// Numbers of the thread's answers.
    pub(crate) fn answers(&mut self) -> &mut AnswerCounter {
        &mut self.inner.answers
    }
}
