//! [`Tally`]: what operations took, and [`Costs`], what results say about it.

use serde::Serialize;
use yonder::clock;
use yonder_load::LatencyRecorder;

use crate::{AppError, Meter, Traffic};

/// What the operations of one client, or of several, took.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    latency: LatencyRecorder,
    traffic: Traffic,
}

/// What the operations of a run took. The fields are a contract with scripts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Measured seconds.
    pub seconds: f64,
    /// Operations that were done.
    pub operations: u64,
    /// Operations per second, of all clients together.
    pub ops_per_s: f64,
    /// Median time of an operation.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Always 0: an address space that is used explicitly has no page faults.
    pub major_faults: u64,
    /// Always 0, for the same reason.
    pub minor_faults: u64,
    /// Round trips to the node.
    pub round_trips: u64,
    /// Bytes that came from the node, without headers and retries.
    pub fetched_bytes: u64,
    /// Bytes that went to the node, without headers and retries.
    pub written_bytes: u64,
    /// Always 0: an error ends the run.
    pub errors: u64,
}

impl Tally {
    /// Does one operation, and adds what it took if it was done.
    pub fn time<T>(
        &mut self,
        meter: &mut Meter,
        operation: impl FnOnce(&mut Meter) -> Result<T, AppError>,
    ) -> Result<T, AppError> {
        let (before, start) = (meter.traffic(), clock::now());
        let done = operation(meter)?;
        self.latency.record(clock::now() - start);
        self.traffic = self.traffic.plus(meter.traffic().since(before));
        Ok(done)
    }

    /// Adds what another client has done.
    pub fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.traffic = self.traffic.plus(other.traffic);
    }

    /// What came together in `seconds`.
    #[must_use]
    pub fn costs(&self, seconds: f64) -> Costs {
        let latency = self.latency.summary();
        Costs {
            seconds,
            operations: latency.count,
            ops_per_s: if seconds > 0.0 { latency.count as f64 / seconds } else { 0.0 },
            p50_us: latency.p50_us,
            p99_us: latency.p99_us,
            p999_us: latency.p999_us,
            major_faults: 0,
            minor_faults: 0,
            round_trips: self.traffic.round_trips,
            fetched_bytes: self.traffic.fetched_bytes,
            written_bytes: self.traffic.written_bytes,
            errors: 0,
        }
    }
}

impl<'a> FromIterator<&'a Tally> for Tally {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(tallies: I) -> Self {
        let mut all = Self::default();
        tallies.into_iter().for_each(|tally| all.merge(tally));
        all
    }
}
