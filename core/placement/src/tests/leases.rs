//! Leases of address spaces, and of nodes: what is not renewed ends, on all nodes; what is renewed stays, whatever the
//! controller's own life is like.

use super::*;

/// A lease that is renewed three times a second is kept.
const LEASE_MS: u32 = 10_000;
const LEASE: u64 = LEASE_MS as u64 * 1_000_000;

/// What an owner is answered who opens its address space, and has begun the lease anew by that.
const RENEWED: Answer = Answer::Opened { rights: Rights::Owner, region_bytes: REGION, lease_ms: LEASE_MS };

fn tenant(name: &str) -> Asker {
    Asker::Tenant(name.to_owned())
}

impl Scene {
    /// An address space with this number's keys and [`LEASE_MS`].
    fn lease(&mut self, asker: Asker, of: u128) -> Pid {
        let actions =
            self.handle(Event::Asked(Ticket(1), asker, Request::CreateSpace { keys: keys(of), lease_ms: LEASE_MS }));
        match &actions.answers[..] {
            [(_, Answer::SpaceCreated { pid, lease_ms: LEASE_MS, .. })] => *pid,
            other => panic!("{other:?}"),
        }
    }

    fn ask_as(&mut self, asker: Asker, request: Request) -> Answer {
        self.handle(Event::Asked(Ticket(1), asker, request)).answers.remove(0).1
    }

    fn has(&self, pid: Pid) -> bool {
        self.records.iter().any(|record| record.key() == RecordKey::Space(pid))
    }
}

#[test]
fn a_space_that_is_not_renewed_ends_as_by_its_owner() {
    let mut scene = Scene::new();
    scene.controller = Controller::restore(Config { lease: 100 * LEASE, ..config() }, ClusterId(7), [], 0).unwrap();
    scene.register(1, 2);
    scene.register(2, 2);
    let pid = scene.lease(Asker::local(), 1);
    assert_eq!(scene.controller.next_deadline(), Some(LEASE));
    assert_eq!(scene.placed(pid, 3 * REGION), [(1, 1), (2, 2), (3, 1)]);
    // One who waits for a third node is told.
    scene.register(3, 40);
    let place = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 8 * REGION, avoid: Vec::new() };
    assert_eq!(scene.ask(place).answers, []);
    let waits = Ticket(scene.tickets);
    assert_eq!(scene.pass(LEASE - 1).expired, []);
    let ended = scene.pass(1);
    assert_eq!(ended.expired, [pid]);
    let order = [1, 2, 3].map(|node| (NodeId(node), Command::DestroySpace { pid }));
    assert_eq!(ended.commands, order, "all that know it are told, that which makes it among them");
    assert_eq!(ended.answers, [(waits, Answer::Refused(Refusal::BadKey { pid }))]);
    let is_left = |record: &Record| matches!(record.key(), RecordKey::Space(_) | RecordKey::Region(..));
    assert!(!scene.records.iter().any(is_left), "{:?}", scene.records);
    // Its owner is told what all are told of a space that is not there.
    assert_eq!(scene.answer(Request::Open { pid, key: keys(1).owner }), Answer::Refused(Refusal::BadKey { pid }));
    // Also if the controller starts again before the nodes have heard of it.
    scene.restart();
    assert_eq!(scene.register(1, 2).commands, [(NodeId(1), Command::DestroySpace { pid })]);
}

#[test]
fn what_its_owner_asks_renews_it_and_nothing_else() {
    let mut scene = Scene::new();
    let pid = scene.lease(tenant("a"), 1);
    let own = keys(1).owner;
    let renewals = [
        Request::Open { pid, key: own },
        Request::Open { pid, key: own },
        Request::Locate { pid, key: own, region: 9 },
        Request::CreateSpace { keys: keys(1), lease_ms: 1 },
        Request::PlaceRegion { pid, key: own, bytes: 1, avoid: Vec::new() },
    ];
    let others: Vec<Pid> = (2..=6).map(|of| scene.lease(tenant("a"), of)).collect();
    let wrong = [
        (tenant("a"), Request::Open { pid: others[0], key: keys(2).read }),
        (tenant("a"), Request::Open { pid: others[1], key: keys(3).read_write }),
        (tenant("a"), Request::Open { pid: others[2], key: own }),
        (tenant("b"), Request::Open { pid: others[3], key: keys(5).owner }),
        (Asker::Observer, Request::Open { pid: others[4], key: keys(6).owner }),
    ];
    let turn = LEASE / 4 * 3;
    let mut ended = Vec::new();
    for right in renewals {
        ended.extend(scene.pass(turn).expired);
        scene.ask_as(tenant("a"), right);
        wrong.iter().for_each(|(asker, request)| drop(scene.ask_as(asker.clone(), request.clone())));
    }
    assert_eq!(ended, others, "four leases later the one that was renewed is there");
    assert_eq!(scene.ask_as(tenant("a"), Request::Open { pid, key: own }), RENEWED);
    assert_eq!(scene.pass(LEASE - 1).expired, []);
    assert_eq!(scene.ask_as(Asker::Operator, Request::Open { pid, key: own }), RENEWED);
    assert_eq!(scene.pass(LEASE - 1).expired, []);
    assert_eq!(scene.pass(1).expired, [pid]);
}

