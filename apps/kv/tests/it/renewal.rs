//! Slabs that are emptied and renewed while requests go on, and whose pages are lost meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_kv::{Store, StoreConfig};

use crate::memory::{Faults, FlatMemory, run, stat, value as value_of};

const NOW_S: u32 = 1_700_000_000;
/// What expires has expired by now.
const LATER_S: u32 = NOW_S + 3600;
const KIB: u64 = 1 << 10;
const UNIT: u64 = 64 * KIB;
const PAGE: u64 = 4 * KIB;
const SEED: u64 = 3;
const BUCKETS: u64 = 64;
/// The largest value, which takes two units.
const LARGE: usize = 64 << 10;
/// How many small items a unit holds.
const SMALL_PER_UNIT: usize = 1024;

fn store(bytes: u64, value_bytes_max: usize) -> (FlatMemory, Arc<Store<FlatMemory>>) {
    let memory = FlatMemory::new(bytes);
    let config = StoreConfig { value_bytes_max, items: Some(BUCKETS), hash_seed: SEED, access_times: false };
    let store = Store::new(memory.clone(), config).expect("large enough");
    (memory, Arc::new(store))
}

fn bucket(key: &str) -> u64 {
    xxh3_64_with_seed(key.as_bytes(), SEED) % BUCKETS
}

/// Names of items, all of one length, in the buckets that are asked for.
fn keys(name: &str, is_in: impl Fn(u64) -> bool) -> impl Iterator<Item = String> {
    (0..).map(move |number| format!("{name:.<10}{number:05}")).filter(move |key| is_in(bucket(key)))
}

/// A value that names its key.
fn value(key: &str, bytes: usize) -> Vec<u8> {
    key.bytes().cycle().take(bytes).collect()
}

fn set(store: &Store<FlatMemory>, key: &str, exptime: u32, bytes: usize) -> Vec<u8> {
    let line = format!("set {key} 0 {exptime} {bytes}\r\n");
    run(store, &[line.as_bytes(), &value(key, bytes), b"\r\n"].concat(), NOW_S)
}

fn delete(store: &Store<FlatMemory>, key: &str) {
    assert_eq!(run(store, format!("delete {key}\r\n").as_bytes(), NOW_S), b"DELETED\r\n", "{key}");
}

/// How many of these items there are, each with its own value.
fn found<'a>(store: &Store<FlatMemory>, keys: impl IntoIterator<Item = &'a String>) -> u64 {
    let is_there = |key: &&String| {
        let reply = run(store, format!("get {key}\r\n").as_bytes(), NOW_S);
        value_of(&reply).map(|found| assert!(found == value(key, found.len()), "{key} has another value")).is_some()
    };
    keys.into_iter().filter(is_there).count() as u64
}

/// While all chains are walked for what was lost in a slab, a request that owned a slot of it has linked its item, in a
/// chain that was walked already, and then the item's page is lost.
#[test]
fn an_item_that_is_lost_behind_the_walk_keeps_its_slot() {
    let (memory, store) = store(8 * UNIT, LARGE);
    // No other chain has the lock of this item's.
    let late = keys("late", |bucket| bucket == 0).next().expect("there are many");
    let small: Vec<String> = keys("small", |bucket| bucket % 8 != 0).take(8 * SMALL_PER_UNIT).collect();
    let large: Vec<String> = keys("large", |_| true).take(20).collect();
    // Of the first slab, the first item of the second page stays, which is the last of its chain; slot 0 is free.
    small[..65].iter().for_each(|key| drop(set(&store, key, 0, 1)));
    small[..64].iter().rev().for_each(|key| delete(&store, key));
    let (has_slot, goes_on) = (mpsc::channel(), mpsc::channel());
    memory.meanwhile(move || {
        has_slot.0.send(()).expect("the test waits");
        goes_on.1.recv().expect("the test goes on");
    });
    let writer = std::thread::spawn({
        let (store, late) = (store.clone(), late.clone());
        move || assert_eq!(set(&store, &late, 60, 1), b"STORED\r\n")
    });
    has_slot.1.recv().expect("the writer has a slot");
    // All other slabs are full.
    small[65..].iter().for_each(|key| drop(set(&store, key, 0, 1)));
    small[65..65 + SMALL_PER_UNIT - 2].iter().for_each(|key| delete(&store, key));
    memory.lose(PAGE);
    let (waits, pages, others) = (memory.clone(), memory.clone(), store.clone());
    // The slab is emptied for a large item. Nothing can be read of the item that is there: neither at first nor when it
    // is asked for again.
    memory.meanwhile(move || {
        let walk = waits.clone();
        waits.meanwhile(move || {
            goes_on.0.send(()).expect("the writer waits");
            writer.join().expect("the writer's item is linked");
            walk.meanwhile(move || {
                pages.lose(0);
                assert_eq!(others.crawl(LATER_S, 8 * SMALL_PER_UNIT), 0, "it cannot be read");
            });
        });
    });
    large[..1].iter().for_each(|key| drop(set(&store, key, 0, 40_000)));
    let all = || small.iter().chain(&large).chain([&late]);
    assert_eq!(found(&store, all()), stat(&store, "curr_items"));
    large.iter().for_each(|key| drop(set(&store, key, 0, 40_000)));
    assert_eq!(found(&store, all()), stat(&store, "curr_items"));
}

