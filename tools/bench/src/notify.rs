//! `bench notify`: how long it takes until user space knows of a page fault (LightSwap, section 5.3 and Table 1).
//!
//! From the touch of a missing page to the first instruction of whoever brings it, by three mechanisms: `sigbus` is
//! userfaultfd as Yonder uses it, with the handler in the thread that touched the page; `monitor` is userfaultfd with
//! one thread that reads the faults of all; `signal` is SIGSEGV at a page without permissions. Each brings a page of
//! zeros. The mechanisms and the numbers of threads take turns in several runs, and medians count.
//!
//! Neighbours: `mechanisms` has the memory of each mechanism, `touching` the threads that touch it.

mod mechanisms;
mod touching;

use clap::Args;
use serde::Serialize;
use yonder_load::LatencySummary;

use crate::comparison::{Ended, Series, take_turns};
use crate::flags::{count_to, positive_count};
use crate::policies::name_of;
use crate::{BenchError, Counts, OnProgress};
use touching::Touches;

/// Threads that may touch pages at a time.
pub const THREADS_MAX: usize = 1024;
/// Pages that each thread may touch in a run.
pub const FAULTS_PER_THREAD_MAX: usize = 1_000_000;

/// How a fault reaches user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mechanism {
    /// userfaultfd, as SIGBUS in the thread that touched the page.
    Sigbus,
    /// userfaultfd, as a message to one thread that reads them.
    Monitor,
    /// SIGSEGV in the thread that touched the page, for want of a permission.
    Signal,
}

impl Mechanism {
    /// All of them, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Sigbus, Self::Monitor, Self::Signal];

    /// What results call it.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }

    /// The mean that LightSwap's Table 1 reports for this mechanism, or for the one that stands in its place: there the
    /// handler in the faulting thread is entered by a program in a changed kernel.
    #[must_use]
    pub fn lightswap_mean_us(self, threads: usize) -> Option<f64> {
        let column = [1, 16, 32, 64, 128].iter().position(|count| *count == threads)?;
        let row = match self {
            Self::Sigbus => [1.6, 1.7, 2.0, 2.4, 4.0],
            Self::Monitor => [6.0, 10.0, 16.0, 39.0, 607.0],
            Self::Signal => [1.7, 18.0, 31.0, 107.0, 657.0],
        };
        Some(row[column])
    }
}

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Numbers of threads that touch pages, with commas between
    #[arg(long, value_name = "COUNTS", default_value = "1,2,4,8,16,32,64,128", value_delimiter = ',')]
    #[arg(value_parser = count_to(THREADS_MAX))]
    pub threads: Vec<usize>,
    /// Pages that each thread touches in a run
    #[arg(long, value_name = "N", default_value = "5000", value_parser = count_to(FAULTS_PER_THREAD_MAX))]
    pub faults_per_thread: usize,
    /// Runs of each mechanism with each number of threads, in turn; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub runs: usize,
}

/// What one mechanism takes with some threads; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct NotifyResult {
    /// Always `notify`.
    pub bench: &'static str,
    /// How the faults reach user space.
    pub mechanism: Mechanism,
    /// Threads that touch pages.
    pub threads: usize,
    /// CPUs that these threads share.
    pub cpus: usize,
    /// Pages that each of them touches in a run.
    pub faults_per_thread: usize,
    /// Faults of a run.
    pub faults: u64,
    /// Runs, of which the medians count.
    pub runs: usize,
    /// Faults per second of all threads, from the touch to the page that is there.
    pub ops_per_s: f64,
    /// Mean time from a touch to the handler, over all threads.
    pub mean_us: f64,
    /// The least and the greatest mean of a run.
    pub mean_us_spread: [f64; 2],
    /// Median.
    pub p50_us: f64,
    /// The least and the greatest median of a run.
    pub p50_us_spread: [f64; 2],
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The median over that of the same mechanism with one thread, if that is measured too.
    pub p50_ratio_to_one_thread: Option<f64>,
    /// The mean over that mean.
    pub mean_ratio_to_one_thread: Option<f64>,
    /// The median over that of the monitor with as many threads.
    pub p50_ratio_to_monitor: Option<f64>,
    /// The mean over that mean.
    pub mean_ratio_to_monitor: Option<f64>,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How faults reach user space, and how many threads touch pages.
type Variant = (Mechanism, usize);

/// One run.
struct Run {
    ops_per_s: f64,
    latency: LatencySummary,
    errors: u64,
}

impl From<Touches> for Run {
    fn from(touches: Touches) -> Self {
        let latency = touches.latency.summary();
        Self { ops_per_s: latency.count as f64 * 1e9 / touches.took_ns.max(1) as f64, latency, errors: touches.errors }
    }
}

/// Measures every mechanism with every number of threads.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<NotifyResult>, BenchError> {
    if settings.threads.is_empty() || settings.runs == 0 {
        return Err(BenchError::Settings("there is nothing to measure: type --threads 1,16 --runs 5".to_owned()));
    }
    let variants = settings.threads.iter().flat_map(|threads| Mechanism::ALL.map(|mechanism| (mechanism, *threads)));
    let mut all: Vec<Series<Variant, Run>> = variants.map(Series::new).collect();
    let label = |(mechanism, threads): &Variant| format!("{}, {threads} threads", mechanism.name());
    take_turns(&mut all, settings.runs, progress, label, |(mechanism, threads), _| {
        Ok::<_, BenchError>(Ended::Well(mechanisms::measure(*mechanism, *threads, settings.faults_per_thread)?.into()))
    })?;
    let cpus = touching::allowed_cpus().len().max(1);
    let mut results: Vec<NotifyResult> = all.iter().map(|series| result(settings, series, cpus)).collect();
    compare(&mut results);
    Ok(results)
}

