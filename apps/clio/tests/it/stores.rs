//! The clients of both stores against a real node, with models beside them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use yonder::clib::{Process, Rights};
use yonder_clio::Meter;
use yonder_clio::objects::{
    Description, KeyValue, Mix, ObjectId, ObjectsSettings, PutMode, PutOutcome, Read, Version, Versions, run,
};
use yonder_node::{Listen, Node, NodeConfig};

fn node() -> (Node, String) {
    let config = NodeConfig {
        page_bytes: Some(64 << 10),
        ..NodeConfig::new(vec![Listen::Udp("127.0.0.1:0".to_owned())], 128 << 20)
    };
    let node = Node::start(config).unwrap();
    let url = node.addresses()[0].to_string();
    (node, url)
}

fn proptest_config() -> ProptestConfig {
    ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Put(u8, usize, PutMode),
    Delete(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![Just(PutMode::Always), Just(PutMode::Create), Just(PutMode::Update)];
    let length = prop_oneof![4 => 0usize..200, 1 => 30_000usize..60_000];
    let step = prop_oneof![
        (0u8..12).prop_map(Step::Get),
        (0u8..12, length, mode).prop_map(|(key, length, mode)| Step::Put(key, length, mode)),
        (0u8..12).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 1..80)
}

#[test]
fn pairs_are_what_a_map_has() {
    let (_node, url) = node();
    proptest!(proptest_config(), |(steps in steps())| {
        let process = Process::create(&url).unwrap();
        let mut meter = Meter::new(&process).unwrap();
        let (mut store, mut model) = (KeyValue(&mut meter), BTreeMap::new());
        for (turn, step) in (0u8..).zip(steps) {
            match step {
                Step::Get(key) => prop_assert_eq!(store.get(&[key]).unwrap(), model.get(&key).cloned()),
                Step::Delete(key) => prop_assert_eq!(store.delete(&[key]).unwrap(), model.remove(&key).is_some()),
                Step::Put(key, length, mode) => {
                    let expected = match (mode, model.contains_key(&key)) {
                        (PutMode::Create, true) | (PutMode::Update, false) => PutOutcome::Refused,
                        (_, true) => PutOutcome::Replaced,
                        (_, false) => PutOutcome::Created,
                    };
                    let value = vec![turn; length];
                    prop_assert_eq!(store.put(&[key], &value, mode).unwrap(), expected);
                    if expected != PutOutcome::Refused {
                        model.insert(key, value);
                    }
                }
            }
        }
        let stats = store.stats().unwrap();
        prop_assert_eq!(stats.keys, model.len() as u64);
        prop_assert_eq!(stats.pair_bytes, model.values().map(|value| value.len() as u64 + 1).sum::<u64>());
    });
}

#[test]
fn versions_are_what_a_list_has() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let meter = RefCell::new(Meter::new(&process).unwrap());
    let appended = prop::collection::vec((0usize..3, prop::collection::vec(any::<u8>(), 0..40)), 0..40);
    proptest!(proptest_config(), |(kept in 1u32..6, appended in appended)| {
        let mut meter = meter.borrow_mut();
        let mut store = Versions(&mut meter);
        let objects = [(); 3].map(|()| store.create(kept).unwrap());
        let mut model = [const { Vec::new() }; 3];
        for (which, value) in appended {
            prop_assert_eq!(store.append(objects[which], &value).unwrap(), Some(model[which].len() as u64));
            model[which].push(value);
        }
        for (object, versions) in objects.into_iter().zip(&model) {
            let next = versions.len() as u64;
            let description = Description { oldest: next.saturating_sub(u64::from(kept)), next };
            prop_assert_eq!(store.describe(object).unwrap(), Some(description));
            for number in 0..=next {
                let expected = match versions.get(number as usize) {
                    Some(value) if number >= description.oldest => Read::Value { version: number, value: value.clone() },
                    _ => Read::NoVersion(description),
                };
                prop_assert_eq!(store.read(object, Version::Number(number)).unwrap(), Some(expected));
            }
            if let Some(last) = versions.last() {
                let expected = Read::Value { version: next - 1, value: last.clone() };
                prop_assert_eq!(store.read(object, Version::Latest).unwrap(), Some(expected));
            }
            prop_assert!(store.delete(object).unwrap());
            prop_assert!(!store.delete(object).unwrap());
            prop_assert_eq!(store.read(object, Version::Latest).unwrap(), None);
            prop_assert_eq!(store.append(object, b"late").unwrap(), None);
            prop_assert_eq!(store.describe(object).unwrap(), None);
        }
    });
}

