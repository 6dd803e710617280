//! Scenarios of a controller, one at a time: who gets what, what pauses, and what nodes and clients are told.

use yonder_wire::Rights;

use crate::*;

mod moves;

mod askers;
mod groups;
mod hostile;
mod leases;
mod listing;
mod pressure;
mod sets;
mod spreading;
mod tenants;

const REGION: u64 = 1 << 20;
const PAGE: u64 = 4096;
const SECOND: u64 = 1_000_000_000;
/// Between two looks of a controller at the clock.
const LOOK: u64 = SPACE_LEASE_STEP_MAX;

/// A controller, its time, and what it says to nodes that do what they are told.
struct Scene {
    controller: Controller,
    now: u64,
    tickets: u64,
    records: Vec<Record>,
}

fn config() -> Config {
    Config { region_bytes: REGION, overcommit_percent: 100, ..Config::default() }
}

fn facts(node: u64, regions: u64) -> Registration {
    let urls = vec![format!("tcp://10.0.0.{node}:7000")];
    let memory_bytes = regions * REGION;
    let (page_bytes, region_bytes, domains) = (PAGE, REGION, Domains::default());
    Registration { node: NodeId(node), name: None, urls, memory_bytes, page_bytes, region_bytes, domains }
}

fn capabilities(node: u64) -> Capabilities {
    let [owner, read_write, read] = [3, 2, 1].map(|rights| Capability(u128::from(node * 10 + rights)));
    Capabilities { owner, read_write, read }
}

fn keys(of: u128) -> Keys {
    Keys { owner: Key(of * 10 + 3), read_write: Key(of * 10 + 2), read: Key(of * 10 + 1) }
}

/// The times of an event before which something came that is still to be handled.
fn late(heard_until: u64, clock: u64) -> Times {
    Times { heard_until, nodes_heard_until: heard_until, ..Times::at(clock) }
}

impl Scene {
    fn new() -> Self {
        let controller = Controller::restore(config(), ClusterId(7), [], 0).unwrap();
        Self { controller, now: 0, tickets: 0, records: Vec::new() }
    }

    fn handle(&mut self, event: Event) -> Actions {
        let actions = self.controller.handle(event, self.now);
        for change in &actions.changes {
            match change {
                Change::Put(record) => {
                    self.records.retain(|other| other.key() != record.key());
                    self.records.push(record.clone());
                }
                Change::Delete(key) => self.records.retain(|record| record.key() != *key),
                Change::DeleteRegions(pid) => {
                    self.records.retain(|record| !matches!(record.key(), RecordKey::Region(of, _) if of == *pid));
                }
            }
        }
        actions
    }

    /// Lets time pass, as a controller sees it that has nothing else to do, and collects what it did.
    fn pass(&mut self, time: u64) -> Actions {
        let end = self.now + time;
        let mut all = Actions::default();
        while self.now < end {
            self.now = (self.now + LOOK).min(end);
            let Actions { closed, commands, answers, expired, .. } = self.handle(Event::Tick);
            all.closed.extend(closed);
            all.commands.extend(commands);
            all.answers.extend(answers);
            all.expired.extend(expired);
        }
        all
    }

    fn register(&mut self, node: u64, regions: u64) -> Actions {
        let facts = facts(node, regions);
        let report = NodeReport { free_bytes: facts.memory_bytes, ..NodeReport::default() };
        self.handle(Event::Registered { facts, report, spaces: Vec::new() })
    }

    fn report(&mut self, node: u64, free_bytes: u64, regions: &[(Pid, u32, u64, u64)]) -> Actions {
        let regions = regions.iter().map(|(pid, region, bytes, heat)| RegionReport {
            pid: *pid,
            region: *region,
            allocated_bytes: *bytes,
            resident_bytes: *bytes,
            heat: *heat,
        });
        let report = NodeReport { free_bytes, regions: regions.collect(), ..NodeReport::default() };
        self.handle(Event::Reported(NodeId(node), report))
    }

