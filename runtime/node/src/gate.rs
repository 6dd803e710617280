//! The node's doors, as its threads share them: `yonder_session::Doors` with the secret in locked memory and each table
//! of windows behind a lock, and the numbers of sessions behind another.
//!
//! [`Doors`] is shared by all threads; each thread has a [`Gate`]. What they decide is `core/session`'s.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use yonder_board::Source;
use yonder_datagram::Address;
use yonder_identity::Credential;
use yonder_mapping::LockedBox;
use yonder_session::{
    Admission, AnswerCounter, NodeSecret, Numbers, Origin, Protection, ReplayWindows, Rules, SessionGrant,
    SessionNumber, Table, Visitor,
};
pub(crate) use yonder_session::{Arrived, ProtectedLane, Unwelcome, Wrap};
use yonder_units::{Nanos, Narrow};

use crate::source;

/// What a node needs to know its clients.
#[derive(Debug)]
pub(crate) struct Doors {
    inner: yonder_session::Doors<LockedBox<NodeSecret>, Locked>,
    /// Who the node is; without it, it asks clients for nothing.
    pub(crate) credential: Option<Arc<Credential>>,
    visitors: AtomicU64,
    numbers: Mutex<Numbers>,
}

/// A table of windows behind a lock.
#[derive(Debug)]
struct Locked(Mutex<ReplayWindows>);

impl Table for Locked {
    fn accept(&self, number: SessionNumber, counter: u64, now: Nanos) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).accept(number, counter, now)
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
        let table = |windows| Locked(Mutex::new(windows));
        let inner = yonder_session::Doors::new(secret, Rules::usual(admission), now, table);
        Self { inner, credential, visitors: AtomicU64::new(0), numbers: Mutex::default() }
    }

    /// Whether plain messages from the network are refused.
    pub(crate) fn are_closed(&self) -> bool {
        self.inner.are_closed()
    }

    /// Makes a session for a client at `ip` who was known by his certificate or key: as a tenant with a name, or
    /// without one. `None` if there are no numbers left.
    pub(crate) fn session(
        &self,
        tenant: Option<&str>,
        ip: IpAddr,
        protection: Protection,
        incarnation: u64,
        now: Nanos,
    ) -> Option<SessionGrant> {
        let visitor = Visitor { tenant, ip, host: source::of_address(ip).0 };
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.session(&mut numbers, visitor, protection, incarnation, now)
    }

    /// A number for one who wants a session.
    pub(crate) fn next_visitor(&self) -> u64 {
        self.visitors.fetch_add(1, Ordering::Relaxed)
    }

    /// The lane that the message at the start of a stream's bytes claims to be of; [`Doors::open_next`] sees whether it
    /// is. `None` until its prefix is there.
    pub(crate) fn lane_of(&self, received: &[u8], ip: IpAddr, now: Nanos) -> Result<Option<ProtectedLane>, Unwelcome> {
        self.inner.lane_of(received, ip, now)
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
    inner: yonder_session::Gate<Sender>,
}

impl Gate {
    /// The part of a thread with this number among those that answer.
    pub(crate) fn new(doors: &Arc<Doors>, thread: usize) -> Self {
        Self { inner: yonder_session::Gate::new(&doors.inner, thread.narrow_u16()), doors: Arc::clone(doors) }
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
