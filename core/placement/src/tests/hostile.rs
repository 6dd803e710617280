//! What clients and nodes say that no true one says, and what it may cost.

use super::*;

#[test]
fn a_request_that_avoids_more_regions_than_any_needs_to_is_refused() {
    let mut scene = Scene::new();
    scene.register(1, 400);
    let pid = scene.create();
    let place = |count: u32| {
        let avoid = (1..=count).map(|step| 64 * step).collect();
        Request::PlaceRegion { pid, key: keys(1).owner, bytes: 64 * REGION, avoid }
    };
    let most = u32::try_from(AVOIDED_PER_REQUEST_MAX).unwrap();
    let Answer::Placed { regions } = scene.answer(place(most)) else { panic!("as many are avoided") };
    assert_eq!((regions[0].region, regions.len()), (64 * most + 1, 64));
    let Answer::Refused(refusal) = scene.answer(place(most + 1)) else { panic!("more are not") };
    assert_eq!(refusal.to_string(), "a request that avoids 129 regions is not tried: avoid at most 128");
}

/// Shares of nodes that claimed nearly 2^64 bytes were compared by products of more than 128 bits.
#[test]
fn a_node_with_more_memory_than_any_machine_is_not_admitted() {
    let mut scene = Scene::new();
    let claims = |node, memory_bytes| Registration { memory_bytes, ..facts(node, 1) };
    for memory_bytes in [NODE_MEMORY_BYTES_MAX + 1, 1 << 63, u64::MAX] {
        let said = scene.controller.admit(&claims(1, memory_bytes), None).unwrap_err();
        assert_eq!(said, "a node cannot have more than 1024.0 TiB of memory: type a smaller --memory");
    }
    let config = Config { overcommit_percent: u32::MAX, ..config() };
    scene.controller = Controller::restore(config, ClusterId(7), [], 0).unwrap();
    // What a node says to be free is believed as little.
    for (node, free_bytes) in [(1, NODE_MEMORY_BYTES_MAX), (2, u64::MAX), (3, 0), (4, NODE_MEMORY_BYTES_MAX - 1)] {
        let facts = claims(node, NODE_MEMORY_BYTES_MAX);
        assert_eq!(scene.controller.admit(&facts, None), Ok(()));
        let report = NodeReport { free_bytes, ..NodeReport::default() };
        scene.handle(Event::Registered { facts, report, spaces: Vec::new() });
    }
    let pid = scene.create();
    assert_eq!(scene.placed(pid, 3 * REGION), [(1, 1), (2, 2), (3, 4)]);
}

/// A record that etcd does not take once ended the controller that put it, and each that took over.
#[test]
fn a_node_with_a_long_url_or_name_is_not_admitted() {
    let scene = Scene::new();
    let long = |bytes| "x".repeat(bytes);
    let urls = |bytes| Registration { urls: vec!["tcp://a:1".to_owned(), long(bytes)], ..facts(1, 4) };
    let named = |bytes| Registration { name: Some(long(bytes)), ..facts(1, 4) };
    for facts in [urls(URL_BYTES_MAX), named(URL_BYTES_MAX)] {
        assert_eq!(scene.controller.admit(&facts, None), Ok(()));
    }
    for facts in [urls(URL_BYTES_MAX + 1), named(URL_BYTES_MAX + 1), urls(2 << 20)] {
        let said = scene.controller.admit(&facts, None).unwrap_err();
        assert_eq!(said, "a URL, or the name, of the node has more than 256 bytes: type a shorter one");
    }
}

