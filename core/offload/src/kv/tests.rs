//! The store against a `HashMap` per caller, with accesses refused at any point, and the bounds of its memory.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::fake_memory::FakeMemory;

fn store() -> KeyValueStore {
    KeyValueStore::new(11, CALLER_BYTES_MAX)
}

fn call(
    store: &mut KeyValueStore,
    memory: &mut FakeMemory,
    pid: u32,
    request: &Request<'_>,
) -> Result<Vec<u8>, ErrorCode> {
    memory.call(store, pid, &request.encode())
}

#[derive(Clone, Debug)]
enum Step {
    Get,
    Put(PutMode, usize),
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![PutMode::Always, PutMode::Always, PutMode::Create, PutMode::Update]);
    let bytes = prop_oneof![8 => 0usize..100, 1 => 0usize..60_000];
    prop_oneof![1 => Just(Step::Get), 4 => (mode, bytes).prop_map(|(mode, bytes)| Step::Put(mode, bytes)), 2 => Just(Step::Delete)]
}

fn key_of(number: u16) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    key.resize(usize::from(number % 40), 7);
    if key.len() >= 2 { key } else { [&number.to_le_bytes()[..], &key].concat() }
}

fn run(steps: Vec<(u32, u16, Step, Option<u32>)>, keys: u16) -> Result<(), TestCaseError> {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let mut models: HashMap<u32, HashMap<Vec<u8>, Vec<u8>>> = HashMap::new();
    for (count, (pid, number, step, refuse_after)) in steps.into_iter().enumerate() {
        let (key, model) = (key_of(number % keys), models.entry(pid).or_default());
        match step {
            Step::Get => {
                let answer = memory.call_twice(&mut store, pid, &Request::Get { key: &key }.encode(), refuse_after);
                let expected = model.get(&key).map_or(Answer::Absent, |value| Answer::Value(value));
                prop_assert_eq!(Answer::decode(&answer), Ok(expected));
            }
            Step::Put(mode, bytes) => {
                let value = vec![count as u8; bytes];
                let request = Request::Put { key: &key, value: &value, mode };
                let answer = memory.call_twice(&mut store, pid, &request.encode(), refuse_after);
                let expected = match (model.contains_key(&key), mode) {
                    (true, PutMode::Create) | (false, PutMode::Update) => PutOutcome::Refused,
                    (true, _) => PutOutcome::Replaced,
                    (false, _) => PutOutcome::Created,
                };
                prop_assert_eq!(Answer::decode(&answer), Ok(Answer::Put(expected)));
                if expected != PutOutcome::Refused {
                    model.insert(key, value);
                }
            }
            Step::Delete => {
                let answer = memory.call_twice(&mut store, pid, &Request::Delete { key: &key }.encode(), refuse_after);
                let expected = if model.remove(&key).is_some() { Answer::Deleted } else { Answer::Absent };
                prop_assert_eq!(Answer::decode(&answer), Ok(expected));
            }
        }
        if let Some(table) = store.tables.get(&pid) {
            let blocks = table.keys + table.chained_slots + table.segments.len() as u64;
            prop_assert_eq!(table.arena.blocks_in_use(), blocks, "something leaks");
        }
    }
    check_and_empty(&mut store, &mut memory, &models)
}

/// Everything that the models have is there, its statistics are right, and all memory goes back with the last key.
fn check_and_empty(
    store: &mut KeyValueStore,
    memory: &mut FakeMemory,
    models: &HashMap<u32, HashMap<Vec<u8>, Vec<u8>>>,
) -> Result<(), TestCaseError> {
    for (pid, model) in models {
        let answer = call(store, memory, *pid, &Request::Stats).unwrap();
        let Ok(Answer::Stats(stats)) = Answer::decode(&answer) else { panic!("no statistics") };
        let pair_bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        prop_assert_eq!((stats.keys, stats.pair_bytes), (model.len() as u64, pair_bytes as u64));
        prop_assert_eq!(stats.memory_bytes == 0, model.is_empty());
        for (key, value) in model {
            let answer = call(store, memory, *pid, &Request::Get { key }).unwrap();
            prop_assert_eq!(Answer::decode(&answer), Ok(Answer::Value(value)));
        }
        for key in model.keys() {
            let answer = call(store, memory, *pid, &Request::Delete { key }).unwrap();
            prop_assert_eq!(Answer::decode(&answer), Ok(Answer::Deleted));
        }
        prop_assert!(!store.tables.contains_key(pid));
    }
    prop_assert_eq!(store.pool.spans_in_use(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]
    #[test]
    fn the_store_is_a_map_for_each_caller(
        steps in prop::collection::vec((1u32..3, any::<u16>(), step(), Just(None)), 0..1500), keys in 1u16..500,
    ) {
        run(steps, keys)?;
    }

    #[test]
    fn a_refused_access_changes_nothing(
        steps in prop::collection::vec((1u32..3, any::<u16>(), step(), prop::option::of(0u32..40)), 0..800),
        keys in 1u16..200,
    ) {
        run(steps, keys)?;
    }

    #[test]
    fn requests_and_answers_come_back(
        key in prop::collection::vec(any::<u8>(), 0..50), value in prop::collection::vec(any::<u8>(), 0..50),
        cut in any::<prop::sample::Index>(),
    ) {
        let (key, value) = (&key[..], &value[..]);
        let puts = [PutMode::Always, PutMode::Create, PutMode::Update].map(|mode| Request::Put { key, value, mode });
        let others = [Request::Get { key }, Request::Delete { key }, Request::Stats, Request::Keys { from: 1 << 60 }];
        for request in others.iter().chain(&puts) {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(*request));
            prop_assert_eq!(Request::decode(&bytes[..cut.index(bytes.len())]), Err(crate::Malformed));
        }
        let stats = Stats { keys: 1, pair_bytes: 2, buckets: 3, chained_slots: 4, memory_bytes: 5 };
        let puts = [PutOutcome::Created, PutOutcome::Replaced, PutOutcome::Refused].map(Answer::Put);
        let mut packed = Vec::new();
        [key, value, key].iter().for_each(|key| Keys::pack(key, &mut packed));
        let keys = Answer::Keys { next: 5, keys: Keys::decode(&packed).unwrap() };
        let others = [Answer::Value(value), Answer::Absent, Answer::Deleted, Answer::Stats(stats), keys];
        for answer in puts.iter().chain(&others) {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            prop_assert_eq!(Answer::decode(&bytes), Ok(*answer));
            prop_assert_eq!(Answer::decode(&bytes[..cut.index(bytes.len())]), Err(crate::Malformed));
        }
    }
}

