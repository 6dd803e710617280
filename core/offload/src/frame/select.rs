//! [`Select`]: finds rows, and counts, marks, lists or copies them.

use yonder_units::Narrow;
use yonder_wire::{ErrorCode, PAYLOAD_BYTES_MAX};

use super::SELECT_NUMBER;
use super::layout::SELECTED_HEAD_BYTES;
use super::query::{Combine, Filter, Output, Rows, SelectRequest, Selected, Target};
use super::scan::{Block, Mask, Scan};
use crate::memory::{OffloadMemory, Space, offset};
use crate::{Call, Effect, Offload};

/// Bytes of a row number in a list.
const ROW_BYTES: u64 = 8;

/// The offload.
#[derive(Default, Debug)]
pub struct Select {
    scan: Scan,
}

impl Offload for Select {
    fn number(&self) -> u64 {
        SELECT_NUMBER
    }

    fn name(&self) -> &'static str {
        "select"
    }

    fn effect(&self, arguments: &[u8]) -> Effect {
        // A second execution would write over what the caller has done with the memory since.
        match SelectRequest::decode(arguments).map(|request| request.output) {
            Ok(
                Output::Bitmap { .. } | Output::Rows(Target::Memory { .. }) | Output::Values(_, Target::Memory { .. }),
            ) => Effect::Once,
            _ => Effect::Repeatable,
        }
    }

    fn call(&mut self, Call { arguments, memory, answer, .. }: Call<'_>) -> Result<(), ErrorCode> {
        let request = SelectRequest::decode(arguments)?;
        check_overlap(&request)?;
        let (rows_seen, matched, data) = match request.output {
            Output::Count => self.count(&request, memory)?,
            Output::Bitmap { address, combine } => self.mark(&request, address, combine, memory)?,
            Output::Rows(target) => self.list(&request, List::new(target, ROW_BYTES), memory)?,
            Output::Values(column, target) => self.list(&request, List::new(target, column.kind.width()), memory)?,
        };
        Selected { rows_seen, matched, data: &data }.encode(answer);
        Ok(())
    }
}

/// Rows seen, rows matched, and data of the answer.
type Outcome = (u64, u64, Vec<u8>);

impl Select {
    fn count(&mut self, request: &SelectRequest, memory: &mut dyn OffloadMemory) -> Result<Outcome, ErrorCode> {
        let mut matched = 0;
        for block in request.rows.blocks()? {
            matched += self.scan.mask(&block, &request.filter, memory)?.count();
        }
        Ok((request.rows.count, matched, Vec::new()))
    }

    fn mark(
        &mut self,
        request: &SelectRequest,
        address: u64,
        combine: Combine,
        memory: &mut dyn OffloadMemory,
    ) -> Result<Outcome, ErrorCode> {
        if !request.rows.first.is_multiple_of(8) {
            return Err(ErrorCode::BadLength);
        }
        let mut matched = 0;
        for block in request.rows.blocks()? {
            let mask = self.scan.mask(&block, &request.filter, memory)?;
            let combined = match combine {
                Combine::Replace => mask,
                Combine::And => mask.and(&block.read_bitmap(address, memory)?),
                Combine::Or => mask.or(&block.read_bitmap(address, memory)?),
            };
            block.write_bitmap(address, &combined, memory)?;
            matched += block.trim(combined).count();
        }
        Ok((request.rows.count, matched, Vec::new()))
    }

    fn list(
        &mut self,
        request: &SelectRequest,
        mut list: List,
        memory: &mut dyn OffloadMemory,
    ) -> Result<Outcome, ErrorCode> {
        for block in request.rows.blocks()? {
            let mask = self.scan.mask(&block, &request.filter, memory)?;
            if mask.is_empty() {
                continue;
            }
            let full_at = self.list_block(&block, &mask, &request.output, &mut list, memory)?;
            list.flush(memory)?;
            if let Some(row) = full_at {
                return Ok((row - request.rows.first, list.length, list.data));
            }
        }
        Ok((request.rows.count, list.length, list.data))
    }

