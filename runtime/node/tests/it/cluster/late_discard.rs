//! A node stands still on the one connection on which it is asked to discard pages: what was given up there may still
//! be executed, and undoes no later write.

use yonder_fabric::Status;

use super::scene::{REGION, Scene, stream_node_at, until};
use super::spread::{counter, url};
use super::stalled_path::StalledPath;
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

#[test]
fn a_discard_that_was_given_up_undoes_no_later_write() {
    const PAGES: u64 = 16;
    let scene = Scene::new(1);
    let path = StalledPath::new(&scene);
    let _nodes = [stream_node_at(path.controller.clone(), 64), scene.node(64)];
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    let start = client.allocate(REGION / SMALL);
    // Lanes to a place stand before memory is asked for there.
    let calls = path.connections() - 1;
    (0..PAGES).for_each(|index| assert_eq!(client.store(page(start, index), 1), Status::Done));

    path.stall([calls]);
    client.fabric.discard(start, PAGES * SMALL).expect_err("the node does not answer calls");
    path.stall(0..path.connections());
    // The node is suspect when a write does not wait for it any more.
    assert_eq!(client.store(page(start, PAGES), 2), Status::Done);
    client.fabric.discard(start, PAGES * SMALL).unwrap();
    path.stall([calls]);
    until("the other node's pages are there too, or its place is given up", || {
        client.poll();
        let [degraded, gone] =
            ["degraded_pages", "places_given_up"].map(|name| counter(&client, &format!("spread_{name}")));
        (degraded == 0 || gone > 0).then_some(())
    });
    (0..PAGES).for_each(|index| {
        until("it is stored", || (client.store(page(start, index), 3) == Status::Done).then_some(()))
    });
    path.stall([]);
    // What was asked before on the same connection is executed when this is.
    client.fabric.discard(page(start, PAGES + 1), SMALL).unwrap();
    for index in 0..PAGES {
        assert_eq!(client.load(page(start, index)), (Status::Done, 3), "page {index}");
    }
}

#[test]
fn a_discard_of_less_than_a_page_of_a_place_waits_for_one_of_more() {
    let scene = Scene::new(1);
    let paths: Vec<_> = (0..3).map(|_| StalledPath::new(&scene)).collect();
    let _nodes: Vec<_> = paths.iter().map(|path| stream_node_at(path.controller.clone(), 64)).collect();
    let mut client = Client::new(&format!("{}?code=2+1", url(&scene)), 4);
    let start = client.allocate(REGION / SMALL);
    assert_eq!(client.store(start, 1), Status::Done);

    paths.iter().for_each(|path| path.stall([path.connections() - 1]));
    client.fabric.discard(start, 16 * SMALL).expect_err("no node answers calls");
    // The node of the first part was asked. Of one page alone there is nothing to ask for.
    let is_free = client.fabric.discard(start, SMALL).is_ok();
    if is_free {
        assert_eq!(client.store(start, 2), Status::Done);
    }
    paths.iter().for_each(|path| path.stall([]));
    // What was asked before on the same connections is executed when this is.
    client.fabric.discard(page(start, 16), 16 * SMALL).unwrap();
    assert_eq!(client.load(start), (Status::Done, if is_free { 2 } else { 0 }));
    client.fabric.discard(start, SMALL).unwrap();
    assert_eq!(client.store(start, 3), Status::Done);
    assert_eq!(client.load(start), (Status::Done, 3));
}
