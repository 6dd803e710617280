//! The bytes of a client, plain or within TLS: [`Channel`] is a socket, and the server's end of TLS if that is spoken.
//!
//! Nothing here blocks: a call does what the socket allows now and a bounded number of records, and says `WouldBlock`
//! or [`UNFINISHED`] otherwise. What TLS holds has limits: [`SENDING_BYTES_MAX`] of records that the socket has not
//! taken, one record that has not arrived as a whole, and one of plain bytes. `rustls` itself ends a handshake of which
//! a message takes more than 64 KiB. A client that sends what is no TLS gets an alert of TLS and nothing else.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use mio::event::Source;
use rustls::ServerConnection;

use super::socket::Stream;

/// What a call ends with that has done its share, and has more to do at once.
pub(super) const UNFINISHED: io::ErrorKind = io::ErrorKind::ResourceBusy;
/// Plain bytes in records that the socket has not taken, beyond which none are made.
const SENDING_BYTES_MAX: usize = 32 << 10;
/// Reads from the socket within one call: records may be empty.
const READS_MAX: usize = 16;

/// A client's socket, with TLS or without.
pub(super) struct Channel {
    socket: Stream,
    tls: Option<Box<Tls>>,
}

impl Channel {
    /// Bytes as they are.
    pub(super) fn plain(socket: Stream) -> Self {
        Self { socket, tls: None }
    }

    /// Bytes within TLS.
    pub(super) fn secured(socket: Stream, mut connection: ServerConnection) -> Self {
        connection.set_buffer_limit(Some(SENDING_BYTES_MAX));
        Self { socket, tls: Some(Box::new(Tls { connection, is_ended: false })) }
    }

    /// What is registered with a poll.
    pub(super) fn source(&mut self) -> &mut dyn Source {
        self.socket.source()
    }

    /// Who is at the other end, as `stats conns` says it.
    pub(super) fn peer(&self) -> String {
        self.socket.peer()
    }

    /// Whether TLS is spoken and the handshake is not over.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.is_handshaking())
    }

    /// Whether a read of less than was asked for has emptied the socket. A record is what TLS reads at most.
    pub(super) fn short_read_empties(&self) -> bool {
        self.tls.is_none()
    }

    /// Whether the socket has taken all that was written.
    pub(super) fn is_sent(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.connection.wants_write())
    }

    /// Sends what the socket takes now of what was written. `WouldBlock` is no error.
    pub(super) fn send(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| tls.send(&mut self.socket))
    }

    /// Nothing more will be written: the other end is to know that no byte is missing.
    pub(super) fn end(&mut self) {
        if let Some(tls) = &mut self.tls
            && !tls.connection.is_handshaking()
            && !std::mem::replace(&mut tls.is_ended, true)
        {
            tls.connection.send_close_notify();
        }
    }

    /// Shuts down one side of the socket.
    pub(super) fn shutdown(&self, side: Shutdown) -> io::Result<()> {
        self.socket.shutdown(side)
    }

    /// Reads bytes that are thrown away.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        self.socket.read(scratch)
    }
}

impl Read for Channel {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(into),
            Some(tls) => tls.read(&mut self.socket, into),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(from),
            Some(tls) => tls.write(&mut self.socket, from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// The server's end of TLS.
struct Tls {
    connection: ServerConnection,
    /// The other end was told that no more comes.
    is_ended: bool,
}

impl Tls {
    fn read(&mut self, socket: &mut Stream, into: &mut [u8]) -> io::Result<usize> {
        for _ in 0..READS_MAX {
            match self.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The socket ended before TLS did. What has come is genuine, and a command that is cut off is none.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            self.receive(socket)?;
        }
        Err(UNFINISHED.into())
    }

    fn receive(&mut self, socket: &mut Stream) -> io::Result<()> {
        self.connection.read_tls(socket)?;
        let processed = self.connection.process_new_packets();
        // Answers of the handshake, or the alert that says what is wrong.
        self.send(socket)?;
        processed.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn write(&mut self, socket: &mut Stream, from: &[u8]) -> io::Result<usize> {
        let mut taken = self.connection.writer().write(from)?;
        self.send(socket)?;
        if taken == 0 {
            // There may be room only now.
            taken = self.connection.writer().write(from)?;
            self.send(socket)?;
        }
        if taken == 0 && !from.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn send(&mut self, socket: &mut Stream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
