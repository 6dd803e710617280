//! [`Series`]: the runs of one leg at one rate; [`PeersResult`]: what they come to, beside the others; [`Bar`]: what
//! Yonder sets out to reach, and whether it has.

use serde::Serialize;
use yonder_load::Rate;

use super::legs::{Leg, Way};
use super::{Ended, Measured, Settings, SwapTo, Work};
use crate::medians::{ends, median, ratios, sorted};

/// One peer at one piece of work and one rate; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct PeersResult {
    /// Always `peers`.
    pub bench: &'static str,
    /// `array`, `memcached` or `redis`.
    pub workload: &'static str,
    /// `yield`, `probe`, `busy`, `run`, `kv`, `kv-busy`, `swap-zram`, `swap-file` or `mmap`.
    pub peer: &'static str,
    /// The same with its threads, where there may be several numbers of them; for those who read.
    #[serde(skip)]
    pub label: String,
    /// Far memory, of Yonder.
    pub far: Option<String>,
    /// The kernel's swap, where it is used.
    pub swap: Option<String>,
    /// Bytes of the array, or of all values.
    pub memory_bytes: u64,
    /// Local memory.
    pub local_bytes: u64,
    /// Memory of the control group: the local one, and what the process took before it had data.
    pub group_bytes: Option<u64>,
    /// Threads that read the array; of Yonder, its workers.
    pub threads: Option<usize>,
    /// Bytes of a value of a server.
    pub value_size: Option<usize>,
    /// Connections to a server.
    pub connections: Option<usize>,
    /// Seconds of each run.
    pub duration_s: f64,
    /// Requests per second that were asked for; absent in a closed loop.
    pub offered_per_s: Option<f64>,
    /// Runs that ended well. What follows is the median of them, unless it says otherwise.
    pub runs: usize,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
    /// Of the slowest and of the fastest run.
    pub ops_per_s_spread: Option<[f64; 2]>,
    /// How many times as many operations as Yonder's, whose faults yield or which runs the program, in the same turn.
    pub ratio_to_yonder: Option<f64>,
    /// Of the turn in which that is least, and of the one in which it is most.
    pub ratio_to_yonder_spread: Option<[f64; 2]>,
    /// Median latency, from the intended start.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Of the best and of the worst run.
    pub p999_us_spread: Option<[f64; 2]>,
    /// How many times that 99.9th percentile is Yonder's in the same turn.
    pub p999_ratio_to_yonder: Option<f64>,
    /// Faults that fetched a page, or that waited for swap or for a disk.
    pub major_faults: Option<f64>,
    /// Other faults.
    pub minor_faults: Option<f64>,
    /// Bytes fetched, swapped in or read.
    pub fetched_bytes: Option<f64>,
    /// Bytes written to far memory or swapped out.
    pub written_bytes: Option<f64>,
    /// Requests of all runs that an open loop never started.
    pub dropped: u64,
    /// Requests of all runs that failed, values that were wrong, and values that were not there.
    pub errors: u64,
    /// What Yonder sets out to reach beside its peers.
    pub bars: Vec<Bar>,
    /// How a run failed.
    pub failed: Option<String>,
    /// Why it was not run, and what to type.
    pub skipped: Option<String>,
}

/// Something that Yonder sets out to reach.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// What is compared.
    pub measure: Measure,
    /// With whom.
    pub against: &'static str,
    /// How many times as good Yonder is: the median of the turns.
    pub ratio: f64,
    /// How many times it should be.
    pub at_least: f64,
    /// Whether it is.
    pub is_met: bool,
}

/// What is compared by a [`Bar`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Operations per second in a closed loop: more are better.
    Throughput,
    /// The 99.9th percentile of latencies at the common rate: lower is better.
    P999,
}

/// The runs of one leg at one rate.
pub(super) struct Series {
    pub(super) leg: Leg,
    pub(super) rate: Rate,
    /// One for each turn, until one fails.
    trials: Vec<Measured>,
    swap: Option<String>,
    failed: Option<String>,
    skipped: Option<String>,
}

impl Bar {
    fn new(measure: Measure, against: &'static str, at_least: f64, turns: &[f64]) -> Option<Self> {
        let ratio = median(turns)?;
        Some(Self { measure, against, ratio, at_least, is_met: ratio >= at_least })
    }
}

