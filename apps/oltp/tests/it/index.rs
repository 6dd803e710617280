//! Indexes against the standard library's map, by one thread and by several.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::served::{WAYS, serve_all};
use crate::support::far;
use proptest::prelude::*;
use yonder::FarMemory;
use yonder::sched::{Handler, yield_now};
use yonder_oltp::{Database, Direction, Key, OltpError, Transaction};

const LOCAL: u64 = 4 << 20;
/// Tables: of keys alone, and of rows.
const KEYS: usize = 0;
const ROWS: usize = 1;
const ROW_BYTES: usize = 40;
/// Rows of a transaction.
const BATCH: usize = 64;

fn database(far: &FarMemory, bytes: u64) -> Database {
    Database::new(Arc::new(far.region(bytes).unwrap()), &[0, ROW_BYTES], 10).unwrap()
}

fn row(number: u64) -> [u8; ROW_BYTES] {
    std::array::from_fn(|at| number.to_le_bytes()[at % 8])
}

/// Runs a transaction until it is not in conflict with others.
fn run<T>(database: &Database, transact: impl Fn(&mut Transaction<'_>) -> Result<T, OltpError>) -> T {
    loop {
        let mut transaction = database.begin();
        match transact(&mut transaction).and_then(|done| transaction.commit().map(|_| done)) {
            Err(OltpError::Conflict) => yield_now(),
            done => return done.unwrap(),
        }
    }
}

fn insert_all(database: &Database, keys: &[Key]) {
    for keys in keys.chunks(BATCH) {
        run(database, |transaction| keys.iter().try_for_each(|key| transaction.insert(KEYS, *key, &[])));
    }
}

fn all(database: &Database, table: usize) -> Vec<Key> {
    let entries = run(database, |transaction| transaction.scan(table, 0..=Key::MAX, Direction::Ascending, usize::MAX));
    entries.iter().map(|entry| entry.key()).collect()
}

#[derive(Clone, Debug)]
enum Step {
    /// So many rows from a key on, so far apart; those that are there are changed.
    Put(Key, usize, Key),
    /// The rows of a range, at most a batch.
    Delete(Key, Key),
    Get(Key),
    Scan(Key, Key, Direction, usize),
    /// A transaction of everything so far that is not committed.
    Abort(Key),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few keys near one another, and the ends of all that can be.
    let key = || prop_oneof![8 => 0..6000_u128, 1 => Just(0), 1 => Just(Key::MAX - 3000)];
    let direction = prop_oneof![Just(Direction::Ascending), Just(Direction::Descending)];
    let step = prop_oneof![
        6 => (key(), 1..=BATCH, 1..40_u128).prop_map(|(from, count, apart)| Step::Put(from, count, apart)),
        3 => (key(), 0..2000_u128).prop_map(|(from, length)| Step::Delete(from, from.saturating_add(length))),
        2 => key().prop_map(Step::Get),
        2 => (key(), key(), direction, 0..300_usize).prop_map(|(a, b, direction, limit)| Step::Scan(a.min(b), a.max(b), direction, limit)),
        1 => key().prop_map(Step::Abort),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Puts rows into both, and says what the transaction says.
fn put(database: &Database, model: &mut BTreeMap<Key, u64>, keys: &[Key], number: u64) {
    run(database, |transaction| {
        for key in keys {
            let mut old = [0; ROW_BYTES];
            match transaction.get(ROWS, *key, &mut old)? {
                Some(at) => transaction.update(at, &row(number))?,
                None => transaction.insert(ROWS, *key, &row(number))?,
            }
            assert!(transaction.get(ROWS, *key, &mut old)?.is_some() && old == row(number), "its own writes are seen");
        }
        Ok(())
    });
    model.extend(keys.iter().map(|key| (*key, number)));
}

fn found(database: &Database, low: Key, high: Key, direction: Direction, limit: usize) -> Vec<(Key, [u8; ROW_BYTES])> {
    run(database, |transaction| {
        let entries = transaction.scan(ROWS, low..=high, direction, limit)?;
        let mut rows = Vec::new();
        for entry in &entries {
            let mut row = [0; ROW_BYTES];
            transaction.read(entry, &mut row)?;
            rows.push((entry.key(), row));
        }
        Ok(rows)
    })
}

fn expected(
    model: &BTreeMap<Key, u64>,
    low: Key,
    high: Key,
    direction: Direction,
    limit: usize,
) -> Vec<(Key, [u8; ROW_BYTES])> {
    let rows = model.range(low..=high).map(|(key, number)| (*key, row(*number)));
    match direction {
        Direction::Ascending => rows.take(limit).collect(),
        Direction::Descending => rows.rev().take(limit).collect(),
    }
}

fn delete(database: &Database, model: &mut BTreeMap<Key, u64>, low: Key, high: Key) {
    let keys: Vec<Key> = model.range(low..=high).map(|(key, _)| *key).take(BATCH).collect();
    run(database, |transaction| {
        for entry in transaction.scan(ROWS, low..=high, Direction::Ascending, BATCH)? {
            transaction.delete(entry.at())?;
            assert_eq!(transaction.get(ROWS, entry.key(), &mut [0; ROW_BYTES])?, None, "its own deletes are seen");
        }
        let left = transaction.scan(ROWS, low..=high, Direction::Ascending, 1)?;
        assert!(left.iter().all(|entry| !keys.contains(&entry.key())));
        Ok(())
    });
    keys.iter().for_each(|key| assert!(model.remove(key).is_some()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_table_is_an_ordered_map(steps in steps()) {
        let Some(far) = far(LOCAL) else { return Ok(()) };
        let (database, mut model) = (database(&far, 16 << 20), BTreeMap::new());
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Put(from, count, apart) => {
                    let keys: Vec<Key> = (0..count as Key).map(|at| from + at * apart).collect();
                    put(&database, &mut model, &keys, number);
                }
                Step::Delete(low, high) => delete(&database, &mut model, low, high),
                Step::Get(key) => {
                    let found = run(&database, |transaction| {
                        let mut row = [0; ROW_BYTES];
                        Ok(transaction.get(ROWS, key, &mut row)?.map(|_| row))
                    });
                    prop_assert_eq!(found, model.get(&key).map(|number| row(*number)));
                }
                Step::Scan(low, high, direction, limit) => {
                    prop_assert_eq!(found(&database, low, high, direction, limit), expected(&model, low, high, direction, limit));
                }
                Step::Abort(key) => {
                    let mut transaction = database.begin();
                    for entry in transaction.scan(ROWS, key..=Key::MAX, Direction::Ascending, 5).unwrap() {
                        transaction.delete(entry.at()).unwrap();
                    }
                    let mut old = [0; ROW_BYTES];
                    if transaction.get(ROWS, key, &mut old).unwrap().is_none() && !model.contains_key(&key) {
                        transaction.insert(ROWS, key, &row(number)).unwrap();
                    }
                }
            }
        }
        let (low, high) = (0, Key::MAX);
        let all = expected(&model, low, high, Direction::Descending, usize::MAX);
        prop_assert_eq!(found(&database, low, high, Direction::Descending, usize::MAX), all);
    }
}

#[test]
fn three_levels_are_filled_in_and_out_of_order() {
    const COUNT: u128 = 60_000;
    let Some(far) = far(LOCAL) else { return };
    // A number that has no divisor in common with the count goes through all in another order.
    for apart in [1, 7919] {
        let database = database(&far, 24 << 20);
        let keys: Vec<Key> = (0..COUNT).map(|at| at * apart % COUNT).collect();
        insert_all(&database, &keys);
        assert!(all(&database, KEYS).into_iter().eq(0..COUNT));
        let last = run(&database, |transaction| transaction.scan(KEYS, 0..=Key::MAX, Direction::Descending, 1));
        assert_eq!(last[0].key(), COUNT - 1);
        if apart == 1 {
            let used = database.used_bytes();
            assert!(
                used < 34 * 60_000,
                "where keys come in order leaves are filled, but for a last batch: {used} bytes"
            );
        }
    }
}

#[test]
fn a_row_that_is_there_is_not_inserted_again() {
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 1 << 20);
    insert_all(&database, &[5]);
    let mut transaction = database.begin();
    transaction.insert(KEYS, 6, &[]).unwrap();
    let exists = OltpError::Exists { table: KEYS, key: 5 };
    transaction.insert(KEYS, 5, &[]).unwrap();
    assert_eq!(transaction.insert(KEYS, 5, &[]), Err(exists.clone()), "this transaction has");
    assert_eq!(transaction.commit(), Err(exists));
    assert_eq!(all(&database, KEYS), [5], "nothing of it is there");
}

#[test]
fn commits_that_depend_on_one_another_have_growing_numbers_and_epochs() {
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 1 << 20);
    let change = |number| {
        let mut transaction = database.begin();
        match transaction.get(ROWS, 1, &mut [0; ROW_BYTES]).unwrap() {
            Some(at) => transaction.update(at, &row(number)).unwrap(),
            None => transaction.insert(ROWS, 1, &row(number)).unwrap(),
        }
        transaction.commit().unwrap()
    };
    let (first, second) = (change(1), change(2));
    assert!(first < second && first.epoch() == database.epoch());
    database.advance_epoch();
    assert_eq!(change(3).epoch(), second.epoch() + 1);
    let commits = database.commits();
    while database.epoch() == second.epoch() + 1 {
        assert!(change(4).epoch() <= second.epoch() + 1);
    }
    assert!(database.commits() - commits <= 4096);
    assert_eq!(change(5).epoch(), database.epoch());
}

/// A queue wanders through the keys: what it leaves behind is used again, rows and leaves.
#[test]
fn memory_of_what_is_deleted_is_used_again() {
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 2 << 20);
    for turn in 0..1000_u128 {
        run(&database, |transaction| {
            if turn >= 10 {
                for entry in transaction.scan(ROWS, 0..=Key::MAX, Direction::Ascending, 50)? {
                    transaction.delete(entry.at())?;
                }
            }
            (0..50).try_for_each(|at| transaction.insert(ROWS, turn * 50 + at, &row(7)))
        });
    }
    assert!(all(&database, ROWS).into_iter().eq(49_500..50_000));
    assert!(database.used_bytes() <= 256 << 10, "{} bytes are used for 500 rows", database.used_bytes());
}

