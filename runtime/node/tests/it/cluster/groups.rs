//! Places of a group: given up, they are free again at their nodes, wherever they have gone.

use yonder_client::Outcome;
use yonder_placement::PlacesWanted;
use yonder_wire::ErrorCode;

use crate::cluster::router::Router;
use crate::cluster::scene::{REGION, Scene, TIMEOUT, id_of, until, url_of};

#[test]
fn a_place_that_is_given_up_is_free_again_also_after_a_move() {
    let scene = Scene::new(2);
    let nodes = [scene.node(128), scene.node(128), scene.node(128)];
    let mut router = Router::create(&scene);
    let (pid, key) = (router.space.pid, router.space.keys.owner);
    let wanted = PlacesWanted { bytes: REGION, places: 2, ..PlacesWanted::default() };
    let group = router.controller.place_group(pid, key, &wanted).unwrap();
    let addresses: Vec<u64> = group.places.iter().map(|place| router.allocate_in(place.clone())).collect();
    addresses.iter().for_each(|address| router.write(*address, &[7; 100]));
    let mut client = scene.client();
    let ids = nodes.each_ref().map(|node| id_of(node, &mut client));
    let at = |id| &nodes[ids.iter().position(|known| *known == id).expect("it is one of them")];
    let [first, second] = [0, 1].map(|place| at(group.places[place].node));
    let spare = nodes.iter().find(|node| node.stats().allocated_bytes == 0).expect("one has none");
    client.drain(&url_of(first), TIMEOUT).unwrap();
    assert!(spare.stats().allocated_bytes > 0, "it goes where the other place is not");
    assert_eq!(router.read(addresses[0], 100), [7; 100]);
    router.controller.give_up(pid, key, group.places[0].region).unwrap();
    until("the region is freed where it has gone", || (spare.stats().allocated_bytes == 0).then_some(()));
    assert!(second.stats().allocated_bytes > 0, "the other place stays");
    router.controller.give_up(pid, key, group.places[1].region).unwrap();
    until("the other place is freed", || (second.stats().allocated_bytes == 0).then_some(()));
    let late = router.read_at(&group.places[1], addresses[1]);
    assert_eq!(late, Outcome::Refused(ErrorCode::BadAddress), "no other node has it");
}