/// A request that waited once began the lease anew each time that the node for which it waited was lost, and it waited
/// for another one: nobody who had asked needed to be there any more.
#[test]
fn a_request_that_waits_renews_once() {
    let mut scene = Scene::new();
    let pid = scene.lease(Asker::local(), 1);
    assert_eq!(scene.pass(LEASE / 2).expired, []);
    scene.register(1, 4);
    let place = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() };
    assert_eq!(scene.ask(place).answers, []);
    // There is always another one, which says nothing either.
    let half = config().lease / 2;
    assert_eq!(scene.pass(half).closed, []);
    let mut left = LEASE - half;
    for node in 2.. {
        scene.register(node, 4);
        let turn = half.min(left);
        let passed = scene.pass(turn);
        left -= turn;
        if left == 0 {
            assert_eq!(passed.expired, [pid]);
            return;
        }
        assert_eq!((passed.closed, passed.expired), (vec![NodeId(node - 1)], vec![]));
    }
}

#[test]
fn another_tenant_renews_nothing() {
    let mut scene = Scene::new();
    let pid = scene.lease(tenant("a"), 1);
    for _ in 0..3 {
        assert_eq!(scene.pass(LEASE / 4).expired, []);
        // It has found the key.
        let refused = scene.ask_as(tenant("b"), Request::Open { pid, key: keys(1).owner });
        assert_eq!(refused, Answer::Refused(Refusal::NotYours { pid }));
        let refused = scene.ask_as(tenant("b"), Request::CreateSpace { keys: keys(1), lease_ms: 0 });
        assert_eq!(refused, Answer::Refused(Refusal::NotYours { pid }));
        // With a key that is not the owner's it learns what that allows.
        let opened = scene.ask_as(tenant("a"), Request::Open { pid, key: keys(1).read_write });
        assert!(matches!(opened, Answer::Opened { rights: Rights::ReadWrite, .. }));
    }
    assert_eq!(scene.pass(LEASE / 4).expired, [pid]);
}

#[test]
fn a_controller_that_starts_again_begins_leases_anew() {
    let mut scene = Scene::new();
    let pid = scene.lease(Asker::local(), 1);
    for _ in 0..3 {
        assert_eq!(scene.pass(LEASE - 1).expired, []);
        scene.restart();
        // No controller is there for long, and no owner can renew.
        scene.now += 50 * LEASE;
        scene.restart();
    }
    assert!(scene.has(pid));
    assert_eq!(scene.pass(LEASE).expired, [pid]);
    scene.restart();
    assert!(!scene.has(pid));
    assert_eq!(scene.pass(2 * LEASE).expired, []);
}

/// The renewals of all owners are in its sockets when it goes on.
#[test]
fn a_controller_that_stood_still_ends_nothing_that_is_renewed() {
    let mut scene = Scene::new();
    let pid = scene.lease(Asker::local(), 1);
    for _ in 0..10 {
        assert_eq!(scene.pass(LEASE / 4).expired, []);
        scene.now += 3 * LEASE;
        assert_eq!(scene.handle(Event::Tick).expired, []);
        assert_eq!(scene.answer(Request::Open { pid, key: keys(1).owner }), RENEWED);
    }
    assert_eq!(scene.pass(LEASE).expired, [pid]);
}

/// The reports of all nodes are in its sockets when it goes on. Once it took all of them for lost: their regions for
/// gone, and those who waited for them for refused.
#[test]
fn a_controller_that_stood_still_loses_no_node_that_reports() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let lease = config().lease;
    for _ in 0..10 {
        assert_eq!(scene.pass(lease / 2).closed, []);
        scene.now += 10 * lease;
        assert_eq!(scene.handle(Event::Tick).closed, []);
        assert!(scene.controller.next_deadline() > Some(scene.now), "it has a part of its lease left");
        assert_eq!(scene.report(1, 4 * REGION, &[]).closed, []);
    }
    // One that starts again gives all nodes a whole lease, and stands still too.
    scene.restart();
    scene.now += 10 * lease;
    assert_eq!(scene.handle(Event::Tick).closed, []);
    assert_eq!(scene.conditions(), [(1, NodeCondition::Silent)]);
    assert_eq!(scene.register(1, 4).closed, []);
    // One that says nothing is lost, by the time for which the controller was there.
    assert_eq!(scene.pass(lease - 1).closed, []);
    assert_eq!(scene.pass(1).closed, [NodeId(1)]);
}

