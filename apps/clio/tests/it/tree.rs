//! The tree against a real node, with a map beside it that knows what must be found.

use std::collections::BTreeMap;

use proptest::prelude::*;
use yonder::clib::Process;
use yonder_clio::tree::{KEY_BYTES_MAX, Tree, TreeSettings, VALUE_MAX, Way, run};
use yonder_clio::{AppError, Meter, together};
use yonder_node::{Listen, Node, NodeConfig};

fn node() -> (Node, String) {
    let config = NodeConfig {
        page_bytes: Some(64 << 10),
        ..NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 32 << 20)
    };
    let node = Node::start(config).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}

/// Keys with much in common, so that they meet at every kind of place.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(b'a'..b'd', 1..7),
        1 => prop::collection::vec(any::<u8>(), 1..5),
        1 => (any::<u8>(), 1..=KEY_BYTES_MAX).prop_map(|(byte, length)| vec![byte & 3; length]),
    ]
}

#[test]
fn every_way_finds_what_a_map_has() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let meter = std::cell::RefCell::new(Meter::new(&process).unwrap());
    let steps = prop::collection::vec((keys(), 0u64..1000, any::<bool>()), 1..60);
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(steps in steps, absent in prop::collection::vec(keys(), 10))| {
        let mut meter = meter.borrow_mut();
        let mut tree = Tree::create(1 << 15, &mut meter).unwrap();
        let mut other = Tree::open(tree.address(), &mut meter).unwrap();
        let mut model = BTreeMap::new();
        for (key, value, by_other) in steps {
            let inserter = if by_other { &mut other } else { &mut tree };
            prop_assert_eq!(inserter.insert(&key, value, &mut meter).unwrap(), model.insert(key, value));
        }
        for key in model.keys().chain(&absent) {
            // Keys that others begin with are there only if they were inserted.
            for length in [key.len(), key.len().div_ceil(2)] {
                for way in Way::ALL {
                    let found = tree.get(&key[..length], way, &mut meter).unwrap();
                    prop_assert_eq!(found, model.get(&key[..length]).copied());
                }
            }
        }
        meter.free(tree.address()).unwrap();
    });
}

#[test]
fn a_whole_search_is_one_round_trip_however_long() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let mut tree = Tree::create(1 << 17, &mut meter).unwrap();
    // Lists of 256 nodes at each of 17 levels: more steps than one call may take.
    let deep = [255; 17];
    for level in 0..17 {
        for symbol in 0..=255 {
            let key = [&deep[..level], &[symbol]].concat();
            tree.insert(&key, u64::from(symbol), &mut meter).unwrap();
        }
    }
    let mut trips = |way, key: &[u8]| {
        let before = meter.traffic();
        let found = tree.get(key, way, &mut meter).unwrap();
        (found, meter.traffic().since(before).round_trips)
    };
    assert_eq!(trips(Way::Whole, &deep[..10]), (Some(255), 1));
    assert_eq!(trips(Way::Levels, &deep[..10]), (Some(255), 10));
    assert_eq!(trips(Way::Reads, &deep[..10]), (Some(255), 2560));
    assert_eq!(trips(Way::Whole, &deep), (Some(255), 2), "4352 nodes are more than one call looks at");
    assert_eq!(trips(Way::Levels, &[deep.as_slice(), &[1]].concat()), (None, 17), "an empty list is not asked about");
}

#[test]
fn clients_insert_at_the_same_time() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let tree = Tree::create(1 << 16, &mut meter).unwrap();
    // All clients insert the same keys, so they race for every pointer; each key keeps one of their values.
    let key = |number: u64| format!("{:03}", number * 7 % 1000).into_bytes();
    let (olds, _) = together(0..3u64, |client| {
        let mut meter = Meter::new(&process)?;
        let mut tree = Tree::open(tree.address(), &mut meter)?;
        (0..300).map(|number| tree.insert(&key(number), 3 * number + client, &mut meter)).collect::<Result<Vec<_>, _>>()
    })
    .unwrap();
    let mut tree = Tree::open(tree.address(), &mut meter).unwrap();
    for number in 0..300 {
        let last = tree.get(&key(number), Way::Whole, &mut meter).unwrap().unwrap();
        assert_eq!(last / 3, number);
        // Each value was there once: as what somebody replaced, or at the end.
        let mut seen: Vec<u64> = olds.iter().filter_map(|olds| olds[number as usize]).chain([last]).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2].map(|client| 3 * number + client));
    }
}

