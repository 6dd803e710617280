//! The store under many threads: values that say whose they are, counters that must add up, memory that is too small.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{Faults, FlatMemory, run, stamped, stat, value};
use yonder_kv::{Store, StoreConfig};

const NOW_S: u32 = 1_700_000_000;
const THREADS: u64 = 4;
const STEPS: u64 = 6_000;
const CONFIG: StoreConfig =
    StoreConfig { value_bytes_max: 64 << 10, items: Some(1), hash_seed: 3, access_times: false };

/// A small deterministic sequence.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn hammer(store: &Store<FlatMemory>, seed: u64, wrong: &AtomicU64) {
    let mut sequence = Sequence(seed);
    for _ in 0..STEPS {
        let key = sequence.below(300);
        let len = match sequence.below(20) {
            0 => sequence.below(60_000),
            1..4 => sequence.below(5_000),
            _ => sequence.below(300),
        } as usize;
        match sequence.below(10) {
            0..4 => {
                let line = format!("set {key} 0 0 {len}\r\n");
                run(store, &[line.as_bytes(), &stamped(key, len), b"\r\n"].concat(), NOW_S);
            }
            4 => drop(run(store, format!("delete {key}\r\n").as_bytes(), NOW_S)),
            5 => drop(run(store, format!("touch {key} {}\r\n", sequence.below(3)).as_bytes(), NOW_S)),
            6 => drop(store.crawl(NOW_S + sequence.below(40) as u32, 500)),
            _ => {
                let reply = run(store, format!("get {key}\r\n").as_bytes(), NOW_S);
                if value(&reply).is_some_and(|value| value != stamped(key, value.len())) {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

fn hammered(memory: &FlatMemory, store: &Store<FlatMemory>) {
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn({
                let wrong = &wrong;
                move || hammer(store, seed + 1, wrong)
            });
        }
    });
    memory.fail(Faults::Never);
    assert_eq!(wrong.into_inner(), 0, "wrong values");
}

/// Every item is found, and is what it should be; the statistics agree.
fn consistent(store: &Store<FlatMemory>) {
    let found: u64 = (0..300)
        .filter(|key| {
            let reply = run(store, format!("get {key}\r\n").as_bytes(), NOW_S);
            value(&reply).map(|value| assert_eq!(value, stamped(*key, value.len()))).is_some()
        })
        .count() as u64;
    assert_eq!(stat(store, "curr_items"), found);
    let used: u64 = store.item_stats().iter().map(|(_, number)| number).sum();
    assert_eq!(used, found, "slots that belong to no item");
    (0..300).for_each(|key| drop(run(store, format!("delete {key}\r\n").as_bytes(), NOW_S)));
    assert_eq!((stat(store, "curr_items"), stat(store, "bytes"), store.item_stats().len()), (0, 0, 0));
}

#[test]
fn threads_never_see_another_keys_value() {
    let memory = FlatMemory::new(64 << 20);
    let store = Store::new(memory.clone(), CONFIG).expect("large enough");
    hammered(&memory, &store);
    assert_eq!(stat(&store, "evictions"), 0);
    consistent(&store);
}

#[test]
fn nor_when_memory_is_far_too_small() {
    let memory = FlatMemory::new(512 << 10);
    let store = Store::new(memory.clone(), CONFIG).expect("large enough");
    hammered(&memory, &store);
    assert!(stat(&store, "evictions") > 1000);
    consistent(&store);
}

#[test]
fn nor_when_far_memory_fails_now_and_then() {
    for bytes in [512 << 10, 64 << 20] {
        let memory = FlatMemory::new(bytes);
        let store = Store::new(memory.clone(), CONFIG).expect("large enough");
        memory.fail(Faults::OneIn(50));
        hammered(&memory, &store);
        assert!(stat(&store, "far_memory_errors") > 100);
        consistent(&store);
    }
}

#[test]
fn nor_when_pages_are_lost_for_good() {
    for bytes in [1 << 20, 64 << 20] {
        let memory = FlatMemory::new(bytes);
        let store = Store::new(memory.clone(), StoreConfig { items: Some(64), ..CONFIG }).expect("large enough");
        let wrong = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (store, wrong) = (&store, &wrong);
            let threads: Vec<_> =
                (0..THREADS).map(|seed| scope.spawn(move || hammer(store, seed + 1, wrong))).collect();
            // A page for about every hundred commands, among those that are in use.
            let (mut sequence, mut seen) = (Sequence(9), 0);
            while threads.iter().any(|thread| !thread.is_finished()) {
                let now = memory.accesses() / 400;
                (seen..now).for_each(|_| memory.lose(sequence.below(1 << 20)));
                seen = now.max(seen);
                std::thread::yield_now();
            }
        });
        assert_eq!(wrong.into_inner(), 0, "wrong values");
        assert!(stat(&store, "lost_items") > 0 && stat(&store, "retired_slots") > 0);
        assert_eq!(stat(&store, "far_memory_errors"), 0);
    }
}

