//! How the requests and answers of `query` lie in messages. All numbers are little-endian.
//!
//! ```text
//! rows:       first row u64 | rows u64
//! filter:     address u64 | what u32 | column kind u32 | operand, 8 bytes | upper operand, 8 bytes
//! output:     address u64 | what u32 | combine or target u32 | capacity u64
//!             | column address u64 | column kind u32 | 0 u32
//! select:     rows | filter | output           answer: rows seen u64 | matched u64 | data
//! aggregate:  rows | filter | column address u64 | column kind u32 | 0 u32
//!             answer: count u64 | what u32 | 0 u32 | sum, 16 bytes | min, 8 bytes | max, 8 bytes
//! ```
//!
//! A bitmap has row r at bit `r mod 8` of byte `r / 8`, counted from the lowest.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::query::{
    AggregateRequest, Column, ColumnKind, Combine, Condition, Filter, Numbers, Output, Rows, SelectRequest, Selected,
    Summary, Target, Test,
};
use crate::number::one_of;
use crate::{Comparison, Malformed};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawFilter {
    address: U64,
    what: U32,
    kind: U32,
    operand: U64,
    upper: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawOutput {
    address: U64,
    what: U32,
    how: U32,
    capacity: U64,
    column: U64,
    kind: U32,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSelect {
    first: U64,
    count: U64,
    filter: RawFilter,
    output: RawOutput,
}

const _: () = assert!(size_of::<RawSelect>() == 88);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSelected {
    rows_seen: U64,
    matched: U64,
}

/// Bytes of a select's answer before the data.
pub(super) const SELECTED_HEAD_BYTES: usize = size_of::<RawSelected>();

const _: () = assert!(SELECTED_HEAD_BYTES <= crate::ONCE_ANSWER_BYTES_MAX);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAggregate {
    first: U64,
    count: U64,
    filter: RawFilter,
    column: U64,
    kind: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<RawAggregate>() == 64);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSummary {
    count: U64,
    what: U32,
    reserved: U32,
    sum: [u8; 16],
    min: U64,
    max: U64,
}

const _: () = assert!(size_of::<RawSummary>() == 48);

const COUNT: u32 = 0;
const BITMAP: u32 = 1;
const ROWS: u32 = 2;
const VALUES: u32 = 3;
const ANSWER: u32 = 0;
const MEMORY: u32 = 1;
const INTEGERS: u32 = 0;
const REALS: u32 = 1;
/// What a filter is: a comparison by its number, or one of these.
const BETWEEN: u32 = 6;
const ALL: u32 = 7;
const MARKED: u32 = 8;

const _: () = assert!(Comparison::ALL.len() == BETWEEN as usize);

impl<T> Condition<T> {
    fn encode(self, word: impl Fn(T) -> u64) -> (u32, u64, u64) {
        match self {
            Self::Is(comparison, operand) => (comparison as u32, word(operand), 0),
            Self::Between(lower, upper) => (BETWEEN, word(lower), word(upper)),
        }
    }

    fn decode(raw: &RawFilter, value: impl Fn(u64) -> Result<T, Malformed>) -> Result<Self, Malformed> {
        let operand = value(raw.operand.get())?;
        match raw.what.get() {
            BETWEEN => Ok(Self::Between(operand, value(raw.upper.get())?)),
            _ => Ok(Self::Is(Comparison::from_number(raw.what)?, operand)),
        }
    }
}

impl RawFilter {
    fn new(filter: &Filter) -> Self {
        let (address, kind, (what, operand, upper)) = match *filter {
            Filter::All => (0, ColumnKind::I64, (ALL, 0, 0)),
            Filter::Bitmap { address } => (address, ColumnKind::I64, (MARKED, 0, 0)),
            Filter::Where { address, test } => {
                let condition = match test {
                    Test::I64(condition) => condition.encode(i64::cast_unsigned),
                    Test::F64(condition) => condition.encode(f64::to_bits),
                    Test::U32(condition) => condition.encode(u64::from),
                };
                (address, test.kind(), condition)
            }
        };
        let [address, operand, upper] = [address, operand, upper].map(U64::new);
        Self { address, what: U32::new(what), kind: U32::new(kind as u32), operand, upper }
    }

    fn decode(&self) -> Result<Filter, Malformed> {
        let address = self.address.get();
        match self.what.get() {
            ALL => return Ok(Filter::All),
            MARKED => return Ok(Filter::Bitmap { address }),
            _ => {}
        }
        let test = match kind_of(self.kind)? {
            ColumnKind::I64 => Test::I64(Condition::decode(self, |word| Ok(word.cast_signed()))?),
            ColumnKind::F64 => Test::F64(Condition::decode(self, |word| Ok(f64::from_bits(word)))?),
            ColumnKind::U32 => Test::U32(Condition::decode(self, |word| u32::try_from(word).map_err(|_| Malformed))?),
        };
        Ok(Filter::Where { address, test })
    }
}

impl RawOutput {
    fn new(output: &Output) -> Self {
        let no_column = Column { address: 0, kind: ColumnKind::I64 };
        let (what, column, target) = match *output {
            Output::Count => (COUNT, no_column, Target::Answer),
            Output::Bitmap { address, .. } => (BITMAP, no_column, Target::Memory { address, capacity: 0 }),
            Output::Rows(target) => (ROWS, no_column, target),
            Output::Values(column, target) => (VALUES, column, target),
        };
        let (how, address, capacity) = match target {
            Target::Answer => (ANSWER, 0, 0),
            Target::Memory { address, capacity } => (MEMORY, address, capacity),
        };
        let how = if let Output::Bitmap { combine, .. } = output { *combine as u32 } else { how };
        let [what, how, kind] = [what, how, column.kind as u32].map(U32::new);
        let [address, capacity, column] = [address, capacity, column.address].map(U64::new);
        Self { address, what, how, capacity, column, kind, reserved: U32::ZERO }
    }

    fn decode(&self) -> Result<Output, Malformed> {
        let address = self.address.get();
        let target = match self.how.get() {
            ANSWER => Ok(Target::Answer),
            MEMORY => Ok(Target::Memory { address, capacity: self.capacity.get() }),
            _ => Err(Malformed),
        };
        match self.what.get() {
            COUNT => Ok(Output::Count),
            BITMAP => {
                let combine = one_of([Combine::Replace, Combine::And, Combine::Or], self.how)?;
                Ok(Output::Bitmap { address, combine })
            }
            ROWS => Ok(Output::Rows(target?)),
            VALUES => {
                let kind = kind_of(self.kind)?;
                Ok(Output::Values(Column { address: self.column.get(), kind }, target?))
            }
            _ => Err(Malformed),
        }
    }
}

impl SelectRequest {
    /// The arguments of a call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [first, count] = [self.rows.first, self.rows.count].map(U64::new);
        let (filter, output) = (RawFilter::new(&self.filter), RawOutput::new(&self.output));
        RawSelect { first, count, filter, output }.as_bytes().to_vec()
    }

    /// The request in the arguments of a call.
    pub fn decode(arguments: &[u8]) -> Result<Self, Malformed> {
        let raw = RawSelect::ref_from_bytes(arguments).map_err(|_| Malformed)?;
        let rows = Rows { first: raw.first.get(), count: raw.count.get() };
        Ok(Self { rows, filter: raw.filter.decode()?, output: raw.output.decode()? })
    }
}

impl<'a> Selected<'a> {
    /// Appends the answer of a call to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let [rows_seen, matched] = [self.rows_seen, self.matched].map(U64::new);
        into.extend(RawSelected { rows_seen, matched }.as_bytes());
        into.extend(self.data);
    }

    /// The answer of a call.
    pub fn decode(answer: &'a [u8]) -> Result<Self, Malformed> {
        let (raw, data) = RawSelected::ref_from_prefix(answer).map_err(|_| Malformed)?;
        Ok(Self { rows_seen: raw.rows_seen.get(), matched: raw.matched.get(), data })
    }
}

