//! How connections begin: [`dial`] at a node or client, [`Door`] at the controller, with a credential or without.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use yonder_identity::{Credential, HANDSHAKE_TIMEOUT, HandshakeError, Peer, Role, Stream, accept, connect};

use crate::lines::{CLIENT_LINE_BYTES_MAX, line_of};
use crate::messages::FromController;

/// Handshakes at a time from which on an address has only one.
const HANDSHAKES_MAX: usize = 512;
/// Most of them from one address.
const HANDSHAKES_PER_SOURCE_MAX: usize = 128;

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
    shaking: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A handshake that counts for as long as it lasts.
struct Shaking<'door> {
    door: &'door Door,
    source: IpAddr,
}

impl Door {
    pub(crate) fn new(credential: Option<Arc<Credential>>) -> Self {
        Self { credential, shaking: Arc::default() }
    }

    /// Who it is, if names are asked for. An error says why it is not let in, and the other end has been told.
    pub(crate) fn let_in(&self, socket: TcpStream, source: IpAddr) -> Result<(Stream, Option<Peer>), String> {
        let Some(credential) = &self.credential else { return Ok((socket.into(), None)) };
        let _shaking = self.begin(source).ok_or("too many are at the door")?;
        let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
        if speaks_json(&socket).map_err(|error| error.to_string())? {
            let cause = "this controller asks who you are: type --identity FILE or --key FILE".to_owned();
            tell(&socket, &FromController::TurnedAway { cause });
            return Err("it has no identity".to_owned());
        }
        let (stream, peer) = accept(credential, socket, deadline).map_err(|error| error.to_string())?;
        Ok((stream.into(), Some(peer)))
    }

    /// Whether a peer would be let in now.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), String> {
        let Some(credential) = &self.credential else { return Ok(()) };
        credential.check(peer).map_err(|error| error.to_string())
    }

    fn begin(&self, source: IpAddr) -> Option<Shaking<'_>> {
        let mut shaking = self.shaking.lock().unwrap_or_else(PoisonError::into_inner);
        let own = shaking.get(&source).copied().unwrap_or(0);
        let is_crowded = || own > 0 && shaking.values().sum::<usize>() >= HANDSHAKES_MAX;
        if own >= HANDSHAKES_PER_SOURCE_MAX || is_crowded() {
            return None;
        }
        *shaking.entry(source).or_default() += 1;
        Some(Shaking { door: self, source })
    }
}

impl Drop for Shaking<'_> {
    fn drop(&mut self) {
        let mut shaking = self.door.shaking.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = shaking.get_mut(&self.source) {
            *own -= 1;
            if *own == 0 {
                shaking.remove(&self.source);
            }
        }
    }
}

/// Says something to a peer that is not let in. What it has sent is read, or the system would throw away what it is
/// told.
fn tell(mut socket: &TcpStream, line: &FromController) {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
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
