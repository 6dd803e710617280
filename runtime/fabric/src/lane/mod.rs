//! [`Lane`]: one flow of one thread to one memory node, over a socket.
//!
//! `core/client` decides what is sent and when; here are the sockets. A lane is polled: [`Lane::poll`] sends what may
//! be sent and takes what has arrived, and neither blocks, locks nor allocates; [`Lane::wait`] sleeps until there may
//! be something to poll for. The bytes of reads and writes stay with the lane's owner, who implements [`Data`].
//!
//! `hello` opens lanes, `stream` and `datagram` are the two kinds of links, `session` is what all lanes to a node know
//! about it.

mod address;
mod call;
mod datagram;
mod hello;
mod protection;
mod session;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use rustix::event::{PollFd, PollFlags, Timespec};
use yonder_client::{Client, Completion, Config, Operation, OperationId, Payload, Received, SubmitError, Transport};
use yonder_datagram::DATAGRAM_BYTES_MAX;
use yonder_session::Door;
use yonder_units::Nanos;
use yonder_wire::{
    DISCARD_BYTES_MAX, HEADER_BYTES, Header, Message, PAYLOAD_BYTES_MAX, PROOF_BYTES, Welcome, split_proven,
};

use datagram::DatagramLink;
use protection::Protector;
use stream::{Arrival, StreamLink};

pub use address::NodeAddress;
pub use call::{Answer, CALL_TIME_MAX, CallError, await_aborts, call};
pub use hello::OpenError;
pub use session::NodeSession;
use session::Traffic;

/// Most payload bytes of a message on a stream: a few pages, so that a long read does not hold up a short one for long.
const STREAM_FRAGMENT_BYTES: usize = 32 << 10;
/// Longest sleep, so that an owner sees what other threads have changed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// The bytes of operations, which belong to the owner of a lane. Operations are named by their tokens.
pub trait Data {
    /// Copies the bytes from `offset` of what an operation writes into `into`.
    fn copy_out(&mut self, token: u64, offset: u64, into: &mut [u8]);

    /// Takes `bytes`, which are those from `offset` of what an operation reads.
    fn copy_in(&mut self, token: u64, offset: u64, bytes: &[u8]);

    /// Takes the answer to an operation that is neither read, write nor atomic. Its completion follows.
    fn answer(&mut self, token: u64, header: &Header, payload: &[u8]);
}

/// Whether requests reach the node, as far as a lane can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// They do.
    Up,
    /// The connection is lost, or nobody listens there. It is tried again at each poll.
    Down,
}

/// One flow to a node.
#[derive(Debug)]
pub struct Lane {
    client: Client,
    link: Link,
    condition: Condition,
    session: Arc<NodeSession>,
    traffic: Arc<Traffic>,
}

#[derive(Debug)]
enum Link {
    Datagram(DatagramLink),
    Stream(StreamLink),
}

impl Link {
    /// Whether this process may send on it: a forked child may not use what its parent's messages are protected with.
    #[inline]
    fn is_own(&self) -> bool {
        let protector = match self {
            Self::Datagram(link) => link.protector(),
            Self::Stream(link) => link.protector.as_ref(),
        };
        protector.is_none_or(|protector| protector.is_own())
    }
}

/// What opening a lane gives.
#[derive(Debug)]
pub struct Opened {
    /// The lane.
    pub lane: Lane,
    /// What the node said of itself.
    pub welcome: Welcome,
    /// The node's memory, if it is on this machine and hands it out.
    pub memory: Option<OwnedFd>,
}

impl Lane {
    /// Opens a lane for at most `operations_max` operations at a time. Blocks for some seconds at most.
    pub fn open(address: &NodeAddress, operations_max: usize, session: &Arc<NodeSession>) -> Result<Opened, OpenError> {
        Self::open_with(address, session, |config| Config { operations_max, ..config })
    }