#[test]
fn what_was_made_without_a_lease_has_the_longest() {
    let mut scene = Scene::new();
    let keys_text = serde_json::to_string(&keys(1)).unwrap();
    let old = format!("{{\"space\":{{\"pid\":{},\"keys\":{keys_text}}}}}", Pid::FIRST.0);
    let record: Record = serde_json::from_str(&old).unwrap();
    scene.controller = Controller::restore(config(), ClusterId(7), [record], 0).unwrap();
    let day = u64::from(SPACE_LEASE_MS_MAX) * 1_000_000;
    assert_eq!(scene.controller.next_deadline(), Some(day));
    // A client of an earlier release says nothing of leases, and is told what it may not read.
    let asked = format!("{{\"create-space\":{{\"keys\":{}}}}}", serde_json::to_string(&keys(2)).unwrap());
    let asked: Request = serde_json::from_str(&asked).unwrap();
    for asked in [asked, Request::CreateSpace { keys: keys(3), lease_ms: u32::MAX }] {
        let answer = scene.answer(asked);
        assert!(matches!(answer, Answer::SpaceCreated { lease_ms: SPACE_LEASE_MS_MAX, .. }), "{answer:?}");
    }
    // And a controller of an earlier release keeps what it has made.
    let told = "{\"space-created\":{\"pid\":2147483648,\"region_bytes\":4096}}";
    let told: Answer = serde_json::from_str(told).unwrap();
    assert_eq!(told, Answer::SpaceCreated { pid: Pid::FIRST, region_bytes: 4096, lease_ms: 0 });
}

#[test]
fn what_asks_for_a_moment_has_five_seconds_unless_the_controller_says_otherwise() {
    let mut scene = Scene::new();
    let mut lease_of = |of, config| {
        scene.controller = Controller::restore(config, ClusterId(7), [], 0).unwrap();
        match scene.answer(Request::CreateSpace { keys: keys(of), lease_ms: 1 }) {
            Answer::SpaceCreated { lease_ms, .. } => lease_ms,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lease_of(1, config()), 5000);
    assert_eq!(lease_of(2, Config { space_lease_ms_min: 300, ..config() }), 300);
}

#[test]
fn many_that_are_over_end_in_turns() {
    let mut scene = Scene::new();
    let count = 2 * SPACES_ENDED_PER_EVENT_MAX + 1;
    for of in 0..count as u128 {
        scene.lease(Asker::local(), of + 1);
    }
    let first = scene.pass(LEASE);
    assert_eq!(first.expired.len(), SPACES_ENDED_PER_EVENT_MAX);
    assert!(scene.controller.next_deadline() <= Some(scene.now), "the rest is due at once");
    let turns = [(); 3].map(|()| scene.handle(Event::Tick).expired.len());
    assert_eq!(turns, [SPACES_ENDED_PER_EVENT_MAX, 1, 0]);
    assert_eq!(scene.controller.next_deadline(), None);
}

#[test]
fn what_waited_while_the_store_was_slow_runs_no_lease_down() {
    let mut scene = Scene::new();
    let pid = scene.lease(Asker::local(), 1);
    // The clock has leaped once. What came meanwhile, ten times as long as a lease, is handled now.
    let clock = 10 * LEASE;
    for came in (1..=100).map(|step| step * LEASE / 10) {
        assert_eq!(scene.controller.handle_late(Event::Tick, late(came, clock)).expired, []);
    }
    let renewed = scene
        .controller
        .handle(Event::Asked(Ticket(1), Asker::local(), Request::Open { pid, key: keys(1).owner }), clock);
    assert_eq!(renewed.answers, [(Ticket(1), RENEWED)]);
}

/// Many short commits: what came at once is handled over a time that is longer than the lease, its renewal last.
#[test]
fn a_renewal_that_came_in_time_counts_however_much_was_before_it() {
    let mut scene = Scene::new();
    let pid = scene.lease(Asker::local(), 1);
    let came = LEASE / 10;
    for clock in (1..=100).map(|step| came + step * LEASE / 10) {
        assert_eq!(scene.controller.handle_late(Event::Tick, late(came, clock)).expired, []);
    }
    let renew = Event::Asked(Ticket(1), Asker::local(), Request::Open { pid, key: keys(1).owner });
    let renewed = scene.controller.handle_late(renew, late(came, 11 * LEASE));
    assert_eq!(renewed.answers, [(Ticket(1), RENEWED)]);
}

/// What one party has waiting is heard between the words of others, and older than all of them. Once it was gone, those
/// who had renewed all the time, and nodes that had reported, were too late by as long as it had waited.
#[test]
fn what_another_has_waiting_ends_no_lease_of_those_who_are_heard() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.lease(Asker::local(), 1);
    let renew = || Event::Asked(Ticket(1), Asker::local(), Request::Open { pid, key: keys(1).owner });
    let said = [
        || Event::Reported(NodeId(1), NodeReport { free_bytes: 4, ..NodeReport::default() }),
        || Event::Answered(NodeId(1), Outcome::SpaceDestroyed { pid: Pid(u32::MAX) }),
    ];
    let mut clock = 0;
    for said in said {
        let came = clock;
        for _ in 0..40 {
            clock += LOOK / 2;
            for event in [Event::Tick, renew(), said()] {
                let actions = scene.controller.handle_late(event, late(came, clock));
                assert!(actions.expired.is_empty() && actions.closed.is_empty());
            }
        }
        assert!(clock - came > LEASE.max(config().lease), "it has waited for longer than leases are");
        let actions = scene.controller.handle(Event::Tick, clock);
        assert!(actions.expired.is_empty() && actions.closed.is_empty(), "{actions:?}");
    }
}