#[test]
fn a_full_tree_refuses_and_stays_whole() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let mut tree = Tree::create(10, &mut meter).unwrap();
    assert_eq!(tree.insert(b"12345678", VALUE_MAX, &mut meter).unwrap(), None);
    let refused = tree.insert(b"123x56", 1, &mut meter).unwrap_err().to_string();
    assert!(refused.contains("make it larger"), "{refused}");
    assert_eq!(tree.insert(b"1234xx", 5, &mut meter).unwrap(), None, "exactly what is left");
    assert_eq!(tree.nodes(&mut meter).unwrap(), 10);
    assert_eq!(tree.get(b"12345678", Way::Whole, &mut meter).unwrap(), Some(VALUE_MAX));
    assert_eq!(tree.get(b"1234xx", Way::Levels, &mut meter).unwrap(), Some(5));
    assert_eq!(tree.get(b"123x56", Way::Reads, &mut meter).unwrap(), None);
    for bad in [&b""[..], &[1; KEY_BYTES_MAX + 1]] {
        assert!(tree.get(bad, Way::Whole, &mut meter).unwrap_err().to_string().contains("give one of 1 to 256 bytes"));
        assert!(tree.insert(bad, 1, &mut meter).is_err());
    }
    assert!(tree.insert(b"1", u64::MAX, &mut meter).unwrap_err().to_string().contains("too large"));
}

#[test]
fn another_address_space_has_no_such_tree() {
    let (_node, url) = node();
    let [alice, bob] = [(); 2].map(|()| Process::create(&url).unwrap());
    let mut meters = [&alice, &bob].map(|process| Meter::new(process).unwrap());
    let mut tree = Tree::create(100, &mut meters[0]).unwrap();
    tree.insert(b"secret", 1, &mut meters[0]).unwrap();
    assert_eq!(tree.get(b"secret", Way::Whole, &mut meters[0]).unwrap(), Some(1));
    // Bob's memory may have the same addresses; what is there is his.
    let own = meters[1].allocate(1 << 16).unwrap();
    for address in [tree.address(), own] {
        match Tree::open(address, &mut meters[1]) {
            Err(AppError::Settings(refused)) => assert!(refused.contains("give the address of one"), "{refused}"),
            Err(error) => assert!(matches!(error, AppError::Node(_)), "{error}"),
            Ok(_) => panic!("a tree of somebody else was opened"),
        }
    }
    // Even with a handle of Alice's tree he gets to nothing of hers.
    for way in Way::ALL {
        assert!(!matches!(tree.get(b"secret", way, &mut meters[1]), Ok(Some(_))));
    }
}

#[test]
fn a_run_compares_the_ways() {
    let (_node, url) = node();
    let folder = tempfile::tempdir().unwrap();
    let words = folder.path().join("words");
    std::fs::write(&words, "car\ncard\ncare\ncat\ndog\ndot\nzebra\n10.0.0.0/8\n10.1.0.0/16\n").unwrap();
    let settings = TreeSettings { words: Some(words), clients: 2, searches: 40, ..TreeSettings::new(url.clone()) };
    let results = run(&settings, &mut |_, _| {}).unwrap();
    assert_eq!(results.iter().map(|result| result.way).collect::<Vec<_>>(), ["insert", "reads", "levels", "whole"]);
    assert!(results.iter().all(|result| result.keys == 9));
    let trips: Vec<f64> = results[1..].iter().map(|result| result.round_trips_per_op).collect();
    assert!(trips[0] > trips[1] && trips[1] > trips[2], "{trips:?}");
    assert!(trips[2] <= 1.0, "{trips:?}");
    assert_eq!(results[3].costs.operations, 80);

    let made_up = TreeSettings { keys: 300, searches: 50, ..TreeSettings::new(url) };
    assert_eq!(run(&made_up, &mut |_, _| {}).unwrap()[0].keys, 300);
    let refused = run(&TreeSettings { clients: 0, ..made_up }, &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("type 1 or more"), "{refused}");
}