    /// As [`Lane::open`], with the limits that `adjust` makes of the usual ones.
    pub(crate) fn open_with(
        address: &NodeAddress,
        session: &Arc<NodeSession>,
        adjust: impl FnOnce(Config) -> Config,
    ) -> Result<Opened, OpenError> {
        let mut cookie = 0;
        let (link, welcome, memory, config) = match address {
            NodeAddress::Udp(address) => {
                let mut protector = protector(session, *address, Door::Datagrams)?;
                let (socket, welcome, proof) = hello::dial_udp(*address, &mut protector)?;
                cookie = proof;
                let (link, fitted) = DatagramLink::new(socket, protector, client_config(Transport::Datagram)?)?;
                (Link::Datagram(link), welcome, None, fitted)
            }
            NodeAddress::Tcp(address) => {
                let mut protector = protector(session, *address, Door::Streams)?;
                let greeted = hello::dial_tcp(*address, &mut protector)?;
                Self::over_stream(greeted, Some(*address), protector, session)?
            }
            NodeAddress::Unix(path) => Self::over_stream(hello::dial_unix(path)?, None, None, session)?,
        };
        if !session.accept(&welcome) {
            return Err(OpenError::Forgotten);
        }
        let config = Config { discard_bytes: discard_bytes(&welcome), ..config };
        let mut client = Client::new(adjust(config));
        client.prove(cookie);
        let lane =
            Self { client, link, condition: Condition::Up, session: Arc::clone(session), traffic: session.join() };
        Ok(Opened { lane, welcome, memory })
    }

    #[allow(clippy::type_complexity)]
    fn over_stream(
        mut greeted: hello::Greeted,
        address: Option<SocketAddr>,
        protector: Option<Protector>,
        session: &Arc<NodeSession>,
    ) -> Result<(Link, Welcome, Option<OwnedFd>, Config), OpenError> {
        let (welcome, memory) = (greeted.welcome, greeted.file.take());
        let config = Config { fragment_bytes: STREAM_FRAGMENT_BYTES, ..client_config(Transport::Stream)? };
        let link = StreamLink::new(greeted, address, protector, Arc::clone(session))?;
        Ok((Link::Stream(link), welcome, memory, config))
    }

    /// Takes an operation; it is sent by the next poll.
    #[inline]
    pub fn submit(&mut self, operation: &Operation<'_>, now: Nanos) -> Result<OperationId, SubmitError> {
        self.client.submit(operation, now)
    }

    /// Takes a fence: it completes when everything before it is over, and nothing after it is sent before.
    pub fn fence(&mut self, token: u64, now: Nanos) -> Result<OperationId, SubmitError> {
        self.client.fence(token, now)
    }

    /// Gives an operation up; see [`Client::cancel`].
    pub fn cancel(&mut self, id: OperationId) {
        self.client.cancel(id);
    }

    /// The next completion.
    #[inline]
    pub fn completion(&mut self) -> Option<Completion> {
        self.client.completion()
    }

