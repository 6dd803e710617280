//! Places of groups that move: what is late where they were does no harm when they are back there, and where they are
//! is known also if nobody uses them.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use yonder_fabric::{Module, Status};
use yonder_protect::health::GIVE_UP_AFTER;
use yonder_wire::ErrorCode;

use super::scene::{PAGE, REGION, Scene, TIMEOUT, stream_node_at, until, url_of};
use super::spread::{counter, url};
use super::stalled_path::StalledPath;
use super::target::Target;
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

/// Pages of 4 KiB in a region.
const PAGES: u64 = REGION / SMALL;
/// Pages of a region of a node.
const ONE_REGION: u64 = REGION / PAGE;

fn regions_at(scene: &Scene, url: &str) -> u64 {
    let nodes = scene.client().nodes().unwrap();
    nodes.iter().find(|view| view.urls.iter().any(|known| known == url)).unwrap().regions
}

/// Drains a node until another one has as many regions.
fn drain_to(scene: &Scene, from: &str, to: &str, regions: u64) {
    scene.client().start_drain(from).unwrap();
    until("the regions have moved", || (regions_at(scene, to) == regions).then_some(()));
    scene.client().undrain(from).unwrap();
}

/// A node stands still on the one connection on which a page was written. What was written there may still arrive, and
/// does so after its place has moved to another node and back.
#[test]
fn a_write_that_was_given_up_where_a_place_was_undoes_no_later_one() {
    let scene = Scene::new(1);
    let path = StalledPath::new(&scene);
    let first = stream_node_at(path.controller.clone(), 8 * ONE_REGION);
    let other = stream_node_at(scene.address(), 8 * ONE_REGION);
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    // The first node keeps a place, and so knows the address space all the time.
    let groups: Vec<_> = (0..2).map(|_| client.allocate(PAGES)).collect();
    let frames = Arc::clone(&client.frames);
    let stalled = path.connections();
    let late = client.fabric.queue_pair(Module::WriteBack, frames).unwrap();
    assert_eq!(path.connections(), stalled + 1, "a queue pair has one lane to a node");
    let usual = std::mem::replace(&mut client.queue_pair, late);
    // Writes are sent by who knows the node's clock.
    assert_eq!(client.store(groups[0], 1), Status::Done);
    // What is dialled again stands still too.
    path.stall(stalled..stalled + 100);
    client.fill(0, 1);
    groups.iter().for_each(|start| _ = client.write(page(*start, 7), 0));
    // The other node has them.
    assert!(client.finish(2).values().all(|status| *status == Status::Done));
    // The mender asks the node from now on.
    client.queue_pair = usual;
    assert_eq!(counter(&client, "spread_degraded_pages"), 2);

    let second_node = stream_node_at(scene.address(), ONE_REGION + 12);
    let store = |client: &mut Client, index| {
        groups.iter().for_each(|start| assert_eq!(client.store(page(*start, index), 2), Status::Done));
    };
    let second = url_of(&second_node);
    drain_to(&scene, &path.url, &second, 1);
    for moves in [1, 2] {
        until("the program knows it", || {
            // By one page it is found out, and the other may still be late where its place was.
            [8, 7].into_iter().for_each(|index| store(&mut client, index));
            (counter(&client, "spread_moves") == moves).then_some(())
        });
        if moves == 1 {
            (0..100).for_each(|_| store(&mut client, 7));
            path.stall(stalled..path.connections());
            drain_to(&scene, &second, &path.url, 2);
        }
    }
    let writes = first.stats().writes;
    path.stall([]);
    until("what is late has arrived, or never will", || {
        store(&mut client, 8);
        (counter(&client, "spread_degraded_pages") == 0 && first.stats().writes > writes + 8).then_some(())
    });
    assert_eq!(counter(&client, "spread_places_given_up"), 0);
    drop(other);
    for start in &groups {
        until("it is read at the first node", || match client.load(page(*start, 7)) {
            (Status::Done, found) => {
                assert_eq!(found, 2, "a write that was given up has come later");
                Some(())
            }
            _ => None,
        });
    }
}

