//! [`World`]: a client, a node and a network between them that misbehaves, in simulated time; and a checker.
//!
//! What is checked, whenever something happens:
//! - a request says when it was first sent, on the node's clock and not later than it was;
//! - a request that changes something is executed at most once, however late a copy of it arrives (T4);
//! - of two operations that depend on each other, the later is executed when the earlier is over, and nothing of the
//!   earlier is executed any more after that (T2), whatever was cancelled or timed out;
//! - what completes has happened: the node's memory is what was written, and what was read is the node's memory;
//! - each operation completes once, unless it was cancelled.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use yonder_client::{
    Client, Completion, Config, Operation, OperationId, Outcome, Payload, Received, Transport, WindowConfig,
};
use yonder_wire::{AtomicOperation, Body, ErrorCode, Kind, split};

use crate::lane::{Lane, small};
use crate::node::{Node, OFFLOAD, sealed};

/// Most things that happen in one world; more means that it makes no progress.
const EVENTS_MAX: usize = 200_000;

/// How the network and the node behave. Chances are in percent.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) transport: Transport,
    pub(crate) lose: u64,
    pub(crate) repeat: u64,
    pub(crate) corrupt: u64,
    /// The node is busy.
    pub(crate) busy: u64,
    /// A stream breaks with a message.
    pub(crate) tear: u64,
    pub(crate) delay_max: u64,
    /// Requests that the node remembers.
    pub(crate) recent_max: usize,
    pub(crate) packets_initial: f64,
    pub(crate) incast_bytes: u64,
    pub(crate) seed: u64,
}

/// What the owner of the client does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// An operation, with a time limit.
    Operate { kind: Kind, address: u64, length: u64, limit: Option<u64> },
    /// A fence.
    Fence,
    /// Cancels the operation that was submitted this many operations before the last.
    Cancel(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Awaited,
    Over(Outcome),
    Cancelled,
}

struct Submitted {
    id: OperationId,
    /// `None` for a fence.
    kind: Option<Kind>,
    address: u64,
    data: Vec<u8>,
    state: State,
    executed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Destination {
    Node,
    Client,
}

/// When a message arrives, its number, and the message.
type Journey = (u64, u64, Destination, Vec<u8>);

pub(crate) struct World {
    conditions: Conditions,
    client: Client,
    node: Node,
    now: u64,
    random: u64,
    /// Messages on their way by time of arrival, and by order of sending.
    network: BinaryHeap<Reverse<Journey>>,
    messages: u64,
    last_arrival: u64,
    /// By token.
    submitted: Vec<Submitted>,
    tokens: HashMap<u64, u64>,
}

impl World {
    pub(crate) fn new(conditions: Conditions) -> Self {
        let window =
            WindowConfig { packets_initial: conditions.packets_initial, delay_target: 2000, ..WindowConfig::default() };
        let config = Config { window, incast_bytes: conditions.incast_bytes, ..small(conditions.transport) };
        Self {
            client: Client::new(config),
            node: Node::new(conditions.recent_max, 5_000_000),
            now: 1000,
            random: conditions.seed,
            network: BinaryHeap::new(),
            messages: 0,
            last_arrival: 0,
            submitted: Vec::new(),
            tokens: HashMap::new(),
            conditions,
        }
    }

    /// Performs the actions, each some time after the one before, until nothing is left to do.
    pub(crate) fn run(&mut self, actions: &[(u64, Action)]) {
        let mut actions = actions.iter();
        let mut next = actions.next();
        let mut due = next.map_or(0, |(pause, _)| self.now + pause);
        for _ in 0..EVENTS_MAX {
            if let Some((_, action)) = next
                && self.now >= due
                && self.client.has_room()
            {
                self.act(action);
                next = actions.next();
                due = self.now + next.map_or(0, |(pause, _)| *pause);
            }
            self.send_all();
            self.take_completions();
            if next.is_none() && self.client.idle() {
                return self.finish();
            }
            let action_due = if next.is_some() && self.client.has_room() { due } else { u64::MAX };
            self.step(action_due);
        }
        panic!("no progress: {:?}", self.client.stats());
    }

    /// Lets the next thing happen.
    fn step(&mut self, action_due: u64) {
        let arrival = self.network.peek().map_or(u64::MAX, |Reverse((arrival, ..))| *arrival);
        let timeout = self.client.timeout().unwrap_or(u64::MAX);
        let next = arrival.min(timeout).min(action_due);
        assert_ne!(next, u64::MAX, "everything waits for something");
        self.now = self.now.max(next);
        if arrival <= self.now {
            let Some(Reverse((_, _, destination, bytes))) = self.network.pop() else { unreachable!() };
            self.deliver(destination, &bytes);
        }
        self.client.advance(self.now);
    }

