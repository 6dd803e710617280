//! Sockets of clients, over TCP and at a path alike: [`Listener`] accepts [`Stream`]s.
//!
//! A path is the listener's: one that is left over, at which nobody listens, is replaced, and it is gone when the
//! listener is, unless another has taken it since.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use yonder_datagram::NamedSocket;

use super::config::{KvError, Listen};

/// Where clients connect.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix { socket: UnixListener, name: NamedSocket },
}

impl Listener {
    /// Begins to listen.
    pub(super) fn bind(listen: &Listen) -> Result<Self, KvError> {
        match listen {
            Listen::Tcp(address) => {
                let refused = |cause| KvError::Listen { protocol: "tcp", address: *address, cause };
                TcpListener::bind(*address).map(Self::Tcp).map_err(refused)
            }
            Listen::Unix(path) => {
                let refused = |cause| KvError::ListenUnix { path: path.clone(), cause };
                let (name, socket) = NamedSocket::listen(path).map_err(refused)?;
                Ok(Self::Unix { socket: UnixListener::from_std(socket), name })
            }
        }
    }

    /// Where it listens, with the real port.
    pub(super) fn listen(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(Listen::Tcp),
            Self::Unix { name, .. } => Ok(Listen::Unix(name.path().to_owned())),
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(socket) => socket.accept().map(|(client, _)| Stream::Tcp(client)),
            Self::Unix { socket, .. } => socket.accept().map(|(client, _)| Stream::Unix(client)),
        }
    }

    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Self::Unix { socket, .. } => registry.register(socket, token, Interest::READABLE),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix { name, .. } = self {
            name.remove();
        }
    }
}

/// A client's socket.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Sends small pieces at once. Without it, a lost one is only slower.
    pub(super) fn set_nodelay(&self) {
        if let Self::Tcp(socket) = self {
            let _ = socket.set_nodelay(true);
        }
    }

    pub(super) fn shutdown(&self, side: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.shutdown(side),
            Self::Unix(socket) => socket.shutdown(side),
        }
    }

    /// Who is at the other end: a program of this machine has no address.
    pub(super) fn peer(&self) -> String {
        match self {
            Self::Tcp(socket) => socket.peer_addr().map_or_else(|_| "tcp".to_owned(), |peer| tcp_name(&peer)),
            Self::Unix(_) => "unix".to_owned(),
        }
    }

    /// What is registered with a poll.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        }
    }
}

/// An address as memcached writes it.
pub(super) fn tcp_name(address: &SocketAddr) -> String {
    format!("{}:{address}", if address.is_ipv6() { "tcp6" } else { "tcp" })
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(into),
            Self::Unix(socket) => socket.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(from),
            Self::Unix(socket) => socket.write(from),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write_vectored(from),
            Self::Unix(socket) => socket.write_vectored(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Unix(socket) => socket.flush(),
        }
    }
}
