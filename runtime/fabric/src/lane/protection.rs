//! Sessions with a node that wants to know who asks, and the lanes that speak under them.
//!
//! [`Sessions`] makes them over TLS; it belongs to what all lanes to a node share. As many lanes as a session has
//! numbers for are a [`Chain`]: before its session is over a thread makes the next one, and earlier if nothing is heard
//! of the node. A [`Protector`] seals what one lane sends and opens what it receives, with keys that it derives by
//! itself, so that nothing here locks, allocates or waits on the path of a fault.
//!
//! Invariant: a lane has one counter as long as a session lasts, and no two lanes of a session have one number. A
//! forked child has copies of both, so it seals nothing with what its parent has made.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use yonder_client::NodeClock;
use yonder_identity::{Credential, Expected, HandshakeError, Role, connect};
use yonder_mapping::ForkMark;
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
/// A lane that has asked for so long, in nanoseconds, and has heard nothing since, wants another session. Not counted
/// in messages: of many that are sent at once none is answered before the last.
const SILENT: Nanos = 1_000_000_000;

/// The sessions with one node, if it wants any.
#[derive(Debug)]
pub(crate) struct Sessions {
    credential: OnceLock<Option<Arc<Credential>>>,
    protection: Protection,
    /// What the node is called, if that is known: no other is taken for it.
    pub(super) name: Option<String>,
    /// Held while a chain is made, so that lanes that are opened together share it.
    making: Mutex<()>,
    chains: Mutex<Vec<Arc<Chain>>>,
    /// Whether the thread that renews runs.
    is_renewed: AtomicBool,
}

/// Sessions that follow one another, and the lanes that speak under them.
#[derive(Debug)]
struct Chain {
    address: SocketAddr,
    /// The session that was made last, and when another one was last tried.
    last: Mutex<(Arc<Made>, Instant)>,
    /// Numbers of lanes that were given.
    lanes: AtomicU8,
    /// The latest time of the node that any lane has heard.
    heard: AtomicU64,
    /// A lane hears nothing of the node.
    is_silent: AtomicBool,
    /// The process whose lanes they are.
    mark: ForkMark,
}

/// A session.
#[derive(Debug)]
struct Made {
    number: SessionNumber,
    secret: SessionSecret,
    incarnation: u64,
    /// Our address, which the keys are good for.
    own: IpAddr,
    /// The node's clock when it was made, and ours when we knew.
    time: u64,
    made: Nanos,
    renewed_at: Instant,
    over_at: Instant,
    next: OnceLock<Arc<Made>>,
}

/// What has come of looking whether sessions must be followed by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewal {
    /// None was made.
    Nothing,
    /// One was made, by this incarnation of the node.
    Made(u64),
    /// The node answers nothing, because this client was revoked.
    Revoked,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::protecting(Protection::Encrypted)
    }
}

impl Sessions {
    /// Sessions of one with this credential, or none; each message is to be protected like this.
    pub(crate) fn of(credential: Option<Arc<Credential>>, protection: Protection) -> Self {
        Self { credential: OnceLock::from(credential), ..Self::protecting(protection) }
    }

    /// Sessions of one whom the environment names, if it does; each message is to be protected like this.
    pub(crate) fn protecting(protection: Protection) -> Self {
        Self {
            credential: OnceLock::new(),
            protection,
            name: None,
            making: Mutex::default(),
            chains: Mutex::default(),
            is_renewed: AtomicBool::new(false),
        }
    }

    /// The protector of a new lane to the node at `address`, and the node's incarnation; `None` for plain lanes. Makes
    /// a session if there is none, or none with a number left.
    pub(crate) fn lane(&self, address: SocketAddr) -> Result<Option<(Protector, u64)>, OpenError> {
        let Some(credential) = self.credential()? else {
            return if self.name.is_none() { Ok(None) } else { Err(OpenError::Unnamed) };
        };
        if let Some((chain, lane)) = self.next_lane() {
            return self.follow(&credential, &chain, lane).map(Some);
        }
        // Others wait here, and not the thread that renews.
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((chain, lane)) = self.next_lane() {
            return self.follow(&credential, &chain, lane).map(Some);
        }
        let made = Arc::new(self.make(&credential, address, None)?);
        let incarnation = made.incarnation;
        let chain = Arc::new(Chain {
            address,
            heard: AtomicU64::new(made.time),
            last: Mutex::new((Arc::clone(&made), Instant::now())),
            lanes: AtomicU8::new(0),
            is_silent: AtomicBool::new(false),
            mark: ForkMark::new().map_err(io::Error::other)?,
        });
        let lane = chain.next_lane().expect("a chain has room for a first lane");
        let protector = Protector::new(&chain, &made, lane);
        self.chains.lock().unwrap_or_else(PoisonError::into_inner).push(chain);
        Ok(Some((protector, incarnation)))
    }

