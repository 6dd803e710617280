//! [`OltpError`]: why a transaction has no effect.

use yonder::PagingError;

/// A transaction that did not commit. Nothing of it is there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OltpError {
    /// Another transaction changed what this one read, or changes what this one would. The same transaction may succeed
    /// if it is run again.
    #[error("the transaction is in conflict with another: run it again")]
    Conflict,
    /// A row that was inserted is there already.
    #[error("table {table} has a row with the key {key:#x} already")]
    Exists {
        /// Number of the table.
        table: usize,
        /// The key.
        key: u128,
    },
    /// A row that must be there is not.
    #[error("table {table} has no row with the key {key:#x}")]
    Missing {
        /// Number of the table.
        table: usize,
        /// The key.
        key: u128,
    },
    /// The region is full.
    #[error("the {bytes} bytes of far memory for tables are in use: give more")]
    OutOfRoom {
        /// Bytes of the region.
        bytes: u64,
    },
    /// A page cannot be had.
    #[error(transparent)]
    Paging(#[from] PagingError),
}
