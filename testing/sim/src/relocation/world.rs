//! [`World`]: the controller, its store, the nodes and what is on its way between them; and the steps of a run.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use yonder_placement::{
    Actions, Answer, Asker, Change, ClusterId, Config, Controller, Event, Key, Keys, NodeId, Outcome, Pid, Record,
    RecordKey, Request, SPACE_LEASE_STEP_MAX, Ticket,
};
use yonder_simulation::{Counts, Trace};
use yonder_units::Nanos;
use yonder_wire::AdoptStage;

use super::carrier::{Packet, Phase};
use super::host::Host;
use super::oracle::Oracle;
use super::{ALLOCATED_PAGES, HOSTS, MoveSabotage, REGION_BYTES, REGIONS};
use crate::counts::MoveCount;
use crate::settings::{MILLISECOND, PAGE_BYTES};

/// Steps of a run before everything works.
const STEPS: u64 = 1500;
/// Packets on their way, at most: the oldest is lost then.
pub(super) const PACKETS_MAX: usize = 40;
/// How long a transfer may be silent, and more.
pub(super) const LONG: Nanos = 70_000 * MILLISECOND;

pub(super) struct World {
    rng: SmallRng,
    trace: Trace,
    sabotage: Option<MoveSabotage>,
    pub(super) now: Nanos,
    pub(super) config: Config,
    controller: Controller,
    pub(super) records: BTreeMap<RecordKey, Record>,
    /// The controller stops when so many changes of the next event are durable.
    pub(super) crash_after: Option<usize>,
    answers: Vec<Answer>,
    pub(super) hosts: Vec<Host>,
    pub(super) packets: Vec<Packet>,
    /// Packets that take much longer than others.
    pub(super) late: Vec<Packet>,
    pub(super) oracle: Oracle,
    pub(super) pid: Pid,
    pub(super) keys: Keys,
    /// Where clients have been told that a region is, oldest first.
    places: BTreeMap<u32, Vec<NodeId>>,
    next_id: u64,
    next_ticket: u64,
    next_node: u64,
    counts: Counts<MoveCount>,
}

impl World {
    pub(super) fn new(seed: u64, sabotage: Option<MoveSabotage>, trace: Trace) -> Self {
        let config = Config {
            region_bytes: REGION_BYTES,
            lease: 1000 * MILLISECOND,
            moves_max: 3,
            move_retry: 20 * MILLISECOND,
            ..Config::default()
        };
        let controller = Controller::restore(config, ClusterId(1), [], 0).expect("the configuration is right");
        let keys = Keys { owner: Key(1), read_write: Key(2), read: Key(3) };
        Self {
            rng: SmallRng::seed_from_u64(seed),
            trace,
            sabotage,
            now: 0,
            config,
            controller,
            records: BTreeMap::new(),
            crash_after: None,
            answers: Vec::new(),
            hosts: (1..=HOSTS as u64).map(|id| Host::new(NodeId(id), sabotage)).collect(),
            packets: Vec::new(),
            late: Vec::new(),
            oracle: Oracle::default(),
            pid: Pid::FIRST,
            keys,
            places: BTreeMap::new(),
            next_id: 1 << 40,
            next_ticket: 0,
            next_node: HOSTS as u64 + 1,
            counts: Counts::default(),
        }
    }

    /// The whole run. The error says what was wrong.
    pub(super) fn run(mut self) -> Result<Counts<MoveCount>, String> {
        self.begin();
        let stops_at = self.rng.random_range(50..STEPS);
        for _ in 0..stops_at {
            self.step()?;
            self.check()?;
        }
        self.converge(None)?;
        let drained = self.rng.random_range(0..HOSTS);
        self.converge(Some(drained))?;
        self.end()?;
        Ok(self.counts)
    }

