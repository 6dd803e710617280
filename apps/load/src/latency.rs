//! A latency recorder: an HDR histogram of nanoseconds, read in microseconds.
//!
//! One thread writes a recorder; recorders of several threads are merged afterwards. Pure.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use yonder_units::Nanos;

/// Latencies beyond this are recorded as this: 100 s.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// Decimal digits that are kept of each latency.
const DIGITS: u8 = 3;

/// Records latencies with a relative error of at most 0.1 %.
#[derive(Clone, Debug)]
pub struct LatencyRecorder {
    histogram: Histogram<u64>,
}

/// The percentiles of a recorder, in microseconds. All zero when nothing was recorded.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many latencies were recorded.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// The shortest.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95 % were at most this.
    pub p95_us: f64,
    /// 99 % were at most this.
    pub p99_us: f64,
    /// 99.9 % were at most this.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyRecorder {
    /// An empty recorder. It takes about 200 KiB, of which only the parts in use are touched.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS).expect("the bounds are constants");
        Self { histogram }
    }

    /// Records one latency, in nanoseconds. Latencies of more than 100 s count as 100 s.
    pub fn record(&mut self, latency_ns: Nanos) {
        self.histogram.saturating_record(latency_ns);
    }

    /// Records the same latency `count` times.
    pub fn record_n(&mut self, latency_ns: Nanos, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// Adds everything that `other` has recorded.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all recorders have the same bounds");
    }

    /// How many latencies were recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether nothing was recorded yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The latency in microseconds that `percent` of the requests did not exceed; 0 when nothing was recorded.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> f64 {
        if self.is_empty() { 0.0 } else { microseconds(self.histogram.value_at_percentile(percent)) }
    }

    /// Mean in microseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.histogram.mean() / 1e3 }
    }

    /// The longest latency in microseconds; 0 when nothing was recorded.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        if self.is_empty() { 0.0 } else { microseconds(self.histogram.max()) }
    }

    /// The percentiles that results report.
    #[must_use]
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            count: self.len(),
            mean_us: self.mean_us(),
            min_us: if self.is_empty() { 0.0 } else { microseconds(self.histogram.min()) },
            p50_us: self.percentile_us(50.0),
            p95_us: self.percentile_us(95.0),
            p99_us: self.percentile_us(99.0),
            p999_us: self.percentile_us(99.9),
            max_us: self.max_us(),
        }
    }
}

fn microseconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_recorder_reads_as_zero() {
        assert_eq!(LatencyRecorder::new().summary(), LatencySummary::default());
    }

    #[test]
    fn absurd_latencies_saturate() {
        let mut recorder = LatencyRecorder::new();
        recorder.record(u64::MAX);
        recorder.record(0);
        assert_eq!(recorder.len(), 2);
        assert!(recorder.max_us() >= 100e6);
    }

    proptest! {
        #[test]
        fn percentiles_match_a_sorted_list(mut latencies in prop::collection::vec(1u64..10_000_000_000, 1..400)) {
            let (left, right) = latencies.split_at(latencies.len() / 2);
            let mut recorder = LatencyRecorder::new();
            let mut other = LatencyRecorder::new();
            left.iter().for_each(|latency| recorder.record(*latency));
            right.iter().for_each(|latency| other.record(*latency));
            recorder.merge(&other);
            latencies.sort_unstable();
            for percent in [50.0, 99.0, 99.9] {
                let rank = (latencies.len() as f64 * percent / 100.0).ceil() as usize;
                let exact = latencies[rank.max(1) - 1] as f64 / 1e3;
                let seen = recorder.percentile_us(percent);
                prop_assert!((seen / exact - 1.0).abs() < 0.002, "P{}: {} for {}", percent, seen, exact);
            }
            prop_assert_eq!(recorder.len(), latencies.len() as u64);
        }
    }
}
