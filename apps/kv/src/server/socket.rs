//! Sockets of clients, over TCP and at a path alike: [`Listener`] accepts [`Stream`]s.
//!
//! A path is the listener's: one that is left over, at which nobody listens, is replaced, and it is gone when the
//! listener is, unless another has taken it since.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};

use super::config::{KvError, Listen};

/// Where clients connect.
pub(super) enum Listener {
    Tcp(TcpListener),
    /// With the device and number of the socket at the path.
    Unix {
        socket: UnixListener,
        path: PathBuf,
        file: Option<(u64, u64)>,
    },
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
                remove_left_over(path)
                    .and_then(|()| UnixListener::bind(path))
                    .map_err(refused)
                    .map(|socket| Self::Unix { socket, file: file_at(path), path: path.clone() })
            }
        }
    }

    /// Where it listens, with the real port.
    pub(super) fn listen(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(Listen::Tcp),
            Self::Unix { path, .. } => Ok(Listen::Unix(path.clone())),
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
        if let Self::Unix { path, file, .. } = self
            && file.is_some()
            && file_at(path) == *file
        {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What tells the file at a path from others.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Removes a socket at which nobody listens any more. Anything else stays, and is in the way.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err_and(refused) {
        std::fs::remove_file(path)?;
    }
    Ok(())
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

    /// What is registered with a poll.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        }
    }
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

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Unix(socket) => socket.flush(),
        }
    }
}
