//! [`Desk`]: what connections have said and the brain has not heard yet, and [`Inbox`], the brain's side of it.
//!
//! Lines are heard one of each [`Party`] in turn, so that none waits for all that another asks. That a connection has
//! begun or ended waits for no line but one: a line's time is that at which it was read, and none is read of a
//! connection before it has begun. A connection keeps its place among [`Peers`](crate::peers::Peers) until its end was
//! heard, at least, which bounds how many wait.
//!
//! Who touches what: a reader adds lines of its own connection and waits while as many of them are here as may be,
//! and the brain takes them. All is behind one lock, which is held for as long as it takes to move one line.
//!
//! Invariants: what one connection says is heard in its order. [`Said::came`] is no later than the time of anything
//! that is still unheard, so what is judged by it is judged as if all that came before had been heard; and
//! [`Said::nodes_came`] no later than that of anything that a node has said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use yonder_identity::{Host, Peer as Identity, Role, Stream};

use crate::brain::PeerId;
use crate::messages::ToController;
use crate::peers::Counted;
use crate::pool::Part;

/// Most lines of a node that are here. It reports once a second: what it says while a store is slow is read, and so has
/// its time, for a minute.
const LINES_OF_NODE_MAX: usize = 64;
/// Most lines of another connection that are here. A client asks one thing after the other.
const LINES_MAX: usize = 4;

/// Whose lines are heard in turn with those of others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Party {
    /// A node that was admitted: each is one.
    Node(PeerId),
    /// All connections of a member with this name.
    Member(String),
    /// All connections of those without names at a host.
    Host(Host),
}

impl fmt::Display for Party {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(peer) => write!(formatter, "connection {}", peer.0),
            Self::Member(name) => formatter.write_str(name),
            Self::Host(host) => host.fmt(formatter),
        }
    }
}

impl Party {
    /// Of a connection that is no node's, or not yet.
    pub(crate) fn of(identity: Option<&Identity>, source: Host) -> Self {
        identity.and_then(Identity::name).map_or(Self::Host(source), |name| Self::Member(name.to_owned()))
    }
}

/// What is heard.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A connection that was let in: where it is from, and who it is if names are asked for. What writes to it has its
    /// place for as long.
    Peer(PeerId, Stream, Host, Option<Identity>, Counted),
    /// A line of it, with its part of what all lines may have.
    Line(PeerId, Box<ToController>, Option<Part>),
    /// Its end, and why if it broke the protocol. It has its place until this is dropped.
    End(PeerId, Option<String>, Counted),
    /// The server stops.
    Stop,
    /// None came in time.
    Nothing,
}

/// What is heard, and the time for which all that came was heard.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) arrival: Arrival,
    /// When a line was read; now if it is none.
    pub(crate) read: Instant,
    pub(crate) came: Instant,
    /// As far as nodes have said it.
    pub(crate) nodes_came: Instant,
}

/// Nothing is heard any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over;

/// What readers add to; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desk(Arc<Shared>);

/// The brain's side: when it is dropped, nothing is added any more.
#[derive(Debug)]
pub(crate) struct Inbox(Arc<Shared>);

/// How a reader adds lines of one connection.
#[derive(Debug)]
pub(crate) struct Mouth {
    shared: Arc<Shared>,
    peer: PeerId,
    /// Whose turn its lines have, unless it is a node.
    party: Party,
    /// It may be a node by its certificate, or has none.
    may_be_node: bool,
    room: Arc<Room>,
    place: Counted,
}

/// What a connection is by what the brain has heard of it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    shared: Arc<Shared>,
    peer: PeerId,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

/// Whether a connection may add a line.
#[derive(Debug, Default)]
struct Room(Condvar);

impl Room {
    /// Waits until something was heard of the connection, or nothing is any more.
    fn wait<'a>(&self, mut waiting: MutexGuard<'a, Waiting>) -> MutexGuard<'a, Waiting> {
        waiting.sleepers += 1;
        let mut waiting = self.0.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        waiting.sleepers -= 1;
        waiting
    }
}

