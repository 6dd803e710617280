//! The target `controller`: what nodes and clients tell a controller, as the JSON that comes on a line.
//!
//! Nodes do as they are told, or answer what nobody asked; lines are changed on their way. Every request is answered
//! once. Whoever has no key gets nothing. Every prefix of the changes to the records is a state that a controller can
//! begin from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Serialize;
use serde::de::DeserializeOwned;
use yonder_placement::{
    Actions, Answer, Arrival, Asker, Capabilities, Capability, Change, ClusterId, Command, Config, Controller, Domains,
    Event, Key, Keys, MoveId, NodeId, NodeReport, Outcome, Pid, PlacesWanted, Record, RecordKey, Refusal, RegionReport,
    Registration, Request, SPACE_LEASE_STEP_MAX, Ticket, URLS_MAX,
};

use crate::script::Step;
use crate::{Target, Trail};

const STEP_BYTES: usize = 24;
pub(crate) const TARGET: Target =
    Target { name: "controller", step_bytes: STEP_BYTES, bytes_max: 150 * STEP_BYTES, run };

const NODES: u64 = 4;
const CLUSTER: ClusterId = ClusterId(5);
const REGION_BYTES: u64 = 1 << 16;
/// Bytes of a node's memory: a few regions.
const MEMORY_BYTES: u64 = 6 * REGION_BYTES;
/// What nobody has as a key.
const NO_KEY: Key = Key(0xdead);
/// Longest time that passes at once, in nanoseconds: more than a lease.
const NANOS_MAX: u64 = 6_000_000_000;

fn run(data: &[u8], trail: &mut Trail) {
    let mut cluster = Cluster::new();
    for mut step in Step::all(data, STEP_BYTES) {
        let what = step.below(10);
        let seen = match what {
            0 => cluster.register(&mut step),
            1 => cluster.report(&mut step),
            2..5 => cluster.obey(&mut step),
            5 => cluster.say_anything(&mut step),
            6..9 => cluster.ask(&mut step),
            _ => cluster.pass(&mut step),
        };
        trail.note([what, seen, cluster.records.len().min(16) as u64]);
    }
    cluster.end();
}

/// A controller, its records, and what it has told nodes.
struct Cluster {
    controller: Controller,
    records: BTreeMap<String, Record>,
    now: u64,
    registered: BTreeSet<NodeId>,
    commands: VecDeque<(NodeId, Command)>,
    /// Requests without an answer, and whether their key is none.
    open: BTreeMap<u64, Request>,
    next_ticket: u64,
}

impl Cluster {
    fn new() -> Self {
        let controller = Controller::restore(config(), CLUSTER, [], 0).expect("an empty cluster is whole");
        let (records, commands) = (BTreeMap::new(), VecDeque::new());
        let (registered, open) = (BTreeSet::new(), BTreeMap::new());
        Self { controller, records, now: 1, registered, commands, open, next_ticket: 0 }
    }