/// Four megabytes for each of those who wait, who may be thousands.
#[test]
fn of_why_a_node_refuses_each_who_waits_is_told_the_beginning() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    for _ in 0..3 {
        scene.ask(Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() });
    }
    // A letter of two bytes is across the end.
    let cause = ["x", &"\u{e4}".repeat(1 << 20)].concat();
    let actions = scene.handle(Event::Answered(NodeId(1), Outcome::SpaceRefused { pid, cause }));
    assert_eq!(actions.answers.len(), 3);
    for (_, answer) in actions.answers {
        let Answer::Refused(Refusal::NodeRefused { cause, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(cause, ["x", &"\u{e4}".repeat(511)].concat());
    }
}

/// Asks for memory in the name of an address, and says how many of the requests wait.
fn wait(scene: &mut Scene, pid: Pid, address: &str, count: usize) -> usize {
    let refused = (0..count).flat_map(|_| {
        scene.tickets += 1;
        let place = Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() };
        let asker = Asker::Source(address.to_owned());
        scene.handle(Event::Asked(Ticket(scene.tickets), asker, place)).answers
    });
    let refused = refused.map(|(_, answer)| match answer {
        Answer::Refused(Refusal::Busy { cause }) => assert!(cause.contains(" requests that wait for memory nodes are")),
        other => panic!("{other:?}"),
    });
    count - refused.count()
}

/// One who asked much, or who had gone, once had all places for requests that wait.
#[test]
fn those_who_wait_have_a_share_each_until_they_go() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let pid = scene.create();
    assert_eq!(wait(&mut scene, pid, "10.0.0.1", WAITING_MAX), WAITING_MAX / 2);
    assert_eq!(wait(&mut scene, pid, "10.0.0.2", WAITING_MAX), WAITING_MAX / 4);
    assert_eq!(wait(&mut scene, pid, "10.0.0.3", 100), 16);
    let last = scene.tickets;
    scene.controller.withdraw(|ticket| ticket.0 <= last - 100);
    assert_eq!(wait(&mut scene, pid, "10.0.0.1", WAITING_MAX), WAITING_MAX / 2);
    scene.controller.withdraw(|_| true);
    assert!(scene.controller.waiting.is_empty());
    let made = scene.handle(Event::Answered(NodeId(1), Outcome::SpaceCreated { pid, capabilities: capabilities(1) }));
    assert_eq!(made.answers, []);
}

#[test]
fn what_waits_and_must_wait_for_another_node_keeps_its_place() {
    let mut scene = Scene::new();
    (1..=2).for_each(|node| drop(scene.register(node, 4)));
    let pid = scene.create();
    let mut all = wait(&mut scene, pid, "10.0.0.1", 1000);
    scene.ask(Request::Drain { node: NodeId(1).to_string() });
    for (address, count) in [("10.0.0.2", 2000), ("10.0.0.3", 72), ("10.0.0.4", 16)] {
        all += wait(&mut scene, pid, address, count);
    }
    assert_eq!(all, WAITING_MAX / 4 * 3 + 16, "who has many gets no more now");
    scene.pass(config().lease - 1);
    scene.report(2, 4 * REGION, &[]);
    let lost = scene.pass(1);
    assert_eq!((lost.closed, lost.answers), (vec![NodeId(1)], Vec::new()));
    let made = scene.handle(Event::Answered(NodeId(2), Outcome::SpaceCreated { pid, capabilities: capabilities(2) }));
    assert_eq!(made.answers.len(), all);
}

/// The numbers of address spaces of a controller that has made `count`.
fn numbers(count: usize) -> Vec<Pid> {
    (0..u32::try_from(count).unwrap()).map(|of| Pid(Pid::FIRST.0 + of)).collect()
}

fn registered(node: u64, spaces: &[Pid]) -> Event {
    let facts = facts(node, 4);
    let report = NodeReport { free_bytes: facts.memory_bytes, ..NodeReport::default() };
    Event::Registered { facts, report, spaces: spaces.to_vec() }
}

/// The address spaces that a node is told to end.
fn to_end(actions: &Actions) -> Vec<Pid> {
    let of = |(_, command): &(NodeId, Command)| match command {
        Command::DestroySpace { pid } => *pid,
        other => panic!("{other:?}"),
    };
    actions.commands.iter().map(of).collect()
}

