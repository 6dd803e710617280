//! The one thread that owns the controller's state, its store and all its peers.
//!
//! It hears what the [`Inbox`] has, for the time at which that came: a node whose report waits while a store is slow
//! is not lost, and an owner's renewal is in time though others ask much. It waits for no peer: what it sends goes
//! through an [`Outbox`], and a peer that does not read is cut off. Who a peer is, and so what it may do, was made
//! sure of at the door; a certificate that is over, or revoked, since then ends the connection at the next line. A
//! peer that is no node, and of which nothing has come for long, is cut off too: clients connect again when they ask.

use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use yonder_board::TenantLimits;
use yonder_identity::{Host, Peer as Identity, Role};
use yonder_placement::{
    Actions, Answer, Asker, Config, Controller, Event, NodeId, Refusal, Registration, SPACE_LEASE_STEP_MAX, Ticket,
    Times,
};
use yonder_units::{Nanos, Narrow as _};

use crate::desk::{Arrival, Inbox, Said};
use crate::door::Door;
use crate::lines::line_of;
use crate::messages::{FromController, ToController, VERSION, too_new, too_old};
use crate::outbox::{Outbox, Outgoing, SignsOfLife};
use crate::store::{self, Store, StoreError};

/// A connection, by the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct PeerId(pub(crate) u64);

#[derive(Debug)]
struct Peer {
    outbox: Outbox,
    source: Host,
    identity: Option<Identity>,
    /// When its certificate was looked at last.
    checked: Instant,
    /// What the clock showed when its last line was heard.
    heard: Nanos,
    /// The node that registered on it.
    node: Option<NodeId>,
}

impl Peer {
    fn is_without_name(&self) -> bool {
        self.identity.as_ref().is_none_or(|own| own.role().is_none())
    }
}

/// How long a certificate is taken to be as good as it was.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How long the controller may be without an event: leases of address spaces run no further without.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a node hears nothing at most.
const ALIVE_EVERY_MAX: Duration = Duration::from_millis(500);
/// Signs of life in a lease of a node, if that is short.
const ALIVE_PER_LEASE: u32 = 6;
/// Looks for idle peers in the time that one may be idle.
const IDLE_LOOKS: Nanos = 4;
/// Said to who asks with an identity that may not.
const NODES_ASK_NOTHING: &str = "a node asks nothing: use an operator's identity, or a tenant's";

const _: () = assert!(LOOK_EVERY.as_nanos() < SPACE_LEASE_STEP_MAX as u128);

pub(crate) struct Brain {
    controller: Controller,
    store: Box<dyn Store>,
    door: Door,
    lease: Duration,
    nodes_per_source_max: usize,
    peer_idle_max: Nanos,
    /// When idle peers are looked for.
    idle_look_at: Nanos,
    start: Instant,
    /// Of what is handled, but for what the clock shows then.
    times: Times,
    /// When the controller had its last event.
    handled: Instant,
    /// When announcements go on after one has failed.
    announces_from: Nanos,
    outgoing: Outgoing,
    peers: BTreeMap<PeerId, Peer>,
    /// Outboxes of peers that have gone, for which something waits.
    closing: Vec<Outbox>,
    nodes: BTreeMap<NodeId, PeerId>,
    /// Nodes without names that have gone, and from where they were connected.
    gone: BTreeMap<NodeId, Host>,
    tickets: BTreeMap<Ticket, (PeerId, u64)>,
    next_ticket: u64,
}

impl Brain {
    pub(crate) fn new(
        controller: Controller,
        store: Box<dyn Store>,
        config: Config,
        door: Door,
        start: Instant,
    ) -> Self {
        Self {
            controller,
            store,
            door,
            lease: Duration::from_nanos(config.lease),
            nodes_per_source_max: config.nodes_per_source_max,
            peer_idle_max: config.peer_idle_max,
            idle_look_at: 0,
            start,
            times: Times::at(0),
            handled: start,
            announces_from: 0,
            outgoing: Outgoing::default(),
            peers: BTreeMap::new(),
            closing: Vec::new(),
            nodes: BTreeMap::new(),
            gone: BTreeMap::new(),
            tickets: BTreeMap::new(),
            next_ticket: 0,
        }
    }

    /// Serves until it is told to stop, or the store fails.
    pub(crate) fn run(mut self, inbox: &Inbox) -> Result<(), StoreError> {
        let result = self.serve(inbox);
        for outbox in self.peers.values_mut().map(|peer| &mut peer.outbox).chain(&mut self.closing) {
            // The readers wait on the other halves.
            outbox.cut();
        }
        result
    }