    fn ask(&mut self, request: Request) -> Actions {
        self.tickets += 1;
        self.handle(Event::Asked(Ticket(self.tickets), Asker::local(), request))
    }

    /// Asks, and lets nodes make spaces until there is an answer.
    fn answer(&mut self, request: Request) -> Answer {
        let mut actions = self.ask(request);
        let mut commands = std::collections::VecDeque::new();
        while actions.answers.is_empty() {
            commands.extend(actions.commands);
            let (node, command) = commands.pop_front().expect("an answer, or a command to wait for");
            let Command::CreateSpace { pid, .. } = command else { panic!("{command:?} is not waited for") };
            let outcome = Outcome::SpaceCreated { pid, capabilities: capabilities(node.0) };
            actions = self.handle(Event::Answered(node, outcome));
        }
        actions.answers.remove(0).1
    }

    fn create(&mut self) -> Pid {
        match self.answer(Request::CreateSpace { keys: keys(1), lease_ms: 0 }) {
            Answer::SpaceCreated { pid, .. } => pid,
            other => panic!("{other:?}"),
        }
    }

    fn place(&mut self, pid: Pid, bytes: u64) -> Answer {
        self.answer(Request::PlaceRegion { pid, key: keys(1).owner, bytes, avoid: Vec::new() })
    }

