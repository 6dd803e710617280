//! Memory that was cut into other slots while a request waited to remove an item of the old ones.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_kv::{Store, StoreConfig};

use crate::memory::{FlatMemory, run, stamped, stat, value as value_of};

const NOW_S: u32 = 1_700_000_000;
/// All small items have expired by now.
const LATER_S: u32 = NOW_S + 3600;
const SMALL_ITEMS: u64 = 4_000;
/// Sizes of slots grow by a quarter, so that the ends of slots still hold what was there before.
const LARGE_BYTES: [usize; 4] = [17_000, 21_000, 26_000, 33_000];

#[test]
fn what_an_old_slot_has_left_behind_is_no_item() {
    for bytes in LARGE_BYTES {
        let memory = FlatMemory::new(512 << 10);
        let config = StoreConfig { value_bytes_max: 64 << 10, items: Some(64), hash_seed: 3, access_times: false };
        let store = Arc::new(Store::new(memory.clone(), config).expect("large enough"));
        for key in 0..SMALL_ITEMS {
            run(&store, format!("set small{key} 0 60 1\r\nx\r\n").as_bytes(), NOW_S);
        }
        let others = store.clone();
        memory.meanwhile(move || {
            for key in 0..SMALL_ITEMS {
                run(&others, format!("delete small{key}\r\n").as_bytes(), NOW_S);
            }
            (0..40).for_each(|key| set(&others, key, bytes));
        });
        // The crawler has listed the small items before it reads the first.
        store.crawl(LATER_S, SMALL_ITEMS as usize);
        let items = stat(&store, "curr_items");
        assert!(items > 5, "{items} large items are left");
        assert_eq!(found(&store, 0..40), items);
        // Slots that are given out again are nobody else's.
        (40..80).for_each(|key| set(&store, key, bytes));
        assert_eq!(found(&store, 0..80), stat(&store, "curr_items"));
    }
}

/// A client writes what looks like the header of an item that was there, at the place where it was.
#[test]
fn what_a_value_says_at_an_old_slot_is_no_item() {
    const SEED: u64 = 3;
    let hash = |key: &str| xxh3_64_with_seed(key.as_bytes(), SEED) as u32;
    // The request that waits holds the lock of its bucket and of others, which these keys have nothing to do with.
    let is_free = |key: &String| hash(key) % 8 != hash("wanted") % 8;
    let keys = |name: &'static str| (0..).map(move |number| format!("{name}{number:04}")).filter(is_free);
    // Small items in two slabs, of which another class can have both; and large ones.
    let small: Vec<String> = keys("small...").take(1_500).collect();
    let large: Vec<String> = keys("large...").take(200).collect();
    let another = keys("another.").next().expect("there are many");
    let memory = FlatMemory::new(512 << 10);
    let config = StoreConfig { value_bytes_max: 64 << 10, items: Some(64), hash_seed: SEED, access_times: false };
    let store = Arc::new(Store::new(memory.clone(), config).expect("large enough"));
    let set = |store: &Store<FlatMemory>, key: &str, exptime: u32, value: &[u8]| {
        let line = format!("set {key} 0 {exptime} {}\r\n", value.len());
        run(store, &[line.as_bytes(), value, b"\r\n"].concat(), NOW_S);
    };
    set(&store, &small[0], 0, b"x");
    set(&store, "wanted", 60, b"x");
    small[1..].iter().for_each(|key| set(&store, key, 0, b"x"));
    let forged = hash("wanted").to_le_bytes().repeat(6_000);
    let (others, waits, value) = (store.clone(), memory.clone(), forged.clone());
    let names = large.clone();
    // The crawler has read which bucket its item is of. Another item takes the slot; once the crawler has seen that
    // there is one, and before it reads its header, the slab is recut for values of hashes.
    memory.afterwards(move || {
        run(&others, b"delete wanted\r\n", NOW_S);
        set(&others, &another, 0, b"x");
        waits.meanwhile(move || names.iter().for_each(|key| set(&others, key, 0, &value)));
    });
    store.crawl(LATER_S, 8);
    let get = |key: &&String| {
        let reply = run(&store, format!("get {key}\r\n").as_bytes(), LATER_S);
        value_of(&reply).map(|value| assert_eq!(value, forged)).is_some()
    };
    let found = large.iter().filter(get).count() as u64;
    assert_eq!((found, stat(&store, "crawler_reclaimed")), (stat(&store, "curr_items"), 0), "no small item is left");
    assert!(found > 5, "{found} large items are left");
}

/// A request needs the room of a large item, and waits to remove it. Meanwhile its slab is recut for small ones, of
/// which one starts where it was.
#[test]
fn a_small_slot_at_the_same_place_is_no_room_for_a_large_item() {
    let memory = FlatMemory::new(512 << 10);
    let config = StoreConfig { value_bytes_max: 64 << 10, items: Some(64), hash_seed: 3, access_times: false };
    let store = Arc::new(Store::new(memory.clone(), config).expect("large enough"));
    let (large, small) = (0..20, 20..3_000);
    large.clone().for_each(|key| set(&store, key, LARGE_BYTES[3]));
    let (others, gone, new) = (store.clone(), large.clone(), small.clone());
    memory.meanwhile(move || {
        // The first two slabs that are free stay with their class.
        gone.rev().for_each(|key| drop(run(&others, format!("delete {key}\r\n").as_bytes(), LATER_S)));
        new.for_each(|key| set(&others, key, 300));
    });
    set(&store, 3_000, LARGE_BYTES[3]);
    assert_eq!(found(&store, 0..3_001), stat(&store, "curr_items"), "each has its own value");
    assert!(found(&store, small.clone()) > 500, "the large item has taken more than its room");
}

fn set(store: &Store<FlatMemory>, key: u64, bytes: usize) {
    let line = format!("set {key} 0 0 {bytes}\r\n");
    run(store, &[line.as_bytes(), &stamped(key, bytes), b"\r\n"].concat(), LATER_S);
}

/// How many items there are, each with its own value.
fn found(store: &Store<FlatMemory>, keys: std::ops::Range<u64>) -> u64 {
    let get = |key: &u64| {
        let reply = run(store, format!("get {key}\r\n").as_bytes(), LATER_S);
        value_of(&reply).map(|value| assert_eq!(value, stamped(*key, value.len()))).is_some()
    };
    keys.filter(get).count() as u64
}
