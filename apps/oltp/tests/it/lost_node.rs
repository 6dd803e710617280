//! A transaction whose node is lost between its last change and its commit.

use std::sync::Arc;
use std::time::Duration;

use yonder::{Config, Deadlines, EmuFabric, FarMemory};
use yonder_oltp::{Database, Key, OltpError, RowAt, Transaction};

const LOCAL: u64 = 4 << 20;
/// A row has a page to itself.
const BYTES: usize = 4000;
/// Tables: two rows that are changed together, and rows that push others out of local memory.
const NEAR: usize = 0;
const LOST: usize = 1;
const OTHERS: usize = 2;
const OTHER_ROWS: Key = 5000;

fn get(transaction: &mut Transaction<'_>, table: usize, key: Key) -> (RowAt, u8) {
    let mut row = [0; BYTES];
    let at = transaction.get(table, key, &mut row).unwrap().expect("nobody deletes it");
    assert!(row.iter().all(|byte| *byte == row[0]), "half a row");
    (at, row[0])
}

fn read(database: &Database, table: usize, key: Key) -> u8 {
    get(&mut database.begin(), table, key).1
}

fn change(database: &Database, table: usize, key: Key) {
    let mut transaction = database.begin();
    let (at, old) = get(&mut transaction, table, key);
    transaction.update(at, &[old.wrapping_add(100); BYTES]).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_commit_that_cannot_have_a_page_has_written_none() {
    if let Err(why) = yonder::abilities().userfaultfd {
        println!("SKIP: no userfaultfd: {why}");
        return;
    }
    let fabric = Arc::new(EmuFabric::open("emu://?latency=2us&gbps=100").unwrap());
    let control = fabric.control();
    let deadlines = Deadlines { fault: Duration::from_secs(1), ..Deadlines::default() };
    let far = FarMemory::new(fabric, Config { deadlines, ..Config::with_local(LOCAL) }).unwrap();
    let region = Arc::new(far.region(32 << 20).unwrap());
    let database = Database::new(region, &[BYTES; 3], 20).unwrap();
    // The row that will be lost lies among the others, away from the nodes of indexes.
    let half = OTHER_ROWS / 2;
    for (table, keys) in [(NEAR, 0..1), (OTHERS, 0..half), (LOST, 0..1), (OTHERS, half..OTHER_ROWS)] {
        for key in keys {
            let mut transaction = database.begin();
            transaction.insert(table, key, &[0; BYTES]).unwrap();
            transaction.commit().unwrap();
        }
    }

    let mut failed = 0;
    for round in 1..=20 {
        let mut transaction = database.begin();
        for table in [NEAR, LOST] {
            let (at, _) = get(&mut transaction, table, 0);
            transaction.update(at, &[round; BYTES]).unwrap();
        }
        // Both leave, because others are written, and one comes back.
        (0..OTHER_ROWS).for_each(|key| change(&database, OTHERS, key));
        read(&database, NEAR, 0);
        control.set_dead(true);
        let lost = transaction.commit();
        control.set_dead(false);
        let (near, far) = (read(&database, NEAR, 0), read(&database, LOST, 0));
        assert_eq!(near, far, "half of it is written: {lost:?}");
        assert_eq!(near == round, lost.is_ok());
        failed += u32::from(matches!(lost, Err(OltpError::Paging(_))));
        // What it wanted to change can be changed.
        [NEAR, LOST].iter().for_each(|table| change(&database, *table, 0));
        if failed == 2 {
            return;
        }
    }
    panic!("only {failed} commits could not have their pages");
}