    fn placed(&mut self, pid: Pid, bytes: u64) -> Vec<(u32, u64)> {
        match self.place(pid, bytes) {
            Answer::Placed { regions } => regions.iter().map(|at| (at.region, at.node.0)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn locate(&mut self, pid: Pid, region: u32) -> Answer {
        self.answer(Request::Locate { pid, key: keys(1).read, region })
    }

    fn conditions(&mut self) -> Vec<(u64, NodeCondition)> {
        match self.answer(Request::Nodes) {
            Answer::Nodes(nodes) => nodes.iter().map(|view| (view.node.0, view.condition)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn restart(&mut self) {
        self.controller = Controller::restore(config(), ClusterId(8), self.records.clone(), self.now).unwrap();
    }
}

fn orders(actions: &Actions) -> Vec<(u64, u32, u64, MoveId)> {
    let of = |(node, command): &(NodeId, Command)| match command {
        Command::MoveRegion(order) => Some((node.0, order.region, order.to.0, order.id)),
        _ => None,
    };
    actions.commands.iter().filter_map(of).collect()
}

#[test]
fn small_allocations_share_a_region_until_it_is_full_or_avoided() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    assert_eq!(scene.placed(pid, REGION / 2), [(1, 1)]);
    assert_eq!(scene.placed(pid, REGION / 2), [(1, 1)]);
    assert_eq!(scene.placed(pid, 1), [(2, 1)]);
    let avoiding = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: vec![2, 3] };
    let Answer::Placed { regions } = scene.answer(avoiding) else { panic!() };
    assert_eq!(regions[0].region, 4);
}

#[test]
fn a_large_allocation_takes_regions_in_a_row_on_several_nodes() {
    let mut scene = Scene::new();
    scene.register(1, 2);
    scene.register(2, 2);
    let pid = scene.create();
    assert_eq!(scene.placed(pid, 3 * REGION + 1), [(1, 1), (2, 2), (3, 1), (4, 2)]);
    assert_eq!(
        scene.place(pid, 1),
        Answer::Placed {
            regions: vec![match scene.locate(pid, 4) {
                Answer::Located(placement) => Placement { capability: capabilities(2).owner, ..placement },
                other => panic!("{other:?}"),
            }]
        }
    );
    assert_eq!(scene.place(pid, REGION), Answer::Refused(Refusal::NoRoom { bytes: REGION }));
    let hostile = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 2 * REGION, avoid: vec![u32::MAX - 2, 9] };
    assert_eq!(scene.answer(hostile), Answer::Refused(Refusal::NoRoom { bytes: 2 * REGION }));
    // The row is freed: two reports later its regions are taken again.
    scene.report(1, 2 * REGION, &[]);
    scene.report(2, 2 * REGION, &[]);
    scene.report(1, 2 * REGION, &[]);
    scene.report(2, 2 * REGION, &[]);
    assert_eq!(scene.placed(pid, 4 * REGION), [(1, 1), (2, 2), (3, 1), (4, 2)]);
}

#[test]
fn keys_allow_what_they_say() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    assert_eq!(scene.create(), pid, "the same keys are the same space");
    scene.placed(pid, 1);
    for (key, rights) in [(keys(1).read, Rights::Read), (keys(1).read_write, Rights::ReadWrite)] {
        let opened = scene.answer(Request::Open { pid, key });
        assert_eq!(opened, Answer::Opened { rights, region_bytes: REGION, lease_ms: SPACE_LEASE_MS_MAX });
        let Answer::Located(placement) = scene.answer(Request::Locate { pid, key, region: 1 }) else { panic!() };
        assert_eq!(placement.capability, capabilities(1).with(rights));
        let refused = Answer::Refused(Refusal::NotAllowed { pid });
        assert_eq!(scene.answer(Request::DestroySpace { pid, key }), refused);
        assert_eq!(scene.answer(Request::PlaceRegion { pid, key, bytes: 1, avoid: Vec::new() }), refused);
    }
    let key = keys(5).owner;
    assert_eq!(scene.answer(Request::Open { pid, key }), Answer::Refused(Refusal::BadKey { pid }));
    let region = 9;
    assert_eq!(scene.locate(pid, region), Answer::Refused(Refusal::NoRegion { pid, region }));
}

#[test]
fn a_move_whose_order_was_not_sent_has_no_end() {
    let mut scene = Scene::new();
    scene.register(1, 10);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.register(2, 10);
    let actions = scene.report(1, 0, &[(pid, 1, REGION, 0)]);
    assert_eq!(
        actions.commands,
        [(NodeId(2), Command::CreateSpace { pid, tenant: None })],
        "the order waits for the target"
    );
    // No honest node says so: it does not know the move.
    let early = scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    assert_eq!(early, Actions::default());
    assert!(matches!(scene.locate(pid, 1), Answer::Located(placement) if placement.node == NodeId(1)));
}

#[test]
fn a_failed_move_is_cleared_and_tried_elsewhere_after_a_rest() {
    let mut scene = Scene::new();
    for node in 1..=3 {
        scene.register(node, 10);
    }
    let pid = scene.create();
    scene.placed(pid, REGION);
    let pressed = [(pid, 1, REGION, 0)];
    scene.report(1, 0, &pressed);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    assert_eq!(orders(&scene.handle(Event::Answered(NodeId(2), made))), [(1, 1, 2, MoveId(1))]);
    let failed = Outcome::MoveFailed { id: MoveId(1), cause: "no route".to_owned() };
    let actions = scene.handle(Event::Answered(NodeId(1), failed));
    assert_eq!(
        actions.commands,
        [(NodeId(2), Command::DropRegion { pid, region: 1, before: MoveId(2), is_given_up: false })]
    );
    for _ in 0..4 {
        scene.now += SECOND;
        assert_eq!(scene.report(1, 0, &pressed).commands, [], "it rests");
        scene.report(2, 9 * REGION, &[]);
        scene.report(3, 9 * REGION, &[]);
    }
    scene.now += SECOND;
    let actions = scene.report(1, 0, &pressed);
    assert_eq!(
        actions.commands,
        [(NodeId(3), Command::CreateSpace { pid, tenant: None })],
        "node 2 has not dropped its part"
    );
}

#[test]
fn a_drained_node_has_nothing_and_gets_nothing() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.report(1, 3 * REGION, &[(pid, 1, REGION, 3)]);
    let name = "tcp://10.0.0.1:7000".to_owned();
    let draining = scene.ask(Request::Drain { node: name.clone() });
    assert_eq!(draining.answers[0].1, Answer::Draining { regions_left: 1 });
    assert_eq!(draining.commands, [], "nobody has room");
    assert_eq!(scene.place(pid, 1), Answer::Refused(Refusal::NoRoom { bytes: 1 }));
    assert_eq!(scene.register(2, 4).commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    let actions = scene.handle(Event::Answered(NodeId(2), made));
    assert_eq!(orders(&actions), [(1, 1, 2, MoveId(1))]);
    scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    assert_eq!(scene.conditions(), [(1, NodeCondition::Drained), (2, NodeCondition::Serving)]);
    assert_eq!(scene.answer(Request::Undrain { node: name }), Answer::Undrained);
    assert_eq!(scene.conditions(), [(1, NodeCondition::Serving), (2, NodeCondition::Serving)]);
    let node = "tcp://elsewhere".to_owned();
    assert_eq!(scene.answer(Request::Drain { node: node.clone() }), Answer::Refused(Refusal::NoNode { name: node }));
}

#[test]
fn a_lost_node_keeps_its_regions_and_may_come_back() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.register(2, 4);
    let pid = scene.create();
    assert_eq!(scene.placed(pid, REGION), [(1, 1)]);
    assert_eq!(scene.controller.next_deadline(), Some(config().lease));
    assert_eq!(scene.pass(config().lease - 1).closed, []);
    scene.report(2, 4 * REGION, &[]);
    assert_eq!(scene.pass(1).closed, [NodeId(1)]);
    let url = "tcp://10.0.0.1:7000".to_owned();
    let lost = Answer::Refused(Refusal::RegionLost { pid, region: 1, node: NodeId(1), url });
    assert_eq!(scene.locate(pid, 1), lost);
    assert_eq!(scene.placed(pid, REGION), [(2, 2)], "the lost region's addresses are not given out again");
    scene.restart();
    scene.register(2, 4);
    scene.pass(config().lease);
    assert_eq!(scene.locate(pid, 1), lost);
    scene.register(1, 4);
    assert!(matches!(scene.locate(pid, 1), Answer::Located(placement) if placement.node == NodeId(1)));
}

#[test]
fn a_lost_node_without_regions_is_forgotten_and_told_so_when_it_returns() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.pass(config().lease);
    assert_eq!(scene.answer(Request::DestroySpace { pid, key: keys(1).owner }), Answer::Destroyed);
    assert_eq!(scene.answer(Request::Nodes), Answer::Nodes(Vec::new()));
    let facts = facts(1, 4);
    let spaces = vec![Pid(3), pid];
    let actions = scene.handle(Event::Registered { facts, report: NodeReport::default(), spaces });
    assert_eq!(actions.commands, [(NodeId(1), Command::DestroySpace { pid })], "a space of its own is not ours to end");
}