/// What a scan has found may be gone, and something else be there, before it is read.
#[test]
fn what_a_scan_has_found_is_not_taken_for_what_came_after_it() {
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 1 << 20);
    run(&database, |transaction| (1..=3).try_for_each(|key| transaction.insert(ROWS, key, &row(key as u64))));
    let mut transaction = database.begin();
    let found = transaction.scan(ROWS, 0..=Key::MAX, Direction::Ascending, usize::MAX).unwrap();
    let used = database.used_bytes();
    run(&database, |other| {
        let at = other.get(ROWS, 2, &mut [0; ROW_BYTES])?.expect("it was inserted");
        other.delete(at)
    });
    run(&database, |other| other.insert(ROWS, 7, &row(7)));
    assert_eq!(database.used_bytes(), used, "the second row's memory is used again");
    assert_eq!(transaction.read(&found[1], &mut [0; ROW_BYTES]), Err(OltpError::Conflict));
}

/// Ends what others do until it is dropped.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Looks so many times, while another thread makes changes.
fn look_while(looks: usize, change: impl Fn(u64) + Sync, look: impl Fn()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| !is_over.load(Ordering::Acquire)).for_each(&change));
        let _until = Until(&is_over);
        (0..looks).for_each(|_| look());
    });
}

/// A reader that never commits has no validation behind it.
#[test]
fn no_row_is_seen_half_changed() {
    const BYTES: usize = 4000;
    const ROW_LOOKS: usize = 500_000;
    let Some(far) = far(LOCAL) else { return };
    let region = Arc::new(far.region(1 << 20).unwrap());
    let database = Database::new(region, &[BYTES], 4).unwrap();
    run(&database, |transaction| transaction.insert(0, 1, &[0; BYTES]));
    let change = |turn| {
        run(&database, |transaction| {
            let at = transaction.get(0, 1, &mut [0; BYTES])?.expect("nobody deletes it");
            transaction.update(at, &[turn as u8; BYTES])
        });
    };
    let look = || {
        let mut row = [0; BYTES];
        database.begin().get(0, 1, &mut row).unwrap().expect("nobody deletes it");
        assert!(row.iter().all(|byte| *byte == row[0]), "half of a change");
    };
    look_while(ROW_LOOKS, change, look);
}