    /// Hands the event to the controller, does what that says, and says what came of it.
    fn handle(&mut self, event: Event, prefix: usize) -> u64 {
        let Actions { changes, closed, commands, answers, .. } = self.controller.handle(event, self.now);
        let seen = changes.len().min(7) + 8 * commands.len().min(3) + 32 * answers.len().min(3);
        for (index, change) in changes.iter().enumerate() {
            self.apply(change);
            if index == prefix {
                self.check_records();
            }
        }
        for node in closed {
            self.registered.remove(&node);
        }
        for (node, command) in commands {
            assert!(self.registered.contains(&node), "a command to a node that is not connected");
            self.commands.push_back((node, command));
        }
        for (Ticket(ticket), answer) in answers {
            let request = self.open.remove(&ticket).expect("an answer to nobody, or a second one");
            check_answer(&request, &answer);
        }
        seen as u64
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Put(record) => {
                let text = serde_json::to_vec(record).expect("a record is JSON");
                let read: Record = serde_json::from_slice(&text).expect("it is read again");
                assert_eq!(&read, record);
                self.records.insert(record.key().to_string(), read);
            }
            Change::Delete(key) => drop(self.records.remove(&key.to_string())),
            Change::DeleteRegions(pid) => {
                let beginning = RecordKey::regions_of(*pid);
                self.records.retain(|key, _| !key.starts_with(&beginning));
            }
        }
    }

    /// Another controller can begin from the records.
    fn check_records(&self) {
        let restored = Controller::restore(config(), CLUSTER, self.records.values().cloned(), self.now);
        restored.unwrap_or_else(|error| panic!("records that no controller can begin from: {error}"));
    }

    fn register(&mut self, step: &mut Step<'_>) -> u64 {
        let node = NodeId(step.below(NODES));
        let facts = Registration {
            node,
            name: None,
            urls: (0..step.pick(&[1, 1, 1, 0, 9])).map(|port| format!("tcp://10.0.0.{node}:{port}")).collect(),
            memory_bytes: step.pick(&[MEMORY_BYTES, MEMORY_BYTES, MEMORY_BYTES, 0, u64::MAX]),
            page_bytes: step.pick(&[4096, 4096, 4096, 5, 1 << 40]),
            region_bytes: if step.once_in(8) { step.number() } else { REGION_BYTES },
            domains: domains(node),
        };
        let spaces: Vec<Pid> = (0..step.below(3)).map(|_| pid(step)).collect();
        let report = report(step);
        if facts.urls.len() > URLS_MAX {
            // More addresses than a node may have are not even read.
            let line = serde_json::to_string(&facts).expect("a message is JSON");
            assert!(serde_json::from_str::<Registration>(&line).is_err(), "{line}");
            return 89;
        }
        let Some(facts) = on_a_line(&facts, step) else { return 90 };
        let cluster = if step.once_in(8) { Some(ClusterId(step.below(8))) } else { None };
        if self.controller.admit(&facts, cluster).is_err() {
            return 91;
        }
        let node = facts.node;
        if self.registered.remove(&node) {
            self.handle(Event::Disconnected(node), 0);
        }
        self.registered.insert(node);
        self.handle(Event::Registered { facts, report, spaces }, step.index(4))
    }

    fn report(&mut self, step: &mut Step<'_>) -> u64 {
        let Some(node) = self.node(step) else { return 92 };
        let report = report(step);
        let Some(report) = on_a_line(&report, step) else { return 93 };
        self.handle(Event::Reported(node, report), step.index(4))
    }

    /// A node does what it was told, or fails to.
    fn obey(&mut self, step: &mut Step<'_>) -> u64 {
        if self.commands.is_empty() {
            return 94;
        }
        let index = step.index(self.commands.len());
        let (node, command) = if step.once_in(8) {
            self.commands[index].clone()
        } else {
            self.commands.remove(index).expect("it is there")
        };
        let fails = step.once_in(4);
        let cause = "it cannot".to_owned();
        let outcome = match command {
            Command::CreateSpace { pid, .. } if fails => Outcome::SpaceRefused { pid, cause },
            Command::CreateSpace { pid, .. } => {
                let [owner, read_write, read] = [1, 2, 3].map(|number| Capability(u128::from(number + 16 * node.0)));
                Outcome::SpaceCreated { pid, capabilities: Capabilities { owner, read_write, read } }
            }
            Command::DestroySpace { pid } => Outcome::SpaceDestroyed { pid },
            Command::MoveRegion(order) => {
                assert_ne!(order.to, node, "a region moves to where it is");
                let id = order.id;
                if fails { Outcome::MoveFailed { id, cause } } else { Outcome::Moved { id } }
            }
            Command::OpenRegion { pid, region, id } => Outcome::RegionOpened { pid, region, id },
            Command::DropRegion { pid, region, .. } => Outcome::RegionDropped { pid, region },
        };
        if !self.registered.contains(&node) {
            return 95;
        }
        let Some(outcome) = on_a_line(&outcome, step) else { return 96 };
        self.handle(Event::Answered(node, outcome), step.index(4))
    }

    /// A node answers what nobody has told it.
    fn say_anything(&mut self, step: &mut Step<'_>) -> u64 {
        let Some(node) = self.node(step) else { return 97 };
        let (id, pid, region) = (MoveId(step.below(12)), pid(step), step.below(6) as u32);
        let cause = String::new();
        let capability = Capability(step.number().into());
        let capabilities = Capabilities { owner: capability, read_write: capability, read: capability };
        let outcome = match step.below(8) {
            0 => Outcome::SpaceCreated { pid, capabilities },
            1 => Outcome::SpaceRefused { pid, cause },
            2 => Outcome::SpaceDestroyed { pid },
            3 => Outcome::Moved { id },
            4 => Outcome::MoveFailed { id, cause },
            5 => Outcome::RegionDropped { pid, region },
            6 => Outcome::RegionOpened { pid, region, id },
            _ => match serde_json::from_slice(step.rest()) {
                Ok(outcome) => outcome,
                Err(_) => return 98,
            },
        };
        self.handle(Event::Answered(node, outcome), step.index(4))
    }

    fn ask(&mut self, step: &mut Step<'_>) -> u64 {
        let (pid, key) = (pid(step), key(step));
        let bytes = if step.once_in(6) { step.number() } else { 1 + step.below(3 * REGION_BYTES) };
        let region = step.below(8) as u32;
        let node = NodeId(step.below(NODES)).to_string();
        let request = match step.below(11) {
            0 | 1 => {
                let number = 1 + 16 * u128::from(step.below(3));
                let [owner, read_write, read] = [number, number + 1, number + 2].map(Key);
                Request::CreateSpace { keys: Keys { owner, read_write, read }, lease_ms: 0 }
            }
            2..5 => Request::PlaceRegion { pid, key, bytes, avoid: (0..step.below(3) as u32).collect() },
            5 => Request::Open { pid, key },
            6 => Request::Locate { pid, key, region },
            7 => Request::DestroySpace { pid, key },
            8 if bytes.is_multiple_of(2) => Request::Spaces { from: pid },
            8 => Request::Nodes,
            9 => Request::Drain { node },
            _ if bytes.is_multiple_of(2) => Request::Undrain { node },
            _ if bytes.is_multiple_of(3) => Request::GiveUp { pid, key, region },
            _ if bytes.is_multiple_of(5) => Request::NoteProtection { pid, key, pages_below: bytes },
            _ => {
                let places = if step.once_in(8) { step.number() as u32 } else { 1 + step.below(3) as u32 };
                let bytes = if step.once_in(6) { bytes } else { 1 + bytes % REGION_BYTES };
                let group = step.once_in(2).then_some(region);
                let apart = (0..step.below(3)).map(NodeId).collect();
                let avoid = (0..step.below(3) as u32).collect();
                Request::PlaceGroup { pid, key, wanted: PlacesWanted { bytes, places, group, apart, avoid } }
            }
        };
        let Some(request) = on_a_line(&request, step) else { return 99 };
        self.next_ticket += 1;
        self.open.insert(self.next_ticket, request.clone());
        self.handle(Event::Asked(Ticket(self.next_ticket), Asker::local(), request), step.index(4))
    }

    fn pass(&mut self, step: &mut Step<'_>) -> u64 {
        if step.once_in(3) {
            let Some(node) = self.node(step) else { return 89 };
            self.registered.remove(&node);
            return self.handle(Event::Disconnected(node), 0);
        }
        self.look(step.below(NANOS_MAX));
        self.handle(Event::Tick, step.index(4))
    }

    /// Lets time pass, for which the controller looks at the clock as often as it should.
    fn look(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now = end.min(self.now + SPACE_LEASE_STEP_MAX);
            self.handle(Event::Tick, 0);
        }
    }

    /// All nodes are gone: whoever waits is told.
    fn end(&mut self) {
        while let Some(node) = self.registered.pop_first() {
            self.handle(Event::Disconnected(node), 0);
        }
        self.look(2 * NANOS_MAX);
        assert!(self.open.is_empty(), "{} requests are never answered", self.open.len());
        let next = self.controller.next_deadline();
        assert!(next.is_none_or(|at| at > self.now), "a node without a connection keeps its lease");
        self.check_records();
    }

    /// A node that is connected.
    fn node(&self, step: &mut Step<'_>) -> Option<NodeId> {
        self.registered.iter().nth(step.index(self.registered.len())).copied()
    }
}

