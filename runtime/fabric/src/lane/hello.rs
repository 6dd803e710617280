//! Greeting a node: the blocking start of every lane.

use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use yonder_datagram::peer::Peer;
use yonder_identity::{HandshakeError, IdentityError};
use yonder_units::Narrow;
use yonder_wire::{
    Body, Direction, ErrorCode, Greeting, HEADER_BYTES, Header, Kind, MessageBuffer, PROOF_BYTES, Welcome, WireError,
    split, split_proven,
};

use super::protection::Protector;

/// Longest wait for a connection, or for the welcome.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time after which a greeting by datagram is sent again.
const GREET_AGAIN: Duration = Duration::from_millis(200);
/// First byte of a plain message.
const PLAIN_LEAD: u8 = b'Y';
/// Room for a greeting, protected or not.
const HELLO_BYTES: usize = HEADER_BYTES + Greeting::BYTES + PROOF_BYTES;
/// A greeting, and room.
pub(super) type Hello = [u8; HELLO_BYTES];
/// Room for a welcome.
const BUFFER_BYTES: usize = 4096;

/// Why a lane did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system's word.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What came back makes no sense.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The files that say who this client is cannot be used.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// Node and client do not know each other.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// The node lets handshakes go, or is asked for them where it does not listen: it may be one without an identity.
    #[error(
        "{0}; if the node has no identity and no key, leave those of this program out (YONDER_IDENTITY, YONDER_KEY, \
         --identity, --key)"
    )]
    NoSession(Box<Self>),
    /// A node's name is asked for, and nothing would show it.
    #[error("a node shows its name to members alone: type YONDER_IDENTITY=FILE in front, or leave ?name= out")]
    Unnamed,
    /// The node refused the greeting.
    #[error("{0}")]
    Refused(ErrorCode),
    /// The node sent something else than a welcome.
    #[error("it sent an unexpected {0:?} message")]
    Unexpected(Kind),
    /// The node is not the one that had this client's memory.
    #[error(
        "the node was restarted, this client was away for too long, or its identity was revoked: its far memory is lost"
    )]
    Forgotten,
    /// Who listens on this machine is neither this user nor root.
    #[error("a process of user {0} listens there, who would have all that is kept there: start a node of your own")]
    Stranger(u32),
    /// The file that came with the welcome can be made shorter, which would end whoever touches what was cut off.
    #[error("the memory that it hands over may be cut off at any time: it is no node of this release")]
    Unsealed,
}

/// A stream whose peer has welcomed this client, and the descriptor that came with the welcome, if one did.
pub(crate) struct Greeted {
    pub(crate) socket: OwnedFd,
    pub(crate) welcome: Welcome,
    pub(crate) file: Option<OwnedFd>,
}

/// Connects to a node over the network and greets it.
pub(super) fn dial_tcp(address: SocketAddr, protector: &mut Option<Protector>) -> Result<Greeted, OpenError> {
    let mut stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let (hello, bytes) = hello(None, protector)?;
    stream.write_all(&hello[..bytes])?;
    let welcome = read_welcome(&mut stream, protector)?;
    settle(protector, &welcome)?;
    Ok(Greeted { socket: stream.into(), welcome, file: None })
}

/// Connects to a node on this machine and greets it.
pub(crate) fn dial_unix(path: &Path) -> Result<Greeted, OpenError> {
    let socket = UnixStream::connect(path)?;
    let (uid, own) = (Peer::of(&socket)?.uid, rustix::process::geteuid().as_raw());
    if uid != own && uid != 0 {
        return Err(OpenError::Stranger(uid));
    }
    socket.set_read_timeout(Some(WAIT_MAX))?;
    socket.set_write_timeout(Some(WAIT_MAX))?;
    let mut stream = DescriptorStream { socket, file: None };
    let (hello, bytes) = hello(None, &mut None)?;
    let said = stream.socket.write_all(&hello[..bytes]);
    // A node that refuses this user has not waited for the greeting.
    let welcome = match (read_welcome(&mut stream, &mut None), said) {
        (Ok(welcome), _) => welcome,
        (Err(OpenError::Io(_)), Err(error)) => return Err(error.into()),
        (Err(refused), _) => return Err(refused),
    };
    Ok(Greeted { socket: stream.socket.into(), welcome, file: stream.file })
}