/// As with rows: keys that come and go move all others of their leaf.
#[test]
fn no_leaf_is_seen_half_changed() {
    const LEAF_LOOKS: usize = 300_000;
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 1 << 20);
    let (moving, staying): (Vec<Key>, Vec<Key>) = ((0..3).collect(), (3..150).collect());
    insert_all(&database, &staying);
    let change = |_| {
        run(&database, |transaction| {
            moving.iter().try_for_each(|key| match transaction.get(KEYS, *key, &mut [])? {
                Some(at) => transaction.delete(at),
                None => transaction.insert(KEYS, *key, &[]),
            })
        });
    };
    let look = || {
        let mut transaction = database.begin();
        let found = transaction.scan(KEYS, 0..=Key::MAX, Direction::Ascending, usize::MAX).unwrap();
        let keys: Vec<Key> = found.iter().map(|entry| entry.key()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b) && keys.ends_with(&staying), "half of a change: {keys:?}");
    };
    look_while(LEAF_LOOKS, change, look);
}

/// Threads insert and delete keys of their own, and one looks at all of them.
#[test]
fn threads_find_what_is_there_while_others_change_it() {
    const THREADS: u128 = 3;
    const ROUNDS: u128 = 200;
    let Some(far) = far(LOCAL) else { return };
    let database = database(&far, 24 << 20);
    // Every tenth key is there all the time.
    let fixed: Vec<Key> = (0..2000).map(|at| at * 10).collect();
    insert_all(&database, &fixed);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changers: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let database = &database;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let keys: Vec<Key> = (0..500).map(|at| (round * 500 + at) * 10 % 20_000 + thread).collect();
                        insert_all(database, &keys);
                        for keys in keys.chunks(BATCH) {
                            run(database, |transaction| {
                                keys.iter().try_for_each(|key| {
                                    let at = transaction.get(KEYS, *key, &mut [])?.expect("it was inserted");
                                    // In the last round every seventh stays.
                                    if round + 1 < ROUNDS || key / 10 % 7 != 0 {
                                        transaction.delete(at)
                                    } else {
                                        Ok(())
                                    }
                                })
                            });
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let mut transaction = database.begin();
                let found = transaction.scan(KEYS, 0..=Key::MAX, Direction::Ascending, usize::MAX).unwrap();
                let keys: Vec<Key> = found.iter().map(|entry| entry.key()).collect();
                assert!(keys.is_sorted_by(|a, b| a < b), "a key is there twice, or in the wrong place");
                // Each leaf is consistent, so what never changes is there whether or not the whole is.
                assert!(keys.iter().copied().filter(|key| key % 10 == 0).eq(fixed.iter().copied()));
            }
        });
        let until = Until(&is_over);
        changers.into_iter().for_each(|changer| changer.join().unwrap());
        drop(until);
        reader.join().unwrap();
    });
    let last_round = (0..500).map(|at| ((ROUNDS - 1) * 500 + at) * 10 % 20_000);
    let stays: Vec<Key> = last_round.filter(|key| key / 10 % 7 == 0).collect();
    let mut expected: Vec<Key> = fixed.clone();
    (1..=THREADS).for_each(|thread| expected.extend(stays.iter().map(|key| key + thread)));
    expected.sort_unstable();
    assert_eq!(all(&database, KEYS), expected);
}