    /// All that is still under way arrives, and does no harm.
    fn finish(&mut self) {
        while let Some(Reverse((arrival, _, destination, bytes))) = self.network.pop() {
            self.now = self.now.max(arrival);
            self.deliver(destination, &bytes);
        }
        assert!(self.client.completion().is_none() && self.client.idle());
        assert!(self.submitted.iter().all(|submitted| submitted.state != State::Awaited));
    }

    fn act(&mut self, action: &Action) {
        let token = self.submitted.len() as u64;
        let (id, kind, address, data) = match *action {
            Action::Cancel(back) => return self.cancel(back),
            Action::Fence => (self.client.fence(token, self.now), None, 0, Vec::new()),
            Action::Operate { kind, address, length, limit } => {
                let data = (0..length).map(|_| self.draw() as u8).collect();
                let mut body = [0; AtomicOperation::BYTES];
                AtomicOperation::FetchAdd(token + 1).write_to(&mut body);
                let operation = Operation {
                    deadline: limit.map_or(u64::MAX, |limit| self.now + limit),
                    body: if kind == Kind::Atomic { &body } else { &[] },
                    ..Lane::operation(kind, address, length, token)
                };
                (self.client.submit(&operation, self.now), Some(kind), address, data)
            }
        };
        let id = id.expect("there is room");
        self.submitted.push(Submitted { id, kind, address, data, state: State::Awaited, executed: false });
    }

    fn cancel(&mut self, back: usize) {
        let Some(token) = self.submitted.len().checked_sub(1 + back) else { return };
        let submitted = &mut self.submitted[token];
        self.client.cancel(submitted.id);
        if submitted.state == State::Awaited {
            submitted.state = State::Cancelled;
        }
    }

    fn send_all(&mut self) {
        while let Some(transmit) = self.client.transmit(self.now) {
            let header = transmit.header;
            if header.kind.is_exactly_once() {
                assert!(header.time <= self.node.clock(self.now), "the request is from the future");
            }
            let payload = match transmit.payload {
                Payload::None => &[],
                Payload::Inline(bytes) => bytes,
                Payload::Caller { offset, length } => {
                    let submitted = &self.submitted[transmit.token as usize];
                    assert_eq!(submitted.state, State::Awaited, "the data is the owner's again");
                    &submitted.data[offset as usize..][..length]
                }
            };
            let bytes = sealed(&header, payload);
            if !matches!(header.kind, Kind::Ping | Kind::Abort) {
                self.tokens.insert(header.first_id, transmit.token);
            }
            self.post(Destination::Node, bytes);
        }
    }