fn result(settings: &Settings, series: &Series<Variant, Run>, cpus: usize) -> NotifyResult {
    let median = |figure: fn(&Run) -> f64| series.median(figure).unwrap_or(0.0);
    let spread = |figure: fn(&Run) -> f64| series.spread(figure).unwrap_or_default();
    let (mechanism, threads) = series.variant;
    let faults = (threads * settings.faults_per_thread) as u64;
    NotifyResult {
        bench: "notify",
        mechanism,
        threads,
        cpus,
        faults_per_thread: settings.faults_per_thread,
        faults,
        runs: series.trials.len(),
        ops_per_s: median(|run| run.ops_per_s),
        mean_us: median(|run| run.latency.mean_us),
        mean_us_spread: spread(|run| run.latency.mean_us),
        p50_us: median(|run| run.latency.p50_us),
        p50_us_spread: spread(|run| run.latency.p50_us),
        p99_us: median(|run| run.latency.p99_us),
        p999_us: median(|run| run.latency.p999_us),
        p50_ratio_to_one_thread: None,
        mean_ratio_to_one_thread: None,
        p50_ratio_to_monitor: None,
        mean_ratio_to_monitor: None,
        counts: Counts { minor_faults: faults, errors: series.sum(|run| run.errors), ..Counts::default() },
    }
}

/// Fills in the ratios.
fn compare(results: &mut [NotifyResult]) {
    let all = results.to_vec();
    for result in results {
        let over = |figure: fn(&NotifyResult) -> f64, mechanism, threads| {
            let other =
                all.iter().find(|other| (other.mechanism, other.threads) == (mechanism, threads)).map(figure)?;
            (other > 0.0).then(|| figure(result) / other)
        };
        let ratios = |figure| (over(figure, result.mechanism, 1), over(figure, Mechanism::Monitor, result.threads));
        let (p50, mean) = (ratios(|result| result.p50_us), ratios(|result| result.mean_us));
        (result.p50_ratio_to_one_thread, result.p50_ratio_to_monitor) = p50;
        (result.mean_ratio_to_one_thread, result.mean_ratio_to_monitor) = mean;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(mean_us: f64, p50_us: f64) -> Run {
        Run { ops_per_s: 1e6 / mean_us, latency: LatencySummary { mean_us, p50_us, ..Default::default() }, errors: 1 }
    }

    #[test]
    fn medians_and_ratios_are_those_of_the_runs() {
        let settings = Settings { threads: vec![1, 8], faults_per_thread: 10, runs: 3 };
        let series = |mechanism, threads, medians: [f64; 3]| {
            // Each run's mean is the square of its median, so that their ratios differ.
            let trials = medians.map(|median| run_of(median * median, median)).into();
            Series { trials, ..Series::new((mechanism, threads)) }
        };
        let all = [
            series(Mechanism::Sigbus, 1, [1.0, 3.0, 2.0]),
            series(Mechanism::Monitor, 8, [200.0, 40.0, 50.0]),
            series(Mechanism::Sigbus, 8, [2.5, 2.0, 9.0]),
        ];
        let mut results: Vec<_> = all.iter().map(|series| result(&settings, series, 2)).collect();
        compare(&mut results);
        let many = &results[2];
        assert_eq!((many.p50_us, many.p50_us_spread, many.mean_us), (2.5, [2.0, 9.0], 6.25));
        assert_eq!((many.faults, many.counts.minor_faults, many.counts.errors), (80, 80, 3));
        assert_eq!((many.p50_ratio_to_one_thread, many.p50_ratio_to_monitor), (Some(1.25), Some(0.05)));
        assert_eq!((many.mean_ratio_to_one_thread, many.mean_ratio_to_monitor), (Some(1.5625), Some(0.0025)));
        assert_eq!((results[0].p50_ratio_to_one_thread, results[0].p50_ratio_to_monitor), (Some(1.0), None));
        assert_eq!((results[1].p50_ratio_to_one_thread, results[1].p50_ratio_to_monitor), (None, Some(1.0)));
    }

    #[test]
    fn every_touch_is_noticed_by_every_mechanism() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let settings = Settings { threads: vec![1, 5], faults_per_thread: 200, runs: 2 };
        let results = run(&settings, &mut |_, _| {}).unwrap();
        assert_eq!(results.len(), 6);
        for result in results {
            assert_eq!((result.counts.errors, result.runs), (0, 2), "{result:?}");
            assert_eq!(result.faults, 200 * result.threads as u64);
            assert!(result.p50_us > 0.0 && result.p50_us <= result.p99_us && result.p99_us <= result.p999_us);
            assert!(result.p50_ratio_to_one_thread.is_some() && result.p50_ratio_to_monitor.is_some());
        }
    }

    #[test]
    fn nothing_to_measure_is_refused() {
        let settings = Settings { threads: Vec::new(), faults_per_thread: 1, runs: 1 };
        assert!(matches!(run(&settings, &mut |_, _| {}), Err(BenchError::Settings(_))));
    }

    #[test]
    fn the_paper_has_figures_for_its_own_numbers_of_threads() {
        assert_eq!(Mechanism::Monitor.lightswap_mean_us(128), Some(607.0));
        assert_eq!(Mechanism::Signal.lightswap_mean_us(16), Some(18.0));
        assert_eq!(Mechanism::Sigbus.lightswap_mean_us(2), None);
    }
}
