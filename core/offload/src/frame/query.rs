//! What can be asked of select and aggregate, and what they answer: [`SelectRequest`] and [`Selected`],
//! [`AggregateRequest`] and [`Summary`]. `layout` has how these lie in messages.

use crate::Comparison;

/// Most rows that one call looks at: a few milliseconds at most, for which other calls wait.
pub const ROWS_MAX: u64 = 1 << 18;

/// Rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// The first one.
    pub first: u64,
    /// How many, at most [`ROWS_MAX`].
    pub count: u64,
}

/// What the values of a column are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum ColumnKind {
    /// Integers with a sign, of 8 bytes.
    I64 = 0,
    /// IEEE 754 numbers of 8 bytes.
    F64 = 1,
    /// Integers without a sign, of 4 bytes.
    U32 = 2,
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Address of its row 0.
    pub address: u64,
    /// What its values are.
    pub kind: ColumnKind,
}

/// What a value must be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Condition<T> {
    /// It compares so with this.
    Is(Comparison, T),
    /// It is one of these two, or lies between them.
    Between(T, T),
}

/// A condition on the values of a column of one kind.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Test {
    /// On [`ColumnKind::I64`].
    I64(Condition<i64>),
    /// On [`ColumnKind::F64`]. What is not a number is only ever [`Comparison::NotEqual`].
    F64(Condition<f64>),
    /// On [`ColumnKind::U32`].
    U32(Condition<u32>),
}

/// Which rows count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Filter {
    /// All.
    All,
    /// Those whose value in the column at `address` passes the test.
    Where {
        /// Address of the column's row 0.
        address: u64,
        /// The test.
        test: Test,
    },
    /// Those whose bit is set in the bitmap at `address`.
    Bitmap {
        /// Address of the byte with row 0.
        address: u64,
    },
}

/// Arguments of [`Select`](super::Select).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SelectRequest {
    /// Which rows to look at.
    pub rows: Rows,
    /// Which of them to select.
    pub filter: Filter,
    /// What to do with those.
    pub output: Output,
}

/// What a select does with the rows that it selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// Counts them.
    Count,
    /// Marks them in a bitmap, which nobody else may write to meanwhile. The first row is a multiple of 8.
    Bitmap {
        /// Address of the byte with row 0.
        address: u64,
        /// What becomes of what is there.
        combine: Combine,
    },
    /// Lists their numbers, 8 bytes each.
    Rows(Target),
    /// Copies their values in a column.
    Values(Column, Target),
}

/// How new bits go with those that a bitmap has. Only bytes with rows of the call change; in the last of them, the bits
/// of rows after the last one become 0, except with [`Combine::Or`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Combine {
    /// They replace them.
    Replace = 0,
    /// Rows stay marked that are marked in both.
    And = 1,
    /// Rows are marked that are marked in one.
    Or = 2,
}

/// Where a list goes. When it is full the call ends before the next row that it would have to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Into the answer, as much as it holds.
    Answer,
    /// Into the caller's memory.
    Memory {
        /// Where it begins.
        address: u64,
        /// Most entries.
        capacity: u64,
    },
}

/// The answer of [`Select`](super::Select).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Selected<'a> {
    /// Rows that are done, from the first; the next call begins after them.
    pub rows_seen: u64,
    /// Rows that were counted or listed, or that are marked in the bitmap now.
    pub matched: u64,
    /// The list, with [`Target::Answer`].
    pub data: &'a [u8],
}

/// Arguments of [`Aggregate`](super::Aggregate).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AggregateRequest {
    /// Which rows to look at.
    pub rows: Rows,
    /// Which of them count.
    pub filter: Filter,
    /// The column that is summarised.
    pub column: Column,
}

/// The answer of [`Aggregate`](super::Aggregate).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Values that count.
    pub count: u64,
    /// What they are together.
    pub numbers: Numbers,
}

/// What values are together. Of no values, least and greatest are those that any value replaces.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Numbers {
    /// Of integers.
    Integers {
        /// Their sum.
        sum: i128,
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// Of numbers with a fraction.
    Reals {
        /// Their sum, in the order of rows.
        sum: f64,
        /// The least; not a number if none of them is one.
        min: f64,
        /// The greatest; not a number if none of them is one.
        max: f64,
    },
}

impl Summary {
    /// A summary of no values of a column.
    #[must_use]
    pub const fn of_nothing(kind: ColumnKind) -> Self {
        let numbers = match kind {
            ColumnKind::I64 | ColumnKind::U32 => Numbers::Integers { sum: 0, min: i64::MAX, max: i64::MIN },
            ColumnKind::F64 => Numbers::Reals { sum: 0.0, min: f64::NAN, max: f64::NAN },
        };
        Self { count: 0, numbers }
    }

    /// The summary of the values of both, which are of columns of one kind; `None` if they are not.
    #[must_use]
    pub fn merge(self, other: Self) -> Option<Self> {
        let numbers = match (self.numbers, other.numbers) {
            (Numbers::Integers { sum, min, max }, Numbers::Integers { sum: more, min: least, max: greatest }) => {
                Numbers::Integers { sum: sum.wrapping_add(more), min: min.min(least), max: max.max(greatest) }
            }
            (Numbers::Reals { sum, min, max }, Numbers::Reals { sum: more, min: least, max: greatest }) => {
                Numbers::Reals { sum: sum + more, min: min.min(least), max: max.max(greatest) }
            }
            _ => return None,
        };
        Some(Self { count: self.count.saturating_add(other.count), numbers })
    }
}

impl ColumnKind {
    /// Bytes of a value.
    #[must_use]
    pub const fn width(self) -> u64 {
        match self {
            Self::I64 | Self::F64 => 8,
            Self::U32 => 4,
        }
    }
}

impl Test {
    /// The kind of column that it is on.
    #[must_use]
    pub const fn kind(&self) -> ColumnKind {
        match self {
            Self::I64(_) => ColumnKind::I64,
            Self::F64(_) => ColumnKind::F64,
            Self::U32(_) => ColumnKind::U32,
        }
    }
}