/// How many times as good as the kernel's swap Yonder should be; `kv`, as itself with faults that busy-wait (Adios,
/// section 5.2).
fn at_least(work: Work, way: &Way, measure: Measure) -> Option<f64> {
    match (work, way, measure) {
        (Work::Array, Way::Yield, Measure::Throughput) => Some(2.0),
        (Work::Array, Way::Probe, Measure::Throughput) => Some(4.0),
        (Work::Array, Way::Yield | Way::Probe, Measure::P999) => Some(20.0),
        (Work::Memcached | Work::Redis, Way::Run, Measure::Throughput) => Some(2.0),
        (Work::Memcached | Work::Redis, Way::Run, Measure::P999) => Some(5.0),
        (Work::Memcached, Way::Kv, Measure::Throughput) => Some(1.07),
        _ => None,
    }
}

impl Series {
    /// Without runs.
    pub(super) fn new(leg: Leg, rate: Rate) -> Self {
        Self { leg, rate, trials: Vec::new(), swap: None, failed: None, skipped: None }
    }

    /// The same leg at a rate, without runs.
    pub(super) fn at(&self, rate: f64) -> Self {
        Self::new(self.leg.clone(), Rate::PerSecond(rate))
    }

    /// What it is called while it runs.
    pub(super) fn label(&self) -> String {
        let leg = self.leg.label();
        match self.rate {
            Rate::Max => leg,
            Rate::PerSecond(rate) => format!("{leg}, at {rate:.0}/s"),
        }
    }

    /// Whether no more runs of it make sense.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || self.skipped.is_some()
    }

    pub(super) fn add(&mut self, ended: Ended) {
        match ended {
            Ended::Well(measured, swap) => {
                self.trials.push(measured);
                self.swap = swap;
            }
            Ended::Badly(how) => self.failed = Some(how),
            Ended::Not(missing) => self.skipped = Some(missing),
            Ended::OutOfMemory => unreachable!("such a run is tried again"),
        }
    }

    /// The median of its operations per second.
    pub(super) fn ops_per_s(&self) -> Option<f64> {
        median(&self.sorted(|trial| trial.ops_per_s))
    }

    /// What its runs have come to, beside those of `all` at the same rate.
    pub(super) fn result(&self, settings: &Settings, work: Work, all: &[Self]) -> PeersResult {
        let (leg, is_server) = (&self.leg, work != Work::Array);
        let ops = self.sorted(|trial| trial.ops_per_s);
        let p999 = self.sorted(|trial| trial.p999_us);
        let yonder: Vec<&Self> = if leg.way.is_measure() { Vec::new() } else { measures(all).collect() };
        let to_yonder = self.ratios(&yonder, |trial| trial.ops_per_s);
        let tail_to_yonder = self.ratios(&yonder, |trial| trial.p999_us);
        let median_of = |value: fn(&Measured) -> f64| median(&self.sorted(value));
        PeersResult {
            bench: "peers",
            workload: work.name(),
            peer: leg.way.name(),
            label: leg.label(),
            far: (!leg.way.is_kernel()).then(|| settings.far.clone()),
            swap: self.swap.clone(),
            memory_bytes: settings.memory,
            local_bytes: settings.local_bytes(),
            group_bytes: self.trials.iter().filter_map(|trial| trial.group_bytes).max(),
            threads: leg.threads,
            value_size: is_server.then_some(settings.value_bytes),
            connections: is_server.then_some(settings.connections),
            duration_s: settings.duration.as_secs_f64(),
            offered_per_s: match self.rate {
                Rate::Max => None,
                Rate::PerSecond(rate) => Some(rate),
            },
            runs: self.trials.len(),
            ops_per_s: median(&ops),
            ops_per_s_spread: ends(&ops),
            ratio_to_yonder: median(&to_yonder),
            ratio_to_yonder_spread: ends(&to_yonder),
            p50_us: median_of(|trial| trial.p50_us),
            p99_us: median_of(|trial| trial.p99_us),
            p999_us: median(&p999),
            p999_us_spread: ends(&p999),
            p999_ratio_to_yonder: median(&tail_to_yonder),
            major_faults: median_of(|trial| trial.major_faults as f64),
            minor_faults: median_of(|trial| trial.minor_faults as f64),
            fetched_bytes: median_of(|trial| trial.fetched_bytes as f64),
            written_bytes: median_of(|trial| trial.written_bytes as f64),
            dropped: self.trials.iter().map(|trial| trial.dropped).sum(),
            errors: self.trials.iter().map(|trial| trial.errors).sum(),
            bars: self.bars(work, all),
            failed: self.failed.clone(),
            skipped: self.skipped.clone(),
        }
    }

    /// What it should reach, beside the kernel's swap: on compressed memory, and of a server on a disk too; of `kv`,
    /// beside itself. Of several numbers of threads, the best in each turn counts.
    fn bars(&self, work: Work, all: &[Self]) -> Vec<Bar> {
        let measure = if self.rate == Rate::Max { Measure::Throughput } else { Measure::P999 };
        let Some(least) = at_least(work, &self.leg.way, measure) else { return Vec::new() };
        let is_compared = |way: &Way| match (&self.leg.way, way) {
            (Way::Kv, other) => *other == Way::KvBusy,
            (_, Way::Swap(SwapTo::Zram)) => true,
            (_, Way::Swap(SwapTo::File(_))) => work != Work::Array,
            _ => false,
        };
        let mut ways: Vec<&Way> = all.iter().map(|series| &series.leg.way).filter(|way| is_compared(way)).collect();
        ways.dedup();
        let bar = |way: &Way| {
            let others: Vec<&Self> = all.iter().filter(|series| series.leg.way == *way).collect();
            let turns = match measure {
                Measure::Throughput => self.ratios(&others, |trial| trial.ops_per_s),
                // Of times the least is best: the others' reciprocals are compared with its own.
                Measure::P999 => self.ratios(&others, |trial| 1.0 / trial.p999_us),
            };
            Bar::new(measure, way.name(), least, &turns)
        };
        ways.into_iter().filter_map(bar).collect()
    }

    /// Turn by turn, how many times a figure is the greatest of the others'.
    fn ratios(&self, others: &[&Self], figure: fn(&Measured) -> f64) -> Vec<f64> {
        let figures = |series: &Self| series.trials.iter().map(figure).collect::<Vec<_>>();
        ratios(&figures(self), &others.iter().map(|other| figures(other)).collect::<Vec<_>>())
    }

    fn sorted(&self, figure: fn(&Measured) -> f64) -> Vec<f64> {
        sorted(self.trials.iter().map(figure))
    }
}