/// A tenant who asked much once kept a node that was dead among those that serve for as long as its requests waited.
#[test]
fn what_others_have_waiting_keeps_no_node_that_is_silent() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    scene.lease(Asker::local(), 1);
    let (lease, end) = (config().lease, 2 * LEASE);
    let times = |clock| Times { heard_until: 0, ..Times::at(clock) };
    let clock = |step| step * LOOK / 2;
    let looks = (1..).map(clock).take_while(|clock| *clock < end);
    let closed: Vec<u64> = looks
        .filter(|clock| {
            let actions = scene.controller.handle_late(Event::Tick, times(*clock));
            assert_eq!(actions.expired, [], "its renewal may wait");
            actions.closed == [NodeId(1)]
        })
        .collect();
    assert_eq!(closed, [lease]);
    // What a node has said and is not heard yet keeps it.
    let mut scene = Scene::new();
    scene.register(1, 4);
    for clock in (1..100).map(clock) {
        assert_eq!(scene.controller.handle_late(Event::Tick, late(LOOK, clock)).closed, []);
    }
}

/// Once the bound looked at changes that are only there when the event is done.
#[test]
fn spaces_that_many_nodes_know_end_in_turns_by_how_much_changes() {
    const NODES: u64 = 40;
    let node = |node| Record::Node(NodeRecord { facts: facts(node, 100), duty: Duty::Serving, seat: Some(0) });
    let mut records: Vec<Record> = (1..=NODES).map(node).collect();
    for of in 0..u32::try_from(SPACES_ENDED_PER_EVENT_MAX).unwrap() {
        let pid = Pid(Pid::FIRST.0 + of);
        let space = SpaceRecord::new(keys(u128::from(of) + 1), None, LEASE_MS);
        records.push(Record::Space { pid, space });
        let presence = |node| Presence::Ready(capabilities(node));
        records.extend((1..=NODES).map(|node| Record::Presence { pid, node: NodeId(node), presence: presence(node) }));
    }
    let mut scene = Scene::new();
    let config = Config { lease: 100 * LEASE, ..config() };
    scene.controller = Controller::restore(config, ClusterId(7), records, 0).unwrap();
    assert_eq!(scene.pass(LEASE - 1).expired, []);
    scene.now += 1;
    let (mut ended, mut turns) = (0, 0);
    while ended < SPACES_ENDED_PER_EVENT_MAX {
        assert!(scene.controller.next_deadline() <= Some(scene.now), "the rest is due at once");
        let actions = scene.handle(Event::Tick);
        // Its record, its regions, and what each node knows of it.
        let of_one = 2 + usize::try_from(NODES).unwrap();
        assert!(actions.changes.len() < 1024 + of_one, "{} changes in one event", actions.changes.len());
        (ended, turns) = (ended + actions.expired.len(), turns + 1);
        assert!(!actions.expired.is_empty(), "it stands still");
    }
    assert_eq!((ended, turns), (64, 3));
}