fn config() -> Config {
    Config { region_bytes: REGION_BYTES, ..Config::default() }
}

/// The message as it is read from its line, of which a byte may have changed; `None` if it cannot be read then.
fn on_a_line<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    message: &T,
    step: &mut Step<'_>,
) -> Option<T> {
    let mut line = serde_json::to_vec(message).expect("a message is JSON");
    if !step.once_in(6) {
        let read: T = serde_json::from_slice(&line).expect("what is sent is read");
        assert_eq!(&read, message);
        return Some(read);
    }
    let at = step.index(line.len());
    match step.below(3) {
        0 => line.truncate(at),
        1 => line[at] = step.byte(),
        _ => line[at] = step.pick(b"0123456789f\"-,}"),
    }
    serde_json::from_slice(&line).ok()
}

/// What fails together with a node: one has said nothing, two are in one rack.
fn domains(node: NodeId) -> Domains {
    let text = ["", "rack=a,row=1", "rack=a,row=1", "rack=b,row=1"][node.0 as usize];
    text.to_owned().try_into().expect("they are domains")
}

fn check_answer(request: &Request, answer: &Answer) {
    let is_without_key = match request {
        Request::Open { key, .. }
        | Request::PlaceRegion { key, .. }
        | Request::PlaceGroup { key, .. }
        | Request::GiveUp { key, .. }
        | Request::NoteProtection { key, .. }
        | Request::Locate { key, .. }
        | Request::DestroySpace { key, .. } => *key == NO_KEY,
        _ => false,
    };
    if is_without_key {
        assert!(matches!(answer, Answer::Refused(Refusal::BadKey { .. })), "an answer without a key: {answer:?}");
    }
}

fn pid(step: &mut Step<'_>) -> Pid {
    if step.once_in(12) { Pid(step.number() as u32) } else { Pid(Pid::FIRST.0 + step.below(4) as u32) }
}

fn key(step: &mut Step<'_>) -> Key {
    let number = step.below(12);
    if number > 9 { NO_KEY } else { Key(u128::from(1 + 16 * (number / 3) + number % 3)) }
}

fn report(step: &mut Step<'_>) -> NodeReport {
    let region = |step: &mut Step<'_>| RegionReport {
        pid: pid(step),
        region: step.below(8) as u32,
        allocated_bytes: step.number(),
        resident_bytes: step.number(),
        heat: step.number(),
    };
    let free_bytes = if step.once_in(4) { step.number() } else { step.below(MEMORY_BYTES) };
    let arrival =
        |step: &mut Step<'_>| Arrival { pid: pid(step), region: step.below(8) as u32, id: MoveId(step.below(12)) };
    let regions = (0..step.below(3)).map(|_| region(step)).collect();
    let arrived = (0..step.below(3)).map(|_| arrival(step)).collect();
    NodeReport { free_bytes, regions, arrived, ..NodeReport::default() }
}
