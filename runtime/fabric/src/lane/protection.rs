//! Sessions with a node that wants to know who asks: how they are made over TLS, and made again in time.
//!
//! [`Sessions`] belongs to what all lanes to a node share. As many lanes as a session has numbers for are a [`Line`]:
//! before its session is over a thread makes the next one, and earlier if nothing is heard of the node. What a lane
//! seals and opens with is `core/session`'s [`Protector`], as are the rules of when to make another session.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use yonder_identity::{Credential, Role, connect};
pub(super) use yonder_session::Protector;
use yonder_session::{Chain, GrantBytes, Protection, Renewal, RenewalTimes, Session, SessionGrant, SessionRequest};
use yonder_units::saturating_nanos;

use super::OpenError;

/// Longest that making a session may take.
const TIME_MAX: Duration = Duration::from_secs(5);

/// The sessions with one node, if it wants any.
#[derive(Debug)]
pub(crate) struct Sessions {
    credential: OnceLock<Option<Arc<Credential>>>,
    protection: Protection,
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
        let (credential, lines) = (OnceLock::new(), Mutex::default());
        Self { credential, protection, lines, is_renewed: AtomicBool::new(false) }
    }

    /// The protector of a new lane to the node at `address`, and the node's incarnation; `None` for plain lanes. Makes
    /// a session if there is none, or none with a number left.
    pub(crate) fn lane(&self, address: SocketAddr) -> Result<Option<(Protector, u64)>, OpenError> {
        let Some(credential) = self.credential()? else { return Ok(None) };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for line in &*lines {
            if let Some(lane) = line.chain.next_lane() {
                let mut renewal = line.renewal.lock().unwrap_or_else(PoisonError::into_inner);
                if renewal.last().is_old(yonder_clock::now()) {
                    let made = self.make(&credential, line.address, Some(renewal.last().own()))?;
                    renewal.follow_with(&line.chain, made, yonder_clock::now());
                }
                let last = renewal.last();
                return Ok(Some((Protector::new(&line.chain, last, lane), last.incarnation())));
            }
        }
        let made = Arc::new(self.make(&credential, address, None)?);
        let incarnation = made.incarnation();
        let chain = Arc::new(Chain::new(&made, RenewalTimes::USUAL));
        let lane = chain.next_lane().expect("a chain has room for a first lane");
        let protector = Protector::new(&chain, &made, lane);
        let renewal = Mutex::new(Renewal::new(made, yonder_clock::now()));
        lines.push(Arc::new(Line { address, chain, renewal }));
        Ok(Some((protector, incarnation)))
    }

    /// Whether a thread is to be started that calls [`Sessions::renew`] from now on: told once.
    pub(crate) fn wants_renewer(&self) -> bool {
        !self.is_renewed.swap(true, Ordering::Relaxed)
    }

    /// Makes the sessions that follow those which are old, or under which nothing is heard of the node; forgets those
    /// without lanes. The node's incarnation, if a session was made. Waits for some seconds at most for each.
    pub(crate) fn renew(&self) -> Option<u64> {
        let credential = self.credential().ok().flatten()?;
        let lines = {
            let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            // One that has numbers left is kept for the next lane.
            lines.retain(|line| line.has_lanes() || line.chain.has_numbers());
            lines.clone()
        };
        let mut incarnation = None;
        for line in lines {
            let own = {
                let mut renewal = line.renewal.lock().unwrap_or_else(PoisonError::into_inner);
                let has_lanes = || line.has_lanes();
                if !renewal.is_due(&line.chain, has_lanes, RenewalTimes::USUAL, yonder_clock::now()) {
                    continue;
                }
                renewal.last().own()
            };
            if let Ok(made) = self.make(&credential, line.address, Some(own)) {
                incarnation = Some(made.incarnation());
                let mut renewal = line.renewal.lock().unwrap_or_else(PoisonError::into_inner);
                renewal.follow_with(&line.chain, made, yonder_clock::now());
            }
        }
        incarnation
    }

    fn credential(&self) -> Result<Option<Arc<Credential>>, OpenError> {
        if let Some(known) = self.credential.get() {
            return Ok(known.clone());
        }
        let found = Credential::of_environment()?;
        Ok(self.credential.get_or_init(|| found).clone())
    }

    /// Makes a session with the node at `address`, from our address `own` if there is one.
    fn make(&self, credential: &Credential, address: SocketAddr, own: Option<IpAddr>) -> Result<Session, OpenError> {
        let (began, deadline) = (yonder_clock::now(), Instant::now() + TIME_MAX);
        let socket = dial(address, own)?;
        let own = socket.local_addr()?.ip();
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIME_MAX))?;
        socket.set_write_timeout(Some(TIME_MAX))?;
        let (stream, _) = connect(credential, socket, Role::Node, deadline)?;
        (&stream).write_all(&SessionRequest { protection: self.protection }.to_bytes())?;
        let mut bytes = GrantBytes::new([0; SessionGrant::BYTES]);
        (&stream).read_exact(&mut bytes[..])?;
        let made = yonder_clock::now();
        let no_grant =
            || io::Error::other("it answers with something else than a session: use the same release on both");
        let grant = SessionGrant::from_bytes(&bytes).ok_or_else(no_grant)?;
        let lasts = saturating_nanos(Duration::from_secs(grant.seconds.into()));
        Ok(Session::new(grant, lasts, own, began, made))
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

impl Line {
    /// Whether a lane speaks under its sessions.
    fn has_lanes(&self) -> bool {
        Arc::strong_count(&self.chain) > 1
    }
}