    /// A number for another lane, in a chain that has one left.
    fn next_lane(&self) -> Option<(Arc<Chain>, u8)> {
        let chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = chains.iter().filter(|chain| chain.mark.is_here());
        own.find_map(|chain| Some((Arc::clone(chain), chain.next_lane()?)))
    }

    /// The protector of a lane of a chain. Makes another session if that of the chain is old; while it is not over, it
    /// is used all the same if no other can be had.
    fn follow(&self, credential: &Credential, chain: &Arc<Chain>, lane: u8) -> Result<(Protector, u64), OpenError> {
        let last = Arc::clone(&chain.last().0);
        let now = Instant::now();
        if now >= last.renewed_at {
            match self.make(credential, chain.address, Some(last.own)) {
                Ok(made) => chain.follow_with(&mut chain.last(), made),
                Err(error) if now >= last.over_at => return Err(error),
                Err(error) => tracing::debug!(%error, "a session goes on that should be followed by another"),
            }
        }
        let last = chain.last();
        Ok((Protector::new(chain, &last.0, lane), last.0.incarnation))
    }

    /// Whether a thread is to be started that calls [`Sessions::renew`] from now on: told once.
    pub(crate) fn wants_renewer(&self) -> bool {
        !self.is_renewed.swap(true, Ordering::Relaxed)
    }

    /// Makes the sessions that follow those which are old, or under which nothing is heard of the node; forgets those
    /// without lanes. Waits for some seconds at most for each.
    pub(crate) fn renew(&self) -> Renewal {
        let Some(credential) = self.credential().ok().flatten() else { return Renewal::Nothing };
        let chains = {
            let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
            // One that has numbers left is kept for the next lane.
            chains.retain(|chain| Arc::strong_count(chain) > 1 || chain.has_numbers());
            chains.clone()
        };
        let mut renewal = Renewal::Nothing;
        for chain in chains {
            let (is_old, is_silent, own) = {
                let mut last = chain.last();
                let is_old = Instant::now() >= last.0.renewed_at;
                let is_silent = chain.is_silent.swap(false, Ordering::Relaxed);
                if !(is_old || is_silent) || last.1.elapsed() < RETRY {
                    continue;
                }
                last.1 = Instant::now();
                (is_old, is_silent, last.0.own)
            };
            // Two references: the list's and this one. Without a lane a session is made when one is opened.
            if is_old && Arc::strong_count(&chain) <= 2 {
                continue;
            }
            match self.make(&credential, chain.address, Some(own)) {
                Ok(made) => {
                    renewal = Renewal::Made(made.incarnation);
                    chain.follow_with(&mut chain.last(), made);
                }
                // The node answers nothing more, and says why.
                Err(OpenError::Handshake(HandshakeError::Revoked)) if is_silent => return Renewal::Revoked,
                Err(error) => tracing::debug!(%error, "no session follows yet"),
            }
        }
        renewal
    }

    fn credential(&self) -> Result<Option<Arc<Credential>>, OpenError> {
        if let Some(known) = self.credential.get() {
            return Ok(known.clone());
        }
        let found = Credential::of_environment()?;
        Ok(self.credential.get_or_init(|| found).clone())
    }

    /// Makes a session with the node at `address`, from our address `own` if there is one.
    fn make(&self, credential: &Credential, address: SocketAddr, own: Option<IpAddr>) -> Result<Made, OpenError> {
        let began = Instant::now();
        let socket = dial(address, own)?;
        let own = socket.local_addr()?.ip();
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIME_MAX))?;
        socket.set_write_timeout(Some(TIME_MAX))?;
        let node = Expected { role: Role::Node, name: self.name.as_deref() };
        let (stream, _) = connect(credential, socket, node, began + TIME_MAX)?;
        (&stream).write_all(&SessionRequest { protection: self.protection }.to_bytes())?;
        let mut bytes = GrantBytes::new([0; SessionGrant::BYTES]);
        (&stream).read_exact(&mut bytes[..])?;
        let made = yonder_clock::now();
        let no_grant =
            || io::Error::other("it answers with something else than a session: use the same release on both");
        let grant = SessionGrant::from_bytes(&bytes).ok_or_else(no_grant)?;
        let lasts = Duration::from_secs(grant.seconds.into());
        let SessionGrant { number, secret, incarnation, time, .. } = grant;
        let (over_at, next) = (began + lasts, OnceLock::new());
        let renewed_at = over_at - lasts / RENEWED_AT_DIVISOR;
        Ok(Made { number, secret, incarnation, own, time, made, renewed_at, over_at, next })
    }
}

