//! Groups: each place is a region of its own on another node, in another failure domain where there is one; and regions
//! that are given up.

use super::*;
use crate::controller::PAGES_UNKNOWN;

/// Nodes from 1 on with room for some regions each, in these failure domains; those without are alone.
fn scene(regions: u64, domains: &[&str]) -> (Scene, Pid) {
    let mut scene = Scene::new();
    for (node, domains) in (1..).zip(domains) {
        scene.register_in(node, regions, domains);
    }
    let pid = scene.create();
    (scene, pid)
}

pub(super) fn wanted(places: u32) -> PlacesWanted {
    PlacesWanted { bytes: REGION, places, ..PlacesWanted::default() }
}

impl Scene {
    pub(super) fn register_in(&mut self, node: u64, regions: u64, domains: &str) -> Actions {
        let facts = Registration { domains: domains.to_owned().try_into().unwrap(), ..facts(node, regions) };
        let report = NodeReport { free_bytes: facts.memory_bytes, ..NodeReport::default() };
        self.handle(Event::Registered { facts, report, spaces: Vec::new() })
    }

    fn group_answer(&mut self, pid: Pid, wanted: PlacesWanted) -> Answer {
        self.answer(Request::PlaceGroup { pid, key: keys(1).owner, wanted })
    }

    /// The group, and its new places as region and node.
    pub(super) fn group(&mut self, pid: Pid, wanted: PlacesWanted) -> (u32, Vec<(u32, u64)>) {
        match self.group_answer(pid, wanted) {
            Answer::Group { group, places } => (group, places.iter().map(|at| (at.region, at.node.0)).collect()),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn give_up(&mut self, pid: Pid, region: u32) -> Actions {
        let actions = self.ask(Request::GiveUp { pid, key: keys(1).owner, region });
        assert_eq!(actions.answers[0].1, Answer::GivenUp);
        actions
    }
}

fn gives_up(pid: Pid, region: u32, before: u64) -> Command {
    Command::DropRegion { pid, region, before: MoveId(before), is_given_up: true }
}

#[test]
fn places_are_regions_of_their_own_on_different_nodes() {
    let (mut scene, pid) = scene(8, &["", "", ""]);
    let shared = scene.placed(pid, REGION / 4);
    let (group, places) = scene.group(pid, PlacesWanted { bytes: REGION / 4, ..wanted(3) });
    assert_eq!((group, shared[0].0), (2, 1));
    let mut nodes: Vec<u64> = places.iter().map(|(_, node)| *node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3]);
    assert_eq!(places.iter().map(|(region, _)| *region).collect::<Vec<_>>(), [2, 3, 4]);
    // Others go where others are, and never into a group's regions, whatever room is in them.
    assert_eq!(scene.placed(pid, REGION / 4), shared);
    assert_eq!(scene.placed(pid, REGION)[0].0, 5);
    assert_eq!(scene.placed(pid, 2 * REGION).iter().map(|at| at.0).collect::<Vec<_>>(), [6, 7]);
    let (other, places) = scene.group(pid, wanted(2));
    assert_eq!((other, places[0].0, places[1].0), (8, 8, 9));
    let Answer::Located(placement) = scene.locate(pid, 9) else { panic!("clients find it as any region") };
    assert_eq!(placement.node.0, places[1].1);
}

#[test]
fn places_are_in_different_domains_where_there_are_some() {
    let (mut scene, pid) = scene(8, &["rack=a,row=1", "rack=a,row=1", "rack=b,row=1", "rack=c,row=2", "rack=c,row=2"]);
    let rack = |node: u64| [0, 0, 1, 2, 2][node as usize - 1];
    for _ in 0..4 {
        let (_, places) = scene.group(pid, wanted(2));
        let mut racks: Vec<u64> = places.iter().map(|(_, node)| rack(*node)).collect();
        racks.sort_unstable();
        assert!(racks.contains(&2) && racks[0] != racks[1], "they are in both rows: {places:?}");
    }
    // All three racks, and one of them twice.
    let (_, places) = scene.group(pid, wanted(4));
    let racks: std::collections::BTreeSet<u64> = places.iter().map(|(_, node)| rack(*node)).collect();
    assert_eq!(racks.len(), 3, "{places:?}");
    // Away from those that it has.
    let (group, has) = scene.group(pid, wanted(2));
    let (_, places) = scene.group(pid, PlacesWanted { group: Some(group), ..wanted(1) });
    let racks: std::collections::BTreeSet<u64> = has.iter().chain(&places).map(|(_, node)| rack(*node)).collect();
    assert_eq!(racks.len(), 3, "{places:?} beside {has:?}");
}

/// Nodes that are silent or slow are kept apart from, and a rack in which there are some is as good as another.
#[test]
fn nodes_that_are_not_to_be_used_make_no_rack_worse() {
    let (mut scene, pid) = scene(8, &["rack=a", "rack=a", "rack=b", "rack=b", "rack=b", "rack=b"]);
    let is_b = |node: u64| node > 2;
    let (group, places) = scene.group(pid, wanted(2));
    let (gone, stays) = if is_b(places[0].1) { (places[0], places[1]) } else { (places[1], places[0]) };
    assert!(is_b(gone.1) && !is_b(stays.1), "{places:?}");
    scene.give_up(pid, gone.0);
    let slow = (3..=6).filter(|node| *node != gone.1).take(2);
    let apart: Vec<NodeId> = [stays.1, gone.1].into_iter().chain(slow).map(NodeId).collect();
    let (_, found) = scene.group(pid, PlacesWanted { group: Some(group), apart: apart.clone(), ..wanted(1) });
    assert!(is_b(found[0].1), "both places are in one rack: {found:?} beside {stays:?}");
    let (_, found) = scene.group(pid, PlacesWanted { apart, ..wanted(2) });
    assert!(is_b(found[0].1) != is_b(found[1].1), "{found:?}");
}

#[test]
fn a_group_gets_more_places_where_it_has_none() {
    let (mut scene, pid) = scene(8, &["", "", "", ""]);
    let (group, places) = scene.group(pid, wanted(2));
    let has: Vec<u64> = places.iter().map(|(_, node)| *node).collect();
    // The records know where it is, also if its owner does not say.
    let (same, more) = scene.group(pid, PlacesWanted { group: Some(group), ..wanted(1) });
    assert!(same == group && !has.contains(&more[0].1), "{more:?} beside {has:?}");
    let region = places[0].0;
    let (_, elsewhere) = scene.group(pid, PlacesWanted { avoid: vec![region], ..wanted(3) });
    assert!(elsewhere.iter().all(|(_, node)| *node != has[0]), "its node had no room");
    let apart = (1..=2).map(NodeId).collect::<Vec<_>>();
    let few = scene.group_answer(pid, PlacesWanted { apart, ..wanted(3) });
    assert_eq!(few, Answer::Refused(Refusal::TooFewNodes { wanted: 3, there: 2 }));
}

#[test]
fn what_cannot_be_placed_is_refused() {
    let (mut scene, pid) = scene(1, &["", ""]);
    let refused = |scene: &mut Scene, wanted| match scene.group_answer(pid, wanted) {
        Answer::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let bad = Refusal::BadPlaces { places: 9, places_max: PLACES_PER_REQUEST_MAX };
    assert_eq!(refused(&mut scene, wanted(9)), bad);
    assert!(matches!(refused(&mut scene, wanted(0)), Refusal::BadPlaces { .. }));
    for bytes in [0, REGION + 1] {
        let length = Refusal::BadLength { bytes, bytes_max: REGION };
        assert_eq!(refused(&mut scene, PlacesWanted { bytes, ..wanted(1) }), length);
    }
    let apart = vec![NodeId(1); APART_PER_REQUEST_MAX + 1];
    assert!(matches!(refused(&mut scene, PlacesWanted { apart, ..wanted(1) }), Refusal::TooManyApart { .. }));
    let avoid = vec![7; AVOIDED_PER_REQUEST_MAX + 1];
    assert!(matches!(refused(&mut scene, PlacesWanted { avoid, ..wanted(1) }), Refusal::TooManyAvoided { .. }));
    let few = refused(&mut scene, wanted(3));
    assert_eq!(few, Refusal::TooFewNodes { wanted: 3, there: 2 });
    assert!(few.to_string().ends_with("start others with `yonder node --controller ...`, or ask for fewer copies"));
    scene.group(pid, wanted(2));
    assert_eq!(refused(&mut scene, wanted(2)), Refusal::NoRoom { bytes: REGION });
    let key = keys(1).read_write;
    let not_owned = scene.answer(Request::PlaceGroup { pid, key, wanted: wanted(1) });
    assert_eq!(not_owned, Answer::Refused(Refusal::NotAllowed { pid }));
    let not_owned = scene.answer(Request::GiveUp { pid, key, region: 1 });
    assert_eq!(not_owned, Answer::Refused(Refusal::NotAllowed { pid }));
}

#[test]
fn what_nobody_allocates_in_is_soon_free_again() {
    let (mut scene, pid) = scene(1, &["", ""]);
    scene.group(pid, wanted(2));
    assert_eq!(scene.group_answer(pid, wanted(2)), Answer::Refused(Refusal::NoRoom { bytes: REGION }));
    for node in [1, 2, 1, 2] {
        scene.report(node, REGION, &[]);
    }
    let (group, places) = scene.group(pid, wanted(2));
    assert_eq!((group, places.len()), (3, 2));
}

#[test]
fn a_number_that_was_given_up_does_not_come_again() {
    let (mut scene, pid) = scene(8, &["", ""]);
    scene.group(pid, wanted(2));
    let told = scene.give_up(pid, 2);
    assert_eq!(told.commands.len(), 1);
    assert_eq!(told.commands[0].1, gives_up(pid, 2, 1));
    assert_eq!(scene.locate(pid, 2), Answer::Refused(Refusal::NoRegion { pid, region: 2 }));
    let again = scene.give_up(pid, 2);
    assert_eq!((again.changes, again.commands), (Vec::new(), Vec::new()), "it is the same twice");
    assert_eq!(scene.group(pid, wanted(1)).0, 3);
    scene.give_up(pid, 3);
    scene.restart();
    scene.register_in(1, 8, "");
    scene.register_in(2, 8, "");
    assert_eq!(scene.placed(pid, 1)[0].0, 4, "nor for others");
    assert_eq!(scene.placed(pid, 2 * REGION)[0].0, 5, "nor in a row");
    // Also of a region that was never a group's.
    scene.give_up(pid, 6);
    assert_eq!(scene.placed(pid, REGION)[0].0, 7);
}

#[test]
fn a_node_that_was_away_is_told_when_it_says_that_it_has_the_region() {
    let (mut scene, pid) = scene(8, &["", ""]);
    scene.group(pid, wanted(2));
    let node = scene.controller.state.regions[&(pid, 1)].owner;
    scene.handle(Event::Disconnected(node));
    assert_eq!(scene.give_up(pid, 1).commands, []);
    let has = [(pid, 1, REGION, 0), (pid, 9, REGION, 0)];
    let told = scene.report(3 - node.0, 7 * REGION, &[(pid, 2, REGION, 0)]);
    assert_eq!(told.commands, [], "a place that is used is not dropped");
    scene.restart();
    scene.register_in(node.0, 8, "");
    assert_eq!(scene.report(node.0, 7 * REGION, &has).commands, [(node, gives_up(pid, 1, 1))]);
    assert_eq!(scene.report(node.0, 7 * REGION, &[]).commands, []);
}

#[test]
fn a_lost_node_is_forgotten_when_all_that_it_had_is_given_up() {
    let (mut scene, pid) = scene(8, &["", ""]);
    scene.group(pid, wanted(2));
    scene.pass(config().lease - 1);
    let node = scene.controller.state.regions[&(pid, 1)].owner;
    scene.report(3 - node.0, 7 * REGION, &[(pid, 2, REGION, 0)]);
    scene.pass(1);
    assert!(matches!(scene.locate(pid, 1), Answer::Refused(Refusal::RegionLost { .. })));
    scene.give_up(pid, 1);
    assert_eq!(scene.conditions().len(), 1);
    let returns = Event::Registered { facts: facts(node.0, 8), report: NodeReport::default(), spaces: vec![pid] };
    assert_eq!(scene.handle(returns).commands, [(node, Command::DestroySpace { pid })]);
}

#[test]
fn a_region_that_moves_is_given_up_at_both_nodes() {
    let (mut scene, pid) = scene(8, &["", "", ""]);
    let (_, places) = scene.group(pid, wanted(1));
    let from = places[0].1;
    scene.ask(Request::Drain { node: NodeId(from).to_string() });
    scene.report(from, 7 * REGION, &[(pid, 1, REGION, 0)]);
    let to = scene.controller.state.regions[&(pid, 1)].moving.unwrap().to;
    let told = scene.give_up(pid, 1);
    let mut told: Vec<u64> = told.commands.iter().map(|(node, _)| node.0).collect();
    told.sort_unstable();
    assert_eq!(told, [from.min(to.0), from.max(to.0)]);
    let late = scene.handle(Event::Answered(NodeId(from), Outcome::Moved { id: MoveId(1) }));
    assert_eq!(late.commands, []);
    // The target serves it, on the word of its source: it is told again.
    let arrived = vec![Arrival { pid, region: 1, id: MoveId(1) }];
    let report = NodeReport { free_bytes: 7 * REGION, arrived, ..NodeReport::default() };
    scene.handle(Event::Answered(to, Outcome::SpaceCreated { pid, capabilities: capabilities(to.0) }));
    assert_eq!(scene.handle(Event::Reported(to, report)).commands, [(to, gives_up(pid, 1, 2))]);
}

#[test]
fn a_drain_brings_no_two_places_of_a_group_together() {
    let (mut scene, pid) = scene(8, &["rack=a", "rack=b", "rack=b", "rack=c"]);
    // One in rack a, one in rack c: the other rack is where it can go.
    let (group, places) = scene.group(pid, PlacesWanted { apart: vec![NodeId(2), NodeId(3)], ..wanted(2) });
    assert_eq!(places.iter().map(|(_, node)| node).sum::<u64>(), 1 + 4);
    let regions: std::collections::BTreeMap<u64, u32> = places.iter().map(|(region, node)| (*node, *region)).collect();
    let has = |node: u64| [(pid, regions[&node], REGION, 0)];
    scene.report(4, 7 * REGION, &has(4));
    scene.report(2, 8 * REGION, &[]);
    scene.report(3, 7 * REGION, &[]);
    scene.ask(Request::Drain { node: NodeId(1).to_string() });
    scene.report(1, 7 * REGION, &has(1));
    let moving = |scene: &Scene, node: u64| scene.controller.state.regions[&(pid, regions[&node])].moving;
    assert_eq!(moving(&scene, 1).unwrap().to, NodeId(2), "the emptier one of the other rack");
    scene.handle(Event::Answered(NodeId(2), Outcome::SpaceCreated { pid, capabilities: capabilities(2) }));
    scene.handle(Event::Answered(NodeId(1), Outcome::Moved { id: MoveId(1) }));
    scene.handle(Event::Answered(NodeId(2), Outcome::RegionOpened { pid, region: regions[&1], id: MoveId(1) }));
    // Now all but the drained one and those that have a place are in a rack that has one: that is better than none.
    scene.report(2, 7 * REGION, &has(1));
    scene.ask(Request::Drain { node: NodeId(4).to_string() });
    scene.report(4, 7 * REGION, &has(4));
    assert_eq!(moving(&scene, 4).unwrap().to, NodeId(3), "not where the group's other place is");
    let record = scene.controller.state.regions[&(pid, regions[&4])].group;
    assert_eq!(record, Some(GroupRecord { number: group, places: 2 }));
}

#[test]
fn pressure_brings_no_two_places_of_a_group_into_one_domain() {
    let (mut scene, pid) = scene(8, &["rack=a", "rack=b", "rack=b"]);
    let (_, places) = scene.group(pid, PlacesWanted { apart: vec![NodeId(3)], ..wanted(2) });
    let region = places.iter().find(|(_, node)| *node == 1).unwrap().0;
    scene.report(2, 7 * REGION, &[(pid, 3 - region, REGION, 0)]);
    let pressed = scene.report(1, 0, &[(pid, region, REGION, 0)]);
    assert_eq!(pressed.commands, [], "node 3 has room, in the rack of the other place");
}

#[test]
fn records_and_commands_of_earlier_releases_know_no_groups() {
    let region = r#"{"region":{"pid":2147483648,"region":1,"record":{"owner":"00000000000000a1","moving":null,
        "leftovers":[]}}}"#;
    let Record::Region { record, .. } = serde_json::from_str(region).unwrap() else { panic!() };
    assert_eq!(record, RegionRecord::new(NodeId(0xa1)));
    assert!(!serde_json::to_string(&record).unwrap().contains("group"));
    let [owner, read_write, read] = [3, 2, 1].map(|key| Key(key).to_string());
    let space = format!(
        r#"{{"space":{{"pid":2147483648,"keys":{{"owner":"{owner}","read_write":"{read_write}","read":"{read}"}}}}}}"#
    );
    let Record::Space { space, .. } = serde_json::from_str(&space).unwrap() else { panic!() };
    assert_eq!(space.fresh_from, 0);
    assert!(!serde_json::to_string(&space).unwrap().contains("fresh_from"));
    let command = r#"{"drop-region":{"pid":2147483648,"region":1,"before":2}}"#;
    let known: Command = serde_json::from_str(command).unwrap();
    assert_eq!(known, Command::DropRegion { pid: Pid::FIRST, region: 1, before: MoveId(2), is_given_up: false });
    assert_eq!(serde_json::to_string(&known).unwrap(), command);
    let request = Request::PlaceGroup { pid: Pid::FIRST, key: Key(3), wanted: wanted(2) };
    let line = serde_json::to_string(&request).unwrap();
    assert!(line.contains(r#""bytes":1048576,"places":2}"#), "{line}");
    assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
}

#[test]
fn a_space_says_what_is_at_fewer_places_than_was_asked_for() {
    let (mut scene, pid) = scene(8, &["", "", ""]);
    scene.group(pid, wanted(2));
    scene.group(pid, wanted(3));
    let below = |scene: &mut Scene| match scene.answer(Request::Spaces { from: pid }) {
        Answer::Spaces { spaces, .. } => spaces.first().map(|space| (space.groups_below, space.pages_below)),
        other => panic!("{other:?}"),
    };
    assert_eq!(below(&mut scene), Some((0, 0)));
    scene.give_up(pid, 1);
    assert_eq!(below(&mut scene), Some((1, 0)), "until it has another place");
    let others = scene.controller.state.regions[&(pid, 2)].owner;
    scene.group(pid, PlacesWanted { group: Some(1), apart: vec![others], ..wanted(1) });
    assert_eq!(below(&mut scene), Some((0, 0)));
    // The third node is lost: it has a place of the second group at least.
    scene.pass(config().lease - 1);
    [1, 2].into_iter().for_each(|node| _ = scene.report(node, 6 * REGION, &[]));
    scene.pass(1);
    assert!(below(&mut scene).is_some_and(|(groups, pages)| groups >= 1 && pages == 0));
    let note = |key, pages_below| Request::NoteProtection { pid, key, pages_below };
    assert_eq!(scene.answer(note(keys(1).read, 7)), Answer::Refused(Refusal::NotAllowed { pid }));
    assert_eq!(scene.answer(note(keys(1).owner, 7)), Answer::Noted);
    assert_eq!(below(&mut scene).map(|(_, pages)| pages), Some(7));
    assert_eq!(scene.answer(note(keys(1).owner, 0)), Answer::Noted);
    assert_eq!(below(&mut scene).map(|(_, pages)| pages), Some(0));
    scene.answer(note(keys(1).owner, 7));
    scene.answer(Request::DestroySpace { pid, key: keys(1).owner });
    assert_eq!((below(&mut scene), scene.controller.pages_below.len()), (None, 0));
}

/// A controller that had just started once said that all was well, while its owners knew of pages without copies.
/// One whose only place was given up before another one is found: nodes that its owner wants it apart from have none of
/// its places.
#[test]
fn a_group_without_any_place_has_as_many_again_as_its_owner_asks_for() {
    let (mut scene, pid) = scene(8, &["", "", ""]);
    let (group, places) = scene.group(pid, wanted(1));
    scene.give_up(pid, places[0].0);
    scene.group(pid, PlacesWanted { group: Some(group), apart: vec![NodeId(places[0].1)], ..wanted(1) });
    let Answer::Spaces { spaces, .. } = scene.answer(Request::Spaces { from: pid }) else { panic!() };
    assert_eq!(spaces[0].groups_below, 0);
}

#[test]
fn a_controller_that_starts_does_not_know_at_once_what_is_at_too_few_places() {
    let (mut scene, pid) = scene(8, &["", ""]);
    scene.group(pid, wanted(2));
    let is_unknown = |scene: &mut Scene| match scene.answer(Request::Spaces { from: pid }) {
        Answer::Spaces { spaces, .. } => spaces.iter().map(|space| space.is_pages_below_unknown).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(is_unknown(&mut scene), [false], "it was made at this one");
    scene.restart();
    let Answer::SpaceCreated { .. } = scene.answer(Request::CreateSpace { keys: keys(2), lease_ms: 0 }) else {
        panic!("there is room")
    };
    assert_eq!(is_unknown(&mut scene), [true, false], "one has no groups");
    let note = |pages_below| Request::NoteProtection { pid, key: keys(1).owner, pages_below };
    scene.answer(note(7));
    assert_eq!(is_unknown(&mut scene), [false, false], "its owner has said so");
    scene.restart();
    scene.pass(PAGES_UNKNOWN - 1);
    assert_eq!(is_unknown(&mut scene), [true, false]);
    scene.pass(1);
    assert_eq!(is_unknown(&mut scene), [false, false]);
}
