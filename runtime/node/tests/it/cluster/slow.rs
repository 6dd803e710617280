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
const DELAY: Duration = Duration::from_millis(50);

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
        assert_eq!((counter(&client, "spread_nodes_left"), counter(&client, "spread_places_given_up")), (1, 0));
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
