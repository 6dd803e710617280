//! [`Transaction`]: what one reads and is about to write.
//!
//! Reads go to far memory at once and note the version that they found; writes are kept locally until the commit
//! (`commit`). Whatever is read is consistent in itself, but two reads may see a third transaction's work in part; that
//! one will not commit then. So code between reads must not rely on what holds between rows: it asks
//! [`Transaction::missing`] what to do when a row is not there.

use std::ops::RangeInclusive;

use yonder::PagingError;
use yonder::sched::{checkpoint, yield_now};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::database::{Database, Table};
use crate::error::OltpError;
use crate::latches::Seen;
use crate::node::{Key, Node};
use crate::tree::ROOM_MAX;

/// A row of a table, as it lies in memory.
pub trait Row: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// Number of its table.
    const TABLE: usize;
}

/// Where a row is that a transaction has read: what is changed of it is changed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowAt {
    table: usize,
    key: Key,
    record: u64,
}

/// A key that a scan has found.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    at: RowAt,
    leaf: Seen,
}

impl Entry {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.at.key
    }

    /// Its row, to be deleted.
    #[must_use]
    pub fn at(&self) -> RowAt {
        self.at
    }
}

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the least key on.
    Ascending,
    /// From the greatest key back.
    Descending,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Change {
    Insert,
    Delete,
    Update,
}

/// What a transaction is about to do to a row.
#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) table: usize,
    pub(crate) key: Key,
    /// Where the row lies; 0 in tables of keys.
    pub(crate) record: u64,
    pub(crate) change: Change,
    /// Place of the row's new bytes among the transaction's.
    pub(crate) bytes_at: usize,
}

