//! A node that is slow: its pages move to others, and writes wait for it no more.

use std::time::{Duration, Instant};

use yonder_fabric::Status;

use super::scene::{REGION, Scene, stream_node_at, until};
use super::spread::{counter, url};
use super::stalled_path::StalledPath;
use crate::end_to_end::testbed::{Client, PAGE as SMALL, page};

/// Pages of 4 KiB in a region.
const PAGES: u64 = REGION / SMALL;
/// Longer than anything takes here otherwise, and too short to be suspect.
const DELAY: Duration = Duration::from_millis(40);

fn byte(index: u64, round: u64) -> u8 {
    ((index * 7 + round * 13) % 251) as u8 + 1
}

#[test]
fn pages_move_off_a_node_that_writes_wait_for() {
    for protection in ["copies=1", "copies=2", "code=2+1"] {
        let scene = Scene::new(2);
        let path = StalledPath::new(&scene);
        let _slow = stream_node_at(path.controller.clone(), 96);
        let _others: Vec<_> = (0..3).map(|_| stream_node_at(scene.address(), 96)).collect();
        let mut client = Client::new(&format!("{}?{protection}", url(&scene)), 4);
        let start = client.allocate(4 * PAGES);
        let mut written = vec![0; (4 * PAGES) as usize];
        let mut store = |client: &mut Client, index: u64, round: u64| {
            written[index as usize] = round;
            let begun = Instant::now();
            assert_eq!(client.store(page(start, index), byte(index, round)), Status::Done);
            begun.elapsed()
        };
        for index in (0..4 * PAGES).step_by(5) {
            store(&mut client, index, 1);
        }
        path.delay(DELAY);
        let mut index = 0;
        until("the slow node has no page", || {
            index = (index + 35) % (4 * PAGES);
            store(&mut client, index, 2);
            let is_over = counter(&client, "spread_places_evacuated") > 0
                && counter(&client, "spread_pages_to_evacuate") == 0
                && counter(&client, "spread_places_missing") == 0;
            is_over.then_some(())
        });
        let counters = client.fabric.counters();
        let (left, given_up) = (counter(&client, "spread_nodes_left"), counter(&client, "spread_places_given_up"));
        assert_eq!((left, given_up), (1, 0), "{protection}: {counters:?}");
        let (mut longest, mut quick) = (Duration::ZERO, 0);
        for index in (0..4 * PAGES).step_by(9) {
            let span = store(&mut client, index, 3);
            longest = longest.max(span);
            quick += u32::from(span < DELAY);
        }
        assert!(quick > 4 * PAGES as u32 / 9 * 9 / 10, "{quick} writes were quick, the longest took {longest:?}");
        for (index, round) in (0..).zip(&written).filter(|(_, round)| **round > 0) {
            assert_eq!(client.load(page(start, index)), (Status::Done, byte(index, *round)), "page {index}");
        }
    }
}

/// With one node slow and one gone there are too few for all that is wanted: what is at one node alone comes first.
#[test]
fn a_slow_node_is_used_where_a_page_would_be_at_one_node_alone() {
    let scene = Scene::new(2);
    let path = StalledPath::new(&scene);
    let _slow = stream_node_at(path.controller.clone(), 96);
    let mut others: Vec<_> = (0..2).map(|_| stream_node_at(scene.address(), 96)).collect();
    let mut client = Client::new(&format!("{}?copies=2", url(&scene)), 4);
    let start = client.allocate(4 * PAGES);
    path.delay(DELAY);
    let mut index = 0;
    until("the node is left", || {
        index = (index + 35) % (4 * PAGES);
        assert_eq!(client.store(page(start, index), byte(index, 0)), Status::Done);
        (counter(&client, "spread_nodes_left") == 1).then_some(())
    });
    drop(others.pop());
    until("all pages are at two nodes", || {
        index = (index + 35) % (4 * PAGES);
        // What is silent is given up meanwhile.
        let _ = client.store(page(start, index), byte(index, 0));
        let is_whole = counter(&client, "spread_places_given_up") > 0
            && counter(&client, "spread_degraded_pages") == 0
            && counter(&client, "spread_places_missing") == 0;
        // After that it would be used in any case.
        assert!(is_whole || counter(&client, "spread_nodes_left") == 1, "the node is left no more, and was not used");
        is_whole.then_some(())
    });
    for index in (0..4 * PAGES).step_by(35) {
        let (status, found) = client.load(page(start, index));
        assert!(status == Status::Done && (found == 0 || found == byte(index, 0)), "page {index}: {status:?}, {found}");
    }
}
