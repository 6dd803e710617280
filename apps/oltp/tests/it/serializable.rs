//! Transactions on few rows that all want, and what was read and written by whom: is there an order in which that is
//! right?

use std::sync::Arc;

use crate::history::{Access, History};
use crate::served::{WAYS, serve_all};
use crate::support::far;
use yonder::FarMemory;
use yonder::sched::{Handler, yield_now};
use yonder_oltp::{Database, Direction, Key, OltpError, Tid, Transaction};

/// Tables: rows that all want, rows that come, rows that are far away, rows that move.
const HOT: usize = 0;
const SLOTS: usize = 1;
const COLD: usize = 2;
const TOKENS: usize = 3;
const ROW_BYTES: [usize; 4] = [16, 16, 1000, 16];

const HOT_ROWS: u64 = 12;
const COLD_ROWS: u64 = 16_000;
const GROUPS: u64 = 40;
const SLOTS_OF_GROUP: u64 = 64;
const TOKEN_PLACES: u64 = 400;
const TOKENS_THERE: u64 = 100;
/// What is far, and what of it is local.
const BYTES: u64 = 24 << 20;
const LOCAL: u64 = BYTES / 5;
const REQUESTS: u64 = 4000;
const RUNS_MAX: usize = 100_000;

/// A row: who wrote it, and a number. What a row was before anybody wrote it was written by nobody, 0.
fn row(writer: u64, number: u64) -> [u8; 16] {
    let mut row = [0; 16];
    row[..8].copy_from_slice(&writer.to_le_bytes());
    row[8..].copy_from_slice(&number.to_le_bytes());
    row
}

fn word(row: &[u8; 16], at: usize) -> u64 {
    u64::from_le_bytes(row[at * 8..][..8].try_into().unwrap())
}

fn load(far: &FarMemory) -> Arc<Shared> {
    let region = Arc::new(far.region(BYTES).unwrap());
    // Few words for many rows: that two share one is right too, and seen here.
    let database = Database::new(region, &ROW_BYTES, 8).unwrap();
    let mut rows: Vec<(usize, Key, Vec<u8>)> = Vec::new();
    rows.extend((0..HOT_ROWS).map(|key| (HOT, Key::from(key), row(0, 0).to_vec())));
    rows.extend((0..TOKENS_THERE).map(|key| (TOKENS, Key::from(key), row(0, 1 << key.min(30)).to_vec())));
    rows.extend((0..COLD_ROWS).map(|key| (COLD, Key::from(key), vec![key as u8; 1000])));
    for rows in rows.chunks(60) {
        let mut transaction = database.begin();
        rows.iter().for_each(|(table, key, row)| transaction.insert(*table, *key, row).unwrap());
        transaction.commit().unwrap();
    }
    Arc::new(Shared { database })
}

/// A transaction to run: its number, which is not 0, and of which kind.
#[derive(Clone, Copy)]
struct Asked {
    number: u64,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Reads some rows that all want, and changes some of them.
    Change,
    /// Reads some.
    Look,
    /// Reads all that is in a group, and puts one more into it.
    Fill,
    /// Moves a token, and says how many there are and their sum.
    Move,
}

/// What a transaction has done, once it has committed.
struct Did {
    access: Access,
    tid: Tid,
    tokens: Option<(u64, u64)>,
}

struct Shared {
    database: Database,
}

/// Numbers that follow from one.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % end
    }
}

impl Handler for Shared {
    type Request = Asked;
    type Reply = Result<Did, OltpError>;

    fn handle(&self, asked: Asked) -> Self::Reply {
        for _ in 0..RUNS_MAX {
            match self.run(asked) {
                Err(OltpError::Conflict) => yield_now(),
                done => return done,
            }
        }
        Err(OltpError::Conflict)
    }
}

impl Shared {
    fn run(&self, Asked { number, kind }: Asked) -> Result<Did, OltpError> {
        let mut transaction = self.database.begin();
        let mut numbers = Numbers(number);
        numbers.below(1);
        let (mut access, mut tokens) = (Access::of(number), None);
        match kind {
            Kind::Change => change(&mut transaction, &mut numbers, &mut access)?,
            Kind::Look => look(&mut transaction, &mut numbers, &mut access)?,
            Kind::Fill => fill(&mut transaction, &mut numbers, &mut access)?,
            Kind::Move => tokens = Some(move_token(&mut transaction, &mut numbers)?),
        }
        Ok(Did { access, tid: transaction.commit()?, tokens })
    }
}

/// Reads a row far away, for which the transaction must wait.
fn wait(transaction: &mut Transaction<'_>, numbers: &mut Numbers) -> Result<(), OltpError> {
    let (key, mut row) = (numbers.below(COLD_ROWS), [0; 1000]);
    transaction.get(COLD, Key::from(key), &mut row)?.expect("nobody deletes it");
    assert!(row.iter().all(|byte| *byte == key as u8));
    Ok(())
}

