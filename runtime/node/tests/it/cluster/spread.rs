//! `yonder://`: pages on the nodes of a controller, which stay what they are wherever their regions go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use yonder_fabric::{RemoteAddress, Status, end_space, open};

use yonder_placement::NodeCondition;

use super::scene::{REGION, Scene, stream_node_at, until, url_of};
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

/// Pages of 4 KiB in a region.
const PAGES: u64 = REGION / SMALL;

pub(super) fn url(scene: &Scene) -> String {
    format!("yonder://{}", scene.address())
}

/// The byte that page `index` is filled with.
fn byte(index: u64) -> u8 {
    (index * 7 % 251) as u8 + 1
}

fn store_all(client: &mut Client, start: RemoteAddress, pages: impl Iterator<Item = u64>) {
    for index in pages {
        assert_eq!(client.store(page(start, index), byte(index)), Status::Done);
    }
}

fn check_all(client: &mut Client, start: RemoteAddress, pages: impl Iterator<Item = u64>) {
    for index in pages {
        assert_eq!(client.load(page(start, index)), (Status::Done, byte(index)), "page {index}");
    }
}

#[test]
fn a_space_is_larger_than_any_node() {
    let scene = Scene::new(1);
    let nodes: Vec<_> = (0..3).map(|_| scene.node(64)).collect();
    let mut client = Client::new(&url(&scene), 4);
    // Ten regions, on nodes with room for four each.
    let start = client.allocate(10 * PAGES - 3);
    let regions = scene.client().nodes().unwrap().iter().map(|node| node.regions).collect::<Vec<_>>();
    assert_eq!(regions.iter().sum::<u64>(), 10);
    assert!(regions.iter().all(|regions| (3..=4).contains(regions)), "{regions:?}");
    let pages = || (0..10 * PAGES - 3).step_by(37).chain([10 * PAGES - 4]);
    assert_eq!(client.load(page(start, 5)), (Status::Done, 0));
    store_all(&mut client, start, pages());
    check_all(&mut client, start, pages());
    assert_eq!(client.load(page(start, 10 * PAGES)).0, Status::Failed);
    client.fabric.discard(page(start, PAGES - 2), 4 * SMALL).unwrap();
    assert_eq!(client.load(page(start, PAGES - 1)), (Status::Done, 0));
    assert_eq!(client.load(page(start, PAGES + 1)), (Status::Done, 0));
    // There is no room for as much again, and nothing of the attempt stays.
    assert!(client.fabric.allocate(3 * REGION).is_err());
    client.fabric.release(start).unwrap();
    assert_eq!(nodes.iter().map(|node| node.stats().allocated_bytes).sum::<u64>(), 0);
    let again = client.allocate(2 * PAGES);
    assert_eq!(client.load(page(again, 37)), (Status::Done, 0), "of the memory's last user");
}

#[test]
fn the_space_ends_with_its_program_or_for_it() {
    let scene = Scene::new(1);
    let _node = scene.node(64);
    let spaces = || scene.client().spaces().unwrap().len();
    let fabric = open(&url(&scene)).unwrap();
    let space = fabric.space().unwrap();
    assert_eq!(spaces(), 1);
    end_space(&format!("lz4+{}", url(&scene)), space).unwrap();
    assert_eq!(spaces(), 0);
    drop(fabric);
    drop(open(&url(&scene)).unwrap());
    assert_eq!(spaces(), 0);
}

#[test]
fn pages_are_read_and_written_while_their_regions_move() {
    let scene = Scene::new(4);
    let first = scene.node(160);
    let mut client = Client::new(&url(&scene), 4);
    let start = client.allocate(6 * PAGES);
    let second = scene.node(160);
    let pages = || (0..6 * PAGES).step_by(4);
    store_all(&mut client, start, pages());
    let [is_drained, is_enough] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let drains = {
        let (is_drained, is_enough, mut controller) = (Arc::clone(&is_drained), Arc::clone(&is_enough), scene.client());
        let urls = [url_of(&first), url_of(&second)];
        thread::spawn(move || {
            // On a busy machine a region may have been there and back before the program looks at it.
            for turn in (0..100).take_while(|turn| *turn < 4 || !is_enough.load(Ordering::Acquire)) {
                controller.drain(&urls[turn % 2], super::scene::TIMEOUT).unwrap();
                controller.undrain(&urls[turn % 2]).unwrap();
            }
            is_drained.store(true, Ordering::Release);
        })
    };
    let mut index = 0;
    while !is_drained.load(Ordering::Acquire) {
        index = (index + 36) % (6 * PAGES);
        assert_eq!(client.load(page(start, index)), (Status::Done, byte(index)), "page {index}");
        assert_eq!(client.store(page(start, index), byte(index)), Status::Done);
        is_enough.store(counter(&client, "spread_moves") >= 6, Ordering::Release);
    }
    drains.join().unwrap();
    check_all(&mut client, start, pages());
    let moves = counter(&client, "spread_moves");
    assert!(moves >= 6, "{moves} moves were followed");
    // A queue pair that is made now knows where everything is.
    let mut other = client.fabric.queue_pair(yonder_fabric::Module::Fault, Arc::clone(&client.frames)).unwrap();
    std::mem::swap(&mut client.queue_pair, &mut other);
    check_all(&mut client, start, pages());
}