/// What others are compared with.
fn measures(all: &[Series]) -> impl Iterator<Item = &Series> {
    all.iter().filter(|series| series.leg.way.is_measure())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run that has made so many operations per second, with this P99.9.
    pub(in crate::peers) fn measured(ops_per_s: f64, p999_us: f64) -> Measured {
        Measured {
            ops_per_s,
            p50_us: 1.0,
            p99_us: 2.0,
            p999_us,
            major_faults: 10,
            minor_faults: 1,
            fetched_bytes: 4096,
            written_bytes: 0,
            dropped: 1,
            errors: 0,
            group_bytes: None,
        }
    }

    /// A series with runs that ended well.
    pub(in crate::peers) fn series(way: Way, threads: Option<usize>, rate: Rate, runs: &[(f64, f64)]) -> Series {
        let mut series = Series::new(Leg { way, threads }, rate);
        runs.iter().for_each(|(ops, p999)| series.add(Ended::Well(measured(*ops, *p999), None)));
        series
    }

    #[test]
    fn bars_compare_with_the_best_number_of_threads_of_each_turn() {
        let settings = crate::peers::tests::settings();
        let zram = || Way::Swap(SwapTo::Zram);
        let all = [
            series(Way::Yield, Some(1), Rate::Max, &[(400.0, 1.0), (400.0, 1.0), (600.0, 1.0)]),
            series(Way::Probe, Some(1), Rate::Max, &[(800.0, 1.0), (700.0, 1.0), (900.0, 1.0)]),
            series(zram(), Some(1), Rate::Max, &[(100.0, 9.0), (100.0, 9.0), (250.0, 9.0)]),
            series(zram(), Some(16), Rate::Max, &[(150.0, 9.0), (200.0, 9.0), (50.0, 9.0)]),
            series(Way::Swap(SwapTo::File(None)), Some(1), Rate::Max, &[(5.0, 9.0), (5.0, 9.0), (5.0, 9.0)]),
        ];
        let results = all.each_ref().map(|series| series.result(&settings, Work::Array, &all));
        // 400/150, 400/200 and 600/250; 800/150, 700/200 and 900/250.
        let bar = |ratio, at_least, is_met| {
            vec![Bar { measure: Measure::Throughput, against: "swap-zram", ratio, at_least, is_met }]
        };
        assert_eq!(results[0].bars, bar(2.4, 2.0, true));
        assert_eq!(results[1].bars, bar(3.6, 4.0, false));
        assert!(results[2..].iter().all(|result| result.bars.is_empty()));
        assert_eq!((results[0].ratio_to_yonder, results[1].ratio_to_yonder), (None, Some(1.75)));
        assert_eq!(
            (results[2].ratio_to_yonder, results[2].ratio_to_yonder_spread),
            (Some(0.25), Some([0.25, 250.0 / 600.0]))
        );
        assert_eq!(
            (results[4].ops_per_s, results[4].p999_ratio_to_yonder, results[4].dropped),
            (Some(5.0), Some(9.0), 3)
        );
    }

    #[test]
    fn tails_are_compared_at_the_common_rate_and_the_lowest_of_the_others_counts() {
        let settings = crate::peers::tests::settings();
        let rate = Rate::PerSecond(50.0);
        let all = [
            series(Way::Yield, Some(1), rate, &[(50.0, 10.0), (50.0, 20.0)]),
            series(Way::Swap(SwapTo::Zram), Some(1), rate, &[(50.0, 900.0), (50.0, 700.0)]),
            series(Way::Swap(SwapTo::Zram), Some(16), rate, &[(50.0, 500.0), (50.0, 800.0)]),
        ];
        let result = all[0].result(&settings, Work::Array, &all);
        let [bar] = result.bars[..] else { panic!("{result:?}") };
        // 500/10 and 700/20.
        assert_eq!((bar.measure, bar.at_least, bar.is_met), (Measure::P999, 20.0, true));
        assert!((bar.ratio - 50.0).abs() < 1e-9, "{bar:?}");
        assert_eq!((result.offered_per_s, result.runs), (Some(50.0), 2));
    }

    #[test]
    fn servers_are_compared_with_swap_on_a_disk_too() {
        let settings = crate::peers::tests::settings();
        let all = [
            series(Way::Run, None, Rate::Max, &[(300.0, 1.0)]),
            series(Way::Swap(SwapTo::Zram), None, Rate::Max, &[(100.0, 9.0)]),
            series(Way::Swap(SwapTo::File(None)), None, Rate::Max, &[(200.0, 9.0)]),
        ];
        let result = all[0].result(&settings, Work::Redis, &all);
        let bars: Vec<_> = result.bars.iter().map(|bar| (bar.against, bar.ratio, bar.is_met)).collect();
        assert_eq!(bars, [("swap-zram", 3.0, true), ("swap-file", 1.5, false)]);
        assert_eq!((result.connections, result.value_size, result.threads), (Some(4), Some(4096), None));
    }

    #[test]
    fn kv_is_compared_with_itself_where_faults_busy_wait() {
        let settings = crate::peers::tests::settings();
        let all = [
            series(Way::Run, None, Rate::Max, &[(300.0, 1.0)]),
            series(Way::Kv, None, Rate::Max, &[(120.0, 1.0)]),
            series(Way::KvBusy, None, Rate::Max, &[(100.0, 9.0)]),
        ];
        let results = all.each_ref().map(|series| series.result(&settings, Work::Memcached, &all));
        let bars: Vec<_> = results[1].bars.iter().map(|bar| (bar.against, bar.ratio, bar.is_met)).collect();
        assert_eq!(bars, [("kv-busy", 1.2, true)]);
        assert!(results[0].bars.is_empty() && results[2].bars.is_empty());
        assert_eq!((results[1].ratio_to_yonder, results[2].ratio_to_yonder), (Some(0.4), Some(100.0 / 300.0)));
    }

    #[test]
    fn without_a_peer_there_is_no_bar_and_what_failed_is_over() {
        let settings = crate::peers::tests::settings();
        for (ended, failed, skipped) in [
            (Ended::Badly("killed".to_owned()), Some("killed"), None),
            (Ended::Not("run as root".to_owned()), None, Some("run as root")),
        ] {
            let mut all = [
                series(Way::Yield, Some(1), Rate::Max, &[(300.0, 1.0)]),
                series(Way::Swap(SwapTo::Zram), Some(1), Rate::Max, &[]),
            ];
            assert!(!all[1].is_over());
            all[1].add(ended);
            assert!(all[1].is_over() && all[0].result(&settings, Work::Array, &all).bars.is_empty());
            let result = all[1].result(&settings, Work::Array, &all);
            assert_eq!(
                (result.failed.as_deref(), result.skipped.as_deref(), result.ops_per_s),
                (failed, skipped, None)
            );
            assert_eq!((result.ratio_to_yonder, result.runs), (None, 0));
        }
    }
}
