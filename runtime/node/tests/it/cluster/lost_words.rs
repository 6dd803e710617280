//! What a source tells its target at the end of a move is lost, or the answer to it: one node serves the region, with
//! what was written last.

use yonder_client::Outcome;
use yonder_wire::ErrorCode;

use crate::cluster::lossy_path::{LossyPath, Lost};
use crate::cluster::router::Router;
use crate::cluster::scene::{REGION, Scene, TIMEOUT, id_of, stream_node_at, until, url_of};

#[test]
fn a_region_whose_target_does_not_hear_the_source_is_served_by_the_target_alone() {
    the_target_alone_serves(Lost::Word);
}

#[test]
fn a_region_whose_source_does_not_hear_the_target_is_served_by_the_target_alone() {
    the_target_alone_serves(Lost::Answer);
}

fn the_target_alone_serves(lost: Lost) {
    let scene = Scene::new(1);
    let source = scene.node(64);
    let mut router = Router::create(&scene);
    let address = router.allocate_region();
    router.write(address, &[7; 100]);
    let before = router.place(address);
    // A client that looks for regions where it has found them before.
    let mut old = Router::open(&scene, router.space);
    assert_eq!(old.read(address, 1), [7]);
    let path = LossyPath::new(&scene, lost);
    let target = stream_node_at(path.controller.clone(), 64);
    let mut client = scene.client();
    client.start_drain(&url_of(&source)).unwrap();
    let region = (address / REGION) as u32;
    let after = until("the controller has heard that the region is at the target", || {
        let place = client.locate(router.space.pid, router.space.keys.owner, region).unwrap();
        (place.urls == [path.url.clone()]).then_some(place)
    });
    until("something was lost", || (path.lost() > 0).then_some(()));
    assert_eq!(old.read(address, 100), [7; 100]);
    old.write(address, &[8]);
    assert_eq!(router.read_at(&before, address), Outcome::Refused(ErrorCode::Moved), "the source serves it too");
    until("the source is empty", || client.drain(&url_of(&source), TIMEOUT).is_ok().then_some(()));
    assert_eq!(router.read_at(&before, address), Outcome::Refused(ErrorCode::Moved), "the source serves it again");
    assert_eq!(router.read(address, 2), [8, 7]);
    assert_eq!((source.stats().moves, source.stats().failed_moves, source.stats().allocated_bytes), (1, 0, 0));
    // It is not stuck there.
    client.undrain(&url_of(&source)).unwrap();
    client.drain(&path.url, TIMEOUT).unwrap();
    router.look_again();
    assert_eq!(router.place(address).node, id_of(&source, &mut client));
    assert_eq!(router.read(address, 2), [8, 7]);
    assert_eq!(router.read_at(&after, address), Outcome::Refused(ErrorCode::Moved));
    assert_eq!(target.stats().moves, 1);
}