/// A renewal that has failed may still be executed: nothing may lie in the slab by then.
#[test]
fn a_slab_whose_renewal_has_failed_is_not_used_before_another_has_succeeded() {
    let (memory, store) = store(4 * UNIT, LARGE);
    let items: Vec<String> = keys("item", |_| true).take(4 * 20).collect();
    let others: Vec<String> = keys("other", |_| true).take(4 * 20).collect();
    let large: Vec<String> = keys("large", |_| true).take(8).collect();
    items.iter().for_each(|key| drop(set(&store, key, 0, 3_000)));
    // Of the first slab a page, in which nothing can be written then.
    memory.lose(0);
    found(&store, &items);
    others[..1].iter().for_each(|key| assert_eq!(set(&store, key, 0, 3_000), b"STORED\r\n"));
    assert!(stat(&store, "retired_slots") > 0);
    memory.fail_renewals(true);
    // Of two classes, so that two slabs are emptied; the first was looked at last.
    drop(set(&store, &large[0], 0, 40_000));
    drop(set(&store, &large[1], 0, 20_000));
    others.iter().for_each(|key| assert_eq!(set(&store, key, 0, 3_000), b"STORED\r\n"));
    assert!(memory.renew_late() > 0, "the renewal has failed");
    let all = || items.iter().chain(&others).chain(&large);
    assert_eq!(found(&store, all()), stat(&store, "curr_items"));
    // Once renewals succeed, all of the memory is used.
    memory.fail_renewals(false);
    large.iter().for_each(|key| assert_eq!(set(&store, key, 0, 40_000), b"STORED\r\n"));
    assert_eq!(found(&store, all()), stat(&store, "curr_items"));
}

/// A panic ends the emptying of one of two slabs.
#[test]
fn a_panic_gives_back_all_slabs_that_were_to_be_emptied() {
    let (memory, store) = store(4 * UNIT, LARGE);
    let small: Vec<String> = keys("small", |_| true).take(4 * SMALL_PER_UNIT).collect();
    let large: Vec<String> = keys("large", |_| true).take(2).collect();
    small.iter().for_each(|key| drop(set(&store, key, 0, 1)));
    memory.fail(Faults::Panic);
    let panicked = catch_unwind(AssertUnwindSafe(|| set(&store, &large[0], 0, LARGE)));
    assert!(panicked.is_err());
    memory.fail(Faults::Never);
    assert_eq!(set(&store, &large[1], 0, LARGE), b"STORED\r\n");
    assert_eq!(found(&store, &large), 1);
}

/// All memory is of one class, so no other class asks for it.
#[test]
fn a_class_that_has_lost_all_is_renewed() {
    let (memory, store) = store(4 * UNIT, LARGE);
    let items: Vec<String> = keys("item", |_| true).take(400).collect();
    items[..80].iter().for_each(|key| drop(set(&store, key, 0, 3_000)));
    (0..4 * UNIT / PAGE).for_each(|page| memory.lose(page * PAGE));
    items[80..].iter().for_each(|key| drop(set(&store, key, 0, 3_000)));
    assert!(found(&store, &items) > 60, "{} of 80 items", found(&store, &items));
    assert_eq!(found(&store, &items), stat(&store, "curr_items"));
}