    fn serve(&mut self, inbox: &Inbox) -> Result<(), StoreError> {
        self.handle(Event::Tick)?;
        loop {
            let deadline = self.controller.next_deadline().map(|at| self.start + Duration::from_nanos(at));
            let timeout =
                deadline.map_or(LOOK_EVERY, |at| at.saturating_duration_since(Instant::now()).min(LOOK_EVERY));
            let said = inbox.hear(timeout);
            self.pass_to(&said);
            match said.arrival {
                Arrival::Peer(id, stream, source, identity, place) => {
                    let outbox = Outbox::new(stream, self.outgoing.clone(), place);
                    let (checked, heard) = (Instant::now(), self.clock());
                    self.meet(id, Peer { outbox, source, identity, checked, heard, node: None });
                }
                Arrival::Line(id, line, _part) => self.line(inbox, id, *line)?,
                Arrival::End(id, cause, _place) => self.end(id, cause)?,
                Arrival::Stop => return Ok(()),
                Arrival::Nothing => self.handle(Event::Tick)?,
            }
            // Those who only come and go do not keep it from looking at the clock.
            if self.handled.elapsed() >= LOOK_EVERY {
                self.handle(Event::Tick)?;
            }
            self.closing.retain_mut(Outbox::drains);
            self.close_idle(inbox)?;
        }
    }

    /// Closes connections of peers that are no nodes, and of which nothing has come for too long. It is not said why:
    /// a client takes a connection that is closed for one that is lost, and makes another when it asks. A node has a
    /// lease, and what a peer has said may wait for others.
    fn close_idle(&mut self, inbox: &Inbox) -> Result<(), StoreError> {
        let clock = self.clock();
        if clock < self.idle_look_at {
            return Ok(());
        }
        self.idle_look_at = clock.saturating_add(self.peer_idle_max / IDLE_LOOKS);
        let is_silent = |peer: &Peer| peer.node.is_none() && clock - peer.heard >= self.peer_idle_max;
        let silent = self.peers.iter().filter(|(_, peer)| is_silent(peer)).map(|(id, _)| *id);
        let idle: Vec<PeerId> = silent.filter(|id| !inbox.has_lines_of(*id)).collect();
        for id in idle {
            tracing::debug!("a peer was idle: its connection is closed");
            self.end(id, None)?;
        }
        Ok(())
    }

    fn meet(&mut self, id: PeerId, peer: Peer) {
        self.limit(&peer);
        self.peers.insert(id, peer);
    }

    /// Notes how many address spaces a tenant may have, by its certificate.
    fn limit(&mut self, peer: &Peer) {
        let tenant = peer.identity.as_ref().filter(|identity| identity.role() == Some(Role::Tenant));
        let Some((name, limits)) = tenant.and_then(|tenant| tenant.name().zip(tenant.limits())) else { return };
        match limits.text.parse::<TenantLimits>() {
            Ok(all) => self.controller.limit_spaces(name, all.spaces.unwrap_or(u32::MAX), limits.since),
            // Of a later release, perhaps. It must renew what it has.
            Err(error) => tracing::warn!(%name, %error, "the limits of a tenant are not understood"),
        }
    }

    /// Time goes on, never back: something may be read when something later was heard already.
    fn pass_to(&mut self, said: &Said) {
        let [read, came, nodes_came] = [said.read, said.came, said.nodes_came].map(|at| self.since_start(at));
        self.times.came = read;
        self.times.heard_until = self.times.heard_until.max(came);
        self.times.nodes_heard_until = self.times.nodes_heard_until.max(nodes_came);
    }

    /// What the clock shows.
    fn clock(&self) -> Nanos {
        self.since_start(Instant::now())
    }

    fn since_start(&self, at: Instant) -> Nanos {
        Nanos::try_from(at.saturating_duration_since(self.start).as_nanos()).unwrap_or(Nanos::MAX)
    }

