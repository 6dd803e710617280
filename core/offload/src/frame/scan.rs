//! Going through rows block by block: [`Scan`] says of each which rows a filter lets through, as a [`Mask`].
//!
//! Blocks are aligned, so that a row has the same bit in its block's mask as in its bitmap. A scan keeps one buffer, so
//! a call allocates for its first block at most.

use std::ops::Range;

use yonder_units::Narrow;
use yonder_wire::ErrorCode;
use zerocopy::IntoBytes;

use super::query::{Column, Condition, Filter, ROWS_MAX, Rows, Test};
use crate::Comparison;
use crate::memory::{OffloadMemory, Space, offset};

/// Rows in a block.
const BLOCK_ROWS: u64 = 4096;
const MASK_WORDS: usize = (BLOCK_ROWS / 64) as usize;

/// A bit for each row of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mask([u64; MASK_WORDS]);

/// Rows of one block that a call looks at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// Number of the row with the first bit, a multiple of [`BLOCK_ROWS`].
    base: u64,
    /// The rows, counted from there.
    lanes: Range<u64>,
}

/// A value of a column.
pub(super) trait Cell: Copy + PartialOrd {
    /// Its bytes.
    const BYTES: usize;
    /// The value that these bytes are.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! cells {
    ($($type:ty),+) => {
        $(impl Cell for $type {
            const BYTES: usize = size_of::<$type>();

            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().copied().map_or(Self::default(), Self::from_le_bytes)
            }
        })+
    };
}

cells!(i64, f64, u32);

impl Rows {
    /// These rows in blocks. Fails if they are too many, or pass the end of all numbers.
    pub(super) fn blocks(self) -> Result<impl Iterator<Item = Block>, ErrorCode> {
        if self.count > ROWS_MAX {
            return Err(ErrorCode::BadLength);
        }
        let (first, end) = (self.first, offset(self.first, self.count)?);
        let blocks = if self.count == 0 { 0..0 } else { first / BLOCK_ROWS..(end - 1) / BLOCK_ROWS + 1 };
        Ok(blocks.map(move |block| {
            let base = block * BLOCK_ROWS;
            Block { base, lanes: first.saturating_sub(base)..(end - base).min(BLOCK_ROWS) }
        }))
    }
}

impl Block {
    /// Number of the row with this bit.
    pub(super) fn row(&self, lane: u64) -> u64 {
        self.base + lane
    }

    /// Address of the rows' values of `width` bytes, in a column that begins at `address`.
    fn values_at(&self, address: u64, width: u64) -> Result<u64, ErrorCode> {
        let before = self.row(self.lanes.start).checked_mul(width).ok_or(ErrorCode::BadAddress)?;
        offset(address, before)
    }

    /// The bytes of the mask that have the rows' bits.
    fn mask_bytes(&self) -> Range<usize> {
        (self.lanes.start / 8) as usize..self.lanes.end.div_ceil(8).narrow_usize()
    }

    /// Reads their bits from the bitmap at `address`.
    pub(super) fn read_bitmap(&self, address: u64, memory: &mut dyn OffloadMemory) -> Result<Mask, ErrorCode> {
        let mut mask = Mask([0; MASK_WORDS]);
        let bytes = self.mask_bytes();
        let address = offset(address, self.base / 8 + bytes.start as u64)?;
        memory.read(Space::Caller, address, &mut mask.0.as_mut_bytes()[bytes])?;
        mask.0 = mask.0.map(u64::from_le);
        Ok(mask)
    }

    /// Writes their bits to the bitmap at `address`.
    pub(super) fn write_bitmap(
        &self,
        address: u64,
        mask: &Mask,
        memory: &mut dyn OffloadMemory,
    ) -> Result<(), ErrorCode> {
        let bytes = self.mask_bytes();
        let address = offset(address, self.base / 8 + bytes.start as u64)?;
        memory.write(Space::Caller, address, &mask.0.map(u64::to_le).as_bytes()[bytes])
    }

