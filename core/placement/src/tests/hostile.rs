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