impl AggregateRequest {
    /// The arguments of a call.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let [first, count, column] = [self.rows.first, self.rows.count, self.column.address].map(U64::new);
        let (filter, kind) = (RawFilter::new(&self.filter), U32::new(self.column.kind as u32));
        RawAggregate { first, count, filter, column, kind, reserved: U32::ZERO }.as_bytes().to_vec()
    }

    /// The request in the arguments of a call.
    pub fn decode(arguments: &[u8]) -> Result<Self, Malformed> {
        let raw = RawAggregate::ref_from_bytes(arguments).map_err(|_| Malformed)?;
        let rows = Rows { first: raw.first.get(), count: raw.count.get() };
        let column = Column { address: raw.column.get(), kind: kind_of(raw.kind)? };
        Ok(Self { rows, filter: raw.filter.decode()?, column })
    }
}

impl Summary {
    /// Appends the answer of a call to `into`.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut sum_bytes = [0; 16];
        let (what, min, max) = match self.numbers {
            Numbers::Integers { sum, min, max } => {
                sum_bytes = sum.to_le_bytes();
                (INTEGERS, min.cast_unsigned(), max.cast_unsigned())
            }
            Numbers::Reals { sum, min, max } => {
                sum_bytes[..8].copy_from_slice(&sum.to_le_bytes());
                (REALS, min.to_bits(), max.to_bits())
            }
        };
        let (what, [count, min, max]) = (U32::new(what), [self.count, min, max].map(U64::new));
        into.extend(RawSummary { count, what, reserved: U32::ZERO, sum: sum_bytes, min, max }.as_bytes());
    }

    /// The answer of a call.
    pub fn decode(answer: &[u8]) -> Result<Self, Malformed> {
        let raw = RawSummary::ref_from_bytes(answer).map_err(|_| Malformed)?;
        let (sum, min, max) = (i128::from_le_bytes(raw.sum), raw.min.get(), raw.max.get());
        let numbers = match raw.what.get() {
            INTEGERS => Numbers::Integers { sum, min: min.cast_signed(), max: max.cast_signed() },
            REALS => {
                let (sum, _) = raw.sum.split_first_chunk().expect("16 bytes begin with 8");
                let [sum, min, max] = [u64::from_le_bytes(*sum), min, max].map(f64::from_bits);
                Numbers::Reals { sum, min, max }
            }
            _ => return Err(Malformed),
        };
        Ok(Self { count: raw.count.get(), numbers })
    }
}

fn kind_of(number: U32) -> Result<ColumnKind, Malformed> {
    one_of([ColumnKind::I64, ColumnKind::F64, ColumnKind::U32], number)
}