#[derive(Debug, Default)]
struct Waiting {
    is_over: bool,
    stops: bool,
    /// Connections that have begun or ended, with numbers as lines have.
    changed: VecDeque<(u64, Arrival)>,
    /// What was heard last was one of these.
    heard_change: bool,
    /// Nodes that were admitted.
    nodes: BTreeSet<PeerId>,
    lines: BTreeMap<Party, VecDeque<Line>>,
    /// Those that have lines, the next one first.
    turns: VecDeque<Party>,
    /// Lines of each connection.
    counts: BTreeMap<PeerId, usize>,
    /// When each line was read, and its number.
    times: BTreeSet<(Instant, u64)>,
    /// The same, of those that nodes alone say.
    times_of_nodes: BTreeSet<(Instant, u64)>,
    last: u64,
    /// Threads that wait to be told of something here: tests do not tell them before they do.
    sleepers: usize,
}

#[derive(Debug)]
struct Line {
    peer: PeerId,
    read: Instant,
    number: u64,
    is_of_node: bool,
    line: Box<ToController>,
    part: Option<Part>,
    room: Arc<Room>,
}

impl Desk {
    /// The side that hears.
    pub(crate) fn inbox(&self) -> Inbox {
        Inbox(Arc::clone(&self.0))
    }

    /// A connection was let in, and has a place. Its lines are added by what this returns.
    pub(crate) fn begin(
        &self,
        peer: PeerId,
        stream: Stream,
        source: Host,
        identity: Option<Identity>,
        place: Counted,
    ) -> Result<Mouth, Over> {
        let party = Party::of(identity.as_ref(), source);
        let may_be_node = matches!(identity.as_ref().and_then(Identity::role), None | Some(Role::Node));
        self.0.change(Arrival::Peer(peer, stream, source, identity, place.clone()))?;
        Ok(Mouth { shared: Arc::clone(&self.0), peer, party, may_be_node, room: Arc::default(), place })
    }

    /// The server stops.
    pub(crate) fn stop(&self) {
        self.0.lock().stops = true;
        self.0.arrived.notify_one();
    }
}

impl Standing {
    /// Whether it is a node's that was admitted.
    pub(crate) fn is_node(&self) -> bool {
        self.shared.lock().nodes.contains(&self.peer)
    }
}

impl Mouth {
    /// For who reads its lines.
    pub(crate) fn standing(&self) -> Standing {
        Standing { shared: Arc::clone(&self.shared), peer: self.peer }
    }

