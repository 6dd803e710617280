//! Making sessions: a connection that begins with TLS in place of a greeting asks for one.
//!
//! Each is served by a thread of its own, because a handshake takes a millisecond of a CPU and may wait for its peer.
//! None has longer than [`TIME_MAX`], whatever it does. There are few at a time; which one gives way to a new one is
//! for [`yonder_identity::Places`] to say.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_board::{Source, TenantLimits};
use yonder_identity::{Place, Role, accept};
use yonder_session::SessionRequest;

use crate::Shared;

/// First byte of a handshake of TLS; no message of ours begins so.
pub(crate) const TLS_LEAD: u8 = 0x16;
/// Longest that making one may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Those under way at a time.
pub(crate) const PLACES_MAX: usize = 64;
/// How nice the threads are that make them: where CPUs are short, as many as there are places weigh about as much as
/// two data threads, whoever comes to the door.
pub(crate) const NICE: i32 = 15;

/// Serves a connection from `ip` on which nothing was read yet, in a thread.
pub(crate) fn begin(shared: &Arc<Shared>, socket: OwnedFd, source: Source, ip: IpAddr) {
    let Some(place) = shared.sessions.take(source, &socket, Instant::now() + TIME_MAX) else {
        refused(shared, ip, &"too many are under way");
        return;
    };
    let (spawner, shared) = (Arc::clone(shared), Arc::clone(shared));
    let serve = move || {
        // A filter of the system's, if it is refused, and no reason to make none.
        if let Err(errno) = rustix::process::setpriority_process(None, NICE)
            && shared.doors.may_tell(yonder_clock::now())
        {
            tracing::warn!("making sessions is as urgent as reads and writes: {errno}");
        }
        if let Err(cause) = make(&shared, &place, TcpStream::from(socket), ip) {
            refused(&shared, ip, &cause);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("yonder-session".to_owned()).spawn(serve) {
        refused(&spawner, ip, &format_args!("no thread can be started: {error}"));
    }
}

fn refused(shared: &Shared, ip: IpAddr, cause: &dyn std::fmt::Display) {
    shared.counters.refused_session();
    // Who fills the door is not to fill the log as well.
    if shared.doors.may_tell(yonder_clock::now()) {
        tracing::warn!("no session was made for {ip}: {cause}");
    } else {
        tracing::debug!("no session was made for {ip}: {cause}");
    }
}

fn make(shared: &Shared, place: &Place<Source>, socket: TcpStream, ip: IpAddr) -> Result<(), String> {
    let credential = shared.doors.credential.as_ref().ok_or("this node has no identity")?;
    let words = |error: &dyn std::fmt::Display| error.to_string();
    socket.set_nonblocking(false).map_err(|error| words(&error))?;
    socket.set_read_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    socket.set_write_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    let (stream, peer) = accept(credential, socket, place.deadline()).map_err(|error| words(&error))?;
    place.know(&peer);
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
    let grant = shared.doors.session(&peer, ip, request.protection, shared.incarnation, now);
    let grant = grant.ok_or("it has made as many sessions in this hour as it may")?;
    // One that was revoked meanwhile is known by now, or is seen here.
    credential.check(&peer).map_err(|error| words(&error))?;
    (&stream).write_all(&*grant.to_bytes()).map_err(|error| words(&error))?;
    let _ = stream.shutdown();
    Ok(())
}
