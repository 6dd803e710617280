//! The one thread that owns the controller's state, its store and all its peers.
//!
//! It takes what reader threads send, with the time at which it arrived: a node whose report waits here while a store
//! is slow is not lost. What it sends is small, and a peer that does not read it is cut off.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use yonder_placement::{Actions, Answer, Controller, Event, NodeId, Ticket};
use yonder_units::Nanos;

use crate::lines::send_line;
use crate::messages::{FromController, ToController};
use crate::store::{self, Store, StoreError};

/// A connection, by the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct PeerId(pub(crate) u64);

/// What reader threads send.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A connection that was accepted.
    Peer(PeerId, TcpStream),
    /// A line of it.
    Line(PeerId, Instant, Box<ToController>),
    /// Its end, and why if it broke the protocol.
    End(PeerId, Option<String>),
    /// The server stops.
    Stop,
}

#[derive(Debug)]
struct Peer {
    stream: TcpStream,
    /// The node that registered on it.
    node: Option<NodeId>,
}

pub(crate) struct Brain {
    controller: Controller,
    store: Box<dyn Store>,
    lease: Duration,
    start: Instant,
    now: Nanos,
    /// When announcements go on after one has failed.
    announces_from: Nanos,
    peers: BTreeMap<PeerId, Peer>,
    nodes: BTreeMap<NodeId, PeerId>,
    tickets: BTreeMap<Ticket, (PeerId, u64)>,
    next_ticket: u64,
}

