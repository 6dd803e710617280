//! [`SecureStream`]: a TLS connection that one thread reads while others write, like a `TcpStream`.
//!
//! | field | who touches it |
//! |---|---|
//! | `incoming` | the reader, for as long as it reads |
//! | `outgoing` | one writer at a time, also while it waits for the socket; the reader only if it is free |
//! | `tls` | any thread, for as long as bytes are sealed or opened; never while a thread waits for the socket |
//!
//! `outgoing` is taken before `tls`, so records leave in the order in which they were sealed. A writer waits for the
//! socket for no longer than the socket's write timeout says; a stream on which a write has failed writes no more,
//! because a part of a record may have left.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use rustls::Connection;

use crate::error::HandshakeError;

/// Bytes that one read takes from the socket.
const READ_BYTES: usize = 4096;
/// Bytes that are sealed before the next ones: one record.
const WRITE_BYTES: usize = 16 << 10;

/// A connection whose other end is known. A clone is the same connection.
#[derive(Clone)]
pub struct SecureStream(Arc<Shared>);

struct Shared {
    socket: TcpStream,
    tls: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// Bytes of the socket that are not opened yet: what is opened is read first, so that a peer fills no memory.
struct Incoming {
    bytes: Box<[u8; READ_BYTES]>,
    unopened: Range<usize>,
}

#[derive(Default)]
struct Outgoing {
    /// Records on their way to the socket.
    records: Vec<u8>,
    has_failed: bool,
}

impl SecureStream {
    pub(crate) fn new(tls: Connection, socket: TcpStream) -> Self {
        Self(Arc::new(Shared {
            socket,
            tls: Mutex::new(tls),
            incoming: Mutex::new(Incoming { bytes: Box::new([0; READ_BYTES]), unopened: 0..0 }),
            outgoing: Mutex::new(Outgoing::default()),
        }))
    }

    /// The socket below, for its addresses and timeouts. What is read from or written to it is lost to the connection.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.0.socket
    }

    /// Ends the connection for both sides. A reader that waits gets an end, or an error.
    pub fn shutdown(&self) -> io::Result<()> {
        // A writer that waits for a peer that does not read is not waited for: its end is abrupt.
        if let Some(mut outgoing) = free(self.0.outgoing.try_lock()) {
            lock(&self.0.tls).send_close_notify();
            self.0.seal(&mut outgoing);
            let _ = self.0.socket.set_nonblocking(true).and_then(|()| (&self.0.socket).write(&outgoing.records));
            outgoing.has_failed = true;
        }
        self.0.socket.shutdown(Shutdown::Both)
    }
}

impl Read for &SecureStream {
    /// Waits for no longer than the socket's read timeout says.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut incoming = lock(&self.0.incoming);
        loop {
            match lock(&self.0.tls).reader().read(bytes) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            if incoming.unopened.is_empty() {
                incoming.unopened = 0..(&self.0.socket).read(incoming.bytes.as_mut())?;
            }
            let unopened = incoming.unopened.clone();
            incoming.unopened.start += self.0.open(&incoming.bytes[unopened])?;
        }
    }
}

impl Write for &SecureStream {
    /// Seals some bytes and hands them to the socket, all of them: an error is the end of what can be written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut outgoing = lock(&self.0.outgoing);
        if outgoing.has_failed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let count = lock(&self.0.tls).writer().write(&bytes[..bytes.len().min(WRITE_BYTES)])?;
        self.0.seal(&mut outgoing);
        self.0.send(&mut outgoing)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    /// Takes some of the bytes of the socket and says how many; no bytes say that it has ended.
    fn open(&self, mut received: &[u8]) -> io::Result<usize> {
        let mut tls = lock(&self.tls);
        let count = tls.read_tls(&mut received)?;
        let opened = tls.process_new_packets();
        let has_answer = tls.wants_write();
        drop(tls);
        if has_answer {
            self.answer();
        }
        opened.map(|_| count).map_err(|error| match HandshakeError::of(&error) {
            // It has looked at this end's certificate only now.
            refused @ (HandshakeError::Refused(_) | HandshakeError::Revoked) => {
                io::Error::new(ErrorKind::PermissionDenied, refused)
            }
            other => io::Error::new(ErrorKind::InvalidData, other),
        })
    }

    /// Sends what the protocol itself has to say, unless a writer is at it: then it goes with what is written next.
    fn answer(&self) {
        if let Some(mut outgoing) = free(self.outgoing.try_lock())
            && !outgoing.has_failed
        {
            self.seal(&mut outgoing);
            let _ = self.send(&mut outgoing);
        }
    }

    fn seal(&self, outgoing: &mut Outgoing) {
        let mut tls = lock(&self.tls);
        while tls.wants_write() {
            tls.write_tls(&mut outgoing.records).expect("a vector takes all that is written");
        }
    }

    fn send(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let sent = (&self.socket).write_all(&outgoing.records);
        outgoing.records.clear();
        outgoing.has_failed = sent.is_err();
        sent
    }
}

impl fmt::Debug for SecureStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SecureStream").field(&self.0.socket).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free<'lock, T>(
    tried: Result<MutexGuard<'lock, T>, TryLockError<MutexGuard<'lock, T>>>,
) -> Option<MutexGuard<'lock, T>> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
