//! [`Database`]: tables in a region, and the epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yonder::Region;

use crate::error::OltpError;
use crate::memory::Memory;
use crate::space::Slab;
use crate::transaction::Transaction;
use crate::tree::Tree;

/// Commits after which an epoch ends of itself.
const EPOCH_COMMITS: u64 = 1 << 12;
/// Words for records: 2^20 are 8 MiB of local memory, and of a thousand records that are being changed one in a
/// thousand is taken for another.
pub const STRIPES_LOG2_DEFAULT: u32 = 20;

/// Tables in far memory. Shared by all workers.
pub struct Database {
    pub(crate) memory: Memory,
    pub(crate) tables: Box<[Table]>,
    epoch: AtomicU64,
    commits: AtomicU64,
}

/// A table: rows of one size, found by an index.
pub(crate) struct Table {
    pub(crate) tree: Tree,
    pub(crate) rows: Slab,
    /// 0 if there is nothing but keys.
    pub(crate) row_bytes: usize,
}

impl Table {
    pub(crate) fn has_rows(&self) -> bool {
        self.row_bytes > 0
    }
}

impl Database {
    /// Empty tables, of which the rows have so many bytes: at most a page, or 0 for a table of keys. 2^`stripes_log2`
    /// words of local memory say which records are locked ([`STRIPES_LOG2_DEFAULT`]).
    ///
    /// # Errors
    /// If the region is too small even for that, or its pages cannot be had.
    pub fn new(region: Arc<Region>, row_bytes: &[usize], stripes_log2: u32) -> Result<Self, OltpError> {
        let memory = Memory::new(region, stripes_log2);
        let table = |bytes: &usize| Ok(Table { tree: Tree::new(&memory)?, rows: Slab::new(*bytes), row_bytes: *bytes });
        let tables = row_bytes.iter().map(table).collect::<Result<_, OltpError>>()?;
        Ok(Self { memory, tables, epoch: AtomicU64::new(1), commits: AtomicU64::new(0) })
    }

    /// Begins a transaction. Dropping it without a commit undoes it.
    #[must_use]
    pub fn begin(&self) -> Transaction<'_> {
        Transaction::new(self)
    }

    /// The epoch: of two transactions that depend on one another, the later one is of the same or a later epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Begins the next epoch. Anybody may, at any time; after every 4096th commit the database does.
    pub fn advance_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Transactions that have committed.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Bytes of the region that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.memory.space.used()
    }

    pub(crate) fn count_commit(&self) {
        if (self.commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(EPOCH_COMMITS) {
            self.advance_epoch();
        }
    }
}