/// A socket for datagrams to a node that has answered a greeting, and the cookie of its address.
pub(super) fn dial_udp(
    address: SocketAddr,
    protector: &mut Option<Protector>,
) -> Result<(UdpSocket, Welcome, u64), OpenError> {
    let any = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A session is good for one address of ours.
    let own = protector.as_ref().map_or(any, |protector| protector.own());
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(GREET_AGAIN))?;
    let mut received = [0; BUFFER_BYTES];
    let end = Instant::now() + WAIT_MAX;
    let mut problem = OpenError::Io(io::Error::other("it does not answer"));
    while Instant::now() < end {
        let (hello, bytes) = hello(None, protector)?;
        socket.send(&hello[..bytes])?;
        match socket.recv(&mut received) {
            Ok(bytes) => match welcome_in(&mut received[..bytes], protector) {
                Ok(Some((welcome, _))) => {
                    settle(protector, &welcome)?;
                    socket.set_read_timeout(None)?;
                    return Ok((socket, welcome, cookie_in(&received)));
                }
                Ok(None) => {}
                // Damaged on its way, or meant for the socket that had this port before: the next answer may be right.
                Err(error) => problem = error,
            },
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(problem)
}

/// From now on everything is for the thread that has welcomed the lane.
pub(super) fn settle(protector: &mut Option<Protector>, welcome: &Welcome) -> Result<(), WireError> {
    Ok(protector.as_mut().map_or(Ok(()), |protector| protector.settle(welcome.home))?)
}

/// The greeting as it is sent, and its length.
pub(super) fn hello(home: Option<u32>, protector: &mut Option<Protector>) -> io::Result<(Hello, usize)> {
    let mut message = [0; HELLO_BYTES];
    let bytes = HELLO_BYTES - PROOF_BYTES;
    let (head, payload) = message[..bytes].split_at_mut(HEADER_BYTES);
    Greeting { home }.write_to(payload);
    head.copy_from_slice(&Header::request(Kind::Hello, 1, 0, Greeting::BYTES.narrow_u32()).seal(payload));
    let bytes = match protector {
        None => Some(bytes),
        Some(protector) => protector.seal(&mut message, bytes, yonder_clock::now()),
    };
    let bytes = bytes.ok_or_else(|| io::Error::other("the lane has sent all that its session lets it"))?;
    Ok((message, bytes))
}

/// The welcome that `received` begins with, and its length there; `None` until it is there as a whole.
pub(super) fn welcome_in(
    received: &mut [u8],
    protector: &mut Option<Protector>,
) -> Result<Option<(Welcome, usize)>, OpenError> {
    // A node that does not know this client says so in plain.
    let is_protected = received.first().is_some_and(|lead| *lead != PLAIN_LEAD);
    let (message, taken) = match protector.as_mut().filter(|_| is_protected) {
        None => {
            let Some(message) = split(received)? else { return Ok(None) };
            let taken = message.bytes();
            (message, taken)
        }
        Some(protector) => {
            let opened = protector.open(received, yonder_clock::now()).map_err(WireError::from)?;
            let Some((bytes, taken)) = opened else { return Ok(None) };
            (split_proven(&received[..bytes])?.ok_or(WireError::Length(bytes))?, taken)
        }
    };
    message.verify()?;
    let header = &message.header;
    if header.kind != Kind::Hello || header.direction != Direction::Answer {
        return Err(OpenError::Unexpected(header.kind));
    }
    if header.is_refusal() {
        return Err(OpenError::Refused(header.code));
    }
    if protector.is_some() && !message.is_proven() {
        return Err(OpenError::Wire(WireError::Checksum));
    }
    Ok(Some((Welcome::from_bytes(message.payload)?, taken)))
}

/// The cookie in the header at the start of `received`, which was looked at.
fn cookie_in(received: &[u8]) -> u64 {
    split(received).ok().flatten().map_or(0, |message| message.header.cookie)
}

fn read_welcome(stream: &mut impl Read, protector: &mut Option<Protector>) -> Result<Welcome, OpenError> {
    let mut received = MessageBuffer::new(BUFFER_BYTES);
    loop {
        match stream.read(received.room()) {
            Ok(0) => return Err(io::Error::other("it closed the connection").into()),
            Ok(bytes) => received.received(bytes),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other("it does not answer").into());
            }
            Err(error) => return Err(error.into()),
        }
        if let Some((welcome, bytes)) = welcome_in(received.pending_mut(), protector)? {
            // Nothing was asked yet, so nothing more can have been answered.
            if bytes < received.pending().len() {
                return Err(io::Error::other("it answers what nobody asked").into());
            }
            return Ok(welcome);
        }
    }
}

/// A local stream that keeps the descriptor its peer sends.
struct DescriptorStream {
    socket: UnixStream,
    file: Option<OwnedFd>,
}

impl Read for DescriptorStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(into)];
        let received = rustix::net::recvmsg(self.socket.as_fd(), slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.file = files.last().or(self.file.take());
            }
        }
        Ok(received.bytes)
    }
}
