//! The control connection: allocation, release and discard, one blocking request at a time.
//!
//! [`Connected`] is one open session over any stream; [`Control`] keeps one for a fabric, reconnects it when it is used
//! after a loss, and repeats what can be repeated. Never on the fault path.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use yonder_wire::{ErrorCode, Greeting, Header, Kind, MessageBuffer, Welcome, WireError};

use crate::identity::{Forgotten, Identity};
use crate::{FabricError, RemoteAddress};

/// Longest wait for a connection, or for the answer to one request.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most bytes that one release or discard is about, so that the node can answer it within [`WAIT_MAX`].
const REQUEST_RANGE_MAX: u64 = 1 << 30;
/// Room for the answers of a control connection, which carry at most a welcome.
const BUFFER_BYTES: usize = 4096;
/// The queue pair that stands for the control connection.
const CONTROL_QUEUE_PAIR: u32 = 0;

/// A stream that a session can run over.
pub(crate) trait Stream: Read + Write + AsFd + Send {}
impl<S: Read + Write + AsFd + Send> Stream for S {}

/// Why a session did not open, or a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Forgotten(#[from] Forgotten),
    #[error("{0}")]
    Refused(ErrorCode),
    #[error("it sent an unexpected {0:?} message")]
    Unexpected(Kind),
    #[error("the connection is lost, and with it the far memory")]
    Lost,
}

/// An open session.
pub(crate) struct Connected<S: ?Sized> {
    received: MessageBuffer,
    requests: u64,
    stream: Box<S>,
}

impl<S: Stream + 'static> Connected<S> {
    /// The same session over a stream of any type.
    pub(crate) fn erase(self) -> Connected<dyn Stream> {
        Connected { received: self.received, requests: self.requests, stream: self.stream }
    }
}

impl<S: Stream + ?Sized> Connected<S> {
    /// Opens a session of `queue_pair` over a fresh stream.
    pub(crate) fn open(stream: Box<S>, identity: &Identity, queue_pair: u32) -> Result<(Self, Welcome), SessionError> {
        let mut connected = Self { received: MessageBuffer::new(BUFFER_BYTES), requests: 0, stream };
        let greeting = identity.greeting(queue_pair).to_bytes();
        let hello = Header::request(Kind::Hello, 0, 0, Greeting::BYTES as u64);
        connected.send(&hello, &greeting)?;
        let welcome = connected.receive(Kind::HelloAck, 0, |_, payload| Welcome::from_bytes(payload))??;
        identity.accept(&welcome)?;
        Ok((connected, welcome))
    }

    /// The stream, when the session goes on elsewhere.
    pub(crate) fn into_stream(self) -> Box<S> {
        self.stream
    }

    /// The stream.
    pub(crate) fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends a request and waits for its answer of kind `answer`, whose header is returned.
    fn request(&mut self, kind: Kind, address: u64, length: u64, answer: Kind) -> Result<Header, SessionError> {
        self.requests += 1;
        self.send(&Header::request(kind, self.requests, address, length), &[])?;
        self.receive(answer, self.requests, |header, _| *header)
    }

    /// Whether the peer has closed the connection, or has sent what nobody waits for.
    fn is_stale(&self) -> bool {
        let peeked = rustix::net::recv(self.stream.as_fd(), &mut [0u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !self.received.is_empty() || !matches!(peeked, Err(Errno::AGAIN))
    }

    fn send(&mut self, header: &Header, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&[&header.seal(payload)[..], payload].concat())
    }

    fn receive<T>(
        &mut self,
        kind: Kind,
        request_id: u64,
        take: impl FnOnce(&Header, &[u8]) -> T,
    ) -> Result<T, SessionError> {
        while self.received.message()?.is_none() {
            match self.stream.read(self.received.room()) {
                Ok(0) => return Err(io::Error::other("it closed the connection").into()),
                Ok(bytes) => self.received.received(bytes),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("it does not answer").into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let message = self.received.message()?.expect("the loop ends when a message is there");
        let bytes = message.bytes();
        message.verify()?;
        let header = message.header;
        let taken = match header.kind {
            Kind::Error => Err(SessionError::Refused(header.code)),
            seen if seen != kind || header.request_id != request_id => Err(SessionError::Unexpected(seen)),
            _ => Ok(take(&header, message.payload)),
        };
        self.received.consume(bytes);
        taken
    }
}

/// How a lost control connection is made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redial {
    /// By connecting to this address.
    Tcp(SocketAddr),
    /// Not at all: the memory went with the connection.
    Never,
}

/// Whether a request may reach the node twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Repeat {
    Once,
    UntilAnswered,
}

/// The control connection of a fabric.
pub(crate) struct Control {
    url: String,
    identity: Arc<Identity>,
    redial: Redial,
    connected: Mutex<Option<Connected<dyn Stream>>>,
}

impl Control {
    /// Takes over an open session of [`CONTROL_QUEUE_PAIR`].
    pub(crate) fn new(url: &str, identity: Arc<Identity>, redial: Redial, connected: Connected<dyn Stream>) -> Self {
        Self { url: url.to_owned(), identity, redial, connected: Mutex::new(Some(connected)) }
    }

