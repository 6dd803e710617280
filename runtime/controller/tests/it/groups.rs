//! Groups as clients see them: places on different nodes, and regions that are given up.

use yonder_controller::ClientError;
use yonder_placement::{PlacesWanted, Refusal};

use crate::fake::{Cluster, REGION, until};

fn wanted(places: u32) -> PlacesWanted {
    PlacesWanted { bytes: REGION, places, ..PlacesWanted::default() }
}

#[test]
fn a_group_has_places_on_different_nodes_until_they_are_given_up() {
    let cluster = Cluster::in_memory();
    let _nodes = [cluster.node(1, 4), cluster.node(2, 4)];
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let (pid, key) = (space.pid, space.keys.owner);
    let few = client.place_group(pid, key, &wanted(3)).unwrap_err();
    assert!(matches!(few, ClientError::Refused(Refusal::TooFewNodes { wanted: 3, there: 2 })), "{few}");
    let group = client.place_group(pid, key, &wanted(2)).unwrap();
    assert_ne!(group.places[0].node, group.places[1].node);
    for at in &group.places {
        cluster.network.write(pid, at, u64::from(at.region) * REGION, 7).unwrap();
    }
    let third = cluster.node(3, 4);
    let apart = group.places.iter().map(|at| at.node).collect();
    let more = client.place_group(pid, key, &PlacesWanted { group: Some(group.group), apart, ..wanted(1) }).unwrap();
    assert_eq!((more.group, more.places[0].node.0), (group.group, 3));
    let place = &more.places[0];
    cluster.network.write(pid, place, u64::from(place.region) * REGION, 7).unwrap();
    // A node that is away is told when it is back.
    drop(third);
    for region in [group.places[0].region, place.region, place.region] {
        client.give_up(pid, key, region).unwrap();
    }
    let has = |node, region| cluster.network.at(node, |host| host.spaces[&pid].contains_key(&region));
    until("it is dropped", || (!has(group.places[0].node.0, group.places[0].region)).then_some(()));
    assert!(has(3, place.region) && has(group.places[1].node.0, group.places[1].region));
    let _third = cluster.node(3, 4);
    until("it is dropped there too", || (!has(3, place.region)).then_some(()));
    assert!(has(group.places[1].node.0, group.places[1].region));
    let refused = client.locate(pid, key, place.region).unwrap_err();
    assert!(matches!(refused, ClientError::Refused(Refusal::NoRegion { .. })), "{refused}");
}
