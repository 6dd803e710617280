//! [`shuffle`]: splits a frame by key, at the client, so that all rows with one key are in one part.

use crate::{AppError, Meter};

use crate::frame::{Column, Frame, Table, Values};

/// Reads all rows, and writes each into the part that the hash of its key names. The rows of a part keep their order.
///
/// # Panics
/// If there are no parts.
pub fn shuffle(frame: &Frame, key: &str, parts: usize, meter: &mut Meter) -> Result<Vec<Frame>, AppError> {
    assert!(parts > 0, "rows go to a part");
    let rows = rows_of_parts(&frame.fetch(key, meter)?, parts);
    let mut columns: Vec<Vec<Column>> = vec![Vec::new(); parts];
    for name in frame.names() {
        let values = frame.fetch(name, meter)?;
        for (part, rows) in columns.iter_mut().zip(&rows) {
            part.push(Column { name: name.to_owned(), values: values.pick(rows) });
        }
    }
    columns.into_iter().map(|columns| Frame::store(&Table::new(columns), meter)).collect()
}

fn rows_of_parts(keys: &Values, parts: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); parts];
    for row in 0..keys.len() {
        let key = match keys {
            Values::I64(values) => values[row].cast_unsigned(),
            // Zero with a sign is the same key as zero without one.
            Values::F64(values) => (values[row] + 0.0).to_bits(),
            Values::Text { codes, .. } => u64::from(codes[row]),
        };
        rows[part_of(key, parts)].push(row);
    }
    rows
}

/// Fibonacci hashing: the product's high bits depend on all bits of the key.
fn part_of(key: u64, parts: usize) -> usize {
    let hash = (key ^ key >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(hash) * parts as u128) >> 64) as usize
}