/// A stream to `address`, from `own` if this machine still has that: lanes send from there.
fn dial(address: SocketAddr, own: Option<IpAddr>) -> io::Result<TcpStream> {
    if let Some(own) = own {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM.cloexec(), None)?;
        if socket.bind(&SocketAddr::new(own, 0).into()).is_ok() {
            socket.connect_timeout(&address.into(), TIME_MAX)?;
            return Ok(socket.into());
        }
    }
    TcpStream::connect_timeout(&address, TIME_MAX)
}

impl Chain {
    /// A number that no lane has had; `None` once there are none.
    fn next_lane(&self) -> Option<u8> {
        let next = |lanes: u8| lanes.checked_add(1);
        let before = self.lanes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        before.ok().map(|lanes| lanes + 1)
    }

    fn last(&self) -> MutexGuard<'_, (Arc<Made>, Instant)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_numbers(&self) -> bool {
        self.lanes.load(Ordering::Relaxed) < SessionNumber::LANE_MAX
    }

    /// Lanes go over to `made` from now on.
    fn follow_with(&self, last: &mut (Arc<Made>, Instant), made: Made) {
        let made = Arc::new(made);
        self.heard.fetch_max(made.time, Ordering::Relaxed);
        let next = last.0.next.set(Arc::clone(&made));
        assert!(next.is_ok(), "a session has one that follows it");
        *last = (made, Instant::now());
    }
}

/// What one lane seals and opens with.
#[derive(Debug)]
pub(crate) struct Protector {
    lane: u8,
    chain: Arc<Chain>,
    /// The session of the lane. That from which it began is held too, and with it all between: nothing is freed when
    /// the lane goes over.
    made: Arc<Made>,
    _first: Arc<Made>,
    keys: LaneKeys,
    counter: RequestCounter,
    /// The keys of the session before, under which answers may still come.
    before: Option<(SessionNumber, LaneKeys)>,
    clock: NodeClock,
    /// Messages since the last answer, and when the first of them was sent.
    unanswered: u32,
    asking_since: Nanos,
}

impl Protector {
    fn new(chain: &Arc<Chain>, made: &Arc<Made>, lane: u8) -> Self {
        let keys = made.secret.lane(lane);
        let mut clock = NodeClock::default();
        clock.hear(made.time, made.made);
        Self {
            lane,
            chain: Arc::clone(chain),
            made: Arc::clone(made),
            _first: Arc::clone(made),
            keys,
            counter: RequestCounter::new(),
            before: None,
            clock,
            unanswered: 0,
            asking_since: 0,
        }
    }

    /// The address that the lane must send from.
    pub(crate) fn own(&self) -> IpAddr {
        self.made.own
    }

    /// Whether this is the process that made it.
    #[inline]
    pub(crate) fn is_own(&self) -> bool {
        self.chain.mark.is_here()
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
        let number = self.number();
        while let Some(next) = self.made.next.get() {
            self.made = Arc::clone(next);
        }
        let keys = self.made.secret.lane(self.lane);
        let before = std::mem::replace(&mut self.keys, keys);
        self.before = Some((number, before));
        self.counter = RequestCounter::new();
        self.clock.hear(self.made.time, self.made.made);
        self.unanswered = 0;
    }

    fn number(&self) -> SessionNumber {
        self.made.number.with_lane(self.lane)
    }

    /// Seals the plain message of `bytes` at the start of `room`, sent at `now`, and returns how long it is then;
    /// `None` if the lane may send nothing more in its session, or is another process's.
    #[inline]
    pub(crate) fn seal(&mut self, room: &mut [u8], bytes: usize, now: Nanos) -> Option<usize> {
        if !self.is_own() {
            return None;
        }
        if self.unanswered == 0 {
            self.asking_since = now;
        }
        self.unanswered = self.unanswered.saturating_add(1);
        // A node refuses what is from its future, which is where a lane is after the node's clock has stood still.
        let is_doubtful = self.unanswered > UNANSWERED_MAX && self.unanswered.is_multiple_of(2);
        if now.saturating_sub(self.asking_since) > SILENT {
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
        if answer.time > self.chain.heard.load(Ordering::Relaxed) {
            self.chain.heard.fetch_max(answer.time, Ordering::Relaxed);
        }
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

#[cfg(test)]
mod tests;
