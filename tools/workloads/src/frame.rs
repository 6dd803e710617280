//! `frame` (DiLOS, figure 8): a data frame of taxi rides, `size` bytes with what queries make of it, and four queries
//! as of an analyst.
//!
//! `rides` has the columns, `queries` the queries: means by the hour, the busiest zones, all rides by fare, and flows
//! between boroughs after a join with the table of zones.

mod queries;
mod rides;

use serde::Serialize;

use crate::checksum::{Checksum, multiset};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};
use queries::{Flows, HourOfDay};
use rides::{Rides, Zone, draw_zones};

/// Zones that are named.
const TOP: usize = 10;
/// Most rides: an order of them has 32 bits for each.
const ROWS_MAX: usize = u32::MAX as usize;
/// Bytes that a ride takes of the order by fare, and of the columns that the join adds.
const QUERY_BYTES: usize = size_of::<u32>() + 2 * size_of::<u8>();

/// Seconds that each query took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FrameSeconds {
    /// Selecting longer rides, and their means by the hour.
    pub hours: f64,
    /// Counting rides by zone.
    pub zones: f64,
    /// Ordering rides by fare.
    pub order: f64,
    /// Joining rides with zones, and adding up by borough.
    pub join: f64,
}

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let count = settings.count_of((Rides::ROW_BYTES + QUERY_BYTES) as u64, 1)?.min(ROWS_MAX);
    let ((rides, zones), setup_seconds) = timed(|| (Rides::draw(count, settings.seed), draw_zones(settings.seed)));
    let (answers, seconds) = timed(|| Answers::of(&rides, &zones));
    answers.check(&rides)?;
    Ok(Outcome {
        bytes: (count * (Rides::ROW_BYTES + QUERY_BYTES)) as u64,
        seconds,
        setup_seconds,
        check: answers.checksum().text(),
        details: Details::Frame {
            rides: count,
            query_seconds: answers.seconds,
            busiest_hour: (0..24).max_by_key(|hour| answers.hours[*hour].rides).expect("a day has hours"),
            dearest_cents: rides.fares_cents[answers.order[0] as usize],
            top_zones: answers.top_zones,
        },
    })
}

struct Answers {
    hours: [HourOfDay; 24],
    top_zones: Vec<(u16, u64)>,
    order: Vec<u32>,
    flows: Flows,
    seconds: FrameSeconds,
}

impl Answers {
    fn of(rides: &Rides, zones: &[Zone]) -> Self {
        let (hours, hours_seconds) = timed(|| queries::by_hour(rides));
        let (top_zones, zones_seconds) = timed(|| queries::top_zones(rides, TOP));
        let (order, order_seconds) = timed(|| queries::dearest_first(rides));
        let (flows, join_seconds) = timed(|| queries::flows(rides, zones));
        let seconds =
            FrameSeconds { hours: hours_seconds, zones: zones_seconds, order: order_seconds, join: join_seconds };
        Self { hours, top_zones, order, flows, seconds }
    }

    fn check(&self, rides: &Rides) -> Result<(), WorkloadError> {
        let rows = rides.len() as u64;
        let fare = |row: &u32| rides.fares_cents[*row as usize];
        require(
            || self.order.is_sorted_by(|one, next| fare(one) >= fare(next)),
            "rides are not in the order of their fares",
        )?;
        let each = || multiset(self.order.iter().map(|row| u64::from(*row))) == multiset(0..rows);
        require(each, "the order has not each ride once")?;
        let joined = self.flows.iter().flatten();
        let (joined, fares) = joined.fold((0, 0), |sum, flow| (sum.0 + flow.rides, sum.1 + flow.fares_cents));
        require(|| joined == rows, "the join lost rides")?;
        let all_fares: u64 = rides.fares_cents.iter().map(|fare| u64::from(*fare)).sum();
        require(|| fares == all_fares, "the join changed fares")
    }

    fn checksum(&self) -> Checksum {
        let hours = self
            .hours
            .iter()
            .flat_map(|hour| [hour.rides, hour.mean_fare_cents().to_bits(), hour.mean_metres().to_bits()]);
        let zones = self.top_zones.iter().flat_map(|(zone, rides)| [u64::from(*zone), *rides]);
        let flows = self.flows.iter().flatten().flat_map(|flow| [flow.rides, flow.fares_cents]);
        Checksum::of(hours.chain(zones).chain(self.order.iter().map(|row| u64::from(*row))).chain(flows))
    }
}
