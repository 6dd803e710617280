//! [`Thread`]: a thread of a client with a CPU of its own and one lane: CLib, made of the real `core/client`.
//!
//! The CPU does one thing at a time: it takes an answer, or else it submits the next operation. Each takes half of what
//! CLib adds (section 7.1). What the client may send when it has done so goes out at once.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_client::{Client, Completion, Config, Operation, Outcome, Payload, Received, Transmit, Transport};
use yonder_units::Nanos;
use yonder_wire::{Kind, split};

use super::node::Space;
use crate::costs::clio::{CLIB, FRAGMENT, PAGE};

/// What a thread does.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Reads or writes.
    pub(super) kind: Kind,
    /// Bytes of each.
    pub(super) bytes: u64,
    /// Where: any of its pages.
    pub(super) space: Rc<Space>,
    /// When.
    pub(super) pace: Pace,
}

/// When a thread begins an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pace {
    /// As soon as fewer than this many are under way. One: the synchronous API.
    Always(usize),
    /// One after the other, when it is asked to.
    WhenAsked,
}

/// What has happened to operations.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Operations that were handed to a client.
    pub(super) submitted: u64,
    /// Operations that are over.
    pub(super) completed: u64,
    /// How long each of them took, since the measurement began.
    pub(super) latencies: Vec<Nanos>,
}

/// What a CPU is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Receive,
    /// Submits an operation that is measured from this time.
    Submit(Nanos),
}

/// A client's thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) client: Client,
    /// The machine it runs on.
    pub(super) compute_node: usize,
    /// The memory node that its lane leads to.
    pub(super) node: usize,
    load: Load,
    work: Option<Work>,
    /// Answers that the CPU has not taken yet.
    pub(super) inbox: VecDeque<Vec<u8>>,
    /// Since when it is asked for operations that it has not begun.
    asked: VecDeque<Nanos>,
    /// When operations that are not over began, by token.
    open: BTreeMap<u64, Nanos>,
    next_token: u64,
    /// When the client's timer is planned to be looked at.
    pub(super) wake_at: Nanos,
}

impl Thread {
    /// A thread of machine `compute_node` with a lane to `node`.
    pub(super) fn new(compute_node: usize, node: usize, load: Load, rng: &mut ChaCha8Rng) -> Self {
        let defaults = Config::new(Transport::Datagram, rng.random_range(1..1 << 62));
        let depth = match load.pace {
            Pace::Always(depth) => depth,
            Pace::WhenAsked => 1,
        };
        let client = Client::new(Config {
            operations_max: depth + 1,
            fragments_max: (2 * depth).next_power_of_two().max(4),
            fragment_bytes: FRAGMENT.value as usize,
            ..defaults
        });
        Self {
            client,
            compute_node,
            node,
            load,
            work: None,
            inbox: VecDeque::new(),
            asked: VecDeque::new(),
            open: BTreeMap::new(),
            next_token: 1,
            wake_at: Nanos::MAX,
        }
    }

    /// Is asked for an operation at `now`.
    pub(super) fn ask(&mut self, now: Nanos) {
        self.asked.push_back(now);
    }

    /// From now on its operations are to `space`.
    pub(super) fn go_to(&mut self, space: Rc<Space>) {
        self.load.space = space;
    }

    /// Begins nothing more.
    #[cfg(test)]
    pub(super) fn stop(&mut self) {
        self.load.pace = Pace::WhenAsked;
    }

    /// Operations that are not over.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Begins what there is to do, if the CPU is free. Returns how long that takes.
    pub(super) fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        if self.work.is_some() {
            return None;
        }
        self.work = if self.inbox.is_empty() { self.next_operation(now) } else { Some(Work::Receive) };
        self.work.map(|work| match work {
            Work::Receive => CLIB.ns() / 2,
            Work::Submit(_) => CLIB.ns() - CLIB.ns() / 2,
        })
    }

    fn next_operation(&mut self, now: Nanos) -> Option<Work> {
        if !self.client.has_room() {
            return None;
        }
        match self.load.pace {
            Pace::Always(depth) => (self.open.len() < depth).then_some(Work::Submit(now)),
            Pace::WhenAsked if self.open.is_empty() => self.asked.pop_front().map(Work::Submit),
            Pace::WhenAsked => None,
        }
    }

    /// The CPU has done what it began.
    pub(super) fn finish(&mut self, now: Nanos, rng: &mut ChaCha8Rng, ledger: &mut Ledger) {
        match self.work.take().expect("the CPU was busy") {
            Work::Receive => {
                let bytes = self.inbox.pop_front().expect("there was an answer");
                self.receive(&bytes, now);
                self.complete(now, ledger);
            }
            Work::Submit(begun) => {
                self.submit(begun, now, rng);
                ledger.submitted += 1;
            }
        }
    }

    fn submit(&mut self, begun: Nanos, now: Nanos, rng: &mut ChaCha8Rng) {
        let Load { kind, bytes, ref space, .. } = self.load;
        let page = space.pages[rng.random_range(0..space.pages.len())];
        let operation = Operation {
            kind,
            pid: space.pid,
            capability: space.capability,
            address: page + rng.random_range(0..PAGE.value as u64 / bytes) * bytes,
            length: bytes,
            body: &[],
            deadline: Nanos::MAX,
            token: self.next_token,
        };
        self.client.submit(&operation, now).expect("there was room");
        self.open.insert(self.next_token, begun);
        self.next_token += 1;
    }

    fn receive(&mut self, bytes: &[u8], now: Nanos) {
        let message = split(bytes).ok().flatten().expect("the network damages nothing");
        assert!(message.verify().is_ok(), "the board seals what it answers");
        if let Received::Data { .. } = self.client.receive(&message, now) {
            let expected = content(message.header.pid, message.header.address, message.payload.len());
            let (words, expected) = (message.payload.chunks(8), expected.chunks(8).map(<[u8]>::to_vec));
            let is_ours = words.zip(expected).all(|(word, expected)| word == [0; 8] || word == expected);
            assert!(is_ours, "a read returned what nobody wrote there");
        }
    }

    fn complete(&mut self, now: Nanos, ledger: &mut Ledger) {
        while let Some(Completion { token, outcome, .. }) = self.client.completion() {
            assert_eq!(outcome, Outcome::Done, "operation {token}");
            let begun = self.open.remove(&token).expect("an operation completes once");
            ledger.completed += 1;
            ledger.latencies.push(now - begun);
        }
    }

    /// The next message that the client sends now.
    pub(super) fn transmit(&mut self, now: Nanos) -> Option<Vec<u8>> {
        let Transmit { header, payload, .. } = self.client.transmit(now)?;
        let payload = match payload {
            Payload::None => Vec::new(),
            Payload::Inline(bytes) => bytes.to_vec(),
            Payload::Caller { length, .. } => content(header.pid, header.address, length),
        };
        Some([&header.seal(&payload)[..], &payload].concat())
    }
}

/// What is written at an address: words that are found nowhere else.
pub(super) fn content(pid: u32, address: u64, bytes: usize) -> Vec<u8> {
    let words = (address..address + bytes as u64).step_by(8);
    words.flat_map(|at| ((u64::from(pid) << 32) ^ at ^ 1).to_le_bytes()).collect()
}
