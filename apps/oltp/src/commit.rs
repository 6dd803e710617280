//! The commit of a transaction.
//!
//! 1. *Prepare*, which may park: find the leaves that will change, split those that are too full, and bring every page
//!    that will be written.
//! 2. *Hold* those pages. From here to the end no page is missing, so nothing parks and nothing can fail half-way.
//! 3. *Lock* the words of all records and leaves that will change, in one order; if one is locked already, it is 1
//!    again.
//! 4. *Validate*: what was read still has the version it had, and nobody else has locked it. Else the transaction is in
//!    conflict.
//! 5. *Write*, and unlock everything with the transaction's number.

use std::mem;
use std::ops::Range;

use yonder::PagingError;
use yonder::sched::yield_now;

use crate::error::OltpError;
use crate::latches::{Seen, Tid, Wanted};
use crate::node::{ENTRIES_MAX, Node};
use crate::transaction::{Change, Transaction, Write};

/// Times that a commit is prepared before it counts as a conflict: locks are held briefly, and leaves change seldom
/// meanwhile.
const PREPARES_MAX: usize = 1000;

/// A leaf that a transaction changes.
struct Leaf {
    at: u64,
    seen: Seen,
    /// Which of the writes are changes of this leaf.
    writes: Range<usize>,
}

impl Transaction<'_> {
    /// Makes everything that the transaction has done visible at once, and says as which change.
    ///
    /// # Errors
    /// If it is in conflict with another, inserts a row that is there, the region is full, or a page cannot be had:
    /// then nothing of it is visible. Should the machine lose memory under a page while it is written, the rest is
    /// visible and that page lost.
    pub fn commit(mut self) -> Result<Tid, OltpError> {
        // Changes of indexes come first, by key: those of one leaf stand together.
        self.writes.sort_unstable_by_key(|write| (write.change == Change::Update, write.table, write.key));
        for _ in 0..PREPARES_MAX {
            if let Some(tid) = self.try_commit()? {
                self.free_deleted();
                self.database.count_commit();
                return Ok(tid);
            }
            yield_now();
        }
        Err(OltpError::Conflict)
    }

    /// `None` if another transaction is changing the same.
    fn try_commit(&mut self) -> Result<Option<Tid>, OltpError> {
        let memory = &self.database.memory;
        let leaves = self.leaves()?;
        let _held = memory.hold(self.places(&leaves))?;
        let Some(locked) = memory.latches.try_lock(&mut self.wanted(&leaves)) else { return Ok(None) };
        // Whoever will replace what this has read locks it after the validation, and reads the epoch later still.
        let epoch = self.database.epoch();
        if !self.seen.iter().all(|seen| locked.still(*seen)) {
            return Err(OltpError::Conflict);
        }
        self.refuse_existing(&leaves)?;
        let newest = self.seen.iter().map(|seen| seen.tid).fold(locked.newest(), Tid::max);
        let tid = newest.next_in(epoch);
        let written = self.write(&leaves);
        locked.release(tid);
        if let Err(lost) = written {
            // What was inserted is there.
            self.writes.clear();
            return Err(lost.into());
        }
        Ok(Some(tid))
    }

    /// The leaves that inserts and deletes change, with room for all of them.
    fn leaves(&self) -> Result<Vec<Leaf>, OltpError> {
        let memory = &self.database.memory;
        let (mut leaves, mut node, mut next) = (Vec::new(), Node::new(0), 0);
        while let Some(first) = self.writes.get(next).filter(|write| write.change != Change::Update) {
            let tree = &self.table(first.table).tree;
            let leaf = tree.find(memory, first.key, &mut node)?;
            let is_here =
                |write: &&Write| write.change != Change::Update && write.table == first.table && write.key <= leaf.last;
            let count = self.writes[next..].iter().take_while(is_here).count();
            let writes = next..next + count;
            let inserts = self.writes[writes.clone()].iter().filter(|write| write.change == Change::Insert).count();
            if node.len() + inserts > ENTRIES_MAX {
                tree.make_room(memory, first.key, inserts)?;
            } else {
                next = writes.end;
                leaves.push(Leaf { at: leaf.at, seen: leaf.seen, writes });
            }
        }
        Ok(leaves)
    }

    /// Writes that put a row into its record.
    fn row_writes(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter().filter(|write| write.change != Change::Delete && self.table(write.table).has_rows())
    }

    /// Where the commit will write.
    fn places(&self, leaves: &[Leaf]) -> Vec<u64> {
        let leaves = leaves.iter().map(|leaf| leaf.at);
        leaves.chain(self.row_writes().map(|write| write.record)).collect()
    }

    /// What the commit must lock: leaves as they were found, and all records that change or go.
    fn wanted(&self, leaves: &[Leaf]) -> Vec<Wanted> {
        let leaves = leaves.iter().map(|leaf| Wanted { latch: leaf.seen.latch, only: Some(leaf.seen.tid) });
        let records = self.writes.iter().filter(|write| self.table(write.table).has_rows());
        let latches = &self.database.memory.latches;
        leaves.chain(records.map(|write| Wanted { latch: latches.of_record(write.record), only: None })).collect()
    }

    /// With the leaves locked: no row that is inserted is there.
    fn refuse_existing(&self, leaves: &[Leaf]) -> Result<(), OltpError> {
        let mut node = Node::new(0);
        for leaf in leaves {
            self.database.memory.read_node(leaf.at, &mut node)?;
            let inserts = self.writes[leaf.writes.clone()].iter().filter(|write| write.change == Change::Insert);
            for Write { table, key, .. } in inserts {
                if node.search(*key).is_ok() {
                    return Err(OltpError::Exists { table: *table, key: *key });
                }
            }
        }
        Ok(())
    }

    /// Writes everything that can be written, and says what could not.
    fn write(&self, leaves: &[Leaf]) -> Result<(), PagingError> {
        let memory = &self.database.memory;
        let rows = self.row_writes().map(|write| memory.region.write(write.record, self.bytes_of(write)));
        let leaves = leaves.iter().map(|leaf| self.change_leaf(leaf));
        rows.chain(leaves).fold(Ok(()), Result::and)
    }

    fn change_leaf(&self, leaf: &Leaf) -> Result<(), PagingError> {
        let (memory, mut node) = (&self.database.memory, Node::new(0));
        memory.read_node(leaf.at, &mut node)?;
        for write in &self.writes[leaf.writes.clone()] {
            match (write.change, node.search(write.key)) {
                (Change::Insert, Err(place)) => node.insert(place, write.key, write.record),
                (Change::Delete, Ok(place)) => node.remove(place),
                _ => unreachable!("what was read is still so, and what is inserted is not there"),
            }
        }
        memory.write_node(leaf.at, &node)
    }

    /// Gives the memory of what was deleted back.
    fn free_deleted(&mut self) {
        for write in mem::take(&mut self.writes).iter().filter(|write| write.change == Change::Delete) {
            let table = self.table(write.table);
            if table.has_rows() {
                table.rows.give(write.record);
            }
            // An empty leaf that stays, because the way to it cannot be had, costs whoever comes by a look and nothing
            // else.
            let _ = table.tree.remove_empty(&self.database.memory, write.key);
        }
    }
}
