//! Regions that move: nothing is lost, and only the region that moves pauses.

use std::sync::atomic::{AtomicBool, Ordering};

use yonder_controller::MemoryStore;
use yonder_placement::{Config, NodeCondition};

use crate::fake::{Cluster, REGION, Refused, TIMEOUT, config, until, url};

#[test]
fn a_drain_under_writes_loses_nothing() {
    let cluster = Cluster::in_memory();
    let _source = cluster.node(1, 40);
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let regions: Vec<_> =
        (0..8).map(|_| client.place(space.pid, space.keys.owner, REGION, &[]).unwrap()[0].clone()).collect();
    for at in &regions {
        cluster.network.write(space.pid, at, u64::from(at.region) * REGION, 0).unwrap();
    }
    assert!(regions.iter().all(|at| at.node.0 == 1), "they are together");
    let _targets = [cluster.node(2, 40), cluster.node(3, 40)];
    let stop = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = cluster.client();
            let mut known = regions.clone();
            let mut written = vec![0u64; known.len()];
            while !stop.load(Ordering::Acquire) {
                for (index, at) in known.iter_mut().enumerate() {
                    let (address, word) = (u64::from(at.region) * REGION + written[index] % 100, written[index] + 1);
                    match cluster.network.write(space.pid, at, address, word) {
                        Ok(()) => written[index] += 1,
                        Err(Refused::Moved) => *at = client.locate(space.pid, space.keys.owner, at.region).unwrap(),
                        Err(Refused::Busy) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
            written
        });
        client.drain(&url(1), TIMEOUT).unwrap();
        stop.store(true, Ordering::Release);
        writer.join().unwrap()
    });
    for (index, count) in written.iter().enumerate() {
        let region = regions[index].region;
        let at = client.locate(space.pid, space.keys.read, region).unwrap();
        assert_ne!(at.node.0, 1);
        for number in count.saturating_sub(100)..*count {
            let word = cluster.network.read(space.pid, &at, u64::from(region) * REGION + number % 100).unwrap();
            assert_eq!(word, Some(number + 1), "word {number} of region {region}");
        }
    }
    assert_eq!(client.nodes().unwrap()[0].condition, NodeCondition::Drained);
    client.undrain(&url(1)).unwrap();
    assert_eq!(client.nodes().unwrap()[0].condition, NodeCondition::Serving);
}

#[test]
fn a_pressed_node_gives_its_coldest_region_away_and_only_that_one_pauses() {
    let config = Config { moves_max: 1, ..config() };
    let cluster = Cluster::new(config, Box::new(MemoryStore::default()));
    let _source = cluster.node(1, 10);
    let mut client = cluster.client();
    let space = client.create_space().unwrap();
    let placed = client.place(space.pid, space.keys.owner, 3 * REGION, &[]).unwrap();
    let _target = cluster.node(2, 10);
    for at in &placed {
        cluster.network.write(space.pid, at, u64::from(at.region) * REGION, 1).unwrap();
    }
    cluster.network.at(1, |host| {
        for (region, content) in host.spaces.get_mut(&space.pid).unwrap() {
            content.heat = if *region == 2 { 0 } else { 100 };
        }
        host.holds_moves = true;
        host.claims_free = Some(REGION - 1);
    });
    let (order, end) = until("the coldest region is ordered to move", || cluster.network.held(1).pop());
    assert_eq!((order.region, order.to.0), (2, 2));
    assert_eq!(cluster.network.read(space.pid, &placed[0], REGION), Ok(Some(1)), "the others go on");
    assert_eq!(cluster.network.read(space.pid, &placed[1], 2 * REGION), Err(Refused::Busy));
    cluster.network.at(1, |host| {
        host.claims_free = None;
        host.holds_moves = false;
    });
    cluster.network.finish(1, &order, end);
    let at = until("the region is at its new node", || {
        let at = client.locate(space.pid, space.keys.owner, 2).unwrap();
        (at.node.0 == 2).then_some(at)
    });
    assert_eq!(cluster.network.read(space.pid, &placed[1], 2 * REGION), Err(Refused::Moved));
    assert_eq!(cluster.network.read(space.pid, &at, 2 * REGION), Ok(Some(1)));
    let opened = until("the target is told to serve it", || cluster.network.at(2, |host| host.opened.pop()));
    assert_eq!(opened, (space.pid, 2, order.id));
}