/// A header lies in two pages. The first is lost, and the item is in no chain; the second says which chain that was.
#[test]
fn a_stranded_item_of_which_half_the_header_is_lost_is_found() {
    // The second slot starts 24 bytes before the second page.
    let (memory, store) = store(2 * UNIT, 3_790);
    let last = bucket(&keys("item", |_| true).nth(1).expect("there are many"));
    let mut items: Vec<String> = keys("item", |_| true).take(31).collect();
    // Behind an item of the third page of the second slab.
    items.push(keys("before", |bucket| bucket == last).next().expect("there are many"));
    let is_alone = |key: &&String| bucket(key) != last || **key == items[1] || **key == items[31];
    let kept: Vec<&String> = items.iter().filter(is_alone).collect();
    items.iter().for_each(|key| assert_eq!(set(&store, key, 0, 4_020), b"STORED\r\n"));
    items.iter().filter(|key| !kept.contains(key)).for_each(|key| delete(&store, key));
    memory.lose(UNIT + 15 * 4072);
    assert_eq!(found(&store, [&items[31], &items[1]]), 0, "the second is stranded");
    memory.lose(PAGE - 1);
    let small: Vec<String> = keys("small", |_| true).take(10).collect();
    small.iter().for_each(|key| assert_eq!(set(&store, key, 0, 1), b"STORED\r\n"));
    assert_eq!(found(&store, &small), 10);
}

/// An eviction knows a place that has been renewed since, and reads zero for the hash there. It sees an item linked at
/// the place, but before it reads its header, the item is evicted and the memory is renewed again.
#[test]
fn what_a_renewal_has_left_is_no_item() {
    let (memory, store) = store(2 * UNIT, 3_790);
    // The eviction holds the lock of the first bucket and of others.
    let names = |name: &str| -> Vec<String> { keys(name, |bucket| bucket % 8 != 0).take(SMALL_PER_UNIT).collect() };
    let (items, medium, small) = (names("item"), names("medium"), names("small"));
    let all_medium = medium.clone();
    // The first slab is full of items, of which one expires; the second is of small ones.
    items[..20].iter().enumerate().for_each(|(at, key)| drop(set(&store, key, if at == 10 { 60 } else { 0 }, 3_000)));
    small.iter().for_each(|key| drop(set(&store, key, 0, 1)));
    // The last slot of the first slab, which `last` has, is retired; then the slab is renewed for a medium item.
    let renew = |store: &Store<FlatMemory>, memory: &FlatMemory, last: &String, next: &String, medium: &String| {
        memory.lose(UNIT - 1);
        assert_eq!(found(store, [last]), 0);
        set(store, next, 0, 3_000);
        assert_eq!(set(store, medium, 0, 500), b"STORED\r\n");
    };
    let (first, second, last) = (store.clone(), store.clone(), store.clone());
    let (waits, pages, again) = (memory.clone(), memory.clone(), memory.clone());
    let (old, new, middle) = (items.clone(), items.clone(), medium.clone());
    let (done, is_done) = mpsc::channel();
    memory.afterwards(move || {
        assert_eq!(set(&second, &old[110], 0, 3_000), b"STORED\r\n");
        waits.meanwhile(move || {
            let (is_renewed, renewed) = mpsc::channel();
            let (goes_on, go_on) = mpsc::channel::<()>();
            again.during_renewal(move || {
                is_renewed.send(()).expect("the eviction waits");
                go_on.recv().expect("the eviction has ended");
            });
            let other = std::thread::spawn(move || {
                old[111..120].iter().for_each(|key| drop(set(&last, key, 0, 3_000)));
                renew(&last, &again, &old[119], &old[120], &medium[1]);
            });
            renewed.recv().expect("the slab is renewed");
            done.send((goes_on, other)).expect("the test goes on");
        });
    });
    memory.meanwhile(move || {
        renew(&first, &pages, &new[19], &new[20], &middle[0]);
        new[100..110].iter().for_each(|key| assert_eq!(set(&first, key, 0, 3_000), b"STORED\r\n"));
    });
    assert_eq!(store.crawl(LATER_S, SMALL_PER_UNIT), 0, "nothing is there that has expired");
    let (goes_on, other) = is_done.recv().expect("the place was renewed while the crawler waited");
    goes_on.send(()).expect("the renewal goes on");
    other.join().expect("the slab was as the renewal had left it");
    assert_eq!(found(&store, items.iter().chain(&small).chain(&all_medium)), stat(&store, "curr_items"));
}
