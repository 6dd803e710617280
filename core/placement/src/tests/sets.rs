//! Groups in sets: few sets for many groups, equal shares for equal nodes, and seats that stay.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::wanted;
use super::*;

/// Nodes from 1 on, in racks in turn (none if there are no racks), which come in an order that the seed shuffles.
fn cluster(nodes: u64, regions: u64, racks: u64, seed: u64) -> (Scene, Pid) {
    let mut scene = Scene::new();
    let mut order: Vec<u64> = (1..=nodes).collect();
    order.sort_by_key(|node| mix(seed, *node));
    for node in order {
        scene.register_in(node, regions, &domains(node, racks));
    }
    let pid = scene.create();
    (scene, pid)
}

/// Where a node is. An even number of racks is in two rows.
fn domains(node: u64, racks: u64) -> String {
    match racks {
        0 => String::new(),
        racks if racks.is_multiple_of(2) => format!("rack={},row={}", node % racks, node % racks / (racks / 2)),
        racks => format!("rack={}", node % racks),
    }
}

/// A number that looks drawn by chance.
fn mix(seed: u64, number: u64) -> u64 {
    let mixed = (number ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16
}

/// The largest load of a node as a share of the mean.
fn imbalance(scene: &Scene) -> f64 {
    let fullness = scene.controller.fullness();
    let loads: Vec<u64> = scene.controller.state.nodes.keys().map(|node| fullness.load(*node).committed()).collect();
    *loads.iter().max().unwrap() as f64 * loads.len() as f64 / loads.iter().sum::<u64>() as f64
}

fn seats(scene: &Scene) -> BTreeMap<u64, u32> {
    scene.controller.state.nodes.iter().map(|(node, record)| (node.0, record.seat.unwrap())).collect()
}

#[test]
fn equal_nodes_have_equal_shares() {
    for (nodes, racks, places) in [(9, 0, 2), (14, 0, 3), (25, 5, 3), (21, 7, 5), (50, 10, 2), (26, 0, 8), (31, 0, 4)] {
        for seed in 0..4 {
            let (mut scene, pid) = cluster(nodes, 200, racks, seed);
            for number in 0..20 * nodes / u64::from(places) {
                let bytes = 1 + mix(seed, number) % REGION;
                scene.group(pid, PlacesWanted { bytes, ..wanted(places) });
            }
            let imbalance = imbalance(&scene);
            assert!(imbalance <= 1.10, "{places} places on {nodes} nodes in {racks} racks, seed {seed}: {imbalance}");
            assert_eq!(scene.controller.groups_outside_sets(), 0);
        }
    }
}

#[test]
fn many_groups_are_on_few_sets_of_nodes() {
    let (mut scene, pid) = cluster(40, 100, 20, 1);
    let mut copysets = BTreeSet::new();
    for _ in 0..400 {
        let (_, places) = scene.group(pid, wanted(3));
        let nodes: BTreeSet<u64> = places.iter().map(|(_, node)| *node).collect();
        assert_eq!(nodes.iter().map(|node| node % 20).collect::<BTreeSet<_>>().len(), 3, "three racks");
        copysets.insert(nodes);
    }
    let partners =
        |node: u64| copysets.iter().filter(|set| set.contains(&node)).flatten().collect::<BTreeSet<_>>().len();
    let most = (1..=40).map(partners).max().unwrap();
    assert!(most <= 7, "a node shares groups with {} others", most - 1);
    assert!(copysets.len() <= 8 * 20, "{} sets of three", copysets.len());
}

#[test]
fn a_place_is_mended_within_its_set() {
    let (mut scene, pid) = cluster(24, 100, 0, 2);
    let (group, places) = scene.group(pid, wanted(3));
    let home = seats(&scene)[&places[0].1] / 6;
    assert!(places.iter().all(|(_, node)| seats(&scene)[node] / 6 == home));
    let apart: Vec<NodeId> = places.iter().map(|(_, node)| NodeId(*node)).collect();
    scene.give_up(pid, places[0].0);
    // Others are emptier by far.
    for (node, _) in seats(&scene).into_iter().filter(|(_, seat)| seat / 6 == home) {
        scene.report(node, 50 * REGION, &[]);
    }
    let (_, more) = scene.group(pid, PlacesWanted { group: Some(group), apart, ..wanted(1) });
    assert_eq!(seats(&scene)[&more[0].1] / 6, home);
    assert_eq!(scene.controller.groups_outside_sets(), 0);
}

/// The set for two places, and not that for three.
#[test]
fn a_group_keeps_its_set_while_it_has_more_nodes_than_places() {
    let (mut scene, pid) = cluster(24, 100, 0, 7);
    for _ in 0..12 {
        let (group, places) = scene.group(pid, wanted(2));
        let home = seats(&scene)[&places[0].1] / 3;
        let apart = places.iter().map(|(_, node)| NodeId(*node)).collect();
        let (_, more) = scene.group(pid, PlacesWanted { group: Some(group), apart, ..wanted(1) });
        assert_eq!(seats(&scene)[&more[0].1] / 3, home);
    }
}

#[test]
fn a_drained_place_stays_within_its_set() {
    let (mut scene, pid) = cluster(24, 100, 0, 3);
    let (_, places) = scene.group(pid, wanted(3));
    let home = seats(&scene)[&places[0].1] / 6;
    let (region, node) = places[0];
    scene.ask(Request::Drain { node: NodeId(node).to_string() });
    scene.report(node, 99 * REGION, &[(pid, region, REGION, 0)]);
    let to = scene.controller.state.regions[&(pid, region)].moving.unwrap().to.0;
    assert_eq!(seats(&scene)[&to] / 6, home);
}

#[test]
fn places_go_outside_of_sets_if_no_set_has_room() {
    let (mut scene, pid) = cluster(6, 2, 0, 0);
    // Of each set of three, one node has room.
    for node in 1..=6 {
        let is_full = !seats(&scene)[&node].is_multiple_of(3);
        scene.report(node, if is_full { 0 } else { 2 * REGION }, &[]);
    }
    let config = Config { set_spares: 1, ..config() };
    scene.controller.config = config;
    let (_, places) = scene.group(pid, wanted(2));
    assert!(places.iter().all(|(_, node)| seats(&scene)[node].is_multiple_of(3)));
    assert_eq!(scene.controller.groups_outside_sets(), 1);
}

#[test]
fn a_seat_stays_and_who_takes_a_nodes_place_has_it() {
    let (mut scene, _) = cluster(8, 4, 4, 5);
    let before = seats(&scene);
    scene.restart();
    assert_eq!(seats(&scene), before);
    for node in 1..=8 {
        scene.register_in(node, 4, &domains(node, 4));
    }
    assert_eq!(seats(&scene), before, "whatever the order in which they come back");
    // Node 3 ends and is started again: it has another number, and listens where node 3 did.
    scene.handle(Event::Disconnected(NodeId(3)));
    let again = Registration { node: NodeId(99), domains: domains(3, 4).parse().unwrap(), ..facts(3, 4) };
    let report = NodeReport { free_bytes: 4 * REGION, ..NodeReport::default() };
    scene.handle(Event::Registered { facts: again, report, spaces: Vec::new() });
    assert_eq!(seats(&scene)[&99], before[&3]);
    // Node 4 ends for good; the next one in its rack has its seat.
    scene.pass(config().lease - 1);
    for node in [1, 2, 5, 6, 7, 8, 99] {
        scene.report(node, 4 * REGION, &[]);
    }
    scene.pass(1);
    assert_eq!(scene.conditions().len(), 7, "3 and 4 had nothing");
    scene.register_in(100, 4, &domains(4, 4));
    assert_eq!(seats(&scene)[&100], before[&4]);
}

#[test]
fn nodes_of_an_earlier_release_get_seats() {
    let (mut scene, pid) = cluster(6, 4, 3, 5);
    for record in &mut scene.records {
        if let Record::Node(node) = record {
            node.seat = None;
        }
    }
    scene.restart();
    let given = seats(&scene);
    assert_eq!(given.values().collect::<BTreeSet<_>>().len(), 6);
    let actions = scene.handle(Event::Tick);
    assert_eq!(actions.changes.len(), 1 + 6, "the cluster's record, and theirs");
    scene.restart();
    assert_eq!((seats(&scene), scene.handle(Event::Tick).changes.len()), (given, 1));
    (1..=6).for_each(|node| drop(scene.register_in(node, 4, &domains(node, 3))));
    assert_eq!(scene.group(pid, wanted(3)).1.len(), 3);
}
