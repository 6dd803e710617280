//! Requests that a data thread does not execute itself, and the way back for their answers.
//!
//! The slow path and the extend path are a thread each, with a [`SlowPathQueue`] where data threads put requests and of
//! which it takes one in turn ([`Turns`]). What needs a capability was found to have one before it comes here. An
//! answer goes to where the request came from: a datagram straight to its sender, a stream through the inbox of the
//! thread that has it.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use rustix::net::SendFlags;
use yonder_board::{Source, needs_capability};
use yonder_datagram::{Address, DATAGRAM_BYTES_MAX};
use yonder_wire::{Header, MESSAGE_BYTES_MAX, Message, PROOF_BYTES};

use crate::event_loop::{Arrival, Inbox};
use crate::gate::{Gate, Wrap, tenant_of};
use crate::owned_message::OwnedMessage;
use crate::source;
use crate::turns::{Party, Turns};

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(crate) enum AnswerTo {
    /// To a peer, from the socket that received the request.
    Datagram { socket: Arc<UdpSocket>, to: Address, wrap: Wrap },
    /// To a connection of an event loop.
    Stream { inbox: Arc<Inbox>, token: u64, source: Source, wrap: Wrap, peer: Option<Arc<Peer>> },
}

/// A process on this machine that was handed the node's memory, and may have some of it mapped until it has gone. The
/// thread of its connection says so, and the slow path's reads it.
#[derive(Default, Debug)]
pub(crate) struct Peer {
    has_gone: AtomicBool,
}

impl Peer {
    /// It has closed its end of the connection, as the end of a process does after that of its mappings.
    pub(crate) fn go(&self) {
        self.has_gone.store(true, Ordering::Release);
    }

    /// Whether it has nothing mapped any more.
    pub(crate) fn has_gone(&self) -> bool {
        self.has_gone.load(Ordering::Acquire)
    }
}

/// Which lane a request came by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// That of a peer's socket, if the address can be told.
    Peer(Option<SocketAddr>),
    /// A connection: of which loop, and its token there.
    Connection(usize, u64),
    /// Any, from what may be this host.
    Stranger(Source),
}

impl AnswerTo {
    /// The process that will have the memory mapped that the answer tells the place of, if it can.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        match self {
            Self::Datagram { .. } => None,
            Self::Stream { peer, .. } => peer.as_ref(),
        }
    }

    /// The host or the user that the request came from, as far as can be told.
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Datagram { wrap, .. } | Self::Stream { wrap, .. } if wrap.tenant().is_some() => {
                tenant_of(*wrap).expect("it was just looked at")
            }
            Self::Datagram { to, .. } => {
                let unspecified = std::net::Ipv6Addr::UNSPECIFIED.into();
                source::of_address(to.to_socket_addr().map_or(unspecified, |to| to.ip()))
            }
            Self::Stream { source, .. } => *source,
        }
    }

    /// Whether it goes to a tenant that is known by name.
    pub(crate) fn is_of_tenant(&self) -> bool {
        match self {
            Self::Datagram { wrap, .. } | Self::Stream { wrap, .. } => wrap.tenant().is_some(),
        }
    }

    /// Who waits with `request`, and the lane that it came by.
    fn sender(&self, request: &Header) -> (Party, Lane) {
        let source = self.source();
        match self {
            Self::Datagram { wrap: Wrap::Plain, .. } if !needs_capability(request) => {
                (Party::Strangers, Lane::Stranger(source))
            }
            Self::Datagram { to, .. } => (Party::Host(source), Lane::Peer(to.to_socket_addr())),
            Self::Stream { inbox, token, .. } => {
                (Party::Host(source), Lane::Connection(Arc::as_ptr(inbox).addr(), *token))
            }
        }
    }

    /// Most bytes of an answer.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Datagram { wrap, .. } => MESSAGE_BYTES_MAX.min(DATAGRAM_BYTES_MAX) - wrap.bytes(),
            Self::Stream { .. } => MESSAGE_BYTES_MAX - PROOF_BYTES,
        }
    }

    /// Sends the answer of `bytes` at the start of `reply`, one whole message with room for a proof behind it, without
    /// waiting. A datagram that does not get through is sent again when its request is. The bytes that are to be
    /// charged: those of a stream are when its thread sends them.
    pub(crate) fn send(self, gate: &mut Gate, reply: &mut [u8], bytes: usize) -> usize {
        match self {
            Self::Datagram { socket, to, wrap } => {
                let bytes = gate.close(wrap, reply, bytes);
                if let Some(to) = to.to_socket_addr()
                    && let Err(error) = rustix::net::sendto(&*socket, &reply[..bytes], SendFlags::DONTWAIT, &to)
                {
                    tracing::debug!("an answer to {to} was not sent: {error}");
                }
                bytes
            }
            Self::Stream { inbox, token, .. } => {
                inbox.send(Arrival::Answer { token, bytes: reply[..bytes].into() });
                0
            }
        }
    }
}

/// A request and where its answer goes.
#[derive(Debug)]
pub(crate) struct Forwarded {
    pub(crate) message: OwnedMessage,
    /// Whose turn it is.
    pub(crate) party: Party,
    pub(crate) answer_to: AnswerTo,
}

/// Where requests wait for the one thread that executes them.
#[derive(Debug)]
pub(crate) struct SlowPathQueue {
    waiting: Mutex<Turns>,
    /// The thread, once it runs.
    server: OnceLock<Thread>,
}

impl SlowPathQueue {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::default(), server: OnceLock::new() }
    }

    /// Makes the calling thread the one that is woken.
    pub(crate) fn serve_on_this_thread(&self) {
        let taken = self.server.set(std::thread::current());
        assert!(taken.is_ok(), "a queue has one thread");
    }

    /// Puts a copy of `message` into the queue; false if there is no room.
    pub(crate) fn put(&self, message: &Message<'_>, answer_to: AnswerTo) -> bool {
        let (party, lane) = answer_to.sender(&message.header);
        let has_room =
            self.turns().put(party, lane, Forwarded { message: OwnedMessage::new(message), party, answer_to });
        self.wake();
        has_room
    }

    /// The request whose turn it is.
    pub(crate) fn take(&self) -> Option<Forwarded> {
        self.turns().next()
    }

    /// A request of a party has taken so long.
    pub(crate) fn charge(&self, party: Party, took: Duration) {
        self.turns().charge(party, took);
    }

    /// Held for as long as one request takes to be put in or taken out.
    fn turns(&self) -> std::sync::MutexGuard<'_, Turns> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread look at its queue, its deadlines and the order to stop.
    pub(crate) fn wake(&self) {
        if let Some(server) = self.server.get() {
            server.unpark();
        }
    }
}