    /// The address space, and its regions with their allocations: nothing goes wrong yet.
    fn begin(&mut self) {
        (0..HOSTS).for_each(|at| self.connect(at));
        self.ask(Request::CreateSpace { keys: self.keys, lease_ms: 0 });
        for region in 1..=REGIONS {
            let (pid, key) = (self.pid, self.keys.owner);
            self.ask(Request::PlaceRegion { pid, key, bytes: REGION_BYTES, avoid: Vec::new() });
            while !self.answers.iter().any(|answer| matches!(answer, Answer::Placed { .. })) {
                (0..HOSTS).for_each(|at| self.obey(at));
            }
            let placed = self.answers.drain(..).find_map(|answer| match answer {
                Answer::Placed { regions } => regions.into_iter().next(),
                _ => None,
            });
            let placed = placed.expect("it was just found");
            assert_eq!(placed.region, region);
            let at = self.at(placed.node).expect("it runs");
            self.hosts[at].allocate(pid, region);
            self.oracle.placed(region, placed.node);
            self.places.insert(region, vec![placed.node]);
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += self.rng.random_range(0..2 * MILLISECOND);
        let at = self.rng.random_range(0..HOSTS);
        match self.rng.random_range(0..1000) {
            0..300 => self.deliver()?,
            300..320 => drop(self.take_packet()),
            320..332 if !self.late.is_empty() => {
                let at = self.rng.random_range(0..self.late.len());
                self.packets.push(self.late.swap_remove(at));
            }
            332..420 => self.send_again(at),
            420..435 => self.give_up(at),
            435..560 => self.execute(at),
            560..660 => self.hear(at),
            660..670 => self.cut(at),
            670..725 => self.report(at),
            725..727 => self.restart_controller(),
            727..730 => self.crash_after = Some(self.rng.random_range(0..4)),
            730..731 => self.restart_host(at),
            731..732 => self.pass(LONG),
            732..734 => self.pass(self.config.lease),
            734..764 => self.drain(Some(at)),
            _ => self.use_region()?,
        }
        Ok(())
    }

    /// What must be true after every step.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let closed: Vec<_> = self.hosts.iter_mut().flat_map(|host| std::mem::take(&mut host.closed)).collect();
        for (region, to) in closed {
            let target_runs = self.at(to).is_some();
            self.oracle.closed(region, to, target_runs);
        }
        let (pid, now) = (self.pid, self.now);
        let mut id = self.next_id;
        let checked = self.oracle.check_served(&mut self.hosts, |host, address| {
            id += 1;
            host.access(id, pid, address, None, now).is_ok()
        });
        self.next_id = id;
        checked?;
        for (key, record) in &self.records {
            if let (RecordKey::Region(_, region), Record::Region { record, .. }) = (key, record)
                && record.opening.is_some()
                && self.hosts.iter().any(|host| host.id == record.owner)
            {
                self.oracle.has_come(*region, record.owner);
            }
        }
        Ok(())
    }

    /// A client reads or writes a word, where it was told last or earlier that the region is.
    fn use_region(&mut self) -> Result<(), String> {
        let region = self.rng.random_range(1..=REGIONS);
        let known = &self.places[&region];
        let (newest, any) = (known[known.len() - 1], *known.choose(&mut self.rng).expect("it was placed"));
        let node = if self.rng.random_bool(0.6) { newest } else { any };
        self.counts.add(MoveCount::ByOldPlaces, u64::from(node != newest));
        let address = region as u64 * REGION_BYTES + self.rng.random_range(0..ALLOCATED_PAGES) * PAGE_BYTES;
        let id = self.id();
        let write = self.rng.random_bool(0.5).then_some(id);
        let (pid, now) = (self.pid, self.now);
        let result = self.at(node).map(|at| self.hosts[at].access(id, pid, address, write, now));
        self.counts.add(if matches!(result, Some(Ok(_))) { MoveCount::Executed } else { MoveCount::Refused }, 1);
        match (result, write) {
            (Some(Ok(_)), Some(word)) => self.oracle.written(region, address, word),
            (Some(Ok(word)), None) => self.oracle.read(region, address, word)?,
            // It asks again where the region is.
            (Some(Err(_)) | None, _) => drop(self.locate(region)),
        }
        Ok(())
    }

    /// Where the controller says that a region is, unless it says that it is lost.
    pub(super) fn locate(&mut self, region: u32) -> Option<NodeId> {
        let (pid, key) = (self.pid, self.keys.read_write);
        self.ask(Request::Locate { pid, key, region });
        let located = self.answers.drain(..).find_map(|answer| match answer {
            Answer::Located(placement) => Some(placement.node),
            _ => None,
        });
        let known = self.places.get_mut(&region).expect("it was placed");
        known.extend(located.filter(|node| known.last() != Some(node)));
        located
    }

