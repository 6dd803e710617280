//! Sets of nodes that come in any order, in any domains, and go again.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn domains(text: &str) -> Domains {
    text.to_owned().try_into().unwrap()
}

/// Gives nodes their seats, in this order.
fn seated(nodes: &[Domains]) -> Vec<u32> {
    let mut seats: Vec<u32> = Vec::new();
    for own in nodes {
        seats.push(free_seat(own, seats.iter().copied().zip(nodes)));
    }
    seats
}

fn members<'a>(nodes: &'a [Domains], seats: &[u32]) -> Vec<Member<'a>> {
    let member = |(node, (domains, seat)): (usize, (&'a Domains, &u32))| Member {
        node: NodeId(node as u64),
        seat: *seat,
        domains,
    };
    nodes.iter().zip(seats).enumerate().map(member).collect()
}

fn sets_of(nodes: &[Domains], places: u32, spares: u32) -> Vec<Vec<u64>> {
    let seats = seated(nodes);
    let sets = coding_sets(&members(nodes, &seats), places, spares);
    sets.into_iter().map(|set| set.into_iter().map(|node| node.0).collect()).collect()
}

fn racks(count: usize, racks: usize) -> Vec<Domains> {
    (0..count).map(|node| domains(&format!("rack={}", node % racks))).collect()
}

#[test]
fn a_set_has_as_many_seats_as_fill_a_block() {
    assert_eq!([1, 2, 3, 4, 5, 7, 8, 10].map(|places| set_seats(places, 0)), [1, 2, 3, 4, 6, 8, 8, 12]);
    assert_eq!([2, 3, 5, 8, 10].map(|places| set_seats(places, 2)), [4, 6, 8, 12, 12]);
    assert_eq!((set_seats(30, 2), set_seats(0, 0), set_seats(3, u32::MAX)), (24, 1, 24));
}