/// Inserts rows of which some leave local memory with their leaves.
struct Inserter(Database);

impl Handler for Inserter {
    type Request = Vec<Key>;
    type Reply = ();

    fn handle(&self, keys: Vec<Key>) {
        run(&self.0, |transaction| {
            keys.iter().try_for_each(|key| transaction.insert(0, *key, &[*key as u8; Inserter::BYTES]))
        });
    }
}

impl Inserter {
    const BYTES: usize = 800;
}

/// Between the way to a leaf and the lock of it a request may wait, and others split the leaf.
#[test]
fn requests_that_wait_for_leaves_insert_into_the_right_ones() {
    const COUNT: u128 = 20_000;
    for way in WAYS {
        let Some(far) = far(LOCAL) else { return };
        let region = Arc::new(far.region(32 << 20).unwrap());
        let inserter = Arc::new(Inserter(Database::new(region, &[Inserter::BYTES], 10).unwrap()));
        let keys: Vec<Key> = (0..COUNT).map(|at| at * 7919 % COUNT).collect();
        serve_all(&far, &inserter, way, keys.chunks(20).map(<[Key]>::to_vec));
        assert!(all(&inserter.0, 0).into_iter().eq(0..COUNT), "{way:?}");
        for key in 0..COUNT {
            let mut row = [0; Inserter::BYTES];
            let there = inserter.0.begin().get(0, key, &mut row).unwrap();
            assert!(there.is_some() && row == [key as u8; Inserter::BYTES], "{way:?}: {key}");
        }
    }
}