#[test]
fn processes_of_one_space_share_what_others_do_not_see() {
    let (_node, url) = node();
    let [alice, bob] = [(); 2].map(|()| Process::create(&url).unwrap());
    let friend = Process::open(&url, alice.ticket(Rights::ReadWrite).unwrap()).unwrap();
    let mut meters = [&alice, &friend, &bob].map(|process| Meter::new(process).unwrap());
    let object = Versions(&mut meters[0]).create(4).unwrap();
    Versions(&mut meters[0]).append(object, b"version 0").unwrap();
    KeyValue(&mut meters[0]).put(b"name", b"alice", PutMode::Create).unwrap();

    assert_eq!(KeyValue(&mut meters[1]).get(b"name").unwrap().as_deref(), Some(&b"alice"[..]));
    let version = Versions(&mut meters[1]).read(object, Version::Latest).unwrap();
    assert_eq!(version, Some(Read::Value { version: 0, value: b"version 0".to_vec() }));

    assert_eq!(KeyValue(&mut meters[2]).get(b"name").unwrap(), None);
    assert!(!KeyValue(&mut meters[2]).delete(b"name").unwrap());
    assert_eq!(KeyValue(&mut meters[2]).put(b"name", b"bob", PutMode::Create).unwrap(), PutOutcome::Created);
    // The name of an object is a number that anybody can guess.
    for guess in 0..20 {
        assert_eq!(Versions(&mut meters[2]).read(ObjectId(guess), Version::Latest).unwrap(), None);
        assert_eq!(Versions(&mut meters[2]).append(ObjectId(guess), b"x").unwrap(), None);
    }
    assert_eq!(KeyValue(&mut meters[1]).get(b"name").unwrap().as_deref(), Some(&b"alice"[..]));
    assert_eq!(KeyValue(&mut meters[0]).stats().unwrap().keys, 1);
}

#[test]
fn what_cannot_be_stored_is_refused_before_it_is_sent() {
    let (_node, url) = node();
    let process = Process::create(&url).unwrap();
    let mut meter = Meter::new(&process).unwrap();
    let before = meter.traffic();
    let refusals = [
        KeyValue(&mut meter).get(&[0; 5000]).unwrap_err().to_string(),
        KeyValue(&mut meter).put(b"k", &[0; 65_536], PutMode::Always).unwrap_err().to_string(),
        Versions(&mut meter).create(0).unwrap_err().to_string(),
        Versions(&mut meter).create(5000).unwrap_err().to_string(),
        Versions(&mut meter).append(ObjectId(0), &[0; 65_536]).unwrap_err().to_string(),
    ];
    for refusal in refusals {
        assert!((refusal.contains("at most") || refusal.contains("keep 1 to")) && !refusal.contains('\n'), "{refusal}");
    }
    assert_eq!(meter.traffic(), before);
}

#[test]
fn a_run_checks_every_value() {
    let (_node, url) = node();
    let settings = ObjectsSettings {
        clients: 3,
        operations: 300,
        keys: 100,
        value_bytes: 200,
        objects: 10,
        versions_kept: 4,
        ..ObjectsSettings::new(url)
    };
    let results = run(&settings, &mut |_, _| {}).unwrap();
    let done: Vec<_> = results.iter().map(|result| (result.store, result.mix)).collect();
    let [pairs, versions] = ["key-value", "multi-version"];
    assert_eq!(done, [(pairs, Mix::A), (pairs, Mix::B), (pairs, Mix::C), (versions, Mix::A), (versions, Mix::A)]);
    for result in &results {
        assert_eq!((result.reads + result.writes, result.costs.operations), (900, 900));
        assert_eq!(result.costs.round_trips, 900, "an operation is one round trip");
        let percent = result.writes * 100 / 900;
        assert!(percent.abs_diff(u64::from(result.mix.write_percent())) < 7, "{percent} % writes");
    }
    assert!(results[2].costs.fetched_bytes > 900 * 200);
}

#[test]
fn settings_that_cannot_work_say_what_to_type() {
    let wrong = [
        ObjectsSettings { clients: 0, ..ObjectsSettings::new(String::new()) },
        ObjectsSettings { keys: 1, ..ObjectsSettings::new(String::new()) },
        ObjectsSettings { objects: 1, ..ObjectsSettings::new(String::new()) },
        ObjectsSettings { value_bytes: 8, ..ObjectsSettings::new(String::new()) },
    ];
    for settings in wrong {
        let refused = run(&settings, &mut |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains("type ") && !refused.contains('\n'), "{refused}");
    }
}
