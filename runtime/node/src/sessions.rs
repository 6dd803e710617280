//! Making sessions: a connection that begins with TLS in place of a greeting asks for one.
//!
//! Each is served by a thread of its own, because a handshake takes a millisecond of a CPU and may wait for its peer.
//! None has longer than [`TIME_MAX`], whatever it does. There are few at a time; for a new one the oldest goes that has
//! not shown who it is, of the same source, or of the one that has most.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use yonder_board::{Source, TenantLimits};
use yonder_identity::{Role, accept};
use yonder_session::SessionRequest;

use crate::Shared;

/// First byte of a handshake of TLS; no message of ours begins so.
pub(crate) const TLS_LEAD: u8 = 0x16;
/// Longest that making one may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Those under way at a time.
const PLACES_MAX: usize = 64;

/// Those that are under way.
#[derive(Default, Debug)]
pub(crate) struct UnderWay(Mutex<Vec<Visitor>>);

#[derive(Debug)]
struct Visitor {
    number: u64,
    source: Source,
    deadline: Instant,
    /// To be shut down when its time is over, or its place is needed.
    socket: OwnedFd,
    is_known: bool,
}

/// One that is under way.
struct Place {
    shared: Arc<Shared>,
    number: u64,
    deadline: Instant,
}

impl UnderWay {
    fn visitors(&self) -> MutexGuard<'_, Vec<Visitor>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends those whose time is over, and says when the next one's is.
    pub(crate) fn keep_deadlines(&self, now: Instant) -> Option<Instant> {
        let visitors = self.visitors();
        visitors.iter().filter(|visitor| visitor.deadline <= now).for_each(Visitor::end);
        visitors.iter().map(|visitor| visitor.deadline).filter(|deadline| *deadline > now).min()
    }
}

impl Visitor {
    fn end(&self) {
        // It may have ended by itself.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

impl Place {
    /// A place for one from `source`, if need be that of another one. `None` if all are of those who are known.
    fn take(shared: &Arc<Shared>, source: Source, socket: &OwnedFd) -> Option<Self> {
        let deadline = Instant::now() + TIME_MAX;
        let socket = socket.try_clone().ok()?;
        let mut visitors = shared.sessions.visitors();
        if visitors.len() >= PLACES_MAX {
            let count = |source| visitors.iter().filter(|visitor| visitor.source == source).count();
            let most = visitors.iter().map(|visitor| visitor.source).max_by_key(|source| count(*source))?;
            // One with as many as any gives way itself.
            let from = if count(source) + 1 >= count(most) { source } else { most };
            let mut unknown = visitors.iter().enumerate().filter(|(_, visitor)| !visitor.is_known);
            let place = unknown.clone().find(|(_, visitor)| visitor.source == from).or_else(|| unknown.next());
            let place = place.map(|(place, _)| place)?;
            visitors.remove(place).end();
        }
        let number = shared.doors.next_visitor();
        visitors.push(Visitor { number, source, deadline, socket, is_known: false });
        Some(Self { shared: Arc::clone(shared), number, deadline })
    }

    /// It has shown who it is.
    fn know(&self) {
        if let Some(own) = self.shared.sessions.visitors().iter_mut().find(|visitor| visitor.number == self.number) {
            own.is_known = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.sessions.visitors().retain(|visitor| visitor.number != self.number);
    }
}

/// Serves a connection from `ip` on which nothing was read yet, in a thread.
pub(crate) fn begin(shared: &Arc<Shared>, socket: OwnedFd, source: Source, ip: IpAddr) {
    let Some(place) = Place::take(shared, source, &socket) else {
        tracing::debug!("a session was not made for {ip}: too many are under way");
        return;
    };
    let serve = move || {
        if let Err(cause) = make(&place, TcpStream::from(socket), ip) {
            place.shared.counters.refused_session();
            // Who fills the door is not to fill the log as well.
            if place.shared.doors.may_tell(yonder_clock::now()) {
                tracing::warn!("no session was made for {ip}: {cause}");
            } else {
                tracing::debug!("no session was made for {ip}: {cause}");
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("yonder-session".to_owned()).spawn(serve) {
        tracing::error!("no thread can be started to make a session: {error}");
    }
}

fn make(place: &Place, socket: TcpStream, ip: IpAddr) -> Result<(), String> {
    let shared = &place.shared;
    let credential = shared.doors.credential.as_ref().ok_or("this node has no identity")?;
    let words = |error: &dyn std::fmt::Display| error.to_string();
    socket.set_nonblocking(false).map_err(|error| words(&error))?;
    socket.set_read_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    socket.set_write_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    let (stream, peer) = accept(credential, socket, place.deadline).map_err(|error| words(&error))?;
    place.know();
    // A controller asks nodes for nothing.
    if !(peer.has(Role::Tenant) || peer.has(Role::Node) || peer.has(Role::Operator)) {
        return Err(format!("{peer} has no business with memory"));
    }
    let mut request = [0; SessionRequest::BYTES];
    (&stream).read_exact(&mut request).map_err(|error| words(&error))?;
    let request = SessionRequest::from_bytes(&request).ok_or("it asks for something else than a session")?;
    // Nodes move what is others', and operators see to all; a shared key is anybody's.
    let tenant = (peer.role() == Some(Role::Tenant)).then(|| peer.name()).flatten();
    let tenant = tenant.map(|name| shared.doors.tenant(name).ok_or("the node knows as many tenants as it can"));
    let tenant = tenant.transpose()?;
    if let Some(tenant) = tenant {
        let (text, since) = peer.limits().map_or(("", 0), |limits| (limits.text.as_str(), limits.since));
        let limits = text.parse::<TenantLimits>().map_err(|error| words(&error))?;
        shared.board.accounts().limit(tenant, limits, since);
    }
    let now = yonder_clock::now();
    let grant = shared.doors.session(tenant, ip, request.protection, shared.incarnation, now);
    let grant = grant.ok_or("it has made as many sessions in this hour as it may")?;
    (&stream).write_all(&*grant.to_bytes()).map_err(|error| words(&error))?;
    let _ = stream.shutdown();
    Ok(())
}