fn change(transaction: &mut Transaction<'_>, numbers: &mut Numbers, access: &mut Access) -> Result<(), OltpError> {
    let first = numbers.below(HOT_ROWS);
    for at in 0..3 {
        let (key, mut old) = ((first + at * (1 + numbers.below(3))) % HOT_ROWS, [0; 16]);
        let place = transaction.get(HOT, Key::from(key), &mut old)?.expect("nobody deletes it");
        if word(&old, 0) == access.number {
            continue;
        }
        access.reads(HOT, key, word(&old, 0));
        wait(transaction, numbers)?;
        if at != 1 {
            transaction.update(place, &row(access.number, word(&old, 1) + 1))?;
            access.replaces(HOT, key, word(&old, 0));
        }
    }
    Ok(())
}

fn look(transaction: &mut Transaction<'_>, numbers: &mut Numbers, access: &mut Access) -> Result<(), OltpError> {
    for _ in 0..4 {
        let (key, mut row) = (numbers.below(HOT_ROWS), [0; 16]);
        transaction.get(HOT, Key::from(key), &mut row)?.expect("nobody deletes it");
        access.reads(HOT, key, word(&row, 0));
        wait(transaction, numbers)?;
    }
    Ok(())
}

fn fill(transaction: &mut Transaction<'_>, numbers: &mut Numbers, access: &mut Access) -> Result<(), OltpError> {
    let first = numbers.below(GROUPS) * SLOTS_OF_GROUP;
    let slots = Key::from(first)..=Key::from(first + SLOTS_OF_GROUP - 1);
    let mut writers = [0; SLOTS_OF_GROUP as usize];
    for entry in transaction.scan(SLOTS, slots, Direction::Ascending, usize::MAX)? {
        let mut row = [0; 16];
        transaction.read(&entry, &mut row)?;
        writers[(entry.key() as u64 - first) as usize] = word(&row, 0);
    }
    (first..).zip(writers).for_each(|(slot, writer)| access.reads(SLOTS, slot, writer));
    wait(transaction, numbers)?;
    let free: Vec<u64> = (first..).zip(writers).filter(|(_, writer)| *writer == 0).map(|(slot, _)| slot).collect();
    if !free.is_empty() {
        let slot = free[numbers.below(free.len() as u64) as usize];
        transaction.insert(SLOTS, Key::from(slot), &row(access.number, 0))?;
        access.replaces(SLOTS, slot, 0);
    }
    Ok(())
}

/// Deletes a token and puts it where none is, and returns how many it has seen, and their sum.
fn move_token(transaction: &mut Transaction<'_>, numbers: &mut Numbers) -> Result<(u64, u64), OltpError> {
    let mut there = Vec::new();
    for entry in transaction.scan(TOKENS, 0..=Key::from(TOKEN_PLACES), Direction::Descending, usize::MAX)? {
        let mut row = [0; 16];
        transaction.read(&entry, &mut row)?;
        there.push((entry, row));
    }
    wait(transaction, numbers)?;
    if !there.is_empty() {
        let (from, row) = &there[numbers.below(there.len() as u64) as usize];
        let to = Key::from(numbers.below(TOKEN_PLACES));
        if there.iter().all(|(entry, _)| entry.key() != to) {
            transaction.delete(from.at())?;
            transaction.insert(TOKENS, to, row)?;
        }
    }
    Ok((there.len() as u64, there.iter().map(|(_, row)| word(row, 1)).sum()))
}

fn run(kinds: &[Kind]) {
    for way in WAYS {
        let Some(far) = far(LOCAL) else { return };
        let shared = load(&far);
        let asked = (1..=REQUESTS).zip(kinds.iter().cycle()).map(|(number, kind)| Asked { number, kind: *kind });
        let faults = far.stats().major_faults;
        let replies = serve_all(&far, &shared, way, asked);
        assert!(far.stats().major_faults - faults > 1000, "{way:?}");
        let sum = (0..TOKENS_THERE).map(|key| 1 << key.min(30)).sum::<u64>();
        let mut history = History::new();
        for reply in replies {
            let did = reply.unwrap();
            assert!(did.tokens.is_none_or(|seen| seen == (TOKENS_THERE, sum)), "{way:?}: {:?} of tokens", did.tokens);
            history.add(did.access, did.tid);
        }
        if let Err(why) = history.check() {
            panic!("{way:?}: {why}");
        }
    }
}

#[test]
fn changes_of_rows_that_all_want_have_an_order() {
    run(&[Kind::Change, Kind::Change, Kind::Look]);
}

#[test]
fn scans_and_what_comes_between_have_an_order() {
    run(&[Kind::Fill, Kind::Fill, Kind::Change, Kind::Fill]);
}

#[test]
fn what_moves_is_neither_lost_nor_there_twice() {
    run(&[Kind::Move, Kind::Look, Kind::Move]);
}