    /// A packet arrives; perhaps it arrives once more later.
    pub(super) fn deliver(&mut self) -> Result<(), String> {
        let Some(packet) = self.take_packet() else { return Ok(()) };
        if self.rng.random_bool(0.15) {
            self.packets.push(packet.clone());
        }
        match packet {
            Packet::Request { from, to, bytes } => {
                let Some(target) = self.at(to) else { return Ok(()) };
                let now = self.now;
                let Some(result) = self.hosts[target].adopt(&bytes, now) else { return Ok(()) };
                let header = yonder_wire::split(&bytes).ok().flatten().expect("a whole message").header;
                self.say(|| {
                    let request = yonder_wire::split(&bytes).ok().flatten().expect("a whole message");
                    let request = yonder_wire::AdoptRequest::from_bytes(request.payload).expect("a stage");
                    let (transfer, region, stage) = (request.transfer, request.from / REGION_BYTES, &request.stage);
                    let stage = match stage {
                        AdoptStage::Begin(_) => "Begin",
                        AdoptStage::Fill(_) => "Fill",
                        AdoptStage::Prepare => "Prepare",
                        AdoptStage::Finish => "Finish",
                        AdoptStage::Abandon => "Abandon",
                    };
                    format!(
                        "{to:?} answers {stage} of move {transfer} of region {region} from {from:?} with {result:?}"
                    )
                });
                self.put(Packet::Answer { to: from, first_id: header.first_id, refused: result.err() });
            }
            Packet::Answer { to, first_id, refused } => {
                let Some(at) = self.at(to) else { return Ok(()) };
                if refused == Some(yonder_wire::ErrorCode::Busy) {
                    return Ok(());
                }
                let answered = self.hosts[at].carriers.iter_mut().position(|carrier| carrier.is_answered(first_id));
                let Some(carrier) = answered else { return Ok(()) };
                if refused.is_some() {
                    self.end_carrier(at, carrier);
                } else {
                    let is_word = self.hosts[at].carriers[carrier].phase == Phase::Finishing;
                    self.counts.add(MoveCount::HeardOfSource, u64::from(is_word));
                    if !self.hosts[at].stage_done(carrier) {
                        self.send_next(at, carrier);
                        // Often it says only once that the region is closed.
                        if self.hosts[at].carriers[carrier].moving.is_none() && self.rng.random_bool(0.4) {
                            self.end_carrier(at, carrier);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn take_packet(&mut self) -> Option<Packet> {
        if self.packets.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.packets.len());
        Some(self.packets.swap_remove(at))
    }

    fn put(&mut self, packet: Packet) {
        let packets = if self.rng.random_bool(0.25) { &mut self.late } else { &mut self.packets };
        if packets.len() >= PACKETS_MAX {
            packets.remove(0);
        }
        packets.push(packet);
    }

    fn send_first(&mut self, at: usize) {
        let last = self.hosts[at].carriers.len().checked_sub(1);
        if let Some(last) = last.filter(|last| self.hosts[at].carriers[*last].has_not_begun()) {
            self.send_next(at, last);
        }
    }

    fn send_next(&mut self, at: usize, carrier: usize) {
        let (id, now, from) = (self.id(), self.now, self.hosts[at].id);
        if let Some(packet) = self.hosts[at].carriers[carrier].send_next(id, now) {
            self.put(packet.of(from));
        }
    }

    pub(super) fn send_again(&mut self, at: usize) {
        let (id, from) = (self.id(), self.hosts[at].id);
        let packets: Vec<Packet> =
            self.hosts[at].carriers.iter().filter_map(|carrier| carrier.send_again(id)).collect();
        packets.into_iter().for_each(|packet| self.put(packet.of(from)));
    }

    /// A source has waited long enough for one of its targets.
    fn give_up(&mut self, at: usize) {
        let carriers = self.hosts[at].carriers.len();
        if carriers > 0 {
            let carrier = self.rng.random_range(0..carriers);
            self.end_carrier(at, carrier);
        }
    }

    pub(super) fn end_carrier(&mut self, at: usize, carrier: usize) {
        let (id, now, from) = (self.id(), self.now, self.hosts[at].id);
        if let Some(given_up) = self.hosts[at].give_up(carrier) {
            self.counts.add(MoveCount::GivenUp, 1);
            self.say(|| format!("{from:?} gives {:?} up", given_up.order.id));
            self.put(given_up.message(AdoptStage::Abandon, id, now).of(from));
        }
    }

    /// A node executes the next command of the controller.
    fn execute(&mut self, at: usize) {
        let Some(command) = self.hosts[at].commands.pop_front() else { return };
        self.say(|| format!("{:?} executes {command:?}", self.hosts[at].id));
        let now = self.now;
        self.hosts[at].execute(command, now);
        self.send_first(at);
    }

    /// The controller hears the next outcome of a node.
    fn hear(&mut self, at: usize) {
        if let Some(outcome) = self.hosts[at].outcomes.pop_front() {
            self.say(|| format!("the controller hears {outcome:?} of {:?}", self.hosts[at].id));
            match outcome {
                Outcome::Moved { .. } => _ = self.counts.add(MoveCount::Moved, 1),
                Outcome::RegionOpened { .. } => _ = self.counts.add(MoveCount::HeardOfController, 1),
                _ => {}
            }
            let node = self.hosts[at].id;
            self.handle(Event::Answered(node, outcome));
        }
    }

    /// A node does everything it was told, and is heard.
    pub(super) fn obey(&mut self, at: usize) {
        while !self.hosts[at].commands.is_empty() {
            self.execute(at);
        }
        while !self.hosts[at].outcomes.is_empty() {
            self.hear(at);
        }
    }

    fn cut(&mut self, at: usize) {
        if self.hosts[at].is_connected {
            self.hosts[at].cut();
            let node = self.hosts[at].id;
            self.handle(Event::Disconnected(node));
        }
    }

    pub(super) fn report(&mut self, at: usize) {
        if self.hosts[at].is_connected {
            let (node, report) = (self.hosts[at].id, self.hosts[at].report());
            self.handle(Event::Reported(node, report));
        } else {
            self.connect(at);
        }
    }

    pub(super) fn connect(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.cut();
        host.is_connected = true;
        let (facts, report, spaces) = (host.facts(), host.report(), host.spaces());
        assert_eq!(self.controller.admit(&facts, None), Ok(()));
        self.handle(Event::Registered { facts, report, spaces });
    }

    /// A node ends, and another one begins in its place.
    fn restart_host(&mut self, at: usize) {
        self.cut(at);
        let ended = self.hosts[at].id;
        self.say(|| format!("{ended:?} ends"));
        self.counts.add(MoveCount::Restarts, 1);
        self.counts.add(MoveCount::Lost, self.oracle.ended(ended));
        self.hosts[at] = Host::new(NodeId(self.next_node), self.sabotage);
        self.next_node += 1;
    }

    fn restart_controller(&mut self) {
        self.counts.add(MoveCount::Controllers, 1);
        self.hosts.iter_mut().for_each(Host::cut);
        let records = self.records.values().cloned();
        let restored = Controller::restore(self.config, ClusterId(9), records, self.now);
        self.controller = restored.expect("every prefix of the changes is whole");
    }

    /// One node is drained, if one is given, and all others are not.
    pub(super) fn drain(&mut self, drained: Option<usize>) {
        for at in 0..HOSTS {
            let node = self.hosts[at].id.to_string();
            let drains = drained == Some(at);
            self.ask(if drains { Request::Drain { node } } else { Request::Undrain { node } });
        }
    }

    /// The controller looks at the clock meanwhile, until all leases of nodes are over.
    pub(super) fn pass(&mut self, time: Nanos) {
        let end = self.now + time;
        for _ in 0..=self.config.lease / SPACE_LEASE_STEP_MAX {
            self.now = end.min(self.now + SPACE_LEASE_STEP_MAX);
            self.handle(Event::Tick);
        }
        self.now = end;
        self.hosts.iter_mut().for_each(|host| host.expire(end));
        self.handle(Event::Tick);
    }

    pub(super) fn ask(&mut self, request: Request) {
        self.next_ticket += 1;
        self.handle(Event::Asked(Ticket(self.next_ticket), Asker::local(), request));
    }

    fn handle(&mut self, event: Event) {
        let Actions { changes, closed, commands, answers, expired: _, outside_sets: _ } =
            self.controller.handle(event, self.now);
        let crash_after = if changes.is_empty() { None } else { self.crash_after.take() };
        for change in changes.into_iter().take(crash_after.unwrap_or(usize::MAX)) {
            match change {
                Change::Put(record) => drop(self.records.insert(record.key(), record)),
                Change::Delete(key) => drop(self.records.remove(&key)),
                Change::DeleteRegions(pid) => {
                    self.records.retain(|key, _| !matches!(key, RecordKey::Region(of, _) if *of == pid));
                }
            }
        }
        if crash_after.is_some() {
            return self.restart_controller();
        }
        for node in closed {
            if let Some(at) = self.at(node) {
                self.hosts[at].cut();
            }
        }
        for (node, command) in commands {
            if let Some(at) = self.at(node) {
                self.hosts[at].commands.push_back(command);
            }
        }
        self.answers = answers.into_iter().map(|(_, answer)| answer).collect();
    }

    pub(super) fn at(&self, node: NodeId) -> Option<usize> {
        self.hosts.iter().position(|host| host.id == node)
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.trace.say(self.now, what);
    }
}