    /// Operations whose completion has not been taken.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.client.outstanding()
    }

    /// Whether there is nothing to send, to wait for or to take: neither operations nor what ends those given up.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.client.idle()
    }

    /// By when a poll has more to do than to take what has arrived: at once, if something is to be sent.
    #[must_use]
    pub fn next_poll(&self) -> Nanos {
        if self.client.has_unsent() || self.condition == Condition::Down {
            return 0;
        }
        self.client.timeout().unwrap_or(Nanos::MAX)
    }

    /// Whether an operation that was given up may still change what is there; see [`Client::may_still_change`].
    #[must_use]
    pub fn may_still_change(&self, pid: u32, address: u64, bytes: u64) -> bool {
        // Of a node that is lost for good nothing is anybody's.
        !self.session.is_lost() && self.client.may_still_change(pid, address, bytes)
    }

    /// Whether another operation can be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.client.has_room()
    }

    /// Most bytes of a payload that one message carries; operations that are cut may have more.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        match self.link {
            Link::Datagram(_) => PAYLOAD_BYTES_MAX.min(DATAGRAM_BYTES_MAX - HEADER_BYTES - PROOF_BYTES),
            Link::Stream(_) => PAYLOAD_BYTES_MAX,
        }
    }

    /// As [`Client::answers_heard`].
    #[must_use]
    pub fn answers_heard(&self) -> u64 {
        self.client.answers_heard()
    }

    /// What the lane has seen.
    #[must_use]
    pub fn stats(&self) -> yonder_client::Stats {
        self.client.stats()
    }

    /// Whether requests reached the node at the last poll.
    #[must_use]
    pub fn condition(&self) -> Condition {
        self.condition
    }

    /// What all lanes to the node know about it.
    #[must_use]
    pub fn session(&self) -> &Arc<NodeSession> {
        &self.session
    }

    /// Another descriptor of the socket, to watch it.
    pub(crate) fn clone_socket(&self) -> io::Result<OwnedFd> {
        let socket = match &self.link {
            Link::Datagram(link) => Some(link.socket()),
            Link::Stream(link) => link.socket(),
        };
        socket.ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()
    }

    /// Sends what may be sent and takes what has arrived. `now` is the time of [`yonder_clock`].
    pub fn poll(&mut self, now: Nanos, data: &mut impl Data) -> Condition {
        if self.session.is_lost() || !self.link.is_own() {
            self.client.abandon();
            return Condition::Down;
        }
        self.client.advance(now);
        self.condition = match &mut self.link {
            Link::Datagram(link) => link.exchange(&mut self.client, now, data),
            Link::Stream(link) => {
                let before = self.condition;
                match link.advance(now) {
                    Condition::Up => {
                        if before == Condition::Down {
                            self.client.reconnected(now);
                        }
                        exchange_on_stream(link, &mut self.client, now, data)
                    }
                    Condition::Down => Condition::Down,
                }
            }
        };
        self.traffic.set(&self.client.stats());
        self.condition
    }

    /// Sleeps until something may have arrived, a timer is due, or `longest` has passed.
    pub fn wait(&mut self, now: Nanos, longest: Duration) {
        let timer = self.client.timeout().map_or(SLEEP_MAX, |due| Duration::from_nanos(due.saturating_sub(now)));
        let pause = timer.min(longest).min(SLEEP_MAX);
        if pause.is_zero() {
            return;
        }
        let socket = match &mut self.link {
            Link::Datagram(link) => return link.wait(pause),
            Link::Stream(link) => link.socket(),
        };
        // Without a connection there is nothing to wait for but the next attempt.
        const DOWN_PAUSE: Duration = Duration::from_millis(1);
        match socket {
            Some(socket) if self.condition == Condition::Up => {
                sleep_on(&mut [PollFd::new(&socket, PollFlags::IN)], pause)
            }
            _ => sleep_on(&mut [], pause.min(DOWN_PAUSE)),
        }
    }
}

/// Sends and receives on a connection that stands.
fn exchange_on_stream(link: &mut StreamLink, client: &mut Client, now: Nanos, data: &mut impl Data) -> Condition {
    loop {
        if send_on_stream(link, client, now, data) == Condition::Down {
            return Condition::Down;
        }
        let arrival = link.receive(now);
        if arrival == Arrival::Broken {
            return Condition::Down;
        }
        let now = yonder_clock::now();
        if !take_from_stream(link, client, now, data) {
            link.fail(now);
            return Condition::Down;
        }
        if arrival == Arrival::Drained {
            // What has arrived may have let more be sent.
            return send_on_stream(link, client, now, data);
        }
    }
}

/// Composes what may be sent, for as long as the socket takes it.
fn send_on_stream(link: &mut StreamLink, client: &mut Client, now: Nanos, data: &mut impl Data) -> Condition {
    loop {
        while let Some(room) = link.requests.room_for_message() {
            let Some(bytes) = compose(client, &mut link.protector, now, data, room) else { break };
            link.requests.composed(bytes);
        }
        if link.requests.is_empty() {
            return Condition::Up;
        }
        if link.send(now) == Condition::Down {
            return Condition::Down;
        }
        if !link.requests.is_empty() {
            return Condition::Up;
        }
    }
}

