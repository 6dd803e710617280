//! The controller against nodes that really have (or have not) the regions, under any order of events.
//!
//! Each node of the model keeps the regions that it holds; commands wait in order on its connection, connections break
//! (what waits on them is lost), nodes stop and come back, moves end well or badly, and the controller starts again
//! from what it made durable, or stops in the middle of that; what a node answers is lost, and what the source of a
//! move tells its target is lost. One space has a short lease. After every step:
//! - no region is held by two nodes, and the owner in the records holds it, unless the move's end is still unheard;
//! - the records that were made durable are the records that the controller has;
//! - no node that is full, draining or gone was given anything;
//! - a region of a group has nothing else, is on a node of its own, and its number was never another region's; one that
//!   was given up is nobody's again, and nodes keep nothing of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use crate::fullness::Fullness;
use crate::*;

mod steps;

use steps::{End, Step, step};

const REGION: u64 = 1 << 20;
const NODE_REGIONS: u64 = 6;
const NODES: u64 = 4;
const SPACES: u128 = 3;
/// Lease of the last space, which ends now and then; the others have the longest.
const SHORT_LEASE_MS: u32 = 2000;

#[derive(Default)]
struct Node {
    connected: bool,
    waiting: VecDeque<Command>,
    spaces: BTreeSet<Pid>,
    /// Regions that it serves, with how full they are.
    holds: BTreeMap<(Pid, u32), u64>,
    /// Parts of regions that came with moves that failed.
    partial: BTreeSet<(Pid, u32)>,
    /// Regions that are whole and closed, with how full they are: nothing has said that their source has closed them.
    prepared: BTreeMap<(Pid, u32), (MoveId, u64)>,
    /// Regions that are served on the word of their source.
    arrived: BTreeMap<(Pid, u32), MoveId>,
    moves: BTreeMap<MoveId, Outcome>,
}

struct World {
    config: Config,
    controller: Controller,
    records: BTreeMap<RecordKey, Record>,
    nodes: Vec<Node>,
    pids: BTreeMap<u128, Pid>,
    now: u64,
    tickets: u64,
    /// The space that each request for regions is about.
    askers: BTreeMap<Ticket, Pid>,
    crash_after: Option<usize>,
    /// What clients were told: regions that are a group's alone, and those that they have given up.
    grouped: BTreeSet<(Pid, u32)>,
    given_up: BTreeSet<(Pid, u32)>,
}

fn keys(space: u128) -> Keys {
    Keys { owner: Key(space * 3), read_write: Key(space * 3 + 1), read: Key(space * 3 + 2) }
}