    /// Opens the session of a control connection over a fresh stream.
    pub(crate) fn greet<S: Stream + 'static>(
        stream: S,
        identity: &Identity,
    ) -> Result<(Connected<S>, Welcome), SessionError> {
        Connected::open(Box::new(stream), identity, CONTROL_QUEUE_PAIR)
    }

    /// The URL of the fabric.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// As [`crate::Fabric::allocate`]. Not repeated when the answer is lost: the node may have allocated.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<RemoteAddress, FabricError> {
        match self.request(Kind::Allocate, 0, bytes, Kind::AllocateAck, Repeat::Once) {
            Ok(header) => Ok(RemoteAddress(header.address)),
            Err(SessionError::Refused(ErrorCode::OutOfMemory)) => {
                Err(FabricError::OutOfMemory { url: self.url.clone(), bytes })
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// As [`crate::Fabric::release`].
    pub(crate) fn release(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.for_range(Kind::Release, Kind::ReleaseAck, start, bytes)
    }

    /// As [`crate::Fabric::discard`].
    pub(crate) fn discard(&self, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        self.for_range(Kind::Discard, Kind::DiscardAck, start, bytes)
    }

    fn for_range(&self, kind: Kind, answer: Kind, start: RemoteAddress, bytes: u64) -> Result<(), FabricError> {
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(REQUEST_RANGE_MAX);
            self.request(kind, start.0 + done, part, answer, Repeat::UntilAnswered)
                .map_err(|error| self.failed(&error))?;
            done += part;
        }
        Ok(())
    }

    /// One request, on a connection that is made again if it was lost, and once more if it is lost meanwhile.
    fn request(
        &self,
        kind: Kind,
        address: u64,
        length: u64,
        answer: Kind,
        repeat: Repeat,
    ) -> Result<Header, SessionError> {
        if self.identity.is_lost() {
            return Err(self.loss());
        }
        let mut guard = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.as_ref().is_some_and(Connected::is_stale) {
            *guard = None;
        }
        let first = self.attempt(&mut guard, kind, address, length, answer);
        let lost = matches!(&first, Err(SessionError::Io(_) | SessionError::Wire(_) | SessionError::Unexpected(_)));
        if !lost || repeat == Repeat::Once {
            return first;
        }
        match self.attempt(&mut guard, kind, address, length, answer) {
            // The first attempt had reached the node, and only its answer was lost.
            Err(SessionError::Refused(ErrorCode::BadAddress)) if kind == Kind::Release => {
                Ok(Header::request(kind, 0, address, length).answer(answer))
            }
            second => second,
        }
    }

    fn attempt(
        &self,
        slot: &mut Option<Connected<dyn Stream>>,
        kind: Kind,
        address: u64,
        length: u64,
        answer: Kind,
    ) -> Result<Header, SessionError> {
        let mut connected = match slot.take() {
            Some(connected) => connected,
            None => self.reconnect()?,
        };
        let answered = connected.request(kind, address, length, answer);
        if matches!(answered, Ok(_) | Err(SessionError::Refused(_))) {
            *slot = Some(connected);
        }
        answered
    }

    fn reconnect(&self) -> Result<Connected<dyn Stream>, SessionError> {
        match self.redial {
            Redial::Tcp(address) => {
                let stream: Box<dyn Stream> = Box::new(dial(address)?);
                Connected::open(stream, &self.identity, CONTROL_QUEUE_PAIR).map(|(connected, _)| connected)
            }
            Redial::Never => {
                self.identity.lose();
                Err(self.loss())
            }
        }
    }

    fn loss(&self) -> SessionError {
        match self.redial {
            Redial::Tcp(_) => Forgotten.into(),
            Redial::Never => SessionError::Lost,
        }
    }

    fn failed(&self, error: &SessionError) -> FabricError {
        let (url, cause) = (self.url.clone(), error.to_string());
        match error {
            SessionError::Refused(_) => FabricError::System { url, cause },
            _ => FabricError::Unreachable { url, cause },
        }
    }
}

/// A blocking connection whose every wait is bounded.
pub(crate) fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    Ok(stream)
}