    /// Only the bits of the rows.
    pub(super) fn trim(&self, mut mask: Mask) -> Mask {
        for (index, word) in (0u64..).zip(mask.0.iter_mut()) {
            let lanes = index * 64..index * 64 + 64;
            let from = self.lanes.start.clamp(lanes.start, lanes.end) - lanes.start;
            let to = self.lanes.end.clamp(lanes.start, lanes.end) - lanes.start;
            *word &= low_bits(to) & !low_bits(from);
        }
        mask
    }
}

/// The lowest bits, up to all 64.
const fn low_bits(count: u64) -> u64 {
    if count == 64 { u64::MAX } else { (1 << count) - 1 }
}

impl Mask {
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// The bits that are set, lowest first.
    pub(super) fn lanes(&self) -> impl Iterator<Item = u64> + '_ {
        (0u64..).zip(self.0).flat_map(|(index, word)| {
            let rest = std::iter::successors(Some(word), |left| Some(left & left.wrapping_sub(1)));
            rest.take_while(|left| *left != 0).map(move |left| index * 64 + u64::from(left.trailing_zeros()))
        })
    }

    pub(super) fn and(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word &= more);
        self
    }

    pub(super) fn or(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        self
    }

    fn fill<T: Cell>(&mut self, values: &[u8], passes: impl Fn(T) -> bool) {
        for (word, values) in self.0.iter_mut().zip(values.chunks(64 * T::BYTES)) {
            let bits = values.chunks_exact(T::BYTES).enumerate();
            *word = bits.fold(0, |bits, (lane, value)| bits | u64::from(passes(T::from_bytes(value))) << lane);
        }
    }

    /// The comparison is chosen outside of the loop, so that the loop has none but its own.
    fn test<T: Cell>(&mut self, values: &[u8], condition: Condition<T>) {
        match condition {
            Condition::Is(Comparison::Equal, operand) => self.fill(values, |value: T| value == operand),
            Condition::Is(Comparison::NotEqual, operand) => self.fill(values, |value: T| value != operand),
            Condition::Is(Comparison::Less, operand) => self.fill(values, |value: T| value < operand),
            Condition::Is(Comparison::LessOrEqual, operand) => self.fill(values, |value: T| value <= operand),
            Condition::Is(Comparison::Greater, operand) => self.fill(values, |value: T| value > operand),
            Condition::Is(Comparison::GreaterOrEqual, operand) => self.fill(values, |value: T| value >= operand),
            Condition::Between(lower, upper) => self.fill(values, |value: T| lower <= value && value <= upper),
        }
    }
}

/// Reads values of blocks.
#[derive(Clone, Default, Debug)]
pub(super) struct Scan {
    /// Values of one block, at their bits' places; what is before the block's first row is left from others.
    values: Vec<u8>,
}

impl Scan {
    /// The rows of a block that a filter lets through.
    pub(super) fn mask(
        &mut self,
        block: &Block,
        filter: &Filter,
        memory: &mut dyn OffloadMemory,
    ) -> Result<Mask, ErrorCode> {
        let mut mask = Mask([u64::MAX; MASK_WORDS]);
        match *filter {
            Filter::All => {}
            Filter::Bitmap { address } => mask = block.read_bitmap(address, memory)?,
            Filter::Where { address, test } => {
                let values = self.values(block, Column { address, kind: test.kind() }, memory)?;
                match test {
                    Test::I64(condition) => mask.test(values, condition),
                    Test::F64(condition) => mask.test(values, condition),
                    Test::U32(condition) => mask.test(values, condition),
                }
            }
        }
        Ok(block.trim(mask))
    }

    /// The values of a block, each at the place of its bit.
    pub(super) fn values(
        &mut self,
        block: &Block,
        column: Column,
        memory: &mut dyn OffloadMemory,
    ) -> Result<&[u8], ErrorCode> {
        let width = column.kind.width();
        let (start, end) = ((block.lanes.start * width).narrow_usize(), (block.lanes.end * width).narrow_usize());
        self.values.resize(end, 0);
        memory.read(Space::Caller, block.values_at(column.address, width)?, &mut self.values[start..])?;
        Ok(&self.values)
    }
}