    fn line(&mut self, inbox: &Inbox, id: PeerId, line: ToController) -> Result<(), StoreError> {
        let clock = self.clock();
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        // One that does not lead welcomes nobody, and turns nobody away.
        self.store.leads()?;
        peer.heard = clock;
        if let Some(identity) = &peer.identity
            && peer.checked.elapsed() > CHECK_EVERY
        {
            peer.checked = Instant::now();
            if let Err(cause) = self.door.check(identity) {
                return self.turn_away(id, cause);
            }
        }
        match (line, peer.node) {
            (
                ToController::Register { mut facts, cluster, spaces, report, knows_alive, version, version_min },
                None,
            ) => {
                if let Some(cause) = too_old(version).or_else(|| too_new(version_min)) {
                    return self.turn_away(id, cause);
                }
                let named = name_of(peer.identity.as_ref(), &facts).and_then(|name| {
                    facts.name = name;
                    self.has_room_for(id, facts.node)
                });
                if let Err(cause) = named.and_then(|()| self.controller.admit(&facts, cluster)) {
                    return self.turn_away(id, cause);
                }
                // It may say much as soon as it is told.
                inbox.admit(id);
                self.admit(id, facts.node, knows_alive)?;
                self.handle(Event::Registered { facts, report, spaces })
            }
            (ToController::Report(report), Some(node)) => {
                self.announce(node)?;
                self.handle(Event::Reported(node, report))
            }
            (ToController::Outcome(outcome), Some(node)) => self.handle(Event::Answered(node, outcome)),
            (ToController::Ask { id: asked, request }, None) => {
                let Some(asker) = asker(peer) else { return self.turn_away(id, NODES_ASK_NOTHING.to_owned()) };
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                self.tickets.insert(ticket, (id, asked));
                self.handle(Event::Asked(ticket, asker, request))
            }
            (ToController::Unknown { ask: None }, Some(node)) => {
                tracing::debug!(%node, "a node says what only a later release knows");
                Ok(())
            }
            (ToController::Unknown { ask: Some(asked) }, None) => {
                if asker(peer).is_none() {
                    return self.turn_away(id, NODES_ASK_NOTHING.to_owned());
                }
                self.send(id, &FromController::Answer { id: asked, answer: Answer::Refused(Refusal::NotKnown) });
                Ok(())
            }
            (_, Some(_)) => self.turn_away(id, "a node registers once and asks nothing".to_owned()),
            (_, None) => self.turn_away(id, "only a registered node reports: register first".to_owned()),
        }
    }

    /// One address has so many nodes without names, so that no stranger fills the cluster with nodes that are none:
    /// those count that are connected, and those that have gone, have nothing, and may still come back. A node that
    /// connects anew takes the place of its older connection.
    fn has_room_for(&mut self, id: PeerId, node: NodeId) -> Result<(), String> {
        let Some(peer) = self.peers.get(&id).filter(|peer| peer.is_without_name()) else { return Ok(()) };
        let silent = self.controller.silent_without_spaces(self.gone.keys().copied().collect());
        self.gone.retain(|node, _| silent.contains(node));
        let gone = self.gone.iter().filter(|(own, source)| **own != node && **source == peer.source).count();
        let is_alike = |other: &&Peer| other.node.is_some_and(|own| own != node) && other.source == peer.source;
        if self.peers.values().filter(is_alike).count() + gone >= self.nodes_per_source_max {
            let (source, most) = (peer.source, self.nodes_per_source_max);
            return Err(format!(
                "{most} nodes are connected from {source} already, or were a moment ago: give nodes identities for more"
            ));
        }
        Ok(())
    }

    /// From now on the node is this peer; an older connection of it is closed. One that knows signs of life is shown
    /// them.
    fn admit(&mut self, id: PeerId, node: NodeId, knows_alive: bool) -> Result<(), StoreError> {
        if let Some(older) = self.nodes.remove(&node) {
            self.close(older);
            self.handle(Event::Disconnected(node))?;
        }
        self.nodes.insert(node, id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.node = Some(node);
        }
        let lease_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let cluster = self.controller.cluster();
        let every = ALIVE_EVERY_MAX.min(self.lease / ALIVE_PER_LEASE).max(Duration::from_millis(1));
        let alive_every_ms = if knows_alive { every.as_millis().narrow_u64() } else { 0 };
        self.send(id, &FromController::Registered { cluster, lease_ms, alive_every_ms, version: VERSION });
        if let Some(peer) = self.peers.get_mut(&id).filter(|_| knows_alive) {
            let (bytes, leads) = (line_of(&FromController::Alive {}), self.store.tenure_probe());
            peer.outbox.show(SignsOfLife { every, bytes, leads });
        }
        // The store may take a while, and the node has a lease only once it knows.
        self.announce(node)
    }

