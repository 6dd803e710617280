//! [`Aggregate`]: count, sum, least and greatest of a column's values in the rows that count.

use yonder_units::Narrow;
use yonder_wire::ErrorCode;

use super::AGGREGATE_NUMBER;
use super::query::{AggregateRequest, ColumnKind, Numbers, Summary};
use super::scan::{Cell, Mask, Scan};
use crate::{Call, Effect, Offload};

/// The offload.
#[derive(Default, Debug)]
pub struct Aggregate {
    scan: Scan,
}

impl Offload for Aggregate {
    fn number(&self) -> u64 {
        AGGREGATE_NUMBER
    }

    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn effect(&self, _: &[u8]) -> Effect {
        Effect::Repeatable
    }

    fn call(&mut self, Call { arguments, memory, answer, .. }: Call<'_>) -> Result<(), ErrorCode> {
        let AggregateRequest { rows, filter, column } = AggregateRequest::decode(arguments)?;
        let mut summary = Summary::of_nothing(column.kind);
        for block in rows.blocks()? {
            let mask = self.scan.mask(&block, &filter, memory)?;
            if mask.is_empty() {
                continue;
            }
            let values = self.scan.values(&block, column, memory)?;
            summary.count += mask.count();
            match (&mut summary.numbers, column.kind) {
                (Numbers::Integers { sum, min, max }, ColumnKind::U32) => {
                    add_integers(cells::<u32>(values, &mask).map(i64::from), sum, min, max);
                }
                (Numbers::Integers { sum, min, max }, _) => add_integers(cells::<i64>(values, &mask), sum, min, max),
                (Numbers::Reals { sum, min, max }, _) => {
                    for value in cells::<f64>(values, &mask) {
                        *sum += value;
                        (*min, *max) = (min.min(value), max.max(value));
                    }
                }
            }
        }
        summary.encode(answer);
        Ok(())
    }
}

/// The values of a block that a mask has.
fn cells<T: Cell>(values: &[u8], mask: &Mask) -> impl Iterator<Item = T> {
    mask.lanes().map(|lane| T::from_bytes(&values[lane.narrow_usize() * T::BYTES..]))
}

fn add_integers(values: impl Iterator<Item = i64>, sum: &mut i128, min: &mut i64, max: &mut i64) {
    for value in values {
        *sum += i128::from(value);
        (*min, *max) = ((*min).min(value), (*max).max(value));
    }
}