/// The same of pages that are discarded.
#[test]
fn a_discard_that_was_given_up_where_a_place_was_undoes_no_later_write() {
    let scene = Scene::new(1);
    let path = StalledPath::new(&scene);
    let first = stream_node_at(path.controller.clone(), 8 * ONE_REGION);
    let _other = stream_node_at(scene.address(), 8 * ONE_REGION);
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    let start = client.allocate(PAGES);
    let calls = path.connections() - 1;
    let stays = client.allocate(PAGES);
    assert_eq!(client.store(page(start, 7), 1), Status::Done);
    path.stall(std::iter::once(calls).chain(path.connections()..path.connections() + 100));
    client.fabric.discard(start, 16 * SMALL).expect_err("the node does not answer calls");

    let second_node = stream_node_at(scene.address(), ONE_REGION + 12);
    let second = url_of(&second_node);
    drain_to(&scene, &path.url, &second, 1);
    let find = |client: &mut Client, moves| {
        until("the program knows it", || {
            [start, stays].iter().for_each(|start| assert_eq!(client.store(page(*start, 20), 1), Status::Done));
            (counter(client, "spread_moves") == moves).then_some(())
        });
    };
    find(&mut client, 1);
    // Where the node does not say that it will not do it the place is given up, and nothing moves back.
    let is_given_up =
        client.fabric.discard(start, 16 * SMALL).is_ok() && counter(&client, "spread_places_given_up") > 0;
    assert_eq!(client.store(page(start, 7), 2), Status::Done);
    path.stall(std::iter::once(calls));
    if !is_given_up {
        drain_to(&scene, &second, &path.url, 2);
        find(&mut client, 2);
    }
    path.stall([]);
    // What was asked before on the same connection is executed when this is.
    client.fabric.discard(page(stays, 32), 16 * SMALL).unwrap();
    for _ in 0..100 {
        assert_eq!(client.load(page(start, 7)), (Status::Done, 2));
    }
    drop(first);
}

/// A program rests while a node is drained and then says nothing any more.
#[test]
fn places_that_have_moved_before_their_node_fell_silent_are_not_given_up() {
    let scene = Scene::new(4);
    let path = StalledPath::new(&scene);
    let _first = stream_node_at(path.controller.clone(), 8 * ONE_REGION);
    let _other = stream_node_at(scene.address(), 8 * ONE_REGION);
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    let start = client.allocate(3 * PAGES);
    let pages = || (0..3 * PAGES).step_by(50);
    pages().for_each(|index| assert_eq!(client.store(page(start, index), 1), Status::Done));
    let _third = stream_node_at(scene.address(), 8 * ONE_REGION);
    path.stall(0..1000);
    scene.client().drain(&path.url, TIMEOUT).unwrap();
    until("all are found", || {
        assert_eq!(counter(&client, "spread_places_given_up"), 0);
        (counter(&client, "spread_moves") == 3).then_some(())
    });
    pages().for_each(|index| assert_eq!(client.load(page(start, index)), (Status::Done, 1)));
}

/// A region is on its way for longer than a node may be silent, and its node says so.
#[test]
fn a_node_is_not_silent_while_a_region_moves_off_it() {
    let scene = Scene::new(1);
    let first = stream_node_at(scene.address(), 8 * ONE_REGION);
    let _other = stream_node_at(scene.address(), 8 * ONE_REGION);
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    let start = client.allocate(PAGES);
    assert_eq!(client.store(start, 1), Status::Done);
    // It waits for the end of the move, which does not come if the test fails.
    let target = ManuallyDrop::new(Target::new(&scene));
    scene.client().start_drain(&url_of(&first)).unwrap();
    let begin = target.next();
    let begun = Instant::now();
    until("a silent node would have been given up", || {
        assert_eq!(client.store(start, 2), Status::Done, "the other node has it");
        (begun.elapsed() > Duration::from_nanos(2 * GIVE_UP_AFTER)).then_some(())
    });
    let given_up = counter(&client, "spread_places_given_up");
    scene.client().undrain(&url_of(&first)).unwrap();
    begin.answer(Err(ErrorCode::OutOfMemory));
    assert_eq!(given_up, 0);
    until("the page is at both again", || {
        client.poll();
        (counter(&client, "spread_degraded_pages") == 0).then_some(())
    });
    assert_eq!((client.load(start), counter(&client, "spread_places_given_up")), ((Status::Done, 2), 0));
}

/// A node whose memory runs low gives one region away, and stays. Nobody looks at what is there.
#[test]
fn a_place_that_has_moved_is_found_though_nobody_uses_it() {
    let scene = Scene::new(1);
    let small = stream_node_at(scene.address(), 4 * ONE_REGION);
    let mut client = Client::new(&url(&scene), 4);
    let groups: Vec<_> = (0..4).map(|_| client.allocate(PAGES - REGION / PAGE)).collect();
    let hot = [0, 1, 3].map(|group: usize| groups[group]);
    for start in &groups {
        for index in 0..PAGES - REGION / PAGE {
            assert_eq!(client.store(page(*start, index), 1), Status::Done);
        }
    }
    for start in hot {
        (0..1000).for_each(|_| assert_eq!(client.load(start), (Status::Done, 1)));
    }
    let large = stream_node_at(scene.address(), 8 * ONE_REGION);
    until("a region has moved", || (regions_at(&scene, &url_of(&large)) > 0).then_some(()));
    until("the program knows it", || (counter(&client, "spread_moves") > 0).then_some(()));
    drop(small);
    assert_eq!(client.load(groups[2]), (Status::Done, 1), "the coldest region has moved");
}