    /// Lists the rows of a block, and returns the first that has no room.
    fn list_block(
        &mut self,
        block: &Block,
        mask: &Mask,
        output: &Output,
        list: &mut List,
        memory: &mut dyn OffloadMemory,
    ) -> Result<Option<u64>, ErrorCode> {
        let values = match output {
            Output::Values(column, _) => self.scan.values(block, *column, memory)?,
            _ => &[],
        };
        let width = list.width.narrow_usize();
        for lane in mask.lanes() {
            let row = block.row(lane);
            if list.length == list.capacity {
                return Ok(Some(row));
            }
            match output {
                Output::Values(..) => list.push(&values[lane.narrow_usize() * width..][..width]),
                _ => list.push(&row.to_le_bytes()),
            }
        }
        Ok(None)
    }
}

/// What a select lists, on its way to the target.
struct List {
    target: Target,
    /// Bytes of an entry.
    width: u64,
    /// Most entries.
    capacity: u64,
    /// Entries so far.
    length: u64,
    /// What the answer will have; or what is not in the caller's memory yet.
    data: Vec<u8>,
}

impl List {
    fn new(target: Target, width: u64) -> Self {
        let capacity = match target {
            Target::Answer => (PAYLOAD_BYTES_MAX - SELECTED_HEAD_BYTES) as u64 / width,
            Target::Memory { capacity, .. } => capacity,
        };
        Self { target, width, capacity, length: 0, data: Vec::new() }
    }

    fn push(&mut self, entry: &[u8]) {
        self.data.extend(entry);
        self.length += 1;
    }

    fn flush(&mut self, memory: &mut dyn OffloadMemory) -> Result<(), ErrorCode> {
        let Target::Memory { address, .. } = self.target else { return Ok(()) };
        if !self.data.is_empty() {
            let written = self.length * self.width - self.data.len() as u64;
            memory.write(Space::Caller, offset(address, written)?, &self.data)?;
            self.data.clear();
        }
        Ok(())
    }
}

/// Bytes from an address; the end may lie behind all addresses.
#[derive(Clone, Copy)]
struct Bytes {
    start: u128,
    end: u128,
}

impl Bytes {
    fn of_column(address: u64, width: u64, rows: Rows) -> Self {
        let start = u128::from(address) + u128::from(rows.first) * u128::from(width);
        Self { start, end: start + u128::from(rows.count) * u128::from(width) }
    }

    fn of_bitmap(address: u64, rows: Rows) -> Self {
        let end = (u128::from(rows.first) + u128::from(rows.count)).div_ceil(8);
        Self { start: u128::from(address) + u128::from(rows.first / 8), end: u128::from(address) + end }
    }

    fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Refuses to write to what is read: made again after a refusal half way, such a call would select something else.
fn check_overlap(request: &SelectRequest) -> Result<(), ErrorCode> {
    let rows = request.rows;
    let list = |target, width| match target {
        Target::Answer => None,
        Target::Memory { address, capacity } => {
            Some(Bytes::of_column(address, width, Rows { first: 0, count: capacity.min(rows.count) }))
        }
    };
    let (written, copied) = match request.output {
        Output::Count => (None, None),
        Output::Bitmap { address, .. } => (Some(Bytes::of_bitmap(address, rows)), None),
        Output::Rows(target) => (list(target, ROW_BYTES), None),
        Output::Values(column, target) => {
            let width = column.kind.width();
            (list(target, width), Some(Bytes::of_column(column.address, width, rows)))
        }
    };
    let tested = match request.filter {
        Filter::All => None,
        Filter::Bitmap { address } => Some(Bytes::of_bitmap(address, rows)),
        Filter::Where { address, test } => Some(Bytes::of_column(address, test.kind().width(), rows)),
    };
    let clash = written.is_some_and(|written| tested.into_iter().chain(copied).any(|read| read.overlaps(written)));
    if clash { Err(ErrorCode::OffloadFailed) } else { Ok(()) }
}