/// One transaction.
pub struct Transaction<'a> {
    pub(crate) database: &'a Database,
    /// What it has read: records, and leaves for keys that were not there and for ranges.
    pub(crate) seen: Vec<Seen>,
    pub(crate) writes: Vec<Write>,
    bytes: Vec<u8>,
    node: Box<Node>,
    inserts: usize,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(database: &'a Database) -> Self {
        let (seen, writes, bytes) = (Vec::with_capacity(32), Vec::with_capacity(32), Vec::with_capacity(2048));
        Self { database, seen, writes, bytes, node: Box::new(Node::new(0)), inserts: 0 }
    }

    /// The row of a key, if there is one, and its bytes in `row`.
    ///
    /// # Errors
    /// If a page cannot be had.
    pub fn get(&mut self, table: usize, key: Key, row: &mut [u8]) -> Result<Option<RowAt>, OltpError> {
        checkpoint();
        if let Some(own) = self.own(table, key).copied() {
            return Ok(self.read_own(&own, row));
        }
        let tree = &self.table(table).tree;
        loop {
            let leaf = tree.find(&self.database.memory, key, &mut self.node)?;
            let Ok(place) = self.node.search(key) else {
                self.seen.push(leaf.seen);
                return Ok(None);
            };
            let at = RowAt { table, key, record: self.node.value(place) };
            if self.read_record(at, leaf.seen, row)? {
                return Ok(Some(at));
            }
            yield_now();
        }
    }

    /// The row of a key, if there is one.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn row<R: Row>(&mut self, key: Key) -> Result<Option<(RowAt, R)>, OltpError> {
        let mut row = R::new_zeroed();
        Ok(self.get(R::TABLE, key, row.as_mut_bytes())?.map(|at| (at, row)))
    }

    /// The row of a key that must be there.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::missing`].
    pub fn need<R: Row>(&mut self, key: Key) -> Result<(RowAt, R), OltpError> {
        self.row(key)?.ok_or_else(|| self.missing(R::TABLE, key))
    }

    /// The row that a scan has found.
    ///
    /// # Errors
    /// If it was changed since, or a page cannot be had.
    pub fn fetch<R: Row>(&mut self, entry: &Entry) -> Result<(RowAt, R), OltpError> {
        let mut row = R::new_zeroed();
        assert_eq!(entry.at.table, R::TABLE, "a row of another table");
        self.read(entry, row.as_mut_bytes())?;
        Ok((entry.at, row))
    }

    /// Copies the row that a scan has found.
    ///
    /// # Errors
    /// As [`Transaction::fetch`].
    pub fn read(&mut self, entry: &Entry, row: &mut [u8]) -> Result<(), OltpError> {
        checkpoint();
        if let Some(own) = self.own(entry.at.table, entry.at.key).copied() {
            return self.read_own(&own, row).map(|_| ()).ok_or(OltpError::Conflict);
        }
        while !self.read_record(entry.at, entry.leaf, row)? {
            // The leaf is among what this transaction relies on: when it has changed there will be no commit.
            if !self.database.memory.latches.still(entry.leaf) {
                return Err(OltpError::Conflict);
            }
            yield_now();
        }
        Ok(())
    }

    /// The first keys of a table in a range, in a direction, at most `limit`. What this transaction has deleted is not
    /// among them.
    ///
    /// # Errors
    /// If a page cannot be had.
    ///
    /// # Panics
    /// If this transaction has inserted into the table.
    pub fn scan(
        &mut self,
        table: usize,
        keys: RangeInclusive<Key>,
        direction: Direction,
        limit: usize,
    ) -> Result<Vec<Entry>, OltpError> {
        let inserts = |write: &Write| write.table == table && write.change == Change::Insert;
        assert!(!self.writes.iter().any(inserts), "a transaction scans a table before it inserts there");
        let (mut low, mut high) = keys.into_inner();
        let mut found = Vec::new();
        loop {
            checkpoint();
            let from = if direction == Direction::Ascending { low } else { high };
            let leaf = self.table(table).tree.find(&self.database.memory, from, &mut self.node)?;
            self.seen.push(leaf.seen);
            let is_deleted = |key| self.own(table, key).is_some_and(|own| own.change == Change::Delete);
            let entry = |place| {
                let at = RowAt { table, key: self.node.key(place), record: self.node.value(place) };
                Entry { at, leaf: leaf.seen }
            };
            let places = self.node.first_from(low)..self.node.first_after(high);
            let room = limit - found.len();
            let is_there = |entry: &Entry| !is_deleted(entry.key());
            match direction {
                Direction::Ascending => found.extend(places.map(entry).filter(is_there).take(room)),
                Direction::Descending => found.extend(places.rev().map(entry).filter(is_there).take(room)),
            }
            let was_last = if direction == Direction::Ascending { leaf.last >= high } else { leaf.first <= low };
            if was_last || found.len() == limit {
                return Ok(found);
            }
            match direction {
                Direction::Ascending => low = leaf.last + 1,
                Direction::Descending => high = leaf.first - 1,
            }
        }
    }

    /// Inserts a row; at the commit there must be none.
    ///
    /// # Errors
    /// If this transaction has inserted or changed that row, the region is full, or a page cannot be had.
    ///
    /// # Panics
    /// If it is the 65th of a transaction: room is made in one leaf for all of them.
    pub fn insert(&mut self, table: usize, key: Key, row: &[u8]) -> Result<(), OltpError> {
        self.check_size(table, row);
        if let Some(place) = self.own_place(table, key) {
            return self.insert_again(place, row);
        }
        self.inserts += 1;
        assert!(self.inserts <= ROOM_MAX, "a transaction inserts at most {ROOM_MAX} rows");
        let table_of = self.table(table);
        let record = if table_of.has_rows() { table_of.rows.take(&self.database.memory.space)? } else { 0 };
        self.push(Write { table, key, record, change: Change::Insert, bytes_at: 0 }, row)
    }

    /// As [`Transaction::insert`], of a typed row.
    ///
    /// # Errors
    /// As [`Transaction::insert`].
    pub fn add<R: Row>(&mut self, key: Key, row: &R) -> Result<(), OltpError> {
        self.insert(R::TABLE, key, row.as_bytes())
    }

    /// Replaces a row. Its page is brought now, so that the commit finds it.
    ///
    /// # Errors
    /// If the page cannot be had.
    ///
    /// # Panics
    /// If this transaction has deleted the row.
    pub fn update(&mut self, at: RowAt, row: &[u8]) -> Result<(), OltpError> {
        self.check_size(at.table, row);
        match self.own_place(at.table, at.key).map(|place| self.writes[place]) {
            Some(own) if own.change == Change::Delete => panic!("a row that the transaction has deleted is changed"),
            Some(own) => {
                self.bytes[own.bytes_at..][..row.len()].copy_from_slice(row);
                Ok(())
            }
            None => self.push(Write { change: Change::Update, ..write_of(at) }, row),
        }
    }

    /// As [`Transaction::update`], of a typed row.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub fn replace<R: Row>(&mut self, at: RowAt, row: &R) -> Result<(), OltpError> {
        assert_eq!(at.table, R::TABLE, "a row of another table");
        self.update(at, row.as_bytes())
    }

    /// Deletes a row.
    ///
    /// # Errors
    /// If a page cannot be had.
    pub fn delete(&mut self, at: RowAt) -> Result<(), OltpError> {
        let Some(place) = self.own_place(at.table, at.key) else {
            return self.push(Write { change: Change::Delete, ..write_of(at) }, &[]);
        };
        match self.writes[place].change {
            Change::Insert => {
                let own = self.writes.swap_remove(place);
                self.give_back(&own);
            }
            Change::Update | Change::Delete => self.writes[place].change = Change::Delete,
        }
        Ok(())
    }

    /// What it means that a row is not there that must be: that this transaction has seen others' work in part and is
    /// to be run again, or else that the data are wrong.
    #[must_use]
    pub fn missing(&self, table: usize, key: Key) -> OltpError {
        let latches = &self.database.memory.latches;
        let is_consistent = self.seen.iter().all(|seen| latches.still(*seen));
        if is_consistent { OltpError::Missing { table, key } } else { OltpError::Conflict }
    }

    pub(crate) fn table(&self, table: usize) -> &'a Table {
        &self.database.tables[table]
    }

    /// The new bytes of a row.
    pub(crate) fn bytes_of(&self, write: &Write) -> &[u8] {
        &self.bytes[write.bytes_at..][..self.table(write.table).row_bytes]
    }

    /// Copies a record, if it is what `leaf` says and nobody changes it meanwhile.
    fn read_record(&mut self, at: RowAt, leaf: Seen, row: &mut [u8]) -> Result<bool, PagingError> {
        let memory = &self.database.memory;
        self.check_size(at.table, row);
        if row.is_empty() {
            // A key is there for as long as its leaf says so.
            self.seen.push(leaf);
            return Ok(true);
        }
        let Some(seen) = memory.latches.look(memory.latches.of_record(at.record)) else { return Ok(false) };
        // Whoever takes the row away gives both a new version: it was there when the record's was noted.
        if !memory.latches.still(leaf) {
            return Ok(false);
        }
        memory.region.read(at.record, row)?;
        let is_consistent = memory.latches.still(seen);
        if is_consistent {
            self.seen.push(seen);
        }
        Ok(is_consistent)
    }

    fn read_own(&self, own: &Write, row: &mut [u8]) -> Option<RowAt> {
        if own.change == Change::Delete {
            return None;
        }
        row.copy_from_slice(self.bytes_of(own));
        Some(RowAt { table: own.table, key: own.key, record: own.record })
    }

    /// Inserts what this transaction has deleted.
    fn insert_again(&mut self, place: usize, row: &[u8]) -> Result<(), OltpError> {
        let own = self.writes[place];
        if own.change != Change::Delete {
            return Err(OltpError::Exists { table: own.table, key: own.key });
        }
        self.writes.swap_remove(place);
        if row.is_empty() { Ok(()) } else { self.push(Write { change: Change::Update, ..own }, row) }
    }

    fn push(&mut self, write: Write, row: &[u8]) -> Result<(), OltpError> {
        self.writes.push(Write { bytes_at: self.bytes.len(), ..write });
        self.bytes.extend_from_slice(row);
        if !row.is_empty() {
            self.database.memory.region.probe(write.record)?;
        }
        Ok(())
    }

    fn own(&self, table: usize, key: Key) -> Option<&Write> {
        self.own_place(table, key).map(|place| &self.writes[place])
    }

    fn own_place(&self, table: usize, key: Key) -> Option<usize> {
        self.writes.iter().position(|write| write.key == key && write.table == table)
    }

    fn check_size(&self, table: usize, row: &[u8]) {
        let bytes = self.table(table).row_bytes;
        assert_eq!(row.len(), bytes, "rows of table {table} have {bytes} bytes");
    }

    /// What an insert has taken and does not need.
    fn give_back(&self, insert: &Write) {
        let table = self.table(insert.table);
        if table.has_rows() {
            table.rows.give(insert.record);
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let inserts = self.writes.iter().filter(|write| write.change == Change::Insert);
        inserts.for_each(|insert| self.give_back(insert));
    }
}

fn write_of(at: RowAt) -> Write {
    Write { table: at.table, key: at.key, record: at.record, change: Change::Update, bytes_at: 0 }
}
