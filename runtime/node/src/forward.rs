//! Requests that a data thread does not execute itself, and the way back for their answers.
//!
//! The slow path and the extend path are a thread each, with a [`Desk`] where data threads put requests. An answer goes
//! to where the request came from: a datagram straight to its sender, a stream through the inbox of the thread that has it.

use std::net::UdpSocket;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use rustix::net::SendFlags;
use yonder_datagram::{Address, DATAGRAM_BYTES_MAX};
use yonder_wire::MESSAGE_BYTES_MAX;

use crate::event_loop::{Arrival, Inbox};

/// Requests that may wait at a desk.
const WAITING_MAX: usize = 1024;

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(crate) enum AnswerTo {
    /// To a peer, from the socket that received the request.
    Datagram { socket: Arc<UdpSocket>, to: Address },
    /// To a connection of an event loop.
    Stream { inbox: Arc<Inbox>, token: u64 },
}

impl AnswerTo {
    /// Most bytes of an answer.
    pub(crate) fn bytes_max(&self) -> usize {
        match self {
            Self::Datagram { .. } => MESSAGE_BYTES_MAX.min(DATAGRAM_BYTES_MAX),
            Self::Stream { .. } => MESSAGE_BYTES_MAX,
        }
    }

    /// Sends `answer`, one whole message, without waiting. A datagram that does not get through is sent again when its
    /// request is.
    pub(crate) fn send(self, answer: &[u8]) {
        match self {
            Self::Datagram { socket, to } => {
                if let Some(to) = to.to_socket_addr()
                    && let Err(error) = rustix::net::sendto(&*socket, answer, SendFlags::DONTWAIT, &to)
                {
                    tracing::debug!("an answer to {to} was not sent: {error}");
                }
            }
            Self::Stream { inbox, token } => inbox.send(Arrival::Answer { token, bytes: answer.into() }),
        }
    }
}

/// A request and where its answer goes.
#[derive(Debug)]
pub(crate) struct Forwarded {
    /// The whole message.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) answer_to: AnswerTo,
}

/// Where requests wait for the one thread that executes them.
#[derive(Debug)]
pub(crate) struct Desk {
    waiting: ArrayQueue<Forwarded>,
    /// The thread, once it runs.
    clerk: OnceLock<Thread>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self { waiting: ArrayQueue::new(WAITING_MAX), clerk: OnceLock::new() }
    }

    /// Makes the calling thread the one that is woken.
    pub(crate) fn attend(&self) {
        let taken = self.clerk.set(std::thread::current());
        assert!(taken.is_ok(), "a desk has one thread");
    }

    /// Puts a copy of `message`, a whole one, on the desk; false if there is no room.
    pub(crate) fn put(&self, message: &[u8], answer_to: AnswerTo) -> bool {
        let forwarded = Forwarded { bytes: message.into(), answer_to };
        let has_room = self.waiting.push(forwarded).is_ok();
        self.wake();
        has_room
    }

    /// The request that has waited longest.
    pub(crate) fn take(&self) -> Option<Forwarded> {
        self.waiting.pop()
    }

    /// Makes the thread look at its desk, its deadlines and the order to stop.
    pub(crate) fn wake(&self) {
        if let Some(clerk) = self.clerk.get() {
            clerk.unpark();
        }
    }
}