/// A program that rests while a node is drained and started anew hears of it only when the node is another one.
#[test]
fn regions_that_have_moved_before_their_node_started_anew_are_not_given_up() {
    let scene = Scene::new(4);
    let first = stream_node_at(scene.address(), 160);
    let mut client = Client::new(&url(&scene), 4);
    let start = client.allocate(6 * PAGES);
    let _second = stream_node_at(scene.address(), 160);
    let pages = || (0..6 * PAGES).step_by(4);
    store_all(&mut client, start, pages());
    scene.client().drain(&url_of(&first), super::scene::TIMEOUT).unwrap();
    let _again = scene.restarted(first, 160);
    // The first of them is asked for, and by this the others are known to be elsewhere.
    until("all are found", || {
        let _ = client.load(page(start, 0));
        assert_eq!(counter(&client, "spread_places_given_up"), 0);
        (counter(&client, "spread_moves") == 6).then_some(())
    });
    check_all(&mut client, start, pages());
}

#[test]
fn what_is_on_a_node_that_ends_is_an_error_and_the_rest_is_not() {
    let scene = Scene::new(1);
    let mut nodes: Vec<_> = (0..2).map(|_| scene.node(64)).collect();
    let mut client = Client::new(&url(&scene), 4);
    let start = client.allocate(4 * PAGES);
    let pages = || (0..4 * PAGES).step_by(11);
    store_all(&mut client, start, pages());
    drop(nodes.pop());
    let mut lost = 0;
    for index in pages() {
        match client.load(page(start, index)) {
            (Status::Done, found) => assert_eq!(found, byte(index)),
            (Status::Disconnected, _) => lost += 1,
            other => panic!("{other:?}"),
        }
    }
    let all = pages().count();
    assert!(lost > all / 3 && lost < 2 * all / 3, "{lost} of {all} are lost");
    // The controller says so too, and what was there is not given up: the node may come back.
    until("the node is lost", || {
        scene.client().nodes().unwrap().iter().any(|node| node.condition == NodeCondition::Lost).then_some(())
    });
    assert_eq!(client.load(page(start, 0)).0, client.load(page(start, 11)).0, "of one group");
}

pub(super) fn counter(client: &Client, name: &str) -> u64 {
    client.fabric.counters().iter().find(|counter| counter.name == name).unwrap().value
}

/// Stores until it is done: what is silent is given up meanwhile.
fn store_again(client: &mut Client, at: RemoteAddress, byte: u8) {
    until("it is stored", || (client.store(at, byte) == Status::Done).then_some(()));
}

#[test]
fn a_node_that_ends_takes_nothing_with_it_if_there_are_copies() {
    for copies in [2, 3] {
        let scene = Scene::new(2);
        let mut nodes: Vec<_> = (0..4).map(|_| scene.node(96)).collect();
        let mut client = Client::new(&format!("{}?copies={copies}", url(&scene)), 4);
        let start = client.allocate(4 * PAGES);
        let pages = || (0..4 * PAGES).step_by(3);
        store_all(&mut client, start, pages());
        for _ in 0..3 {
            // On a busy machine a node may have been left out of a write that it was too slow for.
            until("all pages have all their places", || {
                client.poll();
                (counter(&client, "spread_degraded_pages") == 0).then_some(())
            });
            let given_up = counter(&client, "spread_places_given_up");
            // At most as many at a time as copies can take.
            drop(nodes.remove(0));
            check_all(&mut client, start, pages());
            for index in (0..4 * PAGES).step_by(15) {
                store_again(&mut client, page(start, index), byte(index));
            }
            nodes.push(scene.node(96));
            // Without polls, as a program is that rests.
            until("all pages have all their places again", || {
                let [degraded, gone, missing] = ["degraded_pages", "places_given_up", "places_missing"]
                    .map(|name| counter(&client, &format!("spread_{name}")));
                (degraded == 0 && gone > given_up && missing == 0).then_some(())
            });
        }
        check_all(&mut client, start, pages());
        assert!(counter(&client, "spread_places_given_up") >= 3 && counter(&client, "spread_mended_pages") > 0);
    }
}

#[test]
fn what_a_queue_pair_leaves_under_way_keeps_no_page_from_others() {
    let scene = Scene::new(1);
    let _nodes: Vec<_> = (0..2).map(|_| scene.node(64)).collect();
    for copies in [1, 2] {
        let mut client = Client::new(&format!("{}?copies={copies}", url(&scene)), 4);
        let start = client.allocate(PAGES);
        for round in 0..5 {
            client.fill(1, 0xaa);
            client.write(page(start, 7), 1);
            if round % 2 == 1 {
                // Perhaps it is sent, and answered to nobody.
                client.poll();
            }
            let frames = Arc::clone(&client.frames);
            client.queue_pair = client.fabric.queue_pair(yonder_fabric::Module::WriteBack, frames).unwrap();
            store_again(&mut client, page(start, 7), byte(round));
            assert_eq!(client.load(page(start, 7)), (Status::Done, byte(round)));
        }
    }
}