#[test]
fn increments_and_appends_are_not_lost() {
    let store = Store::new(FlatMemory::new(16 << 20), CONFIG).expect("large enough");
    run(&store, b"set n 0 0 1\r\n0\r\nset a 0 0 0\r\n\r\n", NOW_S);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..500 {
                    run(&store, b"incr n 3 noreply\r\nappend a 0 0 1 noreply\r\nx\r\n", NOW_S);
                }
            });
        }
    });
    let number = run(&store, b"incr n 0\r\n", NOW_S);
    assert_eq!(number, format!("{}\r\n", THREADS * 500 * 3).as_bytes());
    assert_eq!(value(&run(&store, b"get a\r\n", NOW_S)).map(<[u8]>::len), Some(THREADS as usize * 500));
}

#[test]
fn a_lost_node_is_an_error_until_it_is_back() {
    let memory = FlatMemory::new(16 << 20);
    let store = Store::new(memory.clone(), CONFIG).expect("large enough");
    let unavailable: &[u8] = b"SERVER_ERROR far memory unavailable\r\n";
    run(&store, b"set k 1 0 3\r\nabc\r\nset n 0 0 1\r\n5\r\n", NOW_S);
    memory.fail(Faults::Always);
    for command in [
        "get k n\r\n",
        "set k 0 0 1\r\nx\r\n",
        "append k 0 0 1\r\nx\r\n",
        "incr n 1\r\n",
        "touch k 9\r\n",
        "gat 9 k\r\n",
    ] {
        assert_eq!(run(&store, command.as_bytes(), NOW_S), unavailable, "{command:?}");
    }
    assert_eq!(run(&store, b"set k 0 0 1 noreply\r\nx\r\n", NOW_S), b"");
    memory.fail(Faults::Never);
    assert_eq!(run(&store, b"get k n\r\n", NOW_S + 60), b"VALUE k 1 3\r\nabc\r\nVALUE n 0 1\r\n5\r\nEND\r\n");
    assert_eq!(stat(&store, "far_memory_errors"), 7);
}

/// A cas unique that clients choose says nothing of whether an item has changed.
#[test]
fn counters_add_up_where_clients_choose_cas_uniques() {
    let store = Store::new(FlatMemory::new(1 << 20), CONFIG).expect("large enough");
    run(&store, b"set n 0 0 1\r\n0\r\n", NOW_S);
    // Of one length, so that they go to and fro between two slots.
    run(&store, b"ms n 8 E7\r\n10000000\r\n", NOW_S);
    std::thread::scope(|scope| {
        for command in [&b"incr n 1\r\n"[..], b"ma n E7\r\n", b"ma n E7\r\n", b"incr n 1\r\n"] {
            let store = &store;
            scope.spawn(move || (0..STEPS * 5).for_each(|_| drop(run(store, command, NOW_S))));
        }
    });
    let reply = run(&store, b"get n\r\n", NOW_S);
    assert_eq!(value(&reply), Some((10_000_000 + 4 * 5 * STEPS).to_string().as_bytes()));
}
