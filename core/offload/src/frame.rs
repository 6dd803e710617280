//! Select and aggregate over columns in the caller's memory, so that only results cross the network (Clio-DF).
//!
//! A table is columns of one width each, given by the address of their row 0. [`Select`] finds the rows that a
//! [`Filter`] lets through and counts them, marks them in a bitmap, lists them, or copies another column's values.
//! [`Aggregate`] summarises a column over such rows. Bitmaps of several selects combine, so that a filter may span
//! columns.
//!
//! Key types: [`SelectRequest`] and [`Selected`], [`AggregateRequest`] and [`Summary`]. A call looks at [`ROWS_MAX`]
//! rows at most; for more the caller moves `first_row` on, and everything else in the request stays as it is.
//!
//! Invariant: what a select writes never overlaps what it reads, so one that was refused half way may be made again.

mod aggregate;
mod layout;
mod query;
mod scan;
mod select;

pub use aggregate::Aggregate;
pub use query::{
    AggregateRequest, Column, ColumnKind, Combine, Condition, Filter, Numbers, Output, ROWS_MAX, Rows, SelectRequest,
    Selected, Summary, Target, Test,
};
pub use select::Select;

/// The number of [`Select`].
pub const SELECT_NUMBER: u64 = 4;
/// The number of [`Aggregate`].
pub const AGGREGATE_NUMBER: u64 = 5;

#[cfg(test)]
mod tests;
