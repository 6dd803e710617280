//! [`Series`]: the runs of one way; [`YcsbResult`]: what they come to.

use serde::Serialize;
use yonder_load::{LatencySummary, Predicted, Rate, Requests, Workload};

use super::{Bench, Ended, Leg, Trial, Way};
use crate::medians::{ends, median, ratios, sorted};

/// One way of one workload; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbResult {
    /// Always `ycsb`.
    pub bench: &'static str,
    /// The workload, how popular its keys are, and shares of its operations.
    #[serde(flatten)]
    pub requests: Requests,
    /// `yield`, `busy`, `swap` or `swap-memcached`.
    pub way: Way,
    /// `pf-aware`, `round-robin` or `predicted`: which request is next, where memory is far.
    pub dispatch: Option<&'static str>,
    /// Far memory, where there is some.
    pub far: Option<String>,
    /// The kernel's swap, where it is used.
    pub swap: Option<String>,
    /// Bytes of all values at the start.
    pub memory_bytes: u64,
    /// Keys at the start.
    pub keys: u64,
    /// Bytes of each value.
    pub value_size: usize,
    /// Local memory.
    pub local_bytes: u64,
    /// Memory of the control group: the local one, and what the server took before it had items.
    pub group_bytes: Option<u64>,
    /// Worker threads of the server.
    pub workers: usize,
    /// Connections.
    pub connections: usize,
    /// Requests that a connection may have outstanding.
    pub depth: usize,
    /// Loading threads.
    pub threads: usize,
    /// Seconds of each run.
    pub duration_s: f64,
    /// Requests per second that were asked for; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Runs that ended well. What follows is the median of them, unless it says otherwise.
    pub runs: usize,
    /// Operations answered per second.
    pub ops_per_s: Option<f64>,
    /// Of the slowest and of the fastest run.
    pub ops_per_s_spread: Option<[f64; 2]>,
    /// Of far memory: how many times as many as with the kernel's swap, the faster one if there are two, in the same
    /// turn.
    pub ratio_to_swap: Option<f64>,
    /// Of the turn in which that is least, and of the one in which it is most.
    pub ratio_to_swap_spread: Option<[f64; 2]>,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Of the best and of the worst run.
    pub p99_us_spread: Option<[f64; 2]>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Median time at the server, from admission to the reply, of requests without a major fault; of far memory alone.
    pub hit_p50_us: Option<f64>,
    /// Their 99th percentile.
    pub hit_p99_us: Option<f64>,
    /// Of the best and of the worst run.
    pub hit_p99_us_spread: Option<[f64; 2]>,
    /// Their 99.9th percentile.
    pub hit_p999_us: Option<f64>,
    /// How many times that 99th percentile is the one with the first policy, in the same turn; of the policies after
    /// it.
    pub hit_p99_ratio: Option<f64>,
    /// Of the turn in which that is least, and of the one in which it is most.
    pub hit_p99_ratio_spread: Option<[f64; 2]>,
    /// What was predicted in all runs, and what came true.
    #[serde(flatten)]
    pub predicted: Predicted,
    /// Predictions of all runs that came true, in percent.
    pub predicted_right_percent: Option<f64>,
    /// Requests of all runs that an open loop had no room for.
    pub dropped: u64,
    /// Faults that fetched a page, or that waited for swap.
    pub major_faults: Option<f64>,
    /// Other faults.
    pub minor_faults: Option<f64>,
    /// Bytes fetched, or swapped in.
    pub fetched_bytes: Option<f64>,
    /// Bytes written to far memory, or swapped out.
    pub written_bytes: Option<f64>,
    /// Operations of all runs that asked for keys which the server did not have.
    pub misses: u64,
    /// Values of all runs that were wrong.
    pub wrong_values: u64,
    /// Requests of all runs that failed, and wrong values.
    pub errors: u64,
    /// How a run failed.
    pub failed: Option<String>,
    /// Why the way was not run, and what to type.
    pub skipped: Option<String>,
}

/// The runs of one way.
pub(super) struct Series {
    pub(super) leg: Leg,
    /// One for each turn, until one fails.
    trials: Vec<Trial>,
    failed: Option<String>,
    skipped: Option<String>,
}

impl Series {
    /// Without runs.
    pub(super) fn new(leg: Leg) -> Self {
        Self { leg, trials: Vec::new(), failed: None, skipped: None }
    }

