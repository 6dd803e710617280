//! How connections begin: [`dial`] at a node or client, [`Door`] at the controller, with a credential or without.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_identity::{
    Credential, HANDSHAKE_TIMEOUT, HandshakeError, Host, Peer, Place, Places, Role, Stream, accept, connect,
};

use crate::lines::{CLIENT_LINE_BYTES_MAX, line_of};
use crate::messages::FromController;

/// Handshakes at a time. One of a host that has fewer than others takes the place of one of theirs.
pub(crate) const HANDSHAKES_MAX: usize = 256;

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

/// Connects to a controller within `timeout`, which then bounds each read and write.
pub(crate) fn dial(
    address: &str,
    timeout: Duration,
    credential: Option<&Arc<Credential>>,
) -> Result<Stream, DialError> {
    let deadline = Instant::now() + timeout;
    let socket = reach(address, timeout)?;
    let Some(credential) = credential else { return Ok(socket.into()) };
    match connect(credential, socket, Role::Controller, deadline) {
        Ok((stream, _)) => Ok(stream.into()),
        Err(HandshakeError::Io(error)) => Err(error.into()),
        Err(error @ HandshakeError::Exceeded(_)) => Err(io::Error::other(error.to_string()).into()),
        Err(error) => Err(DialError::Refused(error.to_string())),
    }
}

fn reach(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "it is not an address: type HOST:PORT");
    for candidate in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
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
    pub(crate) fn new(credential: Option<Arc<Credential>>) -> Self {
        Self { credential, places: Places::new(HANDSHAKES_MAX) }
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