#[test]
fn nodes_that_fail_alone_fill_one_set_after_the_other() {
    let alone = vec![Domains::default(); 10];
    assert_eq!(sets_of(&alone, 2, 2), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    assert_eq!(sets_of(&alone, 3, 1), [vec![0, 1, 2, 3, 8], vec![4, 5, 6, 7, 9]], "two are too few for a set");
    assert_eq!(sets_of(&alone[..2], 3, 1), [vec![0, 1]], "all of them, however few");
    assert_eq!(sets_of(&[], 3, 1), [Vec::<u64>::new()]);
}

#[test]
fn nodes_that_come_rack_by_rack_are_in_sets_over_all_racks() {
    let nodes: Vec<Domains> = (0..30).map(|node| domains(&format!("rack={}", node / 5))).collect();
    let sets = sets_of(&nodes, 3, 2);
    assert_eq!(sets.len(), 5);
    for set in sets {
        assert_eq!(set.iter().map(|node| node / 5).collect::<BTreeSet<_>>().len(), 6, "{set:?}");
    }
}

#[test]
fn a_set_spans_wider_domains_too() {
    // Twelve racks of row 1 come before those of row 2.
    let nodes: Vec<Domains> = (0..24).map(|rack| domains(&format!("rack={rack},row={}", rack / 12))).collect();
    for (places, spares) in [(2, 0), (2, 1), (2, 2), (3, 2), (5, 2)] {
        let sets = sets_of(&nodes, places, spares);
        for set in &sets {
            let rows: BTreeSet<u64> = set.iter().map(|rack| rack / 12).collect();
            assert_eq!(rows.len(), 2, "{set:?} of {sets:?}");
        }
    }
}

/// A thousand nodes come in any order; all that are in the sets of one block are in those of the others.
#[test]
fn sets_are_of_few_combinations_of_racks() {
    let order = (0..1000u64).map(|at| at * 617 % 1000);
    let nodes: Vec<Domains> = order.clone().map(|node| domains(&format!("rack={}", node % 40))).collect();
    let rack = |at: u64| order.clone().nth(at as usize).unwrap() % 40;
    for (places, spares, most) in [(2, 1, 45), (3, 1, 62), (5, 1, 120)] {
        let mut pairs = BTreeSet::new();
        for set in sets_of(&nodes, places, spares) {
            let racks: Vec<u64> = set.into_iter().map(rack).collect();
            pairs.extend(racks.iter().flat_map(|one| racks.iter().map(move |other| (*one, *other))));
        }
        let pairs = pairs.iter().filter(|(one, other)| one < other).count();
        assert!(pairs <= most, "{pairs} of 780 pairs of racks share a set");
    }
}

#[test]
fn more_places_than_racks_are_in_sets_of_several_nodes_of_each() {
    let sets = sets_of(&racks(32, 4), 5, 2);
    assert_eq!(sets.iter().map(Vec::len).collect::<Vec<_>>(), [8; 4]);
}

#[test]
fn racks_of_different_sizes_are_shared_out() {
    // Forty nodes of one rack, five of each other one: a pair needs another rack.
    let nodes: Vec<Domains> = (0..50)
        .map(|node| domains(&format!("rack={}", [0, 1, 2][usize::from(node >= 40) + usize::from(node >= 45)])))
        .collect();
    let sets = sets_of(&nodes, 2, 2);
    assert_eq!(sets.iter().map(Vec::len).collect::<Vec<_>>(), [10; 5]);
}

#[test]
fn one_that_comes_or_goes_changes_its_own_set() {
    let nodes = racks(400, 40);
    let seats = seated(&nodes);
    let all = members(&nodes, &seats);
    for (places, spares) in [(2, 2), (3, 2), (5, 2), (8, 2)] {
        let before: BTreeSet<Vec<NodeId>> = coding_sets(&all, places, spares).into_iter().collect();
        for gone in [0, 57, 399] {
            let left: Vec<Member<'_>> = all.iter().copied().filter(|member| member.node != NodeId(gone)).collect();
            let after: BTreeSet<Vec<NodeId>> = coding_sets(&left, places, spares).into_iter().collect();
            let changed = before.difference(&after).count();
            assert!(changed <= 3, "{changed} of {} sets are others without node {gone}", before.len());
        }
    }
}

proptest! {
    #[test]
    fn every_node_is_in_one_set_and_every_set_has_room_for_a_group(
        shapes in prop::collection::vec((0..12u32, 0..3u32), 1..80),
        gone in prop::collection::vec(any::<bool>(), 80),
        places in 1..9u32,
        spares in 0..4u32,
    ) {
        let text = |(rack, row): &(u32, u32)| match rack {
            0 => String::new(),
            rack => format!("rack={rack}.{row},row={row}"),
        };
        let nodes: Vec<Domains> = shapes.iter().map(|shape| domains(&text(shape))).collect();
        let seats = seated(&nodes);
        prop_assert_eq!(seats.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "a seat is one node's");
        prop_assert!(seats.iter().all(|seat| *seat < BLOCK_SEATS * nodes.len() as u32));
        let all = members(&nodes, &seats);
        for (one, other) in all.iter().flat_map(|one| all.iter().map(move |other| (one, other))) {
            let together = one.node != other.node && one.seat / BLOCK_SEATS == other.seat / BLOCK_SEATS;
            prop_assert!(!(together && one.domains.are_beside(other.domains)), "two of a rack are in a block");
        }
        let left: Vec<Member<'_>> = all.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(member, _)| *member).collect();
        let sets = coding_sets(&left, places, spares);
        let mut found: Vec<NodeId> = sets.iter().flatten().copied().collect();
        found.sort_unstable();
        prop_assert_eq!(&found, &left.iter().map(|member| member.node).collect::<Vec<_>>());
        let is_enough = left.len() >= places as usize;
        prop_assert!(sets.iter().all(|set| set.len() >= places as usize) == is_enough);
        let wanted = distinct(&left).min(places as usize);
        let of = |set: &[NodeId]| left.iter().copied().filter(|member| set.contains(&member.node)).collect::<Vec<_>>();
        if is_enough {
            prop_assert!(sets.iter().all(|set| distinct(&of(set)) >= wanted), "{:?}", sets);
        }
        let mut turned = left.clone();
        turned.reverse();
        prop_assert_eq!(coding_sets(&turned, places, spares), sets, "the order of nodes says nothing");
    }
}