    /// Puts a message on the network.
    fn post(&mut self, destination: Destination, mut bytes: Vec<u8>) {
        if self.conditions.transport == Transport::Stream {
            let arrival = self.last_arrival.max(self.now + self.delay());
            self.last_arrival = arrival;
            self.enqueue(arrival, destination, bytes);
            if self.chance(self.conditions.tear) {
                self.network.clear();
                self.client.reconnected(self.now);
            }
            return;
        }
        if self.chance(self.conditions.lose) {
            return;
        }
        if self.chance(self.conditions.repeat) {
            let arrival = self.now + 5 * self.delay();
            self.enqueue(arrival, destination, bytes.clone());
        }
        if self.chance(self.conditions.corrupt) {
            let bit = self.draw() as usize % (8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let arrival = self.now + self.delay();
        self.enqueue(arrival, destination, bytes);
    }

    fn enqueue(&mut self, arrival: u64, destination: Destination, bytes: Vec<u8>) {
        self.messages += 1;
        self.network.push(Reverse((arrival, self.messages, destination, bytes)));
    }

    fn deliver(&mut self, destination: Destination, bytes: &[u8]) {
        if destination == Destination::Client {
            return self.receive(bytes);
        }
        self.node.short_of = self.chance(self.conditions.busy).then_some(ErrorCode::Busy);
        let before = self.node.executions.len();
        let answer = self.node.handle(bytes, self.now);
        // A message is one request.
        if let Some((first_id, kind)) = self.node.executions.get(before).copied() {
            self.check_execution(first_id, kind);
        }
        if let Some(answer) = answer {
            self.post(Destination::Client, answer);
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let Ok(Some(message)) = split(bytes) else { return };
        if message.verify().is_err() {
            return;
        }
        if let Received::Data { token, offset } = self.client.receive(&message, self.now) {
            let submitted = &mut self.submitted[token as usize];
            assert_eq!(submitted.state, State::Awaited, "the buffer is the owner's again");
            submitted.data[offset as usize..][..message.payload.len()].copy_from_slice(message.payload);
        }
        self.take_completions();
    }

    fn check_execution(&mut self, first_id: u64, kind: Kind) {
        let token = self.tokens[&first_id] as usize;
        let submitted = &self.submitted[token];
        if kind == Kind::Read && submitted.state != State::Awaited {
            // A late copy of a read: nobody looks at the answer.
            return;
        }
        if kind != Kind::Read {
            assert_eq!(self.node.executions_of(first_id), 1, "operation {token} was executed twice");
        }
        self.check_order(token);
        self.submitted[token].executed = true;
    }

    /// Operation `token` happens now.
    fn check_order(&self, token: usize) {
        for (other, before) in self.submitted.iter().enumerate() {
            if !self.submitted[token].depends_on(before) {
                continue;
            }
            if other < token {
                assert_ne!(before.state, State::Awaited, "operation {token} did not wait for {other}");
            } else if other > token {
                assert!(!before.executed, "operation {token} was executed after {other}");
            }
        }
    }

    fn take_completions(&mut self) {
        while let Some(Completion { token, id, outcome }) = self.client.completion() {
            let token = token as usize;
            assert_eq!((self.submitted[token].id, self.submitted[token].state), (id, State::Awaited));
            self.check_outcome(token, outcome);
            self.submitted[token].state = State::Over(outcome);
        }
    }

    fn check_outcome(&mut self, token: usize, outcome: Outcome) {
        let submitted = &self.submitted[token];
        let start = submitted.address as usize;
        let memory = self.node.memory.get(start..start + submitted.data.len()).unwrap_or_default();
        match (submitted.kind, outcome) {
            (None, Outcome::Done) => {
                self.check_order(token);
                self.submitted[token].executed = true;
            }
            (Some(Kind::Read | Kind::Write), Outcome::Done) => assert_eq!(memory, submitted.data, "operation {token}"),
            (Some(Kind::Discard), Outcome::Done) => assert!(memory.iter().all(|byte| *byte == 0)),
            (Some(Kind::Status | Kind::Call), Outcome::Done) => {}
            (Some(Kind::Atomic), Outcome::Old(old)) => {
                let word = u64::from_le_bytes(memory.try_into().unwrap());
                assert_eq!(word, old.wrapping_add(token as u64 + 1));
            }
            (Some(_), Outcome::TimedOut) => {}
            (Some(kind), Outcome::Refused(ErrorCode::TooOld)) => assert!(kind.is_exactly_once()),
            other => panic!("operation {token}: {other:?}"),
        }
    }

    fn delay(&mut self) -> u64 {
        1 + self.draw() % self.conditions.delay_max
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// The next number of SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Submitted {
    /// The pages that it touches, and whether it changes them.
    fn pages(&self) -> Option<(std::ops::RangeInclusive<u64>, bool)> {
        let last = self.address + (self.data.len() as u64).checked_sub(1)?;
        let changes = match self.kind? {
            Kind::Read => false,
            Kind::Write | Kind::Atomic | Kind::Discard => true,
            _ => return None,
        };
        Some((self.address / 256..=last / 256, changes))
    }

    fn depends_on(&self, other: &Self) -> bool {
        if self.kind.is_none() || other.kind.is_none() {
            return true;
        }
        let (Some((ours, we_change)), Some((theirs, they_change))) = (self.pages(), other.pages()) else {
            return false;
        };
        (we_change || they_change) && ours.start() <= theirs.end() && theirs.start() <= ours.end()
    }
}

/// An operation of a kind that tests submit, on a small part of the memory.
pub(crate) fn operation(kind: u8, place: u64, length: u64, limit: Option<u64>) -> Action {
    let (kind, address, length) = match kind {
        0..=3 => (Kind::Read, place, length),
        4..=7 => (Kind::Write, place, length),
        8 | 9 => (Kind::Atomic, place / 8 * 8, 8),
        10 => (Kind::Discard, place, length),
        11 => (Kind::Status, 0, 0),
        _ => (Kind::Call, OFFLOAD, length),
    };
    Action::Operate { kind, address, length, limit }
}
