//! What a run reports: the object behind `yonder load kv --json`, and progress on the way. Pure data.

use std::time::Duration;

use serde::Serialize;

use crate::coordinator::LoadError;
use crate::latency::{LatencyRecorder, LatencySummary};
use crate::server_stats::ServerStats;
use crate::settings::{LoadSettings, Rate};
use crate::tally::Tally;
use crate::workload::Shares;

/// How requests were started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loop {
    /// At Poisson arrivals, whatever the server did.
    Open,
    /// Whenever an earlier request was answered.
    Closed,
}

/// What the server foresaw of requests, and what became of them. All are zero where nothing is predicted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Predicted {
    /// Predicted to hit, and had no major fault.
    #[serde(rename = "predicted_hits_right")]
    pub hits_right: u64,
    /// Predicted to hit, and had a major fault.
    #[serde(rename = "predicted_hits_wrong")]
    pub hits_wrong: u64,
    /// Predicted to fault, and had a major fault.
    #[serde(rename = "predicted_faults_right")]
    pub faults_right: u64,
    /// Predicted to fault, and had no major fault.
    #[serde(rename = "predicted_faults_wrong")]
    pub faults_wrong: u64,
}

impl Predicted {
    /// Share of predictions that came true, in percent; `None` where nothing was predicted.
    #[must_use]
    pub fn right_percent(&self) -> Option<f64> {
        let right = self.hits_right + self.faults_right;
        let all = right + self.hits_wrong + self.faults_wrong;
        (all > 0).then(|| 100.0 * right as f64 / all as f64)
    }

    /// These and `more` together.
    #[must_use]
    pub fn with(&self, more: &Self) -> Self {
        self.each(more, u64::wrapping_add)
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        self.each(earlier, u64::saturating_sub)
    }

    fn each(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        Self {
            hits_right: of(self.hits_right, other.hits_right),
            hits_wrong: of(self.hits_wrong, other.hits_wrong),
            faults_right: of(self.faults_right, other.faults_right),
            faults_wrong: of(self.faults_wrong, other.faults_wrong),
        }
    }
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Requests answered so far.
    pub ops: u64,
    /// P99 of the latencies so far, in microseconds.
    pub p99_us: f64,
    /// Requests dropped so far.
    pub dropped: u64,
    /// Requests failed so far.
    pub errors: u64,
}

/// How the fill went: every key was set.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FillResult {
    /// Keys that were set.
    pub keys: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Seconds it took.
    pub elapsed_s: f64,
    /// Sets per second.
    pub ops_per_s: f64,
}

/// One run. Serialized, it carries the settings beside the measurements, in one flat object.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadResult {
    /// Always `load-kv`.
    pub bench: &'static str,
    /// The settings in force.
    #[serde(flatten)]
    pub settings: LoadSettings,
    /// The rate asked for.
    pub rate: Rate,
    /// Open or closed loop.
    pub r#loop: Loop,
    /// Seconds during which requests were started.
    pub duration_s: f64,
    /// Requests planned per second, dropped ones included.
    pub offered_per_s: f64,
    /// Requests answered within the duration, per second.
    pub ops_per_s: f64,
    /// Median latency, from the intended start.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Longest time in which a loading thread got no reply but errors, from the start of the run on.
    pub longest_gap_us: f64,
    /// Latencies of gets: of a workload's reads.
    pub get: LatencySummary,
    /// Latencies of sets: of a workload's updates.
    pub set: LatencySummary,
    /// Latencies of a workload's inserts, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert: Option<LatencySummary>,
    /// Latencies of its scans, each a get of several keys at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<LatencySummary>,
    /// Latencies of its read-modify-writes, each from the start of its get to the end of its set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_modify_write: Option<LatencySummary>,
    /// Faults of the server that fetched, as its `stats` say; zero if they do not.
    pub major_faults: u64,
    /// Faults of the server that needed no fetch.
    pub minor_faults: u64,
    /// Bytes that the server fetched from far memory.
    pub fetched_bytes: u64,
    /// Bytes that the server wrote to far memory.
    pub written_bytes: u64,
    /// Times at the server, from admission to the reply, of the requests without a major fault, if it tells them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_hit: Option<LatencySummary>,
    /// What the server predicted of the requests.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// Requests planned: answered, failed or dropped.
    pub requests: u64,
    /// Requests answered without an error, also after the end of the duration.
    pub completed: u64,
    /// Operations that asked for keys which the server did not have.
    pub misses: u64,
    /// Values that cannot be right; any of them makes [`LoadResult::verdict`] fail.
    pub wrong_values: u64,
    /// What was wrong with the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wrong_value: Option<String>,
    /// Requests dropped because pipelines and backlog were full.
    pub dropped: u64,
    /// Requests that were refused, not answered, or lost with their connection.
    pub errors: u64,
    /// What the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
}

impl LoadResult {
    /// Fails if the server returned a wrong value. Misses, drops and errors are for the caller to judge.
    pub fn verdict(&self) -> Result<(), LoadError> {
        match &self.first_wrong_value {
            None => Ok(()),
            Some(first) => Err(LoadError::WrongValues { count: self.wrong_values, first: first.clone() }),
        }
    }

    pub(crate) fn new(
        settings: LoadSettings,
        rate: Rate,
        duration: Duration,
        tally: Tally,
        server: ServerStats,
    ) -> Self {
        let seconds = duration.as_secs_f64();
        let all = tally.all().summary();
        let [get, set, insert, scan, read_modify_write] = tally.latency.each_ref().map(LatencyRecorder::summary);
        let shares = settings.requests.shares();
        let if_any = |share: fn(&Shares) -> u8, latency: LatencySummary| {
            shares.filter(|shares| share(shares) > 0).map(|_| latency)
        };
        Self {
            bench: "load-kv",
            settings,
            rate,
            r#loop: if rate == Rate::Max { Loop::Closed } else { Loop::Open },
            duration_s: seconds,
            offered_per_s: tally.requests as f64 / seconds,
            ops_per_s: tally.in_time as f64 / seconds,
            p50_us: all.p50_us,
            p99_us: all.p99_us,
            p999_us: all.p999_us,
            max_us: all.max_us,
            mean_us: all.mean_us,
            longest_gap_us: tally.longest_gap as f64 / 1e3,
            get,
            set,
            insert: if_any(|shares| shares.insert, insert),
            scan: if_any(|shares| shares.scan, scan),
            read_modify_write: if_any(|shares| shares.read_modify_write, read_modify_write),
            major_faults: server.major_faults,
            minor_faults: server.minor_faults,
            fetched_bytes: server.fetched_bytes,
            written_bytes: server.written_bytes,
            server_hit: server.hits(),
            predicted: server.predicted,
            requests: tally.requests,
            completed: tally.completed(),
            misses: tally.misses,
            wrong_values: tally.wrong_values,
            first_wrong_value: tally.first_wrong,
            dropped: tally.dropped,
            errors: tally.errors,
            first_error: tally.first_error,
        }
    }
}
