//! Sessions with a node that wants to know who asks: how they are made over TLS, and made again in time.
//!
//! [`Sessions`] belongs to what all lanes to a node share. As many lanes as a session has numbers for are a [`Line`]:
//! before its session is over a thread makes the next one, and earlier if nothing is heard of the node. What a lane
//! seals and opens with is `core/session`'s [`Protector`], as are the rules of when to make another session.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use yonder_identity::{Credential, Expected, HandshakeError, Role, connect};
use yonder_mapping::{ForkMark, Inherited, LockedBox};
use yonder_session::{
    Chain, Door, GrantBytes, Process, Protection, Renewal, RenewalTimes, Session, SessionGrant, SessionRequest,
};
use yonder_units::saturating_nanos;

use super::OpenError;

/// Longest that making a session may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Between the handshakes that are begun for a session, if they are let go. A door that is full lets the oldest go that
/// has shown nothing, which may be ours where strangers come from the same host, and needs a while to be rid of them.
const PAUSES: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// What a lane seals and opens with, in locked memory. A child may read its copy, and seals nothing with it.
pub(super) type Protector = LockedBox<yonder_session::Protector>;

/// The sessions with one node, if it wants any.
#[derive(Debug)]
pub(crate) struct Sessions {
    credential: OnceLock<Option<Arc<Credential>>>,
    protection: Protection,
    /// What the node is called, if that is known: no other is taken for it.
    pub(super) name: Option<String>,
    /// Held while a line is made, so that lanes that are opened together share it.
    making: Mutex<()>,
    lines: Mutex<Vec<Arc<Line>>>,
    /// Whether the thread that renews runs.
    is_renewed: AtomicBool,
}

/// A chain of sessions with the node at an address.
#[derive(Debug)]
struct Line {
    address: SocketAddr,
    /// Lanes have it too.
    chain: Arc<Chain>,
    renewal: Mutex<Renewal>,
}

/// What has come of looking whether sessions must be followed by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Renewed {
    /// None was made.
    Nothing,
    /// One was made, by this incarnation of the node.
    Made(u64),
    /// The node answers nothing, because this client was revoked.
    Revoked,
}

/// The process that has made a chain.
#[derive(Debug)]
struct Here(ForkMark);

impl Process for Here {
    #[inline]
    fn is_here(&self) -> bool {
        self.0.is_here()
    }
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

    /// Sessions that show what the process shows ([`Credential::of_process`]); each message is to be protected like
    /// this.
    pub(crate) fn protecting(protection: Protection) -> Self {
        Self {
            credential: OnceLock::new(),
            protection,
            name: None,
            making: Mutex::default(),
            lines: Mutex::default(),
            is_renewed: AtomicBool::new(false),
        }
    }

    /// The protector of a new lane to the node at `address`, which greets at a door, and the node's incarnation; `None`
    /// for plain lanes. Makes a session if there is none, or none with a number left.
    pub(crate) fn lane(&self, address: SocketAddr, door: Door) -> Result<Option<(Protector, u64)>, OpenError> {
        let Some(credential) = self.credential()? else {
            return if self.name.is_none() { Ok(None) } else { Err(OpenError::Unnamed) };
        };
        if let Some((line, lane)) = self.next_lane() {
            return self.follow(&credential, &line, (lane, door)).map(Some);
        }
        // Others wait here, and not the thread that renews.
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((line, lane)) = self.next_lane() {
            return self.follow(&credential, &line, (lane, door)).map(Some);
        }
        let made = Arc::new(self.make_again(&credential, address, None)?);
        let incarnation = made.incarnation();
        let here = Here(ForkMark::new().map_err(io::Error::other)?);
        let line = Line::new(address, made, RenewalTimes::USUAL, here);
        let lane = line.chain.next_lane().expect("a chain has room for a first lane");
        let protector = line.protector(line.renewal().last(), lane, door)?;
        self.lines().push(Arc::new(line));
        Ok(Some((protector, incarnation)))
    }

    /// A number for another lane, in a chain of this process that has one left.
    fn next_lane(&self) -> Option<(Arc<Line>, u8)> {
        self.lines().iter().find_map(|line| Some((Arc::clone(line), line.chain.next_lane()?)))
    }

