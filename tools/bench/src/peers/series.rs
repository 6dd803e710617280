//! [`PeersResult`]: what the runs of one contender come to, beside the others; [`Bar`]: what Yonder sets out to reach,
//! and whether it has.

use serde::Serialize;
use yonder_load::Rate;

use super::contenders::Variant;
use super::{Series, Settings, SwapTo, Trial, Work};
use crate::comparison::{Summary, ends, median};

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
    /// What its runs have come to.
    #[serde(flatten)]
    pub summary: Summary,
    /// How many times as many operations as Yonder's, whose faults yield or which runs the program, in the same turn.
    pub ratio_to_yonder: Option<f64>,
    /// Of the turn in which that is least, and of the one in which it is most.
    pub ratio_to_yonder_spread: Option<[f64; 2]>,
    /// How many times that 99.9th percentile is Yonder's in the same turn.
    pub p999_ratio_to_yonder: Option<f64>,
    /// What Yonder sets out to reach beside its peers.
    pub bars: Vec<Bar>,
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

impl Bar {
    fn new(measure: Measure, against: &'static str, at_least: f64, turns: &[f64]) -> Option<Self> {
        let ratio = median(turns)?;
        Some(Self { measure, against, ratio, at_least, is_met: ratio >= at_least })
    }
}

/// How many times as good as the kernel's swap Yonder should be; `kv`, as itself with faults that busy-wait (Adios,
/// section 5.2).
fn at_least(work: Work, variant: &Variant, measure: Measure) -> Option<f64> {
    match (work, variant, measure) {
        (Work::Array, Variant::Yield, Measure::Throughput) => Some(2.0),
        (Work::Array, Variant::Probe, Measure::Throughput) => Some(4.0),
        (Work::Array, Variant::Yield | Variant::Probe, Measure::P999) => Some(20.0),
        (Work::Memcached | Work::Redis, Variant::Run, Measure::Throughput) => Some(2.0),
        (Work::Memcached | Work::Redis, Variant::Run, Measure::P999) => Some(5.0),
        (Work::Memcached, Variant::Kv, Measure::Throughput) => Some(1.07),
        _ => None,
    }
}

impl Series {
    /// What its runs have come to, beside those of `all` at the same rate.
    pub(super) fn result(&self, settings: &Settings, work: Work, all: &[Self]) -> PeersResult {
        let (contender, is_server) = (&self.variant, work != Work::Array);
        let yonder: Vec<&Self> = if contender.variant.is_measure() { Vec::new() } else { measures(all).collect() };
        let to_yonder = self.ratios(yonder.iter().copied(), |trial| trial.measured.ops_per_s);
        let tail_to_yonder = self.ratios(yonder, |trial| trial.measured.p999_us);
        PeersResult {
            bench: "peers",
            workload: work.name(),
            peer: contender.variant.name(),
            label: contender.label(),
            far: (!contender.variant.is_kernel()).then(|| settings.far.clone()),
            swap: self.trials.last().and_then(|trial| trial.swap.clone()),
            memory_bytes: settings.memory,
            local_bytes: settings.local_bytes(),
            threads: contender.threads,
            value_size: is_server.then_some(settings.value_bytes),
            connections: is_server.then_some(settings.connections),
            duration_s: settings.duration.as_secs_f64(),
            offered_per_s: contender.rate.per_second(),
            summary: self.summary(|trial| &trial.measured),
            ratio_to_yonder: median(&to_yonder),
            ratio_to_yonder_spread: ends(&to_yonder),
            p999_ratio_to_yonder: median(&tail_to_yonder),
            bars: self.bars(work, all),
        }
    }

    /// What it should reach, beside the kernel's swap: on compressed memory, and of a server on a disk too; of `kv`,
    /// beside itself. Of several numbers of threads, the best in each turn counts.
    fn bars(&self, work: Work, all: &[Self]) -> Vec<Bar> {
        let own = &self.variant;
        let measure = if own.rate == Rate::Max { Measure::Throughput } else { Measure::P999 };
        let Some(least) = at_least(work, &own.variant, measure) else { return Vec::new() };
        let is_compared = |variant: &Variant| match (&own.variant, variant) {
            (Variant::Kv, other) => *other == Variant::KvBusy,
            (_, Variant::Swap(SwapTo::Zram)) => true,
            (_, Variant::Swap(SwapTo::File(_))) => work != Work::Array,
            _ => false,
        };
        let mut variants: Vec<&Variant> = all.iter().map(|series| &series.variant.variant).collect();
        variants.retain(|variant| is_compared(variant));
        variants.dedup();
        // Of times the least is best: the others' reciprocals are compared with its own.
        let figure = |trial: &Trial| match measure {
            Measure::Throughput => trial.measured.ops_per_s,
            Measure::P999 => 1.0 / trial.measured.p999_us,
        };
        let bar = |variant: &Variant| {
            let turns = self.ratios(all.iter().filter(|series| series.variant.variant == *variant), figure);
            Bar::new(measure, variant.name(), least, &turns)
        };
        variants.into_iter().filter_map(bar).collect()
    }
}