impl Brain {
    pub(crate) fn new(controller: Controller, store: Box<dyn Store>, lease: Duration, start: Instant) -> Self {
        Self {
            controller,
            store,
            lease,
            start,
            now: 0,
            announces_from: 0,
            peers: BTreeMap::new(),
            nodes: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Serves until it is told to stop, or the store fails.
    pub(crate) fn run(mut self, arrivals: &Receiver<Arrival>) -> Result<(), StoreError> {
        let result = self.serve(arrivals);
        for peer in self.peers.values() {
            // The readers wait on the other halves.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
        result
    }

    fn serve(&mut self, arrivals: &Receiver<Arrival>) -> Result<(), StoreError> {
        self.handle(Event::Tick)?;
        loop {
            let deadline = self.controller.next_deadline().map(|at| self.start + Duration::from_nanos(at));
            let timeout = deadline.map_or(self.lease, |at| at.saturating_duration_since(Instant::now()));
            match arrivals.recv_timeout(timeout) {
                Ok(Arrival::Peer(id, stream)) => drop(self.peers.insert(id, Peer { stream, node: None })),
                Ok(Arrival::Line(id, at, line)) => self.line(id, at, *line)?,
                Ok(Arrival::End(id, cause)) => self.end(id, cause)?,
                Ok(Arrival::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {
                    self.pass_to(Instant::now());
                    self.handle(Event::Tick)?;
                }
            }
        }
    }

    /// Time goes on, never back, although readers note it independently of each other.
    fn pass_to(&mut self, at: Instant) {
        let now = at.saturating_duration_since(self.start).as_nanos();
        self.now = self.now.max(Nanos::try_from(now).unwrap_or(Nanos::MAX));
    }

    fn line(&mut self, id: PeerId, at: Instant, line: ToController) -> Result<(), StoreError> {
        self.pass_to(at);
        let Some(peer) = self.peers.get(&id) else { return Ok(()) };
        match (line, peer.node) {
            (ToController::Register { facts, cluster, spaces, report }, None) => {
                if let Err(cause) = self.controller.admit(&facts, cluster) {
                    return self.turn_away(id, cause);
                }
                self.admit(id, facts.node)?;
                self.handle(Event::Registered { facts, report, spaces })
            }
            (ToController::Report(report), Some(node)) => {
                self.announce(node)?;
                self.handle(Event::Reported(node, report))
            }
            (ToController::Outcome(outcome), Some(node)) => self.handle(Event::Answered(node, outcome)),
            (ToController::Ask { id: asked, request }, None) => {
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                self.tickets.insert(ticket, (id, asked));
                self.handle(Event::Asked(ticket, request))
            }
            (_, Some(_)) => self.turn_away(id, "a node registers once and asks nothing".to_owned()),
            (_, None) => self.turn_away(id, "only a registered node reports: register first".to_owned()),
        }
    }

    /// From now on the node is this peer; an older connection of it is closed.
    fn admit(&mut self, id: PeerId, node: NodeId) -> Result<(), StoreError> {
        if let Some(older) = self.nodes.remove(&node) {
            self.close(older);
            self.handle(Event::Disconnected(node))?;
        }
        self.nodes.insert(node, id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.node = Some(node);
        }
        self.announce(node)?;
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let cluster = self.controller.cluster();
        self.send(id, &FromController::Registered { cluster, lease_ms });
        Ok(())
    }

    /// Shows in the store that the node is there. Nothing depends on it, so a failure is only told, and the next
    /// attempt is a lease later: each may take its time. But who does not lead any more must end.
    fn announce(&mut self, node: NodeId) -> Result<(), StoreError> {
        if self.now < self.announces_from {
            return Ok(());
        }
        match self.store.announce(&node.to_string(), b"{}", self.lease) {
            Ok(()) => Ok(()),
            Err(error @ StoreError::Deposed { .. }) => Err(error),
            Err(error) => {
                tracing::warn!(%error, %node, "the node could not be announced");
                let lease = Nanos::try_from(self.lease.as_nanos()).unwrap_or(Nanos::MAX);
                self.announces_from = self.now.saturating_add(lease);
                Ok(())
            }
        }
    }

    fn turn_away(&mut self, id: PeerId, cause: String) -> Result<(), StoreError> {
        tracing::warn!(cause, "a peer was turned away");
        self.send(id, &FromController::TurnedAway { cause });
        self.end(id, None)
    }

    fn end(&mut self, id: PeerId, cause: Option<String>) -> Result<(), StoreError> {
        if let Some(cause) = cause {
            self.send(id, &FromController::TurnedAway { cause });
        }
        self.tickets.retain(|_, (peer, _)| *peer != id);
        match self.close(id) {
            // A node that has connected anew is not disconnected by the end of its old connection.
            Some(node) if self.nodes.get(&node) == Some(&id) => {
                self.nodes.remove(&node);
                self.handle(Event::Disconnected(node))
            }
            _ => Ok(()),
        }
    }

    fn close(&mut self, id: PeerId) -> Option<NodeId> {
        let peer = self.peers.remove(&id)?;
        let _ = peer.stream.shutdown(Shutdown::Both);
        peer.node
    }

    /// Lets the controller decide, and does what it says.
    fn handle(&mut self, event: Event) -> Result<(), StoreError> {
        let actions = self.controller.handle(event, self.now);
        let Actions { changes, closed, commands, answers } = actions;
        store::commit(self.store.as_mut(), &changes)?;
        for node in closed {
            if let Some(peer) = self.nodes.remove(&node) {
                tracing::warn!(%node, "the node's lease is over");
                self.close(peer);
            }
        }
        for (node, command) in commands {
            if let Some(peer) = self.nodes.get(&node) {
                self.send(*peer, &FromController::Do(command));
            }
        }
        for (ticket, answer) in answers {
            self.answer(ticket, answer);
        }
        Ok(())
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        // A client that has gone waits for nothing.
        if let Some((peer, id)) = self.tickets.remove(&ticket) {
            self.send(peer, &FromController::Answer { id, answer });
        }
    }

    /// Sends a line. A peer that cannot take it is cut off; its reader then says that it has ended.
    fn send(&self, id: PeerId, line: &FromController) {
        if let Some(peer) = self.peers.get(&id)
            && let Err(error) = send_line(&peer.stream, line)
        {
            tracing::warn!(%error, "a peer does not read, and is cut off");
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }
}
