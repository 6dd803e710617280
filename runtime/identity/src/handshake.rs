//! [`connect`] and [`accept`]: TLS 1.3 with a certificate at both ends, within a time and a number of bytes.
//!
//! A server says one byte when it has taken the client's certificate, and the client waits for it. In TLS 1.3 a client
//! has ended its handshake before the server has looked at it; so it is here, and not at the first request, that a
//! refusal is seen, with its cause.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::credential::Credential;
use crate::error::{HandshakeError, IdentityError};
use crate::peer::Peer;
use crate::role::{Role, check_name};
use crate::secure::SecureStream;

/// How long a handshake may take, for those who have no reason for another time.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes that the other end may send in a handshake: two certificates and what belongs to them have about two
/// thousand.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 64 << 10;
/// What the server says when it has taken the client.
const WELCOME: u8 = b'Y';

/// Who is to be at the other end: any member of a role, or one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected<'a> {
    /// Its role.
    pub role: Role,
    /// Its name; any has the right one if it is not said.
    pub name: Option<&'a str>,
}

impl From<Role> for Expected<'_> {
    fn from(role: Role) -> Self {
        Self { role, name: None }
    }
}

impl Expected<'_> {
    fn server_name(self) -> Result<ServerName<'static>, IdentityError> {
        let domain = match self.name {
            None => self.role.domain(),
            Some(name) => {
                check_name(name)?;
                self.role.member(name)
            }
        };
        Ok(ServerName::try_from(domain).expect("names are labels of a domain"))
    }
}

/// What is said once both ends are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    /// The server welcomes the client.
    Welcoming,
    /// Nothing: what is spoken is TLS as others speak it.
    Bare,
}

/// Shakes hands as a client with a server of this role, and perhaps of this name. The stream's own timeouts count again
/// afterwards.
pub fn connect<'a>(
    credential: &Credential,
    stream: TcpStream,
    server: impl Into<Expected<'a>>,
    deadline: Instant,
) -> Result<(SecureStream, Peer), HandshakeError> {
    shake(client(credential, server.into())?, Manner::Welcoming, stream, deadline)
}

/// As [`connect`], with a server that does not welcome, such as a [`ServerEnd`](crate::ServerEnd): whether it takes
/// this client is seen at the first read.
pub fn connect_bare<'a>(
    credential: &Credential,
    stream: TcpStream,
    server: impl Into<Expected<'a>>,
    deadline: Instant,
) -> Result<(SecureStream, Peer), HandshakeError> {
    shake(client(credential, server.into())?, Manner::Bare, stream, deadline)
}

fn client(credential: &Credential, server: Expected<'_>) -> Result<Connection, HandshakeError> {
    let (name, config) = (server.server_name()?, Arc::clone(&credential.current()?.client));
    ClientConnection::new(config, name).map(Connection::Client).map_err(|error| HandshakeError::of(&error))
}

/// Shakes hands as a server. What the peer may do is for the caller to say. The stream's own timeouts count again
/// afterwards.
pub fn accept(
    credential: &Credential,
    stream: TcpStream,
    deadline: Instant,
) -> Result<(SecureStream, Peer), HandshakeError> {
    let config = Arc::clone(&credential.current()?.server);
    let connection = ServerConnection::new(config).map_err(|error| HandshakeError::of(&error))?;
    shake(Connection::Server(connection), Manner::Welcoming, stream, deadline)
}

fn shake(
    mut connection: Connection,
    manner: Manner,
    stream: TcpStream,
    deadline: Instant,
) -> Result<(SecureStream, Peer), HandshakeError> {
    let timeouts = (stream.read_timeout()?, stream.write_timeout()?);
    let mut bounded = Bounded { stream: &stream, deadline, bytes_left: HANDSHAKE_BYTES_MAX };
    let peer = match bounded.introduce(&mut connection, manner) {
        Ok(peer) => peer,
        Err(error) => {
            // The other end reads why before it sees the end.
            let _ = bounded.flush(&mut connection);
            let _ = stream.shutdown(Shutdown::Write);
            return Err(error);
        }
    };
    stream.set_read_timeout(timeouts.0)?;
    stream.set_write_timeout(timeouts.1)?;
    Ok((SecureStream::new(connection, stream), peer))
}

/// A stream until a time, and for so many bytes.
struct Bounded<'stream> {
    stream: &'stream TcpStream,
    deadline: Instant,
    bytes_left: usize,
}

impl Bounded<'_> {
    /// Shakes hands, and says who the other end is when it has taken this one.
    fn introduce(&mut self, connection: &mut Connection, manner: Manner) -> Result<Peer, HandshakeError> {
        // Until here anyone on the way may say that the other end refuses.
        self.shake(connection).map_err(HandshakeError::unproven)?;
        let shown = connection.peer_certificates().and_then(|chain| chain.first());
        let peer = shown
            .and_then(Peer::of)
            .ok_or_else(|| HandshakeError::Untrusted("its certificate names no member of a cluster".to_owned()))?;
        match (manner, &connection) {
            (Manner::Bare, _) => {}
            (Manner::Welcoming, Connection::Server(_)) => self.welcome(connection)?,
            (Manner::Welcoming, Connection::Client(_)) => self.wait_for_welcome(connection)?,
        }
        Ok(peer)
    }

    fn shake(&mut self, connection: &mut Connection) -> Result<(), HandshakeError> {
        while connection.is_handshaking() {
            self.flush(connection)?;
            if connection.is_handshaking() && connection.wants_read() {
                self.receive(connection)?;
            }
        }
        self.flush(connection)
    }

    fn welcome(&mut self, connection: &mut Connection) -> Result<(), HandshakeError> {
        connection.writer().write_all(&[WELCOME])?;
        self.flush(connection)
    }

    fn wait_for_welcome(&mut self, connection: &mut Connection) -> Result<(), HandshakeError> {
        let mut said = [0];
        loop {
            match connection.reader().read(&mut said) {
                Ok(1) if said[0] == WELCOME => return Ok(()),
                Ok(1) => {
                    return Err(HandshakeError::Tls("the other end says something else than a welcome".to_owned()));
                }
                Ok(_) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.receive(connection)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive(&mut self, connection: &mut Connection) -> Result<(), HandshakeError> {
        let mut bytes = [0; 4096];
        self.stream.set_read_timeout(Some(self.time_left()?))?;
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(timed_out(error)),
        };
        self.bytes_left = self.bytes_left.checked_sub(count).ok_or(HandshakeError::Exceeded("bytes"))?;
        let mut received = &bytes[..count];
        while !received.is_empty() {
            if connection.read_tls(&mut received)? == 0 {
                // It has said that it ends, and goes on.
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
            connection.process_new_packets().map_err(|error| HandshakeError::of(&error))?;
        }
        Ok(())
    }

    fn flush(&mut self, connection: &mut Connection) -> Result<(), HandshakeError> {
        let mut bytes = Vec::new();
        while connection.wants_write() {
            connection.write_tls(&mut bytes)?;
        }
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            self.stream.set_write_timeout(Some(self.time_left()?))?;
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(timed_out(error)),
            }
        }
        Ok(())
    }

    fn time_left(&self) -> Result<Duration, HandshakeError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(HandshakeError::Exceeded("time")) } else { Ok(left) }
    }
}

fn timed_out(error: io::Error) -> HandshakeError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => HandshakeError::Exceeded("time"),
        _ => error.into(),
    }
}