fn put(store: &mut KeyValueStore, memory: &mut FakeMemory, key: &[u8], value: &[u8]) -> Result<(), ErrorCode> {
    call(store, memory, 1, &Request::Put { key, value, mode: PutMode::Always }).map(|_| ())
}

#[test]
fn many_keys_make_many_buckets_and_short_chains() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let keys: u32 = if cfg!(miri) { 100 } else { 20_000 };
    (0..keys).for_each(|key| put(&mut store, &mut memory, &key.to_le_bytes(), b"value").unwrap());
    let stats = store.tables[&1].stats();
    assert!(stats.buckets >= u64::from(keys / 5) && stats.chained_slots < stats.buckets, "{stats:?}");
    let before = memory.accesses;
    for key in 0..keys {
        let answer = call(&mut store, &mut memory, 1, &Request::Get { key: &key.to_le_bytes() }).unwrap();
        assert_eq!(Answer::decode(&answer), Ok(Answer::Value(b"value")));
    }
    let accesses_per_get = (memory.accesses - before) as f64 / f64::from(keys);
    assert!(accesses_per_get < 4.5, "slot, head, key and value, and few more: {accesses_per_get}");
    for key in 10..keys {
        call(&mut store, &mut memory, 1, &Request::Delete { key: &key.to_le_bytes() }).unwrap();
    }
    let stats = store.tables[&1].stats();
    assert!(stats.buckets <= 5 && stats.memory_bytes <= 4 * crate::arena::SPAN_BYTES, "buckets merge: {stats:?}");
}

#[test]
fn the_largest_pair_fits_and_a_larger_one_is_refused() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    let value = vec![5; PAIR_BYTES_MAX];
    put(&mut store, &mut memory, b"", &value).unwrap();
    let answer = call(&mut store, &mut memory, 1, &Request::Get { key: b"" }).unwrap();
    assert!(answer.len() <= yonder_wire::PAYLOAD_BYTES_MAX);
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value(&value)));
    assert_eq!(put(&mut store, &mut memory, b"k", &value), Err(ErrorCode::BadLength));
    assert_eq!(put(&mut store, &mut memory, &[1; KEY_BYTES_MAX + 1], b""), Err(ErrorCode::BadLength));
    put(&mut store, &mut memory, &[1; KEY_BYTES_MAX], b"").unwrap();
}

#[test]
fn one_callers_keys_are_not_anothers() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    put(&mut store, &mut memory, b"key", b"value").unwrap();
    let answer = call(&mut store, &mut memory, 2, &Request::Get { key: b"key" }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Absent));
    let answer = call(&mut store, &mut memory, 2, &Request::Delete { key: b"key" }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Absent));
    store.space_ended(2, &mut memory);
    let answer = call(&mut store, &mut memory, 1, &Request::Get { key: b"key" }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value(b"value")));
    store.space_ended(1, &mut memory);
    assert_eq!(store.pool.spans_in_use(), 0);
    let answer = call(&mut store, &mut memory, 1, &Request::Get { key: b"key" }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Absent));
}

#[test]
fn a_caller_gets_no_more_than_its_share_and_overwriting_takes_none() {
    let mut memory = FakeMemory::default();
    let mut store = KeyValueStore::new(3, 8 * crate::arena::SPAN_BYTES);
    let value = [1; 10_000];
    let stored = (0u8..255).take_while(|key| put(&mut store, &mut memory, &[*key], &value).is_ok()).count();
    assert!((30..=49).contains(&stored), "{stored}");
    assert_eq!(put(&mut store, &mut memory, b"another", &value), Err(ErrorCode::OutOfMemory));
    call(&mut store, &mut memory, 1, &Request::Delete { key: &[0] }).unwrap();
    for round in 0..100 {
        put(&mut store, &mut memory, &[1 + round % 9], &value).unwrap();
    }
}

#[test]
fn a_key_and_a_value_may_have_no_bytes() {
    let (mut store, mut memory) = (store(), FakeMemory::default());
    assert_eq!(put(&mut store, &mut memory, &[], &[]), Ok(()));
    let answer = call(&mut store, &mut memory, 1, &Request::Get { key: &[] }).unwrap();
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value(&[])));
}