#[test]
fn what_a_node_has_of_an_earlier_time_ends_before_the_space_is_made_there_again() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.placed(pid, REGION);
    let (stranger, report) = (facts(2, 4), NodeReport { free_bytes: 4 * REGION, ..NodeReport::default() });
    let returns = || Event::Registered { facts: stranger.clone(), report: report.clone(), spaces: vec![pid] };
    // It was given up while it was away, and is told so. It goes away once more before it has heard.
    let ended = [(NodeId(2), Command::DestroySpace { pid })];
    assert_eq!(scene.handle(returns()).commands, ended);
    let place = || Request::PlaceRegion { pid, key: keys(1).owner, bytes: REGION, avoid: Vec::new() };
    assert_eq!(scene.ask(place()).answers, [], "node 2 is the emptiest, but cannot be used yet");
    scene.handle(Event::Disconnected(NodeId(2)));
    scene.restart();
    scene.register(1, 4);
    scene.report(1, 3 * REGION, &[(pid, 1, REGION, 0)]);
    assert_eq!(scene.handle(returns()).commands, ended, "it is still told so");
    assert_eq!(scene.ask(place()).answers, []);
    let gone = scene.handle(Event::Answered(NodeId(2), Outcome::SpaceDestroyed { pid }));
    assert_eq!(gone.commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    let made = scene.handle(Event::Answered(NodeId(2), made));
    assert!(matches!(&made.answers[..], [(_, Answer::Placed { regions })] if regions[0].node == NodeId(2)));
}