    /// The protector of a lane of a chain. Makes another session if that of the chain is old; while it is not over, it
    /// is used all the same if no other can be had.
    fn follow(
        &self,
        credential: &Credential,
        line: &Arc<Line>,
        (lane, door): (u8, Door),
    ) -> Result<(Protector, u64), OpenError> {
        let last = Arc::clone(line.renewal().last());
        let now = yonder_clock::now();
        if last.is_old(now) {
            // One that is not over yet is waited for no longer than it takes to ask once.
            let made = if last.is_over(now) {
                self.make_again(credential, line.address, Some(last.own()))
            } else {
                self.make(credential, line.address, Some(last.own()))
            };
            match made {
                Ok(made) => line.follow_with(made),
                Err(error) if last.is_over(yonder_clock::now()) => return Err(error),
                Err(error) => tracing::debug!(%error, "a session goes on that should be followed by another"),
            }
        }
        let renewal = line.renewal();
        Ok((line.protector(renewal.last(), lane, door)?, renewal.last().incarnation()))
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a thread is to be started that calls [`Sessions::renew`] from now on: told once.
    pub(crate) fn wants_renewer(&self) -> bool {
        !self.is_renewed.swap(true, Ordering::Relaxed)
    }

    /// Makes the sessions that follow those which are old, or under which nothing is heard of the node; forgets those
    /// without lanes. Waits for some seconds at most for each.
    pub(crate) fn renew(&self) -> Renewed {
        let Some(credential) = self.credential().ok().flatten() else { return Renewed::Nothing };
        let lines = {
            let mut lines = self.lines();
            // One that has numbers left is kept for the next lane.
            lines.retain(|line| line.has_lanes() || line.chain.has_numbers());
            lines.clone()
        };
        let mut renewed = Renewed::Nothing;
        for line in lines {
            let (is_silent, own) = {
                let mut renewal = line.renewal();
                let has_lanes = || line.has_lanes();
                if !renewal.is_due(&line.chain, has_lanes, RenewalTimes::USUAL, yonder_clock::now()) {
                    continue;
                }
                (renewal.was_silent(), renewal.last().own())
            };
            match self.make(&credential, line.address, Some(own)) {
                Ok(made) => {
                    renewed = Renewed::Made(made.incarnation());
                    line.follow_with(made);
                }
                // The node answers nothing more, and says why.
                Err(OpenError::Handshake(HandshakeError::Revoked)) if is_silent => return Renewed::Revoked,
                Err(error) => tracing::debug!(%error, "no session follows yet"),
            }
        }
        renewed
    }

    fn credential(&self) -> Result<Option<Arc<Credential>>, OpenError> {
        if let Some(known) = self.credential.get() {
            return Ok(known.clone());
        }
        let found = Credential::of_process()?;
        Ok(self.credential.get_or_init(|| found).clone())
    }

    /// [`Sessions::make`], though some handshakes may be let go.
    fn make_again(
        &self,
        credential: &Credential,
        address: SocketAddr,
        own: Option<IpAddr>,
    ) -> Result<Session, OpenError> {
        let until = Instant::now() + TIME_MAX;
        for pause in PAUSES {
            match self.make(credential, address, own) {
                Err(error) if is_broken(&error) && Instant::now() + pause < until => {
                    tracing::debug!(%error, "a handshake was let go");
                }
                made => return made.map_err(explained),
            }
            std::thread::sleep(pause);
        }
        self.make(credential, address, own).map_err(explained)
    }

    /// Makes a session with the node at `address`, from our address `own` if there is one.
    fn make(&self, credential: &Credential, address: SocketAddr, own: Option<IpAddr>) -> Result<Session, OpenError> {
        let (began, deadline) = (yonder_clock::now(), Instant::now() + TIME_MAX);
        let socket = dial(address, own)?;
        let own = socket.local_addr()?.ip();
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIME_MAX))?;
        socket.set_write_timeout(Some(TIME_MAX))?;
        let node = Expected { role: Role::Node, name: self.name.as_deref() };
        let (stream, _) = connect(credential, socket, node, deadline)?;
        (&stream).write_all(&SessionRequest { protection: self.protection }.to_bytes())?;
        let mut bytes = GrantBytes::new([0; SessionGrant::BYTES]);
        (&stream).read_exact(&mut bytes[..])?;
        let made = yonder_clock::now();
        let no_grant =
            || io::Error::other("it answers with something else than a session: use the same release on both");
        let grant = SessionGrant::from_bytes(&bytes).ok_or_else(no_grant)?;
        let lasts = saturating_nanos(Duration::from_secs(grant.seconds.into()));
        let secret = LockedBox::new(grant.secret.clone(), Inherited::Copied).map_err(io::Error::other)?;
        Ok(Session::new(grant, lasts, own, began, made).kept_in(secret))
    }
}

/// Whether the other end has let go of the handshake.
fn is_broken(error: &OpenError) -> bool {
    // After the handshake it is a refusal, which another one would not change.
    let OpenError::Handshake(HandshakeError::Io(error)) = error else { return false };
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// An error that may come of it that the node makes no sessions says so.
fn explained(error: OpenError) -> OpenError {
    let is_refused =
        |error: &OpenError| matches!(error, OpenError::Io(error) if error.kind() == ErrorKind::ConnectionRefused);
    if is_broken(&error) || is_refused(&error) { OpenError::NoSession(error.into()) } else { error }
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

impl Line {
    /// The line that begins with a session, whose lanes are those of a process.
    fn new(address: SocketAddr, first: Arc<Session>, times: RenewalTimes, process: impl Process + 'static) -> Self {
        let chain = Arc::new(Chain::of_process(&first, times, process));
        Self { address, chain, renewal: Mutex::new(Renewal::new(first, yonder_clock::now())) }
    }

    /// What a lane with a number of this line speaks with under `session`, when it greets at a door.
    fn protector(&self, session: &Arc<Session>, lane: u8, door: Door) -> io::Result<Protector> {
        let protector = yonder_session::Protector::new(&self.chain, session, lane, door);
        LockedBox::new(protector, Inherited::Copied).map_err(io::Error::other)
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lanes go over to a session that was just made.
    fn follow_with(&self, made: Session) {
        self.renewal().follow_with(&self.chain, made, yonder_clock::now());
    }

    /// Whether a lane speaks under its sessions.
    fn has_lanes(&self) -> bool {
        Arc::strong_count(&self.chain) > 1
    }
}

#[cfg(test)]
mod tests;
