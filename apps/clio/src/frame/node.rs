//! Queries at the memory node: requests of its select and aggregate, for as many rows at once as a call may look at.
//!
//! One condition goes with the request. Of several, each is a select of its own that marks rows in the frame's bitmap,
//! keeping only marks that are there, and the request counts what is marked in the end.

use crate::{AppError, Meter};
use yonder_offload::frame::{
    AGGREGATE_NUMBER, AggregateRequest, Combine, Filter, Output, ROWS_MAX, Rows, SELECT_NUMBER, SelectRequest,
    Selected, Summary, Target,
};

use crate::frame::Values;
use crate::frame::columns::Query;

pub(crate) fn summary(query: &Query<'_>, meter: &mut Meter) -> Result<Summary, AppError> {
    let mut summary = Summary::of_nothing(query.column.far.kind);
    for rows in spans(query.rows) {
        let filter = filter_of(query, rows, meter)?;
        let request = AggregateRequest { rows, filter, column: query.column.far };
        let more = Summary::decode(&meter.call(AGGREGATE_NUMBER, &request.encode())?)?;
        summary = summary.merge(more).ok_or(AppError::WrongAnswer("aggregate"))?;
    }
    Ok(summary)
}

pub(crate) fn select(query: &Query<'_>, meter: &mut Meter) -> Result<Values, AppError> {
    let mut found = Vec::new();
    for rows in spans(query.rows) {
        let filter = filter_of(query, rows, meter)?;
        // The list goes into far memory and is read from there: an answer is one message, which holds only so much.
        let target = Target::Memory { address: query.list, capacity: rows.count };
        let output = Output::Values(query.column.far, target);
        let answer = meter.call(SELECT_NUMBER, &SelectRequest { rows, filter, output }.encode())?;
        let Selected { rows_seen, matched, .. } = Selected::decode(&answer)?;
        if rows_seen != rows.count || matched > rows.count {
            return Err(AppError::WrongAnswer("select"));
        }
        let before = found.len();
        found.resize(before + (matched * query.column.far.kind.width()) as usize, 0);
        meter.read(query.list, &mut found[before..])?;
    }
    Ok(query.column.values(&found))
}

/// Rows that one call may look at, until there are no more.
fn spans(rows: u64) -> impl Iterator<Item = Rows> {
    let starts = (0..rows).step_by(ROWS_MAX as usize);
    starts.map(move |first| Rows { first, count: ROWS_MAX.min(rows - first) })
}

/// What lets the rows through that fulfil all conditions. Marks them first, if one filter cannot say it.
fn filter_of(query: &Query<'_>, rows: Rows, meter: &mut Meter) -> Result<Filter, AppError> {
    match query.filters.as_slice() {
        [] => return Ok(Filter::All),
        [filter] => return Ok(*filter),
        _ => {}
    }
    let address = query.marks;
    for (number, filter) in query.filters.iter().enumerate() {
        let combine = if number == 0 { Combine::Replace } else { Combine::And };
        let output = Output::Bitmap { address, combine };
        Selected::decode(&meter.call(SELECT_NUMBER, &SelectRequest { rows, filter: *filter, output }.encode())?)?;
    }
    Ok(Filter::Bitmap { address })
}

// A bitmap is marked byte by byte, so the rows of a call begin at one.
const _: () = assert!(ROWS_MAX.is_multiple_of(8));