    /// Says a line that was read now, once there is room for it.
    pub(crate) fn say(&mut self, line: ToController, part: Option<Part>) -> Result<(), Over> {
        let (peer, read) = (self.peer, Instant::now());
        let mut waiting = self.shared.lock();
        while !waiting.is_over && waiting.counts.get(&peer).is_some_and(|count| *count >= waiting.lines_max(peer)) {
            waiting = self.room.wait(waiting);
        }
        if waiting.is_over {
            return Err(Over);
        }
        let number = waiting.next_number();
        // No lease is renewed by what is not known, and anyone says that.
        let is_of_node = self.may_be_node && !matches!(line, ToController::Ask { .. } | ToController::Unknown { .. });
        let line = Line { peer, read, number, is_of_node, line: Box::new(line), part, room: Arc::clone(&self.room) };
        let party = if waiting.nodes.contains(&peer) { &Party::Node(peer) } else { &self.party };
        waiting.add(party, line);
        drop(waiting);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// The connection has ended; all that it said is heard first.
    pub(crate) fn end(self, cause: Option<String>) {
        let mut waiting = self.shared.lock();
        while !waiting.is_over && waiting.counts.contains_key(&self.peer) {
            waiting = self.room.wait(waiting);
        }
        drop(waiting);
        // Who no longer hears knows of no connections.
        let _ = self.shared.change(Arrival::End(self.peer, cause, self.place));
    }
}

impl Inbox {
    /// What is heard next, within a time; and for which time then nothing is unheard.
    pub(crate) fn hear(&self, timeout: Duration) -> Said {
        let mut waiting = self.0.lock();
        waiting.sleepers += 1;
        let is_idle = |waiting: &mut Waiting| waiting.is_idle();
        let waited = self.0.arrived.wait_timeout_while(waiting, timeout, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiting.sleepers -= 1;
        waiting.next()
    }

    /// Whether something that a connection has said is still unheard.
    pub(crate) fn has_lines_of(&self, peer: PeerId) -> bool {
        self.0.lock().counts.contains_key(&peer)
    }

    /// The connection is a node's that was admitted: from now on it has turns of its own, and so have its lines that
    /// are here.
    pub(crate) fn admit(&self, peer: PeerId) {
        let mut waiting = self.0.lock();
        let mut lines = VecDeque::new();
        for theirs in waiting.lines.values_mut() {
            let (own, others) = std::mem::take(theirs).into_iter().partition(|line: &Line| line.peer == peer);
            lines.extend::<VecDeque<Line>>(own);
            *theirs = others;
        }
        waiting.forget_idle();
        waiting.nodes.insert(peer);
        if let Some(line) = lines.front() {
            // There is room for more.
            line.room.0.notify_one();
            waiting.turns.push_back(Party::Node(peer));
            waiting.lines.insert(Party::Node(peer), lines);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        let left = std::mem::take(&mut *waiting);
        (waiting.is_over, waiting.sleepers) = (true, left.sleepers);
        drop(waiting);
        for line in left.lines.values().flatten() {
            line.room.0.notify_one();
        }
        for (_, arrival) in left.changed {
            if let Arrival::Peer(_, stream, ..) = arrival {
                // Its reader waits on the other half.
                let _ = stream.shutdown();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, arrival: Arrival) -> Result<(), Over> {
        let mut waiting = self.lock();
        if waiting.is_over {
            return Err(Over);
        }
        let number = waiting.next_number();
        waiting.changed.push_back((number, arrival));
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }
}

impl Waiting {
    fn is_idle(&self) -> bool {
        !self.stops && self.changed.is_empty() && self.turns.is_empty()
    }

    fn add(&mut self, party: &Party, line: Line) {
        *self.counts.entry(line.peer).or_default() += 1;
        self.times.insert((line.read, line.number));
        if line.is_of_node {
            self.times_of_nodes.insert((line.read, line.number));
        }
        match self.lines.get_mut(party) {
            Some(lines) => lines.push_back(line),
            None => {
                self.lines.insert(party.clone(), [line].into());
                self.turns.push_back(party.clone());
            }
        }
    }

    fn next(&mut self) -> Said {
        let now = Instant::now();
        let [came, nodes_came] =
            [&self.times, &self.times_of_nodes].map(|times| times.first().map_or(now, |(read, _)| *read));
        let (arrival, read) = self.next_arrival();
        Said { arrival, read: read.unwrap_or(now), came, nodes_came }
    }

    /// What is heard next, and when it was read if it is a line.
    fn next_arrival(&mut self) -> (Arrival, Option<Instant>) {
        if self.stops {
            return (Arrival::Stop, None);
        }
        if !self.may_hear_line()
            && let Some((_, arrival)) = self.changed.pop_front()
        {
            self.heard_change = true;
            if let Arrival::End(peer, ..) = arrival {
                self.nodes.remove(&peer);
            }
            return (arrival, None);
        }
        self.heard_change = false;
        let Some(Line { peer, read, line, part, .. }) = self.next_line() else { return (Arrival::Nothing, None) };
        (Arrival::Line(peer, line, part), Some(read))
    }

    /// Whether a line is heard before what has begun or ended: after one of that, for those who only come and go are
    /// not to keep all others waiting. Its own connection has begun before the first that has not.
    fn may_hear_line(&self) -> bool {
        let Some((change, _)) = self.changed.front() else { return true };
        let next = self.turns.front().and_then(|party| self.lines[party].front());
        self.heard_change && next.is_some_and(|line| line.number < *change)
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Most lines of a connection that are here.
    fn lines_max(&self, peer: PeerId) -> usize {
        if self.nodes.contains(&peer) { LINES_OF_NODE_MAX } else { LINES_MAX }
    }

    /// Parties without lines have no turn.
    fn forget_idle(&mut self) {
        let lines = &mut self.lines;
        lines.retain(|_, lines| !lines.is_empty());
        self.turns.retain(|party| lines.contains_key(party));
    }

    /// The first line of the party whose turn it is.
    fn next_line(&mut self) -> Option<Line> {
        let party = self.turns.pop_front()?;
        let lines = self.lines.get_mut(&party).expect("a party with a turn has lines");
        let line = lines.pop_front().expect("a party with a turn has lines");
        let is_last = lines.is_empty();
        self.times.remove(&(line.read, line.number));
        self.times_of_nodes.remove(&(line.read, line.number));
        let lines_max = self.lines_max(line.peer);
        let count = self.counts.get_mut(&line.peer).expect("a line that waits is counted");
        *count -= 1;
        // A reader waits for room, or until all was heard.
        if *count == 0 || *count == lines_max - 1 {
            line.room.0.notify_one();
        }
        if *count == 0 {
            self.counts.remove(&line.peer);
        }
        if is_last {
            self.lines.remove(&party);
        } else {
            self.turns.push_back(party);
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests;