/// Handles the whole messages that are there; they had arrived at `now`. False if the bytes are no messages.
fn take_from_stream(link: &mut StreamLink, client: &mut Client, now: Nanos, data: &mut impl Data) -> bool {
    loop {
        let opened = match &mut link.protector {
            Some(protector) => protector.open(link.received.pending_mut(), now),
            None => match link.received.message() {
                Ok(message) => Ok(message.map(|message| (message.bytes(), message.bytes()))),
                Err(_) => return false,
            },
        };
        let (bytes, taken) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let message = match &link.protector {
            Some(_) => split_proven(&link.received.pending()[..bytes]),
            None => link.received.message(),
        };
        // A stream that damages messages is not worth keeping.
        let Some(message) = message.ok().flatten().filter(|message| message.verify().is_ok()) else { return false };
        take(client, &message, now, data);
        link.received.consume(taken);
    }
}

/// What a lane to the node at `address` protects its messages with, if it does. Makes a session if it must.
fn protector(session: &Arc<NodeSession>, address: SocketAddr, door: Door) -> Result<Option<Protector>, OpenError> {
    let Some((protector, incarnation)) = session.sessions.lane(address, door)? else { return Ok(None) };
    session.keep_renewed()?;
    if session.know(incarnation) { Ok(Some(protector)) } else { Err(OpenError::Forgotten) }
}

/// Composes the next message of `client` at the start of `room`, and returns its length.
#[inline]
fn compose(
    client: &mut Client,
    protector: &mut Option<Protector>,
    now: Nanos,
    data: &mut impl Data,
    room: &mut [u8],
) -> Option<usize> {
    let next = client.transmit(now)?;
    let (head, rest) = room.split_at_mut(HEADER_BYTES);
    let payload = match next.payload {
        Payload::None => &mut rest[..0],
        Payload::Inline(bytes) => {
            let payload = &mut rest[..bytes.len()];
            payload.copy_from_slice(bytes);
            payload
        }
        Payload::Caller { offset, length } => {
            let payload = &mut rest[..length];
            data.copy_out(next.token, offset, payload);
            payload
        }
    };
    head.copy_from_slice(&next.header.seal(payload));
    let bytes = HEADER_BYTES + payload.len();
    let bytes = match protector {
        None => bytes,
        Some(protector) => protector.seal(room, bytes, now)?,
    };
    client.count_sent(bytes);
    Some(bytes)
}

/// Hands a verified message to the client, and its bytes to the owner. `now` was read after the message had arrived:
/// else the client would take the node's clock for later than it is, and the node would put its next writes off.
#[inline]
fn take(client: &mut Client, message: &Message<'_>, now: Nanos, data: &mut impl Data) {
    match client.receive(message, now) {
        Received::Data { token, offset } => data.copy_in(token, offset, message.payload),
        Received::Answer { token } => data.answer(token, &message.header, message.payload),
        Received::Nothing => {}
    }
}

/// Limits for pages over `transport`, with a random beginning for the names of requests.
fn client_config(transport: Transport) -> io::Result<Config> {
    let mut random = [0; 8];
    OsRng.try_fill_bytes(&mut random).map_err(io::Error::other)?;
    Ok(Config::new(transport, u64::from_le_bytes(random) >> 1))
}

/// Most bytes of a discard that the node takes; of a node that says what no node is, the least.
fn discard_bytes(welcome: &Welcome) -> u64 {
    let is_page = welcome.page_bytes.is_power_of_two() && welcome.page_bytes <= 1 << 30;
    if is_page { welcome.page_bytes.max(DISCARD_BYTES_MAX) } else { DISCARD_BYTES_MAX }
}

/// Sleeps until one of the sockets is ready or `pause` is over.
fn sleep_on(interest: &mut [PollFd<'_>], pause: Duration) {
    let pause = Timespec::try_from(pause).ok();
    // An interruption is as good as the end of the pause: the caller polls and waits again.
    let _ = rustix::event::poll(interest, pause.as_ref());
}
