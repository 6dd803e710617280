//! The store when pages of far memory are lost for good: the client of what was there gets a miss, and everybody else
//! what they had.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use yonder_kv::{Store, StoreConfig};

use crate::memory::{FlatMemory, run, stamped, stat, value};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// A store of `bytes`, with so few buckets that chains are long if `items` is small.
fn store(bytes: u64, items: u64) -> (FlatMemory, Store<FlatMemory>) {
    let memory = FlatMemory::new(bytes);
    let config = StoreConfig { items: Some(items), value_bytes_max: 16 << 10, ..StoreConfig::default() };
    let store = Store::new(memory.clone(), config).unwrap();
    (memory, store)
}

fn set(store: &Store<FlatMemory>, key: u64, bytes: &[u8]) {
    let command = [format!("set k{key} 0 0 {}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    assert_eq!(run(store, &command, 1), b"STORED\r\n", "key {key}");
}

fn get(store: &Store<FlatMemory>, key: u64) -> Option<Vec<u8>> {
    let reply = run(store, format!("get k{key}\r\n").as_bytes(), 1);
    assert!(reply.ends_with(b"END\r\n"), "key {key}: {}", reply.escape_ascii());
    value(&reply).map(<[u8]>::to_vec)
}

#[test]
fn an_item_in_a_lost_page_is_a_miss_and_its_key_as_good_as_any() {
    let (memory, store) = store(4 * MIB, 1 << 16);
    (0..200).for_each(|key| set(&store, key, &stamped(key, 3_000)));
    // Slots of items of one size lie one after another from the start of the memory.
    memory.lose(20 * PAGE);
    let lost = (0..200).filter(|key| get(&store, *key).is_none()).count() as u64;
    assert!((1..=3).contains(&lost), "{lost}");
    assert_eq!((stat(&store, "lost_items"), stat(&store, "far_memory_errors")), (lost, 0));
    assert_eq!((stat(&store, "curr_items"), stat(&store, "get_misses")), (200 - lost, lost));
    (0..200).for_each(|key| set(&store, key, &stamped(key + 1_000, 3_000)));
    (0..200).for_each(|key| assert_eq!(get(&store, key), Some(stamped(key + 1_000, 3_000))));
    assert!(stat(&store, "retired_slots") >= 1);
}

#[test]
fn every_command_survives_a_lost_page() {
    for command in [
        "get k7",
        "gets k7",
        "gat 0 k7",
        "touch k7 0",
        "delete k7",
        "incr k7 1",
        "append k7 0 0 1\r\nx",
        "set k7 0 0 1\r\nx",
        "add k7 0 0 1\r\nx",
        "replace k7 0 0 1\r\nx",
        "cas k7 0 0 1 9\r\nx",
    ] {
        // All items in few chains, and their pages lost: whatever is asked comes by a lost item.
        let (memory, store) = store(4 * MIB, 1);
        (0..100).for_each(|key| set(&store, key, &stamped(key, 100)));
        (0..8).for_each(|page| memory.lose(page * PAGE));
        let reply = run(&store, format!("{command}\r\n").as_bytes(), 1);
        let expected: &[&[u8]] = &[b"END\r\n", b"NOT_FOUND\r\n", b"NOT_STORED\r\n", b"STORED\r\n"];
        assert!(expected.contains(&&*reply), "{command}: {}", reply.escape_ascii());
        assert_eq!(stat(&store, "far_memory_errors"), 0, "{command}");
    }
}

/// Random commands while random pages are lost, against a model: a key has its last value or none, and none that was
/// overwritten, deleted or of another key. Few buckets make long chains, whose tails are stranded; little memory makes
/// evictions, which have to find those.
#[test]
fn no_key_has_an_old_value_under_loss() {
    for seed in 0..30 {
        let mut random = StdRng::seed_from_u64(seed);
        let (memory, store) = store(2 * MIB, if seed % 2 == 0 { 16 } else { 1 << 12 });
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        for turn in 0..6_000 {
            let key = random.random_range(0..1_500);
            match random.random_range(0..100) {
                0..45 => {
                    if let Some(seen) = get(&store, key) {
                        assert_eq!(Some(&seen), model.get(&key), "seed {seed}, turn {turn}, key {key}");
                    }
                }
                45..85 => {
                    let bytes = stamped(key * 10_000 + turn, random.random_range(10..6_000));
                    set(&store, key, &bytes);
                    model.insert(key, bytes);
                }
                85..97 => {
                    run(&store, format!("delete k{key}\r\n").as_bytes(), 1);
                    model.remove(&key);
                }
                // A third of the memory in the end.
                _ => memory.lose(random.random_range(0..2 * MIB)),
            }
        }
        assert!(stat(&store, "lost_items") > 0 && stat(&store, "retired_slots") > 0, "seed {seed}");
        assert_eq!(stat(&store, "far_memory_errors") + stat(&store, "store_no_memory"), 0, "seed {seed}");
        // What was stranded does not fill the memory: new items are kept.
        (10_000..10_020).for_each(|key| set(&store, key, &stamped(key, 500)));
        (10_000..10_020).for_each(|key| assert_eq!(get(&store, key), Some(stamped(key, 500)), "seed {seed}"));
    }
}
