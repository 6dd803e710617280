//! [`PosterResult`]: what the runs of one way of paging come to.

use serde::Serialize;
use yonder_load::Predicted;

use super::{Paging, Series, Set, Settings, Trial};
use crate::comparison::{Summary, median, sorted};
use crate::policies::Choice as _;

/// One way of one set; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PosterResult {
    /// Always `poster`.
    pub bench: &'static str,
    /// `emulated` or `paged`.
    pub set: Set,
    /// `no-fault`, `sync`, `async` or `predicted`.
    pub paging: Paging,
    /// Which request is next: `pf-aware` or `predicted`.
    pub dispatch: &'static str,
    /// Far memory; none where faults are emulated.
    pub far: Option<String>,
    /// Microseconds of an emulated fault that keep its worker busy, and those until its page is there.
    pub emulated_us: Option<[f64; 2]>,
    /// Keys.
    pub keys: u64,
    /// Bytes of each value.
    pub value_size: usize,
    /// Local memory in the last run.
    pub local_bytes: u64,
    /// Worker threads.
    pub workers: usize,
    /// Connections, each with one request at a time.
    pub connections: usize,
    /// Seconds of each run.
    pub duration_s: f64,
    /// Requests that should have a fault, in percent.
    pub fault_percent_wanted: f64,
    /// What its runs have come to; latencies are of GETs.
    #[serde(flatten)]
    pub summary: Summary,
    /// Requests that had a fault, in percent.
    pub fault_percent: f64,
    /// How many times as many as without faults, in the same turn.
    pub ops_ratio_to_no_fault: Option<f64>,
    /// Mean latency.
    pub mean_us: f64,
    /// Shortest.
    pub min_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// How many times the 99th percentile without faults it is, in the same turn.
    pub p99_ratio_to_no_fault: Option<f64>,
    /// Longest.
    pub max_us: f64,
    /// 99th percentile at the server, from admission to the reply, of requests without a fault; not where faults are
    /// emulated.
    pub hit_p99_us: Option<f64>,
    /// What was predicted in all runs, and what came true.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// Predictions of all runs that came true, in percent.
    pub predicted_right_percent: Option<f64>,
    /// Keys that the server did not have, of all runs.
    pub misses: u64,
}

impl Series {
    /// What its runs, of which there are some, have come to, beside those of `all`.
    pub(super) fn result(&self, settings: &Settings, all: &[Self]) -> PosterResult {
        let median = |figure: fn(&Trial) -> f64| self.median(figure).unwrap_or(0.0);
        let (set, paging) = self.variant;
        let is_paged = set == Set::Paged;
        let hits =
            self.trials.iter().filter_map(|trial| trial.load.server_hit.filter(|hits| is_paged && hits.count > 0));
        let predicted = self.trials.iter().fold(Predicted::default(), |sum, trial| sum.with(&trial.load.predicted));
        PosterResult {
            bench: "poster",
            set,
            paging,
            dispatch: settings.sched(set, paging).dispatch.name(),
            far: is_paged.then(|| settings.far.clone()),
            emulated_us: (!is_paged).then(|| [settings.busy, settings.fetch].map(|time| time.as_nanos() as f64 / 1e3)),
            keys: settings.keys(set),
            value_size: settings.value_bytes,
            local_bytes: self.trials.last().map_or(0, |trial| trial.local_bytes),
            workers: settings.workers,
            connections: settings.connections,
            duration_s: settings.duration.as_secs_f64(),
            fault_percent_wanted: if paging == Paging::NoFault { 0.0 } else { settings.fault_percent },
            summary: self.summary(|trial| &trial.measured),
            fault_percent: median(|trial| trial.fault_percent),
            ops_ratio_to_no_fault: self.ratio(all, |trial| trial.measured.ops_per_s),
            mean_us: median(|trial| trial.load.get.mean_us),
            min_us: median(|trial| trial.load.get.min_us),
            p95_us: median(|trial| trial.load.get.p95_us),
            p99_ratio_to_no_fault: self.ratio(all, |trial| trial.measured.p99_us),
            max_us: median(|trial| trial.load.get.max_us),
            hit_p99_us: self::median(&sorted(hits.map(|hits| hits.p99_us))),
            predicted,
            predicted_right_percent: predicted.right_percent(),
            misses: self.sum(|trial| trial.load.misses),
        }
    }

    /// How many times a figure is that of the runs without faults; nothing for those.
    fn ratio(&self, all: &[Self], figure: fn(&Trial) -> f64) -> Option<f64> {
        let is_base = |series: &&Self| series.variant.1 == Paging::NoFault && self.variant.1 != Paging::NoFault;
        median(&self.ratios(all.iter().filter(is_base), figure))
    }
}