#[test]
fn spaces_that_a_node_invents_are_noted_in_turns_and_only_when_it_has_ended_those_before() {
    let mut scene = Scene::new();
    let first = scene.controller.handle(registered(1, &numbers(NODE_SPACES_MAX)), 0);
    let told = to_end(&first);
    assert_eq!(told, numbers(STRAYS_NOTED_MAX));
    assert_eq!(first.changes.len(), STRAYS_NOTED_MAX + 2, "the cluster's record and the node's besides");
    // However often it says so, and whatever it calls them.
    assert_eq!(scene.report(1, 0, &[]), Actions::default());
    let others: Vec<Pid> = numbers(NODE_SPACES_MAX).iter().map(|pid| Pid(pid.0 + 1_000_000)).collect();
    let again = scene.controller.handle(registered(1, &others), 0);
    assert_eq!((again.changes.len(), to_end(&again).len()), (0, STRAYS_NOTED_MAX));
    scene.handle(Event::Answered(NodeId(1), Outcome::SpaceDestroyed { pid: told[0] }));
    assert_eq!(to_end(&scene.report(1, 0, &[])), [others[0]]);
    // One that is away, or lost, costs no memory.
    scene.handle(Event::Disconnected(NodeId(1)));
    assert!(scene.controller.live[&NodeId(1)].strays.is_empty());
}

#[test]
fn a_node_that_has_more_spaces_than_any_is_cut_off() {
    let mut scene = Scene::new();
    scene.register(1, 4);
    let too_many = numbers(NODE_SPACES_MAX + 1);
    for node in [1, 2] {
        let actions = scene.handle(registered(node, &too_many));
        assert_eq!(actions, Actions { closed: vec![NodeId(node)], ..Actions::default() });
        assert_eq!(scene.conditions(), [(1, NodeCondition::Silent)]);
    }
    // Those that a node makes by itself are not the controller's.
    let own: Vec<Pid> = too_many.iter().map(|pid| Pid(pid.0 - Pid::FIRST.0)).collect();
    assert_eq!(to_end(&scene.handle(registered(1, &own))), []);
    assert_eq!(scene.conditions(), [(1, NodeCondition::Serving)]);
}

/// A true node that was away for so long that all it has was given up, and goes away, and its controller too, before it
/// has ended it.
#[test]
fn all_that_a_node_should_not_have_ends_however_much_it_is() {
    let mut scene = Scene::new();
    let mut has = numbers(STRAYS_NOTED_MAX + 5);
    scene.register(2, 4);
    let pid = scene.create();
    assert_eq!(scene.placed(pid, REGION), [(1, 2)]);
    let mut waiting = to_end(&scene.handle(registered(1, &has)));
    for turn in 0.. {
        assert!(turn < 20, "{} are left", has.len());
        // It ends a half, and what was to be said of the others is lost.
        for pid in waiting.drain(..).take(STRAYS_NOTED_MAX / 2) {
            has.retain(|other| *other != pid);
            scene.handle(Event::Answered(NodeId(1), Outcome::SpaceDestroyed { pid }));
        }
        match turn % 3 {
            0 => {
                scene.handle(Event::Disconnected(NodeId(1)));
            }
            1 => scene.restart(),
            _ => {}
        }
        waiting = to_end(&scene.handle(registered(1, &has)));
        assert!(waiting.iter().all(|pid| has.contains(pid)));
        if has.is_empty() {
            break;
        }
    }
    let is_of_node = |record: &Record| matches!(record.key(), RecordKey::Presence(_, NodeId(1)));
    assert!(!scene.records.iter().any(is_of_node), "{:?}", scene.records);
}

