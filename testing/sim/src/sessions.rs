//! The sessions of processes with nodes: they are made, end, and are made again, and lanes speak under them.
//!
//! A *line* is a chain of sessions of a process with a node. It is as the fabric has it: what decides is the real code
//! of `core/session`; here are the thread that renews, and a stand-in for TLS, which always names the right process.

use std::sync::Arc;

use rand::Rng;
use yonder_session::{Chain, Door, Frame, Home, Protector, Renewal, Session, Wrap, open, seal};
use yonder_wire::{Direction, Header, Kind, Message, PROOF_BYTES, split, split_proven};

use crate::attacker::{Hostile, Taped};
use crate::counts::Count;
use crate::faults::{Fault, Machine};
use crate::guard::{Address, Entry, NodeGuard, ip_of};
use crate::history::Life;
use crate::node::Sender;
use crate::sabotage::Sabotage;
use crate::seals::{Sealing, says_nothing};
use crate::settings::MICROSECOND;
use crate::world::{Event, Phase, World};

/// The share of requests that an attacker withholds.
const WITHHELD: f64 = 0.02;
/// The share of attacks on a connection that are not left out: each breaks it.
const ON_STREAMS: f64 = 0.05;
/// The share of attacks from the address of a lane that come from its port too.
const FROM_PORT: f64 = 0.5;

/// The sessions of a process with a life of a node.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) chain: Arc<Chain>,
    pub(crate) renewal: Renewal,
    life: Life,
}

impl World {
    /// The address that a lane has.
    pub(crate) fn address_of(&self, lane: usize) -> Address {
        Address::of_lane(self.lanes[lane].process, lane)
    }

    fn line_of(&self, process: usize, node: usize) -> usize {
        process * self.settings.nodes + node
    }

    /// Makes the first session of a process with a node, and gives its lanes numbers; later, if the node cannot be
    /// reached.
    pub(crate) fn begin_line(&mut self, process: usize, node: usize) -> Result<(), String> {
        let Some(times) = self.settings.sessions().map(|guard| guard.times) else { return Ok(()) };
        let (line, first) = (self.line_of(process, node), self.lane_of(process, node));
        let lanes = first..first + self.settings.lanes;
        self.lines[line] = None;
        lanes.clone().for_each(|lane| self.lanes[lane].protector = None);
        let Some(session) = self.make_session(process, node)? else { return Ok(()) };
        self.forget_node(first)?;
        let (session, local) = (Arc::new(session), self.lanes[first].clock.read(self.events.now()));
        let chain = Arc::new(Chain::new(&session, times));
        for lane in lanes {
            let number = chain.next_lane().ok_or("a chain has room for the lanes of a process")?;
            let door = if self.lanes[lane].stream.is_none() { Door::Datagrams } else { Door::Streams };
            let mut protector = Protector::new(&chain, &session, number, door);
            // A lane of datagrams greets until it has found its thread; here it knows. One with a stream greets on
            // that.
            if door == Door::Datagrams {
                let guard = self.nodes[node].guard.as_ref().ok_or("a node with sessions has doors")?;
                settle(guard, self.lanes[lane].thread, &mut protector)?;
            }
            self.lanes[lane].protector = Some(protector);
            self.events.after(0, Event::Wake { lane });
        }
        let life = self.nodes[node].life();
        self.lines[line] = Some(Line { chain, renewal: Renewal::new(session, local), life });
        Ok(())
    }

    /// Makes a session, if process and node reach each other.
    fn make_session(&mut self, process: usize, node: usize) -> Result<Option<Session>, String> {
        let Some(protection) = self.settings.sessions().map(|guard| guard.protection) else { return Ok(None) };
        let now = self.events.now();
        if !self.network.is_whole(process, node) || self.paused.contains(&Machine::Node(node)) {
            return Ok(None);
        }
        let (life, time) = (self.nodes[node].life(), self.nodes[node].time(now));
        let local = self.lanes[self.lane_of(process, node)].clock.read(now);
        let guard = self.nodes[node].guard.as_mut().ok_or("a node that grants sessions has doors")?;
        let Some((grant, lasts)) = guard.grant(process, protection, u64::from(life.number), time) else {
            // Its clock has leapt over all the hours that numbers have room for.
            self.restart(node);
            return Ok(None);
        };
        self.seals.told(life, grant.number, &grant.secret)?;
        self.trace.say(now, || format!("process {process}: {:?} of {life:?}", grant.number));
        self.counts.add(Count::Sessions, 1);
        Ok(Some(Session::new(grant, lasts, ip_of(process), local, local)))
    }

