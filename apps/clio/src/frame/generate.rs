//! [`generate`]: a table that looks like a city's taxi trips; always the same for the same number of rows.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::frame::{Column, Table, Values};

const ZONES: [&str; 8] = ["airport", "centre", "east", "harbour", "north", "park", "south", "west"];
/// Kilometres of a trip, on average.
const DISTANCE_MEAN: f64 = 3.0;

/// `rows` trips: `zone`, `riders`, `distance` and `fare`. Of the distances, a half is over 2.08, a tenth over 6.9 and
/// one of a hundred over 13.8.
#[must_use]
pub fn generate(rows: u64) -> Table {
    let mut random = SmallRng::seed_from_u64(rows);
    let (mut zones, mut riders, mut distances, mut fares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rows {
        let distance = -DISTANCE_MEAN * (1.0 - random.random::<f64>()).ln();
        zones.push(random.random_range(0..ZONES.len() as u32));
        riders.push(random.random_range(1..=6));
        distances.push(distance);
        // Paid in cents, with a tip.
        fares.push(((2.5 + 1.8 * distance) * random.random_range(1.0..1.2) * 100.0).round() / 100.0);
    }
    let zones = Values::Text { codes: zones, names: ZONES.map(str::to_owned).to_vec() };
    let columns = [
        ("zone", zones),
        ("riders", Values::I64(riders)),
        ("distance", Values::F64(distances)),
        ("fare", Values::F64(fares)),
    ];
    Table::new(columns.map(|(name, values)| Column { name: name.to_owned(), values }).to_vec())
}