#[test]
fn a_space_that_waits_to_be_ended_at_a_node_is_not_made_there_before() {
    let mut scene = Scene::new();
    let next_pid = *numbers(STRAYS_NOTED_MAX + 1).last().unwrap();
    let cluster = ClusterRecord { next_pid, ..ClusterRecord::new(ClusterId(7), REGION) };
    scene.controller = Controller::restore(config(), ClusterId(7), [Record::Cluster(cluster)], 0).unwrap();
    let pid = scene.create();
    assert_eq!(pid, next_pid);
    let ends = scene.handle(registered(1, &numbers(STRAYS_NOTED_MAX + 1)));
    assert!(!to_end(&ends).contains(&pid), "it is not its turn");
    let place = scene.ask(Request::PlaceRegion { pid, key: keys(1).owner, bytes: 1, avoid: Vec::new() });
    assert_eq!(place.commands, [(NodeId(1), Command::DestroySpace { pid })]);
    assert_eq!(scene.report(1, 4 * REGION, &[]).commands, []);
    let ended = scene.handle(Event::Answered(NodeId(1), Outcome::SpaceDestroyed { pid }));
    assert_eq!(ended.commands, [(NodeId(1), Command::CreateSpace { pid, tenant: None })]);
    let made = Outcome::SpaceCreated { pid, capabilities: capabilities(1) };
    let made = scene.handle(Event::Answered(NodeId(1), made));
    assert!(matches!(&made.answers[..], [(_, Answer::Placed { regions })] if regions[0].node == NodeId(1)));
}

/// Each once was a record until its lease was over.
#[test]
fn a_node_that_connects_ever_anew_with_another_number_has_one_record() {
    let mut scene = Scene::new();
    let named = |node| Registration { name: Some("n1".to_owned()), ..facts(node, 4) };
    let register = |scene: &mut Scene, node| {
        assert_eq!(scene.controller.admit(&named(node), None), Ok(()));
        let report = NodeReport { free_bytes: 4 * REGION, ..NodeReport::default() };
        scene.handle(Event::Registered { facts: named(node), report, spaces: Vec::new() });
    };
    scene.register(100, 4);
    scene.handle(Event::Disconnected(NodeId(100)));
    register(&mut scene, 1);
    // What knows a space is kept, and others without a name are none of its.
    let pid = scene.create();
    scene.placed(pid, 1);
    for node in 2..5 {
        scene.handle(Event::Disconnected(NodeId(node - 1)));
        register(&mut scene, node);
    }
    let silent = [1, 100].map(|node| (node, NodeCondition::Silent));
    assert_eq!(scene.conditions(), [silent[0], (4, NodeCondition::Serving), silent[1]]);
    scene.restart();
    assert_eq!(scene.conditions().len(), 3, "their records are gone");
}

/// A line of four MiB once was a hundred MiB of addresses without a byte.
#[test]
fn of_more_addresses_than_a_node_may_have_no_more_are_read() {
    let read = |count| {
        let said = Registration { urls: vec![String::new(); count], ..facts(1, 4) };
        serde_json::from_str::<Registration>(&serde_json::to_string(&said).unwrap())
    };
    assert_eq!(read(URLS_MAX).unwrap().urls.len(), URLS_MAX);
    let told = read(URLS_MAX + 1).unwrap_err().to_string();
    assert!(told.contains("invalid length 9, expected 8 URLs at most"), "{told}");
}

#[test]
fn records_of_a_later_format_are_not_touched() {
    let of_format = |format| {
        let cluster = ClusterRecord { format, ..ClusterRecord::new(ClusterId(7), REGION) };
        Controller::restore(config(), ClusterId(7), [Record::Cluster(cluster)], 0).map(drop)
    };
    assert_eq!(of_format(RECORDS_FORMAT_READ_MAX), Ok(()));
    let error = of_format(RECORDS_FORMAT_READ_MAX + 1).unwrap_err();
    assert!(error.to_string().contains("use the later release"), "{error}");
}

/// The next controller once was told a lower format than that of some records, and failed at them.
#[test]
fn a_state_never_has_a_lower_format_than_its_records() {
    use crate::record::format_with;

    assert_eq!(format_with(1, 1, 2), Some(1));
    assert_eq!(format_with(2, 1, 2), Some(2), "a later release has written some");
    assert_eq!(format_with(1, 2, 2), Some(2));
    assert_eq!(format_with(3, 2, 2), None);
}