    /// Shows in the store that the node is there. Nothing depends on it, so a failure is only told, and the next
    /// attempt is a lease later: each may take its time. But who does not lead any more must end.
    fn announce(&mut self, node: NodeId) -> Result<(), StoreError> {
        if self.clock() < self.announces_from {
            return Ok(());
        }
        match self.store.announce(&node.to_string(), b"{}", self.lease) {
            Ok(()) => Ok(()),
            Err(error @ StoreError::Deposed { .. }) => Err(error),
            Err(error) => {
                tracing::warn!(%error, %node, "the node could not be announced");
                let lease = Nanos::try_from(self.lease.as_nanos()).unwrap_or(Nanos::MAX);
                self.announces_from = self.clock().saturating_add(lease);
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
        let (gone, left) = mem::take(&mut self.tickets).into_iter().partition(|(_, (peer, _))| *peer == id);
        self.tickets = left;
        self.withdraw(&gone);
        let host = self.peers.get(&id).filter(|peer| peer.is_without_name()).map(|peer| peer.source);
        match self.close(id) {
            // A node that has connected anew is not disconnected by the end of its old connection.
            Some(node) if self.nodes.get(&node) == Some(&id) => {
                self.nodes.remove(&node);
                self.gone.extend(host.map(|host| (node, host)));
                self.handle(Event::Disconnected(node))
            }
            _ => Ok(()),
        }
    }

    /// A client that has gone waits for nothing.
    fn withdraw(&mut self, gone: &BTreeMap<Ticket, (PeerId, u64)>) {
        if !gone.is_empty() {
            self.controller.withdraw(|ticket| gone.contains_key(&ticket));
        }
    }

    fn close(&mut self, id: PeerId) -> Option<NodeId> {
        let Peer { mut outbox, node, .. } = self.peers.remove(&id)?;
        // What it was sent goes out first.
        outbox.close();
        self.closing.push(outbox);
        node
    }

    /// Lets the controller decide, and does what it says.
    fn handle(&mut self, event: Event) -> Result<(), StoreError> {
        self.handled = Instant::now();
        let clock = self.clock();
        let actions = self.controller.handle_late(event, Times { clock, ..self.times });
        let Actions { changes, closed, commands, answers, expired, outside_sets } = actions;
        store::commit(self.store.as_mut(), &changes)?;
        // An owner that is told by one that was deposed that its lease is renewed would lose it at the one that leads.
        self.store.leads()?;
        for pid in expired {
            tracing::info!(%pid, "the lease of an address space is over: it is ended");
        }
        for (pid, group) in outside_sets {
            tracing::warn!(%pid, group, "no set of nodes has room: a group's places are where there is some");
        }
        for node in closed {
            if let Some(peer) = self.nodes.remove(&node) {
                tracing::warn!(%node, "the node's lease is over, or it names more address spaces than a node can have");
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

    /// Sends a line, and waits for nothing. A peer that takes too little is cut off; its reader then says that it has
    /// ended, and until then nothing is made for it.
    fn send(&mut self, id: PeerId, line: &FromController) {
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.outbox.is_open()) else { return };
        if let Err(error) = peer.outbox.send(line_of(line)) {
            tracing::warn!(%error, source = %peer.source, "a peer is cut off");
            peer.outbox.cut();
        }
        if self.outgoing.is_too_much() {
            tracing::warn!("too much waits for peers: the one that has most is cut off");
            // Perhaps it has gone already.
            let outboxes = self.peers.values_mut().map(|peer| &mut peer.outbox).chain(&mut self.closing);
            outboxes.max_by_key(|outbox| outbox.waiting()).expect("a peer is sent to").cut();
        }
    }
}

/// The name that a node has: its certificate's. It may say so itself, and not otherwise.
fn name_of(identity: Option<&Identity>, facts: &Registration) -> Result<Option<String>, String> {
    let Some(identity) = identity else { return Ok(None) };
    if !identity.has(Role::Node) {
        return Err(format!("{identity} is no node: make an identity with `yonder cluster add node NAME`"));
    }
    let name = identity.name();
    match &facts.name {
        Some(claimed) if Some(claimed.as_str()) != name => {
            Err(format!("{identity} cannot register as {claimed}: its certificate says who it is"))
        }
        _ => Ok(name.map(str::to_owned)),
    }
}

/// For whom a peer asks; `None` if it is a node, which asks nothing.
fn asker(peer: &Peer) -> Option<Asker> {
    let Some(identity) = &peer.identity else { return Some(Asker::Source(peer.source.to_string())) };
    match (identity.role(), identity.name()) {
        (Some(Role::Operator), _) => Some(Asker::Operator),
        (Some(Role::Tenant), Some(name)) => Some(Asker::Tenant(name.to_owned())),
        (Some(Role::Controller), _) => Some(Asker::Observer),
        (Some(Role::Node | Role::Tenant), _) => None,
        // One who has the shared key.
        (None, _) => Some(Asker::Source(peer.source.to_string())),
    }
}
