//! [`TcpListener`] and [`TcpStream`]: the standard library's sockets, which park a light thread where they would block.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socket_with, sockopt};

use super::source::{Direction, Io};

/// A socket that accepts connections.
pub struct TcpListener {
    io: Io<std::net::TcpListener>,
}

impl TcpListener {
    /// Listens at the first of these addresses that can be had.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::from_std(std::net::TcpListener::bind(address)?)
    }

    /// Takes a listener over.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { io: Io::new(listener) })
    }

    /// Accepts a connection, and waits for one. Several threads may do so; each connection goes to one.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.io.attempt(Direction::In, std::net::TcpListener::accept)?;
        Ok((TcpStream::from_std(stream)?, peer))
    }

    /// The same without the address of who connects, for listeners of other families too, such as those of `AF_UNIX`
    /// that were taken over.
    pub fn accept_any(&self) -> io::Result<TcpStream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |listener: &std::net::TcpListener| Ok(accept_with(listener, flags)?);
        Ok(TcpStream { io: Io::new(self.io.attempt(Direction::In, accept)?.into()) })
    }

    /// From now on a connection is waited for this long at most, and then it is an error ([`io::ErrorKind::TimedOut`]).
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.io.set_timeout(timeout);
    }

    /// Where it listens.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.socket().local_addr()
    }
}

/// A connection.
pub struct TcpStream {
    io: Io<std::net::TcpStream>,
}

impl TcpStream {
    /// Connects to the first of these addresses that answers. Finding the addresses of a name blocks the worker.
    pub fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        let mut error = io::Error::new(io::ErrorKind::InvalidInput, "there is no address to connect to");
        for address in addresses.to_socket_addrs()? {
            match Self::connect_to(address) {
                Err(refused) => error = refused,
                stream => return stream,
            }
        }
        Err(error)
    }

    fn connect_to(address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        let begun = rustix::net::connect(&socket, &address);
        let stream = Self { io: Io::new(std::net::TcpStream::from(socket)) };
        match begun {
            Ok(()) => Ok(stream),
            Err(Errno::INPROGRESS | Errno::INTR) => {
                stream.io.attempt(Direction::Out, is_connected)?;
                Ok(stream)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a connection over.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { io: Io::new(stream) })
    }

    /// Whether small messages are sent at once.
    pub fn set_nodelay(&self, at_once: bool) -> io::Result<()> {
        self.io.socket().set_nodelay(at_once)
    }

    /// From now on each read and each write waits this long at most, and then it is an error
    /// ([`io::ErrorKind::TimedOut`]).
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.io.set_timeout(timeout);
    }

    /// Closes one direction or both.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.io.socket().shutdown(how)
    }

    /// The address at this end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.socket().local_addr()
    }

    /// The address at the other end.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.io.socket().peer_addr()
    }
}

/// Asks whether a connection that was begun is there.
fn is_connected(stream: &std::net::TcpStream) -> io::Result<()> {
    sockopt::socket_error(stream)??;
    match stream.peer_addr() {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
        result => result.map(drop),
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.socket().as_fd()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.socket().as_fd()
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.io.attempt(Direction::In, |mut stream| stream.read(buffer))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.io.attempt(Direction::Out, |mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.socket().fmt(f)
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.io.socket().fmt(f)
    }
}
