//! Making sessions: a connection that begins with TLS in place of a greeting asks for one.
//!
//! Each is served by a thread of its own, for some seconds at most, because a handshake takes a millisecond of a CPU and
//! may wait for its peer. There are few at a time, and each source has a share of them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use yonder_board::{Share, Source};
use yonder_identity::{Role, accept};
use yonder_session::SessionRequest;

use crate::Shared;

/// First byte of a handshake of TLS; no message of ours begins so.
pub(crate) const TLS_LEAD: u8 = 0x16;
/// Longest that making one may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Those under way at a time.
const SHARE: Share = Share { places_max: 64, of_one_max: 32, few_max: 4 };

/// How many are under way, by source.
#[derive(Default, Debug)]
pub(crate) struct UnderWay(Mutex<HashMap<Source, usize>>);

/// One that is under way.
struct Place {
    shared: Arc<Shared>,
    source: Source,
}

impl Place {
    fn take(shared: &Arc<Shared>, source: Source) -> Option<Self> {
        let mut under_way = shared.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, own) = (under_way.values().sum(), under_way.get(&source).copied().unwrap_or(0));
        SHARE.admits(all, own).then(|| {
            under_way.insert(source, own + 1);
            Self { shared: Arc::clone(shared), source }
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.shared.sessions.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = under_way.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                under_way.remove(&self.source);
            }
        }
    }
}

/// Serves a connection from `ip` on which nothing was read yet, in a thread. One too many is closed.
pub(crate) fn begin(shared: &Arc<Shared>, socket: OwnedFd, source: Source, ip: IpAddr) {
    let Some(place) = Place::take(shared, source) else {
        tracing::debug!("a session was not made for {ip}: too many are under way");
        return;
    };
    let serve = move || {
        if let Err(cause) = make(&place, TcpStream::from(socket), ip) {
            place.shared.counters.refused_session();
            tracing::warn!("no session was made for {ip}: {cause}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("yonder-session".to_owned()).spawn(serve) {
        tracing::error!("no thread can be started to make a session: {error}");
    }
}

fn make(place: &Place, socket: TcpStream, ip: IpAddr) -> Result<(), String> {
    let (deadline, shared) = (Instant::now() + TIME_MAX, &place.shared);
    let credential = shared.doors.credential.as_ref().ok_or("this node has no identity")?;
    let words = |error: &dyn std::fmt::Display| error.to_string();
    socket.set_nonblocking(false).map_err(|error| words(&error))?;
    socket.set_read_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    socket.set_write_timeout(Some(TIME_MAX)).map_err(|error| words(&error))?;
    let (stream, peer) = accept(credential, socket, deadline).map_err(|error| words(&error))?;
    // A controller asks nodes for nothing.
    if !(peer.has(Role::Tenant) || peer.has(Role::Node) || peer.has(Role::Operator)) {
        return Err(format!("{peer} has no business with memory"));
    }
    let mut request = [0; SessionRequest::BYTES];
    (&stream).read_exact(&mut request).map_err(|error| words(&error))?;
    let request = SessionRequest::from_bytes(&request).ok_or("it asks for something else than a session")?;
    // Nodes move what is others', and operators see to all; a shared key is anybody's.
    let tenant = (peer.role() == Some(Role::Tenant)).then(|| peer.name()).flatten();
    let now = yonder_clock::now();
    let grant = shared.doors.session(tenant, ip, request.protection, shared.incarnation, now);
    let grant = grant.ok_or("no numbers of sessions or tenants are left until the node is started again")?;
    (&stream).write_all(&*grant.to_bytes()).map_err(|error| words(&error))?;
    let _ = stream.shutdown();
    Ok(())
}
