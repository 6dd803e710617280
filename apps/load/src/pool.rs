//! The connections of one loading thread: which has room, which has bytes to send, which is lost.
//!
//! Key type: [`Pool`]. Invariant: a usable connection is in `with_room` exactly once if its pipeline has room and not
//! at all if it is full, so the next connection is found without a search and they take turns.

use std::collections::VecDeque;
use std::io;

use mio::{Interest, Registry, Token};
use yonder_units::Nanos;

use crate::connection::{Connection, Lost};
use crate::ledger::Ledger;
use crate::pipeline::{Outcome, Request};

/// The connections of one thread.
pub(crate) struct Pool {
    connections: Vec<Option<Connection>>,
    with_room: VecDeque<usize>,
    /// Connections that may have bytes to send which no flush has tried to send yet.
    unsent: Vec<usize>,
    outstanding: usize,
    usable: usize,
}

/// A connection was lost, and with it these requests.
#[derive(Debug)]
pub(crate) struct LostConnection {
    pub(crate) unanswered: u64,
    pub(crate) cause: Lost,
}

impl Pool {
    /// Registers the connections: events of token `i` are for [`Pool::ready`] of `i`.
    pub(crate) fn new(mut connections: Vec<Connection>, registry: &Registry) -> io::Result<Self> {
        for (index, connection) in connections.iter_mut().enumerate() {
            registry.register(&mut connection.socket, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        }
        let usable = connections.len();
        Ok(Self {
            connections: connections.into_iter().map(Some).collect(),
            with_room: (0..usable).collect(),
            unsent: Vec::with_capacity(usable),
            outstanding: 0,
            usable,
        })
    }

    /// Whether some connection takes one more request.
    pub(crate) fn has_room(&self) -> bool {
        !self.with_room.is_empty()
    }

    /// Connections that take one more request.
    pub(crate) fn with_room(&self) -> usize {
        self.with_room.len()
    }

    /// Requests without a reply on all usable connections.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Connections that are not lost.
    pub(crate) fn usable(&self) -> usize {
        self.usable
    }

    /// Gives `request` to the connection whose turn it is. The caller has asked [`Pool::has_room`].
    pub(crate) fn push(&mut self, request: Request, ledger: &Ledger) {
        let index = self.with_room.pop_front().expect("the caller asked for room");
        let connection = self.connections[index].as_mut().expect("a lost connection has no room");
        if connection.pipeline.outgoing().is_empty() {
            self.unsent.push(index);
        }
        connection.pipeline.push(request, ledger);
        if connection.pipeline.has_room() {
            self.with_room.push_back(index);
        }
        self.outstanding += 1;
    }

    /// Sends what was pushed. A connection whose socket is full goes on when it is ready again.
    pub(crate) fn flush(&mut self, ledger: &Ledger, mut lost: impl FnMut(LostConnection)) {
        while let Some(index) = self.unsent.pop() {
            let Some(connection) = &mut self.connections[index] else { continue };
            if let Err(cause) = connection.flush() {
                lost(self.remove(index, ledger, cause));
            }
        }
    }

    /// Connection `index` is ready: sends what waits and takes every reply that has come.
    pub(crate) fn ready(
        &mut self,
        index: usize,
        ledger: &Ledger,
        clock: impl Fn() -> Nanos,
        mut answered: impl FnMut(Request, Outcome, Nanos),
    ) -> Result<(), LostConnection> {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return Ok(()) };
        let was_full = !connection.pipeline.has_room();
        let mut answers = 0;
        let result = connection.flush().and_then(|()| {
            connection.receive(ledger, clock, |request, outcome, now| {
                answers += 1;
                answered(request, outcome, now);
            })
        });
        self.outstanding -= answers;
        if was_full && answers > 0 {
            self.with_room.push_back(index);
        }
        // The second halves of operations whose first halves were answered.
        if !connection.pipeline.outgoing().is_empty() {
            self.unsent.push(index);
        }
        result.map_err(|cause| self.remove(index, ledger, cause))
    }

    fn remove(&mut self, index: usize, ledger: &Ledger, cause: Lost) -> LostConnection {
        let connection = self.connections[index].take().expect("a connection is lost once");
        let unanswered = connection.pipeline.outstanding();
        connection.pipeline.abandon(ledger);
        self.with_room.retain(|other| *other != index);
        self.outstanding -= unanswered;
        self.usable -= 1;
        LostConnection { unanswered: unanswered as u64, cause }
    }
}
