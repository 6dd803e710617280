//! [`dial`]: a connection to a server's metrics, with TLS if there is a credential to show.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_identity::{Credential, HandshakeError, Role, Stream, connect_bare};

/// The roles of servers with metrics that ask who looks, the frequent one first. Programs have those of tenants.
const SERVERS: [Role; 3] = [Role::Node, Role::Controller, Role::Tenant];

/// What is shown to servers, and to which.
#[derive(Clone, Default, Debug)]
pub enum Shows {
    /// Nothing.
    #[default]
    Nothing,
    /// This, which was typed: what answers without TLS is not what was meant.
    Typed(Arc<Credential>),
    /// This, which the environment names for all that is started there: a server of this machine may ask for nothing.
    IfAsked(Arc<Credential>),
}

/// Connects to a server's metrics, and shows what is to be shown. `PermissionDenied` if one end does not take the
/// other.
pub(crate) fn dial(address: SocketAddr, shows: &Shows, deadline: Instant) -> io::Result<Stream> {
    let (credential, may_be_plain) = match shows {
        Shows::Nothing => return Ok(reach(address, deadline)?.into()),
        Shows::Typed(credential) => (credential, false),
        Shows::IfAsked(credential) => (credential, address.ip().to_canonical().is_loopback()),
    };
    let mut last = None;
    for role in SERVERS {
        // Each is asked for by name, so that what is checked is all that can be, and a connection has one try.
        match connect_bare(credential, reach(address, deadline)?, role, deadline) {
            Ok((stream, _)) => return Ok(stream.into()),
            Err(HandshakeError::NotTls) if may_be_plain => return Ok(reach(address, deadline)?.into()),
            Err(HandshakeError::Io(error)) => return Err(error),
            Err(HandshakeError::Exceeded(_)) => return Err(ErrorKind::TimedOut.into()),
            Err(error @ HandshakeError::Untrusted(_)) => last = Some(error),
            Err(error) => return Err(io::Error::new(ErrorKind::PermissionDenied, error)),
        }
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, last.expect("there are roles of servers")))
}

fn reach(address: SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    TcpStream::connect_timeout(&address, left)
}
