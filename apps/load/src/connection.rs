//! A pipeline and its non-blocking socket.
//!
//! Key type: [`Connection`]. Reads and writes go on until the socket has no more to give or to take, as edge-triggered
//! readiness demands.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use yonder_units::Nanos;

use crate::ledger::Ledger;
use crate::pipeline::{Outcome, Pipeline, Request};

/// One connection of a loading thread.
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    pub(crate) pipeline: Pipeline,
}

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("the server closed the connection")]
    Closed,
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] crate::protocol::NotAReply),
}

impl Connection {
    /// Connects, waiting for it.
    pub(crate) fn open(server: SocketAddr, pipeline: Pipeline) -> io::Result<Self> {
        let socket = std::net::TcpStream::connect(server)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpStream::from_std(socket), pipeline })
    }

    /// Sends as much as the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), Lost> {
        while !self.pipeline.outgoing().is_empty() {
            match self.socket.write(self.pipeline.outgoing()) {
                Ok(0) => return Err(Lost::Closed),
                Ok(bytes) => self.pipeline.mark_sent(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes every reply that has come. `answered` gets each with the time at which its bytes were read.
    pub(crate) fn receive(
        &mut self,
        ledger: &Ledger,
        clock: impl Fn() -> Nanos,
        mut answered: impl FnMut(Request, Outcome, Nanos),
    ) -> Result<(), Lost> {
        loop {
            let room = self.pipeline.incoming();
            let room_bytes = room.len();
            let bytes = match self.socket.read(room) {
                Ok(0) => return Err(Lost::Closed),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let now = clock();
            self.pipeline.mark_received(bytes);
            while let Some((request, outcome)) = self.pipeline.next_outcome(ledger)? {
                answered(request, outcome, now);
            }
            // A read that leaves room has emptied the socket; whatever comes later is a new edge.
            if bytes < room_bytes {
                return Ok(());
            }
        }
    }
}