impl World {
    fn new() -> Self {
        let config = Config {
            region_bytes: REGION,
            space_lease_ms_min: SHORT_LEASE_MS,
            moves_max: 3,
            move_retry: 1_000_000_000,
            ..Config::default()
        };
        let controller = Controller::restore(config, ClusterId(1), [], 0).unwrap();
        let nodes = (0..NODES).map(|_| Node::default()).collect();
        let (records, pids, askers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (grouped, given_up) = (BTreeSet::new(), BTreeSet::new());
        let (now, tickets, crash_after) = (0, 0, None);
        Self { config, controller, records, nodes, pids, now, tickets, askers, crash_after, grouped, given_up }
    }

    fn handle(&mut self, event: Event) {
        let before = self.controller.fullness();
        let actions = self.controller.handle(event, self.now);
        let crash_after = if actions.changes.is_empty() { None } else { self.crash_after.take() };
        for change in actions.changes.into_iter().take(crash_after.unwrap_or(usize::MAX)) {
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
        for node in actions.closed {
            self.cut(node.0);
        }
        for (node, command) in actions.commands {
            assert!(self.nodes[node.0 as usize].connected, "a command to a node that is not connected");
            self.nodes[node.0 as usize].waiting.push_back(command);
        }
        for (ticket, answer) in actions.answers {
            match answer {
                Answer::Placed { regions } => {
                    let pid = self.askers[&ticket];
                    regions.iter().for_each(|placement| self.placed(pid, placement, &before));
                }
                Answer::Group { places, .. } => self.group_placed(self.askers[&ticket], &places, &before),
                _ => {}
            }
        }
    }

    /// The client allocates at once in what it was given; nodes with no room were not given anything.
    fn placed(&mut self, pid: Pid, placement: &Placement, before: &Fullness) {
        let node = placement.node.0 as usize;
        assert!(self.nodes[node].connected, "placed on a node that is not there");
        assert!(before.has_room(placement.node, placement.region, 0), "placed on a node without room");
        let limit = NODE_REGIONS * REGION * u64::from(self.config.overcommit_percent) / 100;
        assert!(self.controller.fullness().load(placement.node).committed() <= limit, "more than may be committed");
        assert!(self.nodes[node].spaces.contains(&pid), "placed on a node that does not know the space");
        let key = (pid, placement.region);
        assert!(!self.given_up.contains(&key) && !self.grouped.contains(&key), "{key:?} is another one's");
        self.nodes[node].holds.entry((pid, placement.region)).or_insert(0);
    }

    fn group_placed(&mut self, pid: Pid, places: &[Placement], before: &Fullness) {
        let nodes: BTreeSet<NodeId> = places.iter().map(|placement| placement.node).collect();
        assert_eq!(nodes.len(), places.len(), "two places of a group on one node");
        for placement in places {
            let key = (pid, placement.region);
            assert!(self.nodes.iter().all(|node| !node.holds.contains_key(&key)), "{key:?} has other allocations");
            self.placed(pid, placement, before);
            self.grouped.insert(key);
        }
    }

    fn ask(&mut self, request: Request) {
        self.tickets += 1;
        if let Request::PlaceRegion { pid, .. } | Request::PlaceGroup { pid, .. } = &request {
            self.askers.insert(Ticket(self.tickets), *pid);
        }
        self.handle(Event::Asked(Ticket(self.tickets), Asker::local(), request));
    }

    fn cut(&mut self, node: u64) {
        let node = &mut self.nodes[node as usize];
        node.connected = false;
        node.waiting.clear();
    }

    fn node_report(&self, node: u64) -> NodeReport {
        let this = &self.nodes[node as usize];
        let holds = &this.holds;
        let coming = this.partial.iter().chain(this.prepared.keys()).map(|key| (key, &0));
        let regions = holds.iter().chain(coming).map(|((pid, region), bytes)| RegionReport {
            pid: *pid,
            region: *region,
            allocated_bytes: *bytes,
            resident_bytes: *bytes,
            heat: u64::from(*region),
        });
        let used: u64 = holds.values().sum();
        let arrived = self.nodes[node as usize].arrived.iter();
        let arrived = arrived.map(|((pid, region), id)| Arrival { pid: *pid, region: *region, id: *id }).collect();
        let free_bytes = (NODE_REGIONS * REGION).saturating_sub(used);
        NodeReport { free_bytes, regions: regions.collect(), arrived, ..NodeReport::default() }
    }

    fn connect(&mut self, node: u64) {
        let facts = Registration {
            node: NodeId(node),
            name: None,
            urls: vec![format!("tcp://node{node}:1")],
            memory_bytes: NODE_REGIONS * REGION,
            page_bytes: 4096,
            region_bytes: REGION,
            domains: Domains::default(),
        };
        assert_eq!(self.controller.admit(&facts, Some(ClusterId(1))), Ok(()));
        self.cut(node);
        self.nodes[node as usize].connected = true;
        let report = self.node_report(node);
        let spaces = self.nodes[node as usize].spaces.iter().copied().collect();
        self.handle(Event::Registered { facts, report, spaces });
    }

    fn execute(&mut self, node: u64, end: End, is_heard: bool) {
        let Some(command) = self.nodes[node as usize].waiting.pop_front() else { return };
        let this = &mut self.nodes[node as usize];
        let outcome = match command {
            Command::CreateSpace { pid, .. } => {
                this.spaces.insert(pid);
                let key = Capability(node.into());
                Outcome::SpaceCreated { pid, capabilities: Capabilities { owner: key, read_write: key, read: key } }
            }
            Command::DestroySpace { pid } => {
                this.spaces.remove(&pid);
                this.holds.retain(|(of, _), _| *of != pid);
                this.partial.retain(|(of, _)| *of != pid);
                this.prepared.retain(|(of, _), _| *of != pid);
                this.arrived.retain(|(of, _), _| *of != pid);
                Outcome::SpaceDestroyed { pid }
            }
            Command::OpenRegion { pid, region, id } => {
                let key = (pid, region);
                if let Some((_, bytes)) = this.prepared.get(&key).copied().filter(|(prepared, _)| *prepared == id) {
                    this.prepared.remove(&key);
                    assert_eq!(this.holds.insert(key, bytes), None, "it was opened before it was prepared");
                }
                this.arrived.remove(&key);
                Outcome::RegionOpened { pid, region, id }
            }
            Command::DropRegion { pid, region, before, is_given_up: true } => {
                assert!(this.moves.keys().all(|id| *id < before), "a move of before is not over");
                let key = (pid, region);
                this.holds.remove(&key);
                this.partial.remove(&key);
                this.prepared.remove(&key);
                this.arrived.remove(&key);
                Outcome::RegionDropped { pid, region }
            }
            Command::DropRegion { pid, region, before, is_given_up: false } => {
                assert!(this.moves.keys().all(|id| *id < before), "a move of before is not over");
                assert!(!this.prepared.contains_key(&(pid, region)), "told to drop what its source has closed");
                assert!(!this.holds.contains_key(&(pid, region)), "told to drop a region that it owns");
                this.partial.remove(&(pid, region));
                Outcome::RegionDropped { pid, region }
            }
            Command::MoveRegion(order) => match this.moves.get(&order.id) {
                Some(outcome) => outcome.clone(),
                None => self.execute_move(node, &order, end),
            },
        };
        if !is_heard {
            self.cut(node);
            return self.handle(Event::Disconnected(NodeId(node)));
        }
        self.handle(Event::Answered(NodeId(node), outcome));
    }

    fn execute_move(&mut self, from: u64, order: &MoveOrder, end: End) -> Outcome {
        let key = (order.pid, order.region);
        let id = order.id;
        let target = &mut self.nodes[order.to.0 as usize];
        // A space that has ended meanwhile is unknown to the target.
        let outcome = if !matches!(end, End::Badly) && target.spaces.contains(&order.pid) {
            assert!(!target.partial.contains(&key), "moved onto the rest of a move that failed");
            assert!(!target.prepared.contains_key(&key), "moved onto another move");
            // Nothing is held if the controller stopped before a client heard of the region.
            if let Some(bytes) = self.nodes[from as usize].holds.remove(&key) {
                let target = &mut self.nodes[order.to.0 as usize];
                if matches!(end, End::Well) {
                    target.arrived.insert(key, id);
                    assert_eq!(target.holds.insert(key, bytes), None, "the target had it already");
                } else {
                    target.prepared.insert(key, (id, bytes));
                }
            }
            Outcome::Moved { id }
        } else {
            if target.spaces.contains(&order.pid) {
                target.partial.insert(key);
            }
            Outcome::MoveFailed { id, cause: "so the model wants it".to_owned() }
        };
        self.nodes[from as usize].moves.insert(id, outcome.clone());
        outcome
    }

    fn restart_controller(&mut self) {
        (0..NODES).for_each(|node| self.cut(node));
        let records = self.records.values().cloned();
        self.controller = Controller::restore(self.config, ClusterId(9), records, self.now).unwrap();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Create(space) => {
                let lease_ms = if space == SPACES - 1 { SHORT_LEASE_MS } else { 0 };
                self.ask(Request::CreateSpace { keys: keys(space), lease_ms });
                let known = self.controller.state.spaces.iter().find(|(_, known)| known.keys == keys(space));
                self.pids.extend(known.map(|(pid, _)| (space, *pid)));
            }
            Step::Renew(space) => {
                if let Some(pid) = self.pids.get(&space).copied() {
                    self.ask(Request::Open { pid, key: keys(space).owner });
                }
            }
            Step::Place { space, bytes } => {
                if let Some(pid) = self.pids.get(&space).copied() {
                    self.ask(Request::PlaceRegion { pid, key: keys(space).owner, bytes, avoid: Vec::new() });
                }
            }
            Step::PlaceGroup { space, places, is_new } => {
                if let Some(pid) = self.pids.get(&space).copied() {
                    let regions = self.controller.state.regions_of(pid);
                    let group = regions.filter_map(|(_, record)| record.group).next().filter(|_| !is_new);
                    let has = self.controller.state.regions_of(pid).filter(|(_, record)| record.group == group);
                    let apart = has.filter(|_| group.is_some()).map(|(_, record)| record.owner).collect();
                    let wanted = PlacesWanted {
                        bytes: REGION,
                        places,
                        group: group.map(|group| group.number),
                        apart,
                        avoid: Vec::new(),
                    };
                    self.ask(Request::PlaceGroup { pid, key: keys(space).owner, wanted });
                }
            }
            Step::GiveUp { space, index } => self.give_up(space, index),
            Step::Destroy(space) => {
                if let Some(pid) = self.pids.remove(&space) {
                    self.ask(Request::DestroySpace { pid, key: keys(space).owner });
                }
            }
            Step::Drain(node) => self.ask(Request::Drain { node: NodeId(node).to_string() }),
            Step::Undrain(node) => self.ask(Request::Undrain { node: NodeId(node).to_string() }),
            Step::Execute { node, end, is_heard } => self.execute(node, end, is_heard),
            Step::Report { node, fills } => {
                if fills {
                    self.nodes[node as usize].holds.values_mut().for_each(|bytes| *bytes = REGION);
                }
                if self.nodes[node as usize].connected {
                    let report = self.node_report(node);
                    self.handle(Event::Reported(NodeId(node), report));
                }
            }
            Step::Connect(node) => self.connect(node),
            Step::Disconnect(node) => {
                self.cut(node);
                self.handle(Event::Disconnected(NodeId(node)));
            }
            Step::Pass(time) => {
                let end = self.now + time;
                while self.now < end {
                    self.now = end.min(self.now + crate::SPACE_LEASE_STEP_MAX);
                    self.handle(Event::Tick);
                }
            }
            Step::RestartController => self.restart_controller(),
            Step::Crash(after) => self.crash_after = Some(after),
        }
    }

    fn give_up(&mut self, space: u128, index: usize) {
        let Some(pid) = self.pids.get(&space).copied() else { return };
        let regions: Vec<u32> = self.controller.state.regions_of(pid).map(|(region, _)| region).collect();
        let Some(region) = regions.get(index).copied() else { return };
        self.ask(Request::GiveUp { pid, key: keys(space).owner, region });
        // If the controller stopped meanwhile it may be there still.
        if !self.controller.state.regions.contains_key(&(pid, region)) {
            self.given_up.insert((pid, region));
        }
    }

    fn check(&self) {
        let state = &self.controller.state;
        for ((pid, region), record) in &state.regions {
            let key = (*pid, *region);
            let holders: Vec<u64> =
                (0..NODES).filter(|node| self.nodes[*node as usize].holds.contains_key(&key)).collect();
            assert!(holders.len() <= 1, "{key:?} is held by {holders:?}");
            // Moved, and the controller has not heard of it yet.
            let unheard = record.moving.filter(|moving| {
                matches!(self.nodes[record.owner.0 as usize].moves.get(&moving.id), Some(Outcome::Moved { .. }))
            });
            let owner = unheard.map_or(record.owner, |moving| moving.to).0;
            assert!(holders.iter().all(|holder| *holder == owner), "{key:?} of {owner} is held by {holders:?}");
            for node in (0..NODES).filter(|node| self.nodes[*node as usize].partial.contains(&key)) {
                let presence = state.presences.get(&(*pid, NodeId(node)));
                let known = record.leftovers.contains(&NodeId(node))
                    || record.moving.is_some_and(|moving| moving.to == NodeId(node))
                    || matches!(presence, None | Some(Presence::Ending));
                assert!(known, "{node} has a forgotten part of {key:?}");
            }
            for node in 0..NODES {
                let Some((id, _)) = self.nodes[node as usize].prepared.get(&key) else { continue };
                let node = NodeId(node);
                let is_coming = record.moving == Some(Move { id: *id, to: node });
                let is_opening = record.owner == node && record.opening == Some(*id);
                assert!(is_coming || is_opening, "{node:?} is never told to serve {key:?}: {record:?}");
            }
        }
        for (pid, region) in &self.given_up {
            assert!(!state.regions.contains_key(&(*pid, *region)), "{region} of {pid} was given out again");
        }
        let restored = Controller::restore(self.config, ClusterId(9), self.records.values().cloned(), self.now);
        let restored = restored.unwrap().state;
        assert_eq!(restored.nodes, state.nodes);
        assert_eq!(restored.spaces, state.spaces);
        assert_eq!(restored.presences, state.presences);
        assert_eq!(restored.regions, state.regions);
        assert_eq!(restored.cluster.next_move, state.cluster.next_move);
        assert_eq!(restored.cluster.next_pid, state.cluster.next_pid);
    }

    /// From now on everything works: all that was begun must end.
    fn settle(&mut self) {
        self.crash_after = None;
        for round in 0.. {
            assert!(round < 200, "commands go on for ever");
            for node in 0..NODES {
                if !self.nodes[node as usize].connected {
                    self.connect(node);
                }
                let report = self.node_report(node);
                self.handle(Event::Reported(NodeId(node), report));
                while !self.nodes[node as usize].waiting.is_empty() {
                    self.execute(node, End::Unheard, true);
                    self.check();
                }
            }
            self.now += 1_000_000_000;
            let idle = self.nodes.iter().all(|node| node.waiting.is_empty());
            if idle && round > 30 && self.controller.state.regions.values().all(|record| record.moving.is_none()) {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "a case takes minutes")]
    fn every_region_is_where_the_records_say(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        (0..NODES).for_each(|node| world.connect(node));
        for space in 0..SPACES {
            world.take(&Step::Create(space));
            world.take(&Step::Place { space, bytes: 2 * REGION });
            (0..NODES).for_each(|node| world.execute(node, End::Well, true));
        }
        for step in &steps {
            world.take(step);
            world.check();
        }
        world.settle();
        let state = &world.controller.state;
        prop_assert!(world.controller.waiting.is_empty(), "somebody waits for ever");
        for (key, record) in &state.regions {
            prop_assert!(record.leftovers.is_empty() && record.opening.is_none(), "parts of {:?} are left", key);
        }
        for (id, node) in world.nodes.iter().enumerate() {
            prop_assert!(node.partial.is_empty(), "node {} has parts that nobody owns", id);
            prop_assert!(node.prepared.is_empty() && node.arrived.is_empty(), "node {} waits for a word", id);
            for key in node.holds.keys() {
                prop_assert!(state.regions.contains_key(key), "node {} has {:?}, which was given up", id, key);
            }
            for pid in &node.spaces {
                prop_assert!(state.ready(*pid, NodeId(id as u64)), "node {} has a space that has ended", id);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a case takes minutes")]
    fn a_drain_ends(fills in prop::collection::vec(1..REGION, 1..12), drained in 0..NODES) {
        let mut world = World::new();
        (0..NODES).for_each(|node| world.connect(node));
        world.take(&Step::Create(0));
        for bytes in fills {
            world.take(&Step::Place { space: 0, bytes });
            (0..NODES).for_each(|node| world.execute(node, End::Well, true));
        }
        world.take(&Step::Drain(drained));
        world.settle();
        prop_assert_eq!(world.controller.state.nodes[&NodeId(drained)].duty, Duty::Drained);
        prop_assert!(world.nodes[drained as usize].holds.is_empty());
    }
}
