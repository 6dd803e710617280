//! Memory that was cut into other slots while a request waited to remove an item of the old ones.

use std::sync::Arc;

use yonder_kv::{Store, StoreConfig};

use crate::memory::{FlatMemory, run, stamped, stat, value};

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
        let config = StoreConfig { value_bytes_max: 64 << 10, items: Some(64), hash_seed: 3 };
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

fn set(store: &Store<FlatMemory>, key: u64, bytes: usize) {
    let line = format!("set {key} 0 0 {bytes}\r\n");
    run(store, &[line.as_bytes(), &stamped(key, bytes), b"\r\n"].concat(), LATER_S);
}

/// How many items there are, each with its own value.
fn found(store: &Store<FlatMemory>, keys: std::ops::Range<u64>) -> u64 {
    let get = |key: &u64| {
        let reply = run(store, format!("get {key}\r\n").as_bytes(), LATER_S);
        value(&reply).map(|value| assert_eq!(value, stamped(*key, value.len()))).is_some()
    };
    keys.filter(get).count() as u64
}
