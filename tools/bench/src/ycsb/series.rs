//! [`YcsbResult`]: what the runs of one contender come to.

use serde::Serialize;
use yonder_load::{LatencySummary, Predicted, Requests, Workload};

use super::{Bench, Series, Variant};
use crate::comparison::{Summary, ends, median, ratios, sorted};

/// One way of one workload; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbResult {
    /// Always `ycsb`.
    pub bench: &'static str,
    /// The workload, how popular its keys are, and shares of its operations.
    #[serde(flatten)]
    pub requests: Requests,
    /// `yield`, `busy`, `swap` or `swap-memcached`.
    pub way: Variant,
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
    /// What its runs have come to.
    #[serde(flatten)]
    pub summary: Summary,
    /// Of far memory: how many times as many as with the kernel's swap, the faster one if there are two, in the same
    /// turn.
    pub ratio_to_swap: Option<f64>,
    /// Of the turn in which that is least, and of the one in which it is most.
    pub ratio_to_swap_spread: Option<[f64; 2]>,
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
    /// Operations of all runs that asked for keys which the server did not have.
    pub misses: u64,
    /// Values of all runs that were wrong.
    pub wrong_values: u64,
}

impl Series {
    /// What its runs have come to, beside those of `all`.
    pub(super) fn result(&self, bench: &Bench<'_>, workload: Workload, all: &[Self]) -> YcsbResult {
        let (settings, way) = (bench.settings, self.variant.variant);
        let kernels = all.iter().filter(|series| series.variant.variant.is_kernel() && !way.is_kernel());
        let to_swap = self.ratios(kernels, |trial| trial.measured.ops_per_s);
        let (hit_p99, hit_ratios) = (sorted(self.hits(|hit| hit.p99_us)), self.hit_ratios(all));
        let of_hits = |value: fn(&LatencySummary) -> f64| median(&sorted(self.hits(value)));
        let predicted = self.trials.iter().fold(Predicted::default(), |all, trial| all.with(&trial.predicted));
        YcsbResult {
            bench: "ycsb",
            requests: Requests::Workload(workload),
            way,
            dispatch: self.variant.dispatch_name(),
            far: (!way.is_kernel()).then(|| bench.far.clone()),
            swap: bench.kernel.as_ref().ok().filter(|_| way.is_kernel()).map(|kernel| kernel.name.clone()),
            memory_bytes: settings.memory,
            keys: settings.keys(),
            value_size: settings.value_bytes,
            local_bytes: settings.local_bytes(),
            workers: if way.is_kernel() { settings.swap_workers } else { settings.workers },
            connections: settings.connections,
            depth: settings.depth,
            threads: settings.threads,
            duration_s: settings.duration.as_secs_f64(),
            offered_per_s: settings.rate.per_second(),
            summary: self.summary(|trial| &trial.measured),
            ratio_to_swap: median(&to_swap),
            ratio_to_swap_spread: ends(&to_swap),
            hit_p50_us: of_hits(|hit| hit.p50_us),
            hit_p99_us: median(&hit_p99),
            hit_p99_us_spread: ends(&hit_p99),
            hit_p999_us: of_hits(|hit| hit.p999_us),
            hit_p99_ratio: median(&hit_ratios),
            hit_p99_ratio_spread: ends(&hit_ratios),
            predicted,
            predicted_right_percent: predicted.right_percent(),
            misses: self.sum(|trial| trial.misses),
            wrong_values: self.sum(|trial| trial.wrong_values),
        }
    }

    /// How many times the P99 of hits is that of the first policy of the same way; nothing for that one.
    fn hit_ratios(&self, all: &[Self]) -> Vec<f64> {
        let first = all.iter().find(|series| series.variant.variant == self.variant.variant);
        let others = first.filter(|first| first.variant != self.variant);
        let p99 = |series: &Self| series.hits(|hit| hit.p99_us);
        ratios(&p99(self), &others.map(p99).into_iter().collect::<Vec<_>>())
    }

    /// A figure of the hits, turn by turn, if the server tells.
    fn hits(&self, value: fn(&LatencySummary) -> f64) -> Vec<f64> {
        self.trials.iter().filter_map(|trial| trial.hit.as_ref()).map(value).collect()
    }
}