    /// Makes the sessions that are to follow others.
    pub(crate) fn renew_sessions(&mut self, process: usize) -> Result<(), String> {
        let Some(guard) = self.settings.sessions() else { return Ok(()) };
        self.events.after(guard.renew_period, Event::RenewSessions(process));
        for node in 0..self.settings.nodes {
            let (line, first) = (self.line_of(process, node), self.lane_of(process, node));
            let local = self.lanes[first].clock.read(self.events.now());
            let Some(Line { chain, renewal, life }) = &mut self.lines[line] else {
                self.begin_line(process, node)?;
                continue;
            };
            if !renewal.is_due(chain, || true, guard.times, local) {
                continue;
            }
            if *life != self.nodes[node].life() {
                self.begin_line(process, node)?;
            } else if let Some(session) = self.make_session(process, node)?
                && let Some(Line { chain, renewal, .. }) = &mut self.lines[line]
            {
                self.counts.add(Count::SessionsRenewed, 1);
                renewal.follow_with(chain, session, local);
            }
        }
        Ok(())
    }

    /// What a lane sends, as it goes over the network; `None` if it does not get far.
    pub(crate) fn protect(&mut self, index: usize, header: &Header, plain: Vec<u8>) -> Result<Option<Vec<u8>>, String> {
        if self.settings.sessions().is_none() {
            return Ok(Some(plain));
        }
        let (now, address) = (self.events.now(), self.address_of(index));
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        let line = self.lines[self.line_of(process, node)].as_ref().ok_or("a lane that sends has sessions")?;
        let life = line.life;
        let lane = &mut self.lanes[index];
        let local = lane.clock.read(now);
        let (is_datagram, thread) = (lane.stream.is_none(), lane.thread);
        let protector = lane.protector.as_mut().ok_or("a lane that sends has a number")?;
        let mut bytes = [&plain[..], &[0; PROOF_BYTES]].concat();
        let is_retry = header.request_id != header.first_id;
        let number = protector.number();
        if self.sabotage == Some(Sabotage::RetriesCountAgain) && is_retry && lane.last_counter.0 == number {
            let secret = self.seals.secret(life, number).ok_or("its secret was told")?;
            let keys = secret.lane(number.lane(), Home::Thread(thread as u16));
            seal(&keys.requests, number, lane.last_counter.1, &mut bytes);
        } else {
            protector.seal(&mut bytes, plain.len(), local).ok_or("a lane has sent all that it may")?;
        }
        lane.last_counter = Frame::parse(&bytes).map_or(lane.last_counter, |frame| (frame.number, frame.counter));
        let (direction, request_id) = (Direction::Request, header.request_id);
        self.seals.sealed(Sealing {
            life,
            direction,
            lane: index,
            address,
            request_id,
            plain: &plain,
            bytes: &bytes,
        })?;
        if !self.is_attacked() {
            return Ok(Some(bytes));
        }
        let taped = Taped { bytes: bytes.clone(), plain, lane: index, node, address, thread };
        if is_datagram && self.guard_rng.random_bool(WITHHELD) {
            self.trace.say(now, || format!("lane {index}: it is withheld"));
            self.tape.withhold(&mut self.guard_rng, taped);
            return Ok(None);
        }
        self.tape.request(&mut self.guard_rng, taped);
        Ok(Some(bytes))
    }

    fn is_attacked(&self) -> bool {
        self.phase == Phase::Storm && self.settings.faults[Fault::Attack as usize].1 > 0
    }

