//! Queries at the client: what the node does, on columns that were fetched.

use crate::{AppError, Meter};
use yonder_offload::Comparison;
use yonder_offload::frame::{Column, Condition, Filter, Numbers, ROWS_MAX, Summary, Test};

use crate::frame::Values;
use crate::frame::columns::Query;

/// Whether each row fulfils all conditions. Fetches the columns that they are on.
pub(crate) fn mask(query: &Query<'_>, meter: &mut Meter) -> Result<Vec<bool>, AppError> {
    let mut mask = vec![true; query.rows as usize];
    for filter in &query.filters {
        let Filter::Where { address, test } = filter else { continue };
        let column = Column { address: *address, kind: test.kind() };
        let mut bytes = vec![0; (query.rows * column.kind.width()) as usize];
        meter.read(column.address, &mut bytes)?;
        narrow(&mut mask, &Values::from_bytes(column.kind, &bytes, &[]), test);
    }
    Ok(mask)
}

fn narrow(mask: &mut [bool], values: &Values, test: &Test) {
    match (values, test) {
        (Values::I64(values), Test::I64(condition)) => keep(mask, values, *condition),
        (Values::F64(values), Test::F64(condition)) => keep(mask, values, *condition),
        (Values::Text { codes, .. }, Test::U32(condition)) => keep(mask, codes, *condition),
        _ => unreachable!("a column was fetched as what its test is on"),
    }
}

fn keep<T: Copy + PartialOrd>(mask: &mut [bool], values: &[T], condition: Condition<T>) {
    let holds = |value: T| match condition {
        Condition::Is(Comparison::Equal, operand) => value == operand,
        Condition::Is(Comparison::NotEqual, operand) => value != operand,
        Condition::Is(Comparison::Less, operand) => value < operand,
        Condition::Is(Comparison::LessOrEqual, operand) => value <= operand,
        Condition::Is(Comparison::Greater, operand) => value > operand,
        Condition::Is(Comparison::GreaterOrEqual, operand) => value >= operand,
        Condition::Between(lower, upper) => lower <= value && value <= upper,
    };
    mask.iter_mut().zip(values).for_each(|(kept, value)| *kept &= holds(*value));
}

/// The summary of the values in the rows of a mask. Sums are made over as many rows at once as the node looks at, so
/// that both round alike.
pub(crate) fn summary(values: &Values, mask: &[bool]) -> Result<Summary, AppError> {
    let mut summary = Summary::of_nothing(values.kind());
    let span = ROWS_MAX as usize;
    for (number, mask) in mask.chunks(span).enumerate() {
        let rows = number * span..number * span + mask.len();
        let more = match values {
            Values::I64(values) => integers(&values[rows], mask),
            Values::F64(values) => reals(&values[rows], mask),
            Values::Text { .. } => {
                return Err(AppError::Settings("texts have no sum: name a column of numbers".into()));
            }
        };
        summary = summary.merge(more).expect("both are of the same kind");
    }
    Ok(summary)
}

fn kept<'a, T: Copy>(values: &'a [T], mask: &'a [bool]) -> impl Iterator<Item = T> + 'a {
    values.iter().zip(mask).filter(|(_, kept)| **kept).map(|(value, _)| *value)
}

fn integers(values: &[i64], mask: &[bool]) -> Summary {
    let (mut count, mut total, mut least, mut greatest) = (0, 0i128, i64::MAX, i64::MIN);
    for value in kept(values, mask) {
        count += 1;
        total += i128::from(value);
        (least, greatest) = (least.min(value), greatest.max(value));
    }
    Summary { count, numbers: Numbers::Integers { sum: total, min: least, max: greatest } }
}

fn reals(values: &[f64], mask: &[bool]) -> Summary {
    let (mut count, mut total, mut least, mut greatest) = (0, 0.0, f64::NAN, f64::NAN);
    for value in kept(values, mask) {
        count += 1;
        total += value;
        (least, greatest) = (f64::min(least, value), f64::max(greatest, value));
    }
    Summary { count, numbers: Numbers::Reals { sum: total, min: least, max: greatest } }
}