/// What others are compared with.
fn measures(all: &[Series]) -> impl Iterator<Item = &Series> {
    all.iter().filter(|series| series.variant.variant.is_measure())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Counts;
    use crate::comparison::Measured;
    use crate::peers::contenders::Contender;

    /// A run that has made so many operations per second, with this P99.9.
    fn trial(ops_per_s: f64, p999_us: f64) -> Trial {
        let measured = Measured {
            ops_per_s,
            p50_us: 1.0,
            p99_us: 2.0,
            p999_us,
            counts: Counts { major_faults: 10, ..Counts::default() },
            dropped: 1,
            ..Default::default()
        };
        Trial { measured, swap: None }
    }

    /// A series with runs that ended well.
    pub(in crate::peers) fn series(
        variant: Variant,
        threads: Option<usize>,
        rate: Rate,
        runs: &[(f64, f64)],
    ) -> Series {
        let trials = runs.iter().map(|(ops, p999)| trial(*ops, *p999)).collect();
        Series { trials, ..Series::new(Contender { variant, threads, rate }) }
    }

    #[test]
    fn bars_compare_with_the_best_number_of_threads_of_each_turn() {
        let settings = crate::peers::tests::settings();
        let zram = || Variant::Swap(SwapTo::Zram);
        let all = [
            series(Variant::Yield, Some(1), Rate::Max, &[(400.0, 1.0), (400.0, 1.0), (600.0, 1.0)]),
            series(Variant::Probe, Some(1), Rate::Max, &[(800.0, 1.0), (700.0, 1.0), (900.0, 1.0)]),
            series(zram(), Some(1), Rate::Max, &[(100.0, 9.0), (100.0, 9.0), (250.0, 9.0)]),
            series(zram(), Some(16), Rate::Max, &[(150.0, 9.0), (200.0, 9.0), (50.0, 9.0)]),
            series(Variant::Swap(SwapTo::File(None)), Some(1), Rate::Max, &[(5.0, 9.0), (5.0, 9.0), (5.0, 9.0)]),
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
            (results[4].summary.ops_per_s, results[4].p999_ratio_to_yonder, results[4].summary.dropped),
            (Some(5.0), Some(9.0), 3)
        );
    }

    #[test]
    fn tails_are_compared_at_the_common_rate_and_the_lowest_of_the_others_counts() {
        let settings = crate::peers::tests::settings();
        let rate = Rate::PerSecond(50.0);
        let all = [
            series(Variant::Yield, Some(1), rate, &[(50.0, 10.0), (50.0, 20.0)]),
            series(Variant::Swap(SwapTo::Zram), Some(1), rate, &[(50.0, 900.0), (50.0, 700.0)]),
            series(Variant::Swap(SwapTo::Zram), Some(16), rate, &[(50.0, 500.0), (50.0, 800.0)]),
        ];
        let result = all[0].result(&settings, Work::Array, &all);
        let [bar] = result.bars[..] else { panic!("{result:?}") };
        // 500/10 and 700/20.
        assert_eq!((bar.measure, bar.at_least, bar.is_met), (Measure::P999, 20.0, true));
        assert!((bar.ratio - 42.5).abs() < 1e-9, "{bar:?}");
        assert_eq!((result.offered_per_s, result.summary.runs), (Some(50.0), 2));
    }

    #[test]
    fn servers_are_compared_with_swap_on_a_disk_too() {
        let settings = crate::peers::tests::settings();
        let all = [
            series(Variant::Run, None, Rate::Max, &[(300.0, 1.0)]),
            series(Variant::Swap(SwapTo::Zram), None, Rate::Max, &[(100.0, 9.0)]),
            series(Variant::Swap(SwapTo::File(None)), None, Rate::Max, &[(200.0, 9.0)]),
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
            series(Variant::Run, None, Rate::Max, &[(300.0, 1.0)]),
            series(Variant::Kv, None, Rate::Max, &[(120.0, 1.0)]),
            series(Variant::KvBusy, None, Rate::Max, &[(100.0, 9.0)]),
        ];
        let results = all.each_ref().map(|series| series.result(&settings, Work::Memcached, &all));
        let bars: Vec<_> = results[1].bars.iter().map(|bar| (bar.against, bar.ratio, bar.is_met)).collect();
        assert_eq!(bars, [("kv-busy", 1.2, true)]);
        assert!(results[0].bars.is_empty() && results[2].bars.is_empty());
        assert_eq!((results[1].ratio_to_yonder, results[2].ratio_to_yonder), (Some(0.4), Some(100.0 / 300.0)));
    }

    #[test]
    fn without_a_peer_there_is_no_bar() {
        let settings = crate::peers::tests::settings();
        let mut all = [
            series(Variant::Yield, Some(1), Rate::Max, &[(300.0, 1.0)]),
            series(Variant::Swap(SwapTo::Zram), Some(1), Rate::Max, &[]),
        ];
        all[1].failed = Some("killed".to_owned());
        let results = all.each_ref().map(|series| series.result(&settings, Work::Array, &all));
        assert!(results[0].bars.is_empty());
        let PeersResult { summary, ratio_to_yonder, .. } = &results[1];
        assert_eq!((summary.failed.as_deref(), summary.ops_per_s, summary.runs), (Some("killed"), None, 0));
        assert_eq!(*ratio_to_yonder, None);
    }
}