    /// The message in what has arrived at a lane, if it is one for it.
    pub(crate) fn opened<'a>(&mut self, index: usize, bytes: &'a mut Vec<u8>) -> Result<Option<Message<'a>>, String> {
        if self.settings.sessions().is_none() {
            let message = split(bytes).ok().flatten();
            return Ok(message.filter(|message| message.verify().is_ok() && message.bytes() == bytes.len()));
        }
        let (process, node) = (self.lanes[index].process, self.lanes[index].node);
        let Some(life) = self.lines[self.line_of(process, node)].as_ref().map(|line| line.life) else {
            return Ok(None);
        };
        let lane = &mut self.lanes[index];
        let local = lane.clock.read(self.events.now());
        let Some(protector) = &mut lane.protector else { return Ok(None) };
        if self.sabotage == Some(Sabotage::OneKeyBothWays)
            && let Some(secret) = self.seals.secret(life, protector.number())
        {
            let keys = secret.lane(protector.number().lane(), Home::Thread(lane.thread as u16));
            let mut again = bytes.clone();
            if let (Some(frame), Ok(_)) = (Frame::parse(bytes), open(&keys.requests, &mut again)) {
                again.resize(bytes.len(), 0);
                seal(&keys.answers, frame.number, frame.counter, &mut again);
                *bytes = again;
            }
        }
        let (sealed, length) = (bytes.clone(), bytes.len());
        match protector.open(bytes, local) {
            Ok(Some((opened, taken))) if taken == length => {
                self.seals.taken(life, index, &sealed)?;
                Ok(split_proven(&bytes[..opened]).ok().flatten())
            }
            _ => {
                self.counts.add(Count::TurnedAway, 1);
                Ok(None)
            }
        }
    }

    /// Something comes to a node from the network: it is let in, or not.
    pub(crate) fn node_hears(
        &mut self,
        node: usize,
        thread: usize,
        bytes: Vec<u8>,
        from: Option<Sender>,
        address: Address,
    ) -> Result<(), String> {
        let (now, life, has_sessions) =
            (self.events.now(), self.nodes[node].life(), self.settings.sessions().is_some());
        let stream = from.filter(|from| self.lanes[from.lane].stream.is_some());
        let time = self.nodes[node].time(now);
        let Some(guard) = &mut self.nodes[node].guard else { return self.node_receives(node, thread, bytes, from) };
        let entry = match stream {
            None => guard.admit(thread, bytes.clone(), address, time),
            Some(_) if !has_sessions => return self.node_receives(node, thread, bytes, from),
            Some(stream) => guard.admit_on_stream(stream, bytes.clone(), address, time),
        };
        match entry {
            Entry::Admitted { plain, wrap } => {
                if has_sessions {
                    let is_over = Frame::parse(&bytes).is_some_and(|frame| guard.is_over(frame.number, time));
                    self.seals.let_in(life, &bytes, address, is_over)?;
                }
                self.node_receives(node, thread, plain, from.map(|from| Sender { wrap, ..from }))?;
            }
            Entry::Refused(answer) => {
                self.counts.add(Count::TurnedAway, 1);
                says_nothing(&bytes, &answer)?;
                if let Some(from) = from {
                    self.send_to_lane(from, answer);
                }
            }
            Entry::Dropped => _ = self.counts.add(Count::TurnedAway, 1),
            Entry::Closed => {
                self.counts.add(Count::TurnedAway, 1);
                if let Some(from) = stream {
                    self.break_connection(from);
                }
            }
        }
        Ok(())
    }

    /// A node closes a connection.
    fn break_connection(&mut self, of: Sender) {
        let mut index = 0;
        let is_current = self.lanes[of.lane].stream.is_some_and(|stream| stream.connection == of.connection);
        self.disconnect(|_| {
            index += 1;
            is_current && index == of.lane + 1
        });
    }

    /// An answer as it goes back, sealed by a thread if it is to be.
    pub(crate) fn close(&mut self, node: usize, thread: usize, to: Sender, answer: Vec<u8>) -> Result<Vec<u8>, String> {
        let life = self.nodes[node].life();
        let is_protected = self.settings.sessions().is_some();
        let Some(guard) = self.nodes[node].guard.as_mut().filter(|_| is_protected) else { return Ok(answer) };
        let bytes = guard.close(thread, to, &answer);
        let told = split(&answer).ok().flatten().ok_or("an answer is a message")?;
        let (lane, address, request_id) = (to.lane, self.address_of(to.lane), told.header.request_id);
        let direction = Direction::Answer;
        self.seals.sealed(Sealing { life, direction, lane, address, request_id, plain: &answer, bytes: &bytes })?;
        if self.is_attacked() {
            let thread = self.lanes[lane].thread;
            let taped = Taped { bytes: bytes.clone(), plain: answer, lane, node, address, thread };
            self.tape.answer(&mut self.guard_rng, taped);
        }
        Ok(bytes)
    }

    /// Greets a node on a stream that was just opened, and is answered, both at once. Whether it knows the lane.
    pub(crate) fn greet(&mut self, index: usize) -> Result<bool, String> {
        if self.settings.sessions().is_none() {
            return Ok(true);
        }
        let (node, thread) = (self.lanes[index].node, self.lanes[index].thread);
        let Some(protector) = &mut self.lanes[index].protector else { return Ok(false) };
        if self.paused.contains(&Machine::Node(node)) {
            return Ok(false);
        }
        // A connection belongs to one session, so a lane goes over to another one here.
        protector.follow();
        protector.leave();
        let number = protector.number();
        let hello = Header::request(Kind::Hello, self.guard_rng.random_range(1..=u64::MAX), 0, 0);
        let Some(bytes) = self.protect(index, &hello, hello.seal(&[]).to_vec())? else { return Ok(false) };
        let connection = self.lanes[index].stream.map_or(0, |stream| stream.connection);
        let from = Sender { lane: index, connection, wrap: Wrap::Plain };
        let (life, time, address) =
            (self.nodes[node].life(), self.nodes[node].time(self.events.now()), self.address_of(index));
        let guard = self.nodes[node].guard.as_mut().ok_or("a node with sessions has doors")?;
        let Entry::Admitted { wrap, .. } = guard.admit_on_stream(from, bytes.clone(), address, time) else {
            guard.hang_up(from);
            let frame = Frame::parse(&bytes);
            self.trace.say(self.events.now(), || format!("lane {index}: its greeting is turned away: {frame:?}"));
            self.counts.add(Count::TurnedAway, 1);
            return Ok(false);
        };
        let is_over = guard.is_over(number, time);
        self.seals.let_in(life, &bytes, address, is_over)?;
        let welcome = hello.answer(time, 0).seal(&[]).to_vec();
        let mut bytes = self.close(node, thread, Sender { wrap, ..from }, welcome)?;
        let is_welcome = self.opened(index, &mut bytes)?.is_some();
        let guard = self.nodes[node].guard.as_mut().ok_or("a node with sessions has doors")?;
        guard.settle(from, thread);
        if let Some(protector) = self.lanes[index].protector.as_mut().filter(|_| is_welcome) {
            settle(guard, thread, protector)?;
        }
        Ok(is_welcome)
    }

    /// An attacker does something.
    pub(crate) fn attack(&mut self, node: usize) -> Result<(), String> {
        let thread = self.rng.random_range(0..self.settings.threads);
        if self.settings.sessions().is_none() {
            let bytes = self.attacker.datagram(&mut self.rng);
            // Over a connection nobody needs a cookie.
            if self.settings.guard.is_none() || self.guard_rng.random_bool(0.7) {
                return self.node_receives(node, thread, bytes, None);
            }
            let address = Address::of_stranger(self.guard_rng.random());
            return self.node_hears(node, thread, bytes, None, address);
        }
        let Some(hostile) = self.tape.hostile(&mut self.guard_rng, self.lanes.len()) else { return Ok(()) };
        self.trace.say(self.events.now(), || format!("an attacker does {}", words(&hostile)));
        self.counts.add(Count::Attacks, 1);
        match hostile {
            Hostile::ToNode { node, bytes, address, lane } => {
                // What comes from a lane's port comes to its thread, and from another of its host to any.
                let is_from_port = self.guard_rng.random_bool(FROM_PORT);
                let lane = lane.filter(|_| is_from_port);
                let (lane, thread) = lane.map_or((None, thread), |(lane, thread)| (Some(lane), thread));
                let stream = lane.and_then(|lane| self.lanes[lane].stream);
                let is_left_out = stream.is_some() && !self.guard_rng.random_bool(ON_STREAMS);
                let connection = stream.map_or(0, |stream| stream.connection);
                let from = lane.filter(|_| !is_left_out).map(|lane| Sender { lane, connection, wrap: Wrap::Plain });
                self.node_hears(node, thread, bytes, from, address)
            }
            Hostile::ToLane { lane, bytes } => {
                let machine = Machine::Process(self.lanes[lane].process);
                if self.lanes[lane].stream.is_some() || self.paused.contains(&machine) {
                    return Ok(());
                }
                self.lane_receives(lane, &bytes)
            }
        }
    }

    /// How long a lane waits before it tries again to open its stream.
    pub(crate) fn reconnect_later(&mut self, index: usize) {
        self.events.after(100 * MICROSECOND, Event::Reconnect { lane: index });
    }
}

/// A thread of a node has welcomed a lane.
fn settle(guard: &NodeGuard, thread: usize, protector: &mut Protector) -> Result<(), String> {
    protector.settle(guard.home(thread)).map(drop).map_err(|foreign| foreign.to_string())
}

/// What an attacker does, in few words.
fn words(hostile: &Hostile) -> String {
    let (what, bytes) = match hostile {
        Hostile::ToNode { node, bytes, lane, .. } => (format!("to node {node}, as if from lane {lane:?}"), bytes),
        Hostile::ToLane { lane, bytes } => (format!("to lane {lane}"), bytes),
    };
    format!("{what}: {} bytes, {:?}", bytes.len(), Frame::parse(bytes))
}
