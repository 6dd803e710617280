//! How connections begin: [`dial`] at a node or client, [`Door`] at the controller, with a credential or without.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_identity::{
    Credential, HANDSHAKE_TIMEOUT, HandshakeError, Host, Peer, Place, Places, Role, Stream, accept, connect,
};
use yonder_units::Narrow as _;

use crate::lines::{CLIENT_LINE_BYTES_MAX, line_of};
use crate::messages::FromController;

/// Shortest time for one address of a name: the system knows no shorter one.
const CONNECT_MIN: Duration = Duration::from_millis(1);

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// Nothing is there, or it broke.
    Lost(io::Error),
    /// One end does not take the other, for this reason; another attempt would end alike.
    Refused(String),
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Connects to a controller within `timeout`, which then bounds each read and write. All addresses of a name share it.
/// Only the look-up of the name is not bounded, for the standard library has no look-up that is: it counts, and the
/// addresses have what it has left.
pub(crate) fn dial(
    address: &str,
    timeout: Duration,
    credential: Option<&Arc<Credential>>,
) -> Result<Stream, DialError> {
    let deadline = Instant::now() + timeout;
    let left = || deadline.saturating_duration_since(Instant::now());
    let candidates: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let socket = first_of(&candidates, left, TcpStream::connect_timeout)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    let Some(credential) = credential else { return Ok(socket.into()) };
    match connect(credential, socket, Role::Controller, deadline) {
        Ok((stream, _)) => Ok(stream.into()),
        Err(HandshakeError::Io(error)) => Err(error.into()),
        // It may stand still.
        Err(HandshakeError::Exceeded(_)) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        Err(error) => Err(DialError::Refused(error.to_string())),
    }
}

/// What `connect` makes of the first address that it succeeds with. One that says nothing leaves time for those behind
/// it: each has an equal share of what is left.
fn first_of<T>(
    candidates: &[SocketAddr],
    left: impl Fn() -> Duration,
    mut connect: impl FnMut(&SocketAddr, Duration) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "it is not an address: type HOST:PORT");
    for (tried, candidate) in candidates.iter().enumerate() {
        let share = left() / (candidates.len() - tried).narrow_u32();
        match connect(candidate, share.max(CONNECT_MIN)) {
            Ok(connected) => return Ok(connected),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What lets connections in.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    credential: Option<Arc<Credential>>,
    places: Arc<Places<Host>>,
}

/// A connection that nobody knows yet: it has a place among handshakes if names are asked for.
pub(crate) struct Visit {
    socket: TcpStream,
    place: Option<Place<Host>>,
}

impl Door {
    pub(crate) fn new(credential: Option<Arc<Credential>>, handshakes_max: usize) -> Self {
        Self { credential, places: Places::new(handshakes_max) }
    }

    /// Whether names are asked for.
    pub(crate) fn asks(&self) -> bool {
        self.credential.is_some()
    }

    /// A visit of one who has just connected; `None` if there is no place for it. Its end may come early, if another
    /// one needs the place.
    pub(crate) fn visit(&self, socket: TcpStream, source: Host) -> Option<Visit> {
        if !self.asks() {
            return Some(Visit { socket, place: None });
        }
        let place = self.places.take(source, &socket, Instant::now() + HANDSHAKE_TIMEOUT)?;
        Some(Visit { socket, place: Some(place) })
    }

    /// Who it is, if names are asked for. An error says why it is not let in, and the other end has been told.
    pub(crate) fn let_in(&self, visit: Visit) -> Result<(Stream, Option<Peer>), String> {
        let Visit { socket, place } = visit;
        let (Some(credential), Some(place)) = (&self.credential, place) else { return Ok((socket.into(), None)) };
        if speaks_json(&socket).map_err(|error| error.to_string())? {
            let cause = "this controller asks who you are: type --identity FILE or --key FILE".to_owned();
            tell(&socket, &FromController::TurnedAway { cause }, place.deadline());
            return Err("it has no identity".to_owned());
        }
        let (stream, peer) = accept(credential, socket, place.deadline()).map_err(|error| error.to_string())?;
        Ok((stream.into(), Some(peer)))
    }

    /// Whether a peer would be let in now.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), String> {
        let Some(credential) = &self.credential else { return Ok(()) };
        credential.check(peer).map_err(|error| error.to_string())
    }
}

/// Says something to a peer that is not let in. What it has sent is read, or the system would throw away what it is
/// told.
fn tell(mut socket: &TcpStream, line: &FromController, deadline: Instant) {
    let _ = socket.write_all(&line_of(line)).and_then(|()| socket.shutdown(Shutdown::Write));
    let (mut unread, mut bytes) = (CLIENT_LINE_BYTES_MAX, [0; 1024]);
    while Instant::now() < deadline && unread > 0 {
        match socket.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => unread = unread.saturating_sub(count),
        }
    }
}

/// Whether the first byte is one of a peer without an identity. Such a one is told in its own language.
fn speaks_json(socket: &TcpStream) -> io::Result<bool> {
    let before = socket.read_timeout()?;
    socket.set_read_timeout(Some(HANDSHAKE_TIMEOUT))?;
    let mut first = [0];
    let count = socket.peek(&mut first)?;
    socket.set_read_timeout(before)?;
    Ok(count == 1 && first[0] == b'{')
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(12);

    fn addresses(count: u16) -> Vec<SocketAddr> {
        (1..=count).map(|port| (Ipv4Addr::LOCALHOST, port).into()).collect()
    }

    /// As behind a firewall: nothing comes back, not even a refusal.
    fn silence() -> io::Error {
        io::ErrorKind::TimedOut.into()
    }

    #[test]
    fn all_addresses_of_a_name_share_one_deadline() {
        let (passed, tried) = (Cell::new(Duration::ZERO), Cell::new(0));
        let left = || TIMEOUT.saturating_sub(passed.get());
        let end = first_of(&addresses(3), left, |_, time| {
            passed.set(passed.get() + time);
            tried.set(tried.get() + 1);
            Err::<(), _>(silence())
        });
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!((passed.get(), tried.get()), (TIMEOUT, 3), "each has had its share, and all of them no more");
    }

    #[test]
    fn an_address_that_refuses_at_once_leaves_its_time_to_the_others() {
        let given = Cell::new(Duration::ZERO);
        let connect = |candidate: &SocketAddr, time| {
            given.set(time);
            if candidate.port() == 1 { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(candidate.port()) }
        };
        let connected = first_of(&addresses(2), || TIMEOUT, connect);
        assert_eq!((connected.unwrap(), given.get()), (2, TIMEOUT));
    }

    #[test]
    fn a_look_up_that_took_all_the_time_leaves_the_least_that_the_system_knows() {
        let tried = first_of(&addresses(1), || Duration::ZERO, |_, time| Ok(time));
        assert_eq!(tried.unwrap(), CONNECT_MIN);
    }
}
