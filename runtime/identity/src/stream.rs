//! [`Stream`]: a TCP connection, plain or secure, for code that serves both.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use crate::secure::SecureStream;

/// A connection. A clone is the same one; one thread reads while others write.
#[derive(Clone, Debug)]
pub enum Stream {
    /// As it is on the network.
    Plain(Arc<TcpStream>),
    /// With TLS.
    Secure(SecureStream),
}

impl Stream {
    /// The socket below, for its addresses and timeouts.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Secure(stream) => stream.socket(),
        }
    }

    /// Ends the connection for both sides.
    pub fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown(Shutdown::Both),
            Self::Secure(stream) => stream.shutdown(),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Plain(Arc::new(stream))
    }
}

impl From<SecureStream> for Stream {
    fn from(stream: SecureStream) -> Self {
        Self::Secure(stream)
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => (&**socket).read(bytes),
            Stream::Secure(stream) => Read::read(&mut &*stream, bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => (&**socket).write(bytes),
            Stream::Secure(stream) => Write::write(&mut &*stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
