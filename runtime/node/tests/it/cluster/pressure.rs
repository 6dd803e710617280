//! A node whose memory runs low gives away the region that is used least.

use crate::cluster::router::Router;
use crate::cluster::scene::{PAGE, REGION, Scene, id_of, until};

const PAGES_OF_NODE: u64 = 64;
/// Pages of an allocation.
const PAGES: u64 = REGION / PAGE - 1;

#[test]
fn a_pressed_node_gives_its_coldest_region_away_before_it_is_full() {
    let scene = Scene::new(1);
    let small = scene.datagram_node(PAGES_OF_NODE);
    let mut router = Router::create(&scene);
    let allocations: Vec<u64> = (0..4).map(|_| router.allocate_region()).collect();
    let mut client = scene.client();
    let small_id = id_of(&small, &mut client);
    assert!(allocations.iter().all(|address| router.place(*address).node == small_id));
    let (cold, hot) = (allocations[2], [allocations[0], allocations[1], allocations[3]]);
    let fill = |router: &mut Router, pages: std::ops::Range<u64>| {
        for (address, page) in allocations.iter().flat_map(|address| pages.clone().map(move |page| (address, page))) {
            router.write(address + page * PAGE, &[page as u8 + 1; 50]);
        }
    };
    fill(&mut router, 0..PAGES - 1);
    for address in hot {
        (0..1000).for_each(|_| drop(router.read(address, 50)));
    }
    // The controller hears of the last pages after it could hear of the reads.
    fill(&mut router, PAGES - 1..PAGES);
    let free_bytes = (PAGES_OF_NODE - 4 * PAGES) * PAGE;
    until("the node is known to be full", || (client.nodes().unwrap()[0].free_bytes == free_bytes).then_some(()));
    let large = scene.datagram_node(8 * PAGES_OF_NODE);
    let large_id = id_of(&large, &mut client);
    // Asked of the controller, because a read would make the region warm.
    until("the coldest region has moved", || {
        let region = (cold / REGION) as u32;
        let place = client.locate(router.space.pid, router.space.keys.owner, region).unwrap();
        (place.node == large_id).then_some(())
    });
    for address in allocations {
        for page in 0..PAGES {
            assert_eq!(router.read(address + page * PAGE, 50), [page as u8 + 1; 50]);
        }
    }
    assert_eq!(router.place(cold).node, large_id);
    assert!(router.moved > 0, "the client has not met a moved region");
    assert!(small.stats().moved_bytes >= PAGES * 50);
}
