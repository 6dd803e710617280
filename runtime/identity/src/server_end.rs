//! [`ServerEnd`]: the server's end of TLS as bytes alone, for a thread that waits for many connections at once.
//!
//! What is spoken is TLS as others speak it, so that programs of others may be clients: no end says anything but what
//! is sealed. Whoever has the socket hands in what came, and sends what is taken out.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use rustls::ServerConnection;

use crate::credential::Credential;
use crate::error::HandshakeError;
use crate::handshake::HANDSHAKE_BYTES_MAX;
use crate::peer::Peer;

/// The server's end of a connection.
pub struct ServerEnd {
    tls: ServerConnection,
    /// How many bytes the handshake may still have.
    bytes_left: usize,
}

impl ServerEnd {
    /// The beginning of a connection. Fails if no one is let in.
    pub fn new(credential: &Credential) -> Result<Self, HandshakeError> {
        let config = Arc::clone(&credential.current()?.server);
        let mut tls = ServerConnection::new(config).map_err(|error| HandshakeError::of(&error))?;
        // Whoever seals bounds what is sealed.
        tls.set_buffer_limit(None);
        Ok(Self { tls, bytes_left: HANDSHAKE_BYTES_MAX })
    }

    /// Takes what has come, and returns what was sealed in it. After an error there is nothing more to take, but
    /// something to send: it tells the client why.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<Vec<u8>, HandshakeError> {
        if self.tls.is_handshaking() {
            self.bytes_left = self.bytes_left.checked_sub(bytes.len()).ok_or(HandshakeError::Exceeded("bytes"))?;
        }
        let mut opened = Vec::new();
        while !bytes.is_empty() {
            if self.tls.read_tls(&mut bytes)? == 0 {
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
            let state = self.tls.process_new_packets().map_err(|error| HandshakeError::of(&error))?;
            let before = opened.len();
            opened.resize(before + state.plaintext_bytes_to_read(), 0);
            self.tls.reader().read_exact(&mut opened[before..])?;
        }
        Ok(opened)
    }

    /// Who the client is, once it has shown that.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        if self.tls.is_handshaking() {
            return None;
        }
        self.tls.peer_certificates().and_then(|chain| chain.first()).and_then(Peer::of)
    }

    /// Seals bytes for the client, and the end of the connection behind them.
    pub fn seal_last(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)?;
        self.tls.send_close_notify();
        Ok(())
    }

    /// Moves what is to be sent to the end of `into`.
    pub fn take_outgoing(&mut self, into: &mut Vec<u8>) {
        while self.tls.wants_write() {
            self.tls.write_tls(into).expect("a vector takes all that is written");
        }
    }
}

impl fmt::Debug for ServerEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServerEnd").field("peer", &self.peer()).finish_non_exhaustive()
    }
}
