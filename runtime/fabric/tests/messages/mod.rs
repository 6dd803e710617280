//! A connection that speaks the wire protocol message by message: [`Messages`], the side of a test that plays a peer.
//!
//! The fabric's tests play the node with it, the node's tests play clients; the node's include this file by its path,
//! for a crate that both could use would stand outside the layers.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use yonder_wire::{Header, MessageBuffer};

/// Bytes that may be received ahead of the message asked for.
const BUFFER_BYTES: usize = 1 << 18;

/// A connection, and what was received of the next message.
pub(crate) struct Messages {
    pub(crate) stream: TcpStream,
    received: MessageBuffer,
}

impl Messages {
    /// Waits for bytes for at most `timeout`.
    pub(crate) fn new(stream: TcpStream, timeout: Duration) -> Self {
        stream.set_read_timeout(Some(timeout)).unwrap();
        Self { stream, received: MessageBuffer::new(BUFFER_BYTES) }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, header: &Header, payload: &[u8]) {
        self.stream.write_all(&sealed(header, payload)).unwrap();
    }

    /// The next message, or `None` if the other side has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            match self.fill() {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next message, if it has been received.
    pub(crate) fn take(&mut self) -> Option<(Header, Vec<u8>)> {
        let message = self.received.message().unwrap()?;
        let (got, bytes) = ((message.header, message.payload.to_vec()), message.bytes());
        message.verify().unwrap();
        self.received.consume(bytes);
        Some(got)
    }

    /// Receives once, and returns how much.
    pub(crate) fn fill(&mut self) -> io::Result<usize> {
        let bytes = self.stream.read(self.received.room())?;
        self.received.received(bytes);
        Ok(bytes)
    }
}

/// The bytes of a message.
pub(crate) fn sealed(header: &Header, payload: &[u8]) -> Vec<u8> {
    [&header.seal(payload)[..], payload].concat()
}