#[test]
fn a_restarted_controller_orders_the_same_move_again() {
    let mut scene = Scene::new();
    scene.register(1, 10);
    scene.register(2, 10);
    let pid = scene.create();
    scene.placed(pid, REGION);
    scene.report(1, 0, &[(pid, 1, REGION, 0)]);
    scene.restart();
    assert_eq!(scene.controller.cluster(), ClusterId(7), "the name is kept");
    scene.register(1, 10);
    assert_eq!(scene.register(2, 10).commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    assert_eq!(orders(&scene.handle(Event::Answered(NodeId(2), made))), [(1, 1, 2, MoveId(1))]);
    scene.restart();
    scene.register(2, 10);
    assert_eq!(orders(&scene.register(1, 10)), [(1, 1, 2, MoveId(1))]);
}

#[test]
fn a_node_that_cannot_make_the_space_fails_those_who_wait_for_it() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.ask(Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() });
    let refused = Outcome::SpaceRefused { pid, cause: "no slots".to_owned() };
    let actions = scene.handle(Event::Answered(NodeId(1), refused));
    let refusal = Refusal::NodeRefused { url: "tcp://10.0.0.1:7000".to_owned(), cause: "no slots".to_owned() };
    assert_eq!(actions.answers, [(Ticket(scene.tickets), Answer::Refused(refusal))]);
}

#[test]
fn who_waits_for_a_node_that_is_lost_gets_another_one() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.ask(Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() });
    scene.pass(config().lease - 1);
    scene.register(2, 4);
    let actions = scene.pass(1);
    assert_eq!(actions.commands, [(NodeId(2), Command::CreateSpace { pid, tenant: None })]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(2) };
    let actions = scene.handle(Event::Answered(NodeId(2), made));
    assert!(matches!(&actions.answers[..], [(_, Answer::Placed { regions })] if regions[0].node == NodeId(2)));
}

/// Once a request that waited for one of them was given to the other, which was lost in the same moment.
#[test]
fn nodes_that_are_lost_together_get_nothing_from_each_other() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.register(2, 4);
    let pid = scene.create();
    let waits = scene.ask(Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() });
    assert_eq!((waits.commands.len(), waits.answers.len()), (1, 0));
    let actions = scene.pass(config().lease);
    assert_eq!(actions.closed, [NodeId(1), NodeId(2)]);
    assert_eq!(actions.commands, []);
    assert_eq!(actions.answers, [(Ticket(scene.tickets), Answer::Refused(Refusal::NoRoom { bytes: 1 }))]);
}

#[test]
fn strange_nodes_and_sizes_are_not_admitted() {
    let scene = Scene::new();
    let good = facts(1, 4);
    assert_eq!(scene.controller.admit(&good, Some(ClusterId(7))), Ok(()));
    assert_eq!(scene.controller.admit(&good, None), Ok(()));
    let said = scene.controller.admit(&good, Some(ClusterId(6))).unwrap_err();
    assert!(said.contains("start the node again"), "{said}");
    let bad = [
        Registration { region_bytes: 2 * REGION, ..good.clone() },
        Registration { page_bytes: 3000, ..good.clone() },
        Registration { urls: Vec::new(), ..good.clone() },
        Registration { memory_bytes: 0, ..good },
    ];
    assert!(bad.iter().all(|facts| scene.controller.admit(facts, None).is_err()));
}

#[test]
fn records_of_another_region_size_or_with_holes_are_refused() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    scene.placed(pid, 1);
    let larger = Config { region_bytes: 2 * REGION, ..config() };
    let restored = Controller::restore(larger, ClusterId(1), scene.records.clone(), 0);
    assert!(matches!(restored.unwrap_err(), RestoreError::RegionBytes { .. }));
    scene.records.retain(|record| record.key() != RecordKey::Node(NodeId(1)));
    let restored = Controller::restore(config(), ClusterId(1), scene.records, 0);
    assert!(matches!(restored.unwrap_err(), RestoreError::Incomplete(_)));
}