    /// Whether no more runs of it make sense.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || self.skipped.is_some()
    }

    pub(super) fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Well(trial) => self.trials.push(*trial),
            Ended::Badly(how) => self.failed = Some(how),
            Ended::Not(missing) => self.skipped = Some(missing),
        }
    }

    /// What its runs have come to, beside those of `all`.
    pub(super) fn result(&self, bench: &Bench<'_>, workload: Workload, all: &[Self]) -> YcsbResult {
        let (settings, way) = (bench.settings, self.leg.way);
        let ops = self.sorted(|trial| trial.result.ops_per_s);
        let p99 = self.sorted(|trial| trial.result.p99_us);
        let (ratios, hit_p99, hit_ratios) = (self.ratios(all), self.hits(|hit| hit.p99_us), self.hit_ratios(all));
        let median = |value: fn(&Trial) -> f64| median(&self.sorted(value));
        let of_hits = |value: fn(&LatencySummary) -> f64| self::median(&sorted(self.hits(value)));
        let predicted = self.trials.iter().fold(Predicted::default(), |all, trial| all.with(&trial.result.predicted));
        let sum = |value: fn(&Trial) -> u64| self.trials.iter().map(value).sum();
        YcsbResult {
            bench: "ycsb",
            requests: Requests::Workload(workload),
            way,
            dispatch: self.leg.dispatch_name(),
            far: (!way.is_kernel()).then(|| bench.far.clone()),
            swap: bench.kernel.as_ref().ok().filter(|_| way.is_kernel()).map(|kernel| kernel.name.clone()),
            memory_bytes: settings.memory,
            keys: settings.keys(),
            value_size: settings.value_bytes,
            local_bytes: settings.local_bytes(),
            group_bytes: self.trials.iter().filter_map(|trial| Some(trial.kernel?.group_bytes)).max(),
            workers: if way.is_kernel() { settings.swap_workers } else { settings.workers },
            connections: settings.connections,
            depth: settings.depth,
            threads: settings.threads,
            duration_s: settings.duration.as_secs_f64(),
            offered_per_s: match settings.rate {
                Rate::Max => None,
                Rate::PerSecond(rate) => Some(rate),
            },
            runs: self.trials.len(),
            ops_per_s: self::median(&ops),
            ops_per_s_spread: ends(&ops),
            ratio_to_swap: self::median(&ratios),
            ratio_to_swap_spread: ends(&ratios),
            p50_us: median(|trial| trial.result.p50_us),
            p99_us: self::median(&p99),
            p99_us_spread: ends(&p99),
            p999_us: median(|trial| trial.result.p999_us),
            hit_p50_us: of_hits(|hit| hit.p50_us),
            hit_p99_us: of_hits(|hit| hit.p99_us),
            hit_p99_us_spread: ends(&sorted(hit_p99)),
            hit_p999_us: of_hits(|hit| hit.p999_us),
            hit_p99_ratio: self::median(&hit_ratios),
            hit_p99_ratio_spread: ends(&hit_ratios),
            predicted,
            predicted_right_percent: predicted.right_percent(),
            dropped: sum(|trial| trial.result.dropped),
            major_faults: median(|trial| trial.kernel.map_or(trial.result.major_faults, |k| k.major_faults) as f64),
            minor_faults: median(|trial| trial.kernel.map_or(trial.result.minor_faults, |k| k.minor_faults) as f64),
            fetched_bytes: median(|t| t.kernel.map_or(t.result.fetched_bytes, |k| k.swapped.in_bytes) as f64),
            written_bytes: median(|t| t.kernel.map_or(t.result.written_bytes, |k| k.swapped.out_bytes) as f64),
            misses: sum(|trial| trial.result.misses),
            wrong_values: sum(Trial::wrong_values),
            errors: sum(|trial| trial.result.errors + trial.wrong_values()),
            failed: self.failed.clone(),
            skipped: self.skipped.clone(),
        }
    }

    /// How many times as many operations as with the kernel's ways; nothing for those.
    fn ratios(&self, all: &[Self]) -> Vec<f64> {
        let kernels = all.iter().filter(|series| series.leg.way.is_kernel() && !self.leg.way.is_kernel());
        ratios(&self.rates(), &kernels.map(Self::rates).collect::<Vec<_>>())
    }

    /// How many times the P99 of hits is that of the first policy of the same way; nothing for that one.
    fn hit_ratios(&self, all: &[Self]) -> Vec<f64> {
        let first = all.iter().find(|series| series.leg.way == self.leg.way).filter(|first| first.leg != self.leg);
        let p99 = |series: &Self| series.hits(|hit| hit.p99_us);
        ratios(&p99(self), &first.map(p99).into_iter().collect::<Vec<_>>())
    }

    /// A figure of the hits, turn by turn, if the server tells.
    fn hits(&self, value: fn(&LatencySummary) -> f64) -> Vec<f64> {
        let hits = self.trials.iter().filter_map(|trial| trial.result.server_hit.as_ref());
        // Without hits there is no latency of them.
        hits.filter(|hits| hits.count > 0).map(value).collect()
    }

    /// Operations per second, turn by turn.
    fn rates(&self) -> Vec<f64> {
        self.trials.iter().map(|trial| trial.result.ops_per_s).collect()
    }

    fn sorted(&self, value: impl Fn(&Trial) -> f64) -> Vec<f64> {
        sorted(self.trials.iter().map(value))
    }
}

impl Trial {
    fn wrong_values(&self) -> u64 {
        self.wrong_before + self.result.wrong_values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_that_failed_or_cannot_run_is_over() {
        for (ended, failed, skipped) in [
            (Ended::Badly("killed".to_owned()), Some("killed"), None),
            (Ended::Not("run as root".to_owned()), None, Some("run as root")),
        ] {
            let mut series = Series::new(Leg { way: Way::Swap, dispatch: None });
            assert!(!series.is_over());
            series.add(ended);
            assert!(series.is_over());
            assert_eq!((series.failed.as_deref(), series.skipped.as_deref()), (failed, skipped));
        }
    }
}
