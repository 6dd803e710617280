//! [`Series`]: the runs of one leg; [`Figures`]: what they come to.

use serde::Serialize;

use super::Leg;
use super::trial::Trial;
use crate::medians::{median, sorted};
use crate::process::End;

/// What the runs of a leg have come to; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// `native`, `yonder` or `zram`.
    pub leg: Leg,
    /// Limit of local memory in bytes; none alone.
    pub local_bytes: Option<u64>,
    /// The most memory that one of the program's processes had alone, in the first run: what local memory is a share
    /// of.
    pub native_peak_bytes: Option<u64>,
    /// The same in any run of this leg, with everything that is in the process.
    pub peak_bytes: Option<u64>,
    /// Runs, of which the median counts.
    pub runs: usize,
    /// Time of the work: of a workload of `yonder` without making up its input, of a server its client's, else of the
    /// whole run.
    pub seconds: Option<f64>,
    /// Time of the whole run, as far as it was not a server's.
    pub wall_seconds: Option<f64>,
    /// Of the fastest and of the slowest run.
    pub seconds_spread: Option<[f64; 2]>,
    /// Median of the times as multiples of the time alone in the same turn.
    pub ratio: Option<f64>,
    /// Gets of a server's client per second.
    pub ops_per_s: Option<f64>,
    /// Median time of a get.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Values of a server, or outputs, that were wrong in all runs.
    pub errors: u64,
    /// Whether every run ended well and its output was right.
    pub is_right: Option<bool>,
    /// Attempts that the kernel has killed because memory was short; a run has a few.
    pub out_of_memory_kills: u64,
    /// How a run failed.
    pub failed: Option<String>,
    /// Why the leg was not run, and what to type.
    pub skipped: Option<String>,
}

/// The runs of one leg with one local memory.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) leg: Leg,
    /// Limit of local memory; none for the program alone.
    pub(super) local_bytes: Option<u64>,
    /// One for each turn, until one fails.
    trials: Vec<Trial>,
    /// Attempts that the kernel has killed.
    kills: u64,
    failed: Option<String>,
    skipped: Option<String>,
}

impl Series {
    /// Without runs.
    pub(super) fn new(leg: Leg, local_bytes: Option<u64>) -> Self {
        Self { leg, local_bytes, trials: Vec::new(), kills: 0, failed: None, skipped: None }
    }

    /// A leg that cannot be run.
    pub(super) fn skipped(leg: Leg, reason: String) -> Self {
        Self { skipped: Some(reason), ..Self::new(leg, None) }
    }

    /// Whether no more runs of it make sense.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some() || self.skipped.is_some()
    }

    /// Adds a run. `cause` is why it failed, if it did and that is known better than from how the program ended.
    pub(super) fn add(&mut self, trial: Trial, cause: Option<&str>) {
        self.failed = match &trial.end {
            End::Well => None,
            _ if cause.is_some() => cause.map(str::to_owned),
            End::Badly(how) => Some(how.clone()),
            End::Killed => Some("it was killed".to_owned()),
            End::Late => Some(format!("it was stopped after {:.0} s", trial.wall_seconds)),
            End::Stopped => unreachable!("who wants to stop gets no results"),
        };
        self.trials.push(trial);
    }

    /// Counts an attempt that the kernel has killed because memory was short.
    pub(super) fn count_kill(&mut self) {
        self.kills += 1;
    }

    /// Runs no more of it, for a reason that says what to type.
    pub(super) fn skip(&mut self, reason: String) {
        self.skipped = Some(reason);
    }

    /// What its runs have come to, beside those of the program alone.
    pub(super) fn figures(&self, native: &Self) -> Figures {
        let counts = self.failed.is_none() && !self.trials.is_empty();
        let runs = if counts { &self.trials[..] } else { &[] };
        let seconds = sorted(runs.iter().map(|trial| trial.seconds));
        let ratios = sorted(runs.iter().zip(&native.trials).map(|(trial, native)| trial.seconds / native.seconds));
        let gets: Vec<_> = runs.iter().filter_map(|trial| trial.gets.as_ref()).collect();
        let latency = |percent| median(&sorted(gets.iter().map(|(latency, _)| latency.percentile_us(percent))));
        let rates = sorted(gets.iter().map(|(latency, seconds)| latency.len() as f64 / seconds));
        let errors = self.trials.iter().filter(|trial| trial.end == End::Well).map(|trial| trial.wrong).sum();
        Figures {
            leg: self.leg,
            local_bytes: self.local_bytes,
            native_peak_bytes: native.trials.first().map(|trial| trial.peak_bytes),
            peak_bytes: self.peak_bytes(),
            runs: self.trials.len(),
            seconds: median(&seconds),
            wall_seconds: median(&sorted(runs.iter().map(|trial| trial.wall_seconds))),
            seconds_spread: seconds.first().copied().zip(seconds.last().copied()).map(|(least, most)| [least, most]),
            ratio: median(&ratios),
            ops_per_s: median(&rates),
            p50_us: latency(50.0),
            p99_us: latency(99.0),
            p999_us: latency(99.9),
            errors,
            is_right: (!self.trials.is_empty()).then_some(counts && errors == 0),
            out_of_memory_kills: self.kills,
            failed: self.failed.clone(),
            skipped: self.skipped.clone(),
        }
    }

    /// The most memory of any run.
    fn peak_bytes(&self) -> Option<u64> {
        self.trials.iter().map(|trial| trial.peak_bytes).max()
    }
}

#[cfg(test)]
mod tests {
    use yonder_load::LatencyRecorder;

    use super::*;

    fn trial(seconds: f64, wrong: u64, end: End) -> Trial {
        let mut latency = LatencyRecorder::new();
        (0..10).for_each(|_| latency.record(7000));
        Trial {
            seconds,
            wall_seconds: seconds,
            peak_bytes: (seconds * 100.0) as u64,
            wrong,
            gets: Some((latency, seconds)),
            end,
        }
    }

    fn series(leg: Leg, seconds: &[f64]) -> Series {
        let mut series = Series::new(leg, Some(9));
        seconds.iter().for_each(|seconds| series.add(trial(*seconds, 0, End::Well), None));
        series
    }

    #[test]
    fn medians_and_ratios_of_turns() {
        let native = series(Leg::Native, &[1.0, 2.0, 4.0]);
        let figures = series(Leg::Yonder, &[6.0, 4.0, 4.0]).figures(&native);
        assert_eq!((figures.seconds, figures.seconds_spread), (Some(4.0), Some([4.0, 6.0])));
        // 6, 2 and 1 times as long: the median of the turns, not the ratio of the medians.
        assert_eq!(figures.ratio, Some(2.0));
        assert_eq!((figures.native_peak_bytes, figures.peak_bytes, figures.runs), (Some(100), Some(600), 3));
        assert_eq!((figures.ops_per_s, figures.is_right, figures.errors), (Some(2.5), Some(true), 0));
        assert!(figures.p999_us.is_some_and(|latency| (latency - 7.0).abs() < 0.1));
    }

    #[test]
    fn what_is_wrong_or_fails_is_not_right() {
        let native = series(Leg::Native, &[1.0]);
        let mut wrong = series(Leg::Zram, &[1.0]);
        wrong.add(trial(1.0, 3, End::Well), None);
        let figures = wrong.figures(&native);
        assert_eq!((figures.is_right, figures.errors, figures.seconds), (Some(false), 3, Some(1.0)));
        for (end, cause, told) in [
            (End::Killed, Some("no memory"), "no memory"),
            (End::Killed, None, "it was killed"),
            (End::Badly("exit status: 1".to_owned()), None, "exit status: 1"),
            (End::Late, None, "it was stopped after 61 s"),
        ] {
            let mut failed = series(Leg::Zram, &[1.0]);
            assert!(!failed.is_over());
            failed.add(trial(61.0, 1, end), cause);
            assert!(failed.is_over());
            let figures = failed.figures(&native);
            assert_eq!((figures.failed.as_deref(), figures.is_right), (Some(told), Some(false)));
            assert_eq!((figures.seconds, figures.ratio, figures.errors, figures.runs), (None, None, 0, 2));
        }
        // A cause that was seen does not make a failure of what ended well.
        let mut well = series(Leg::Zram, &[1.0]);
        well.add(trial(1.0, 0, End::Well), Some("no memory"));
        assert_eq!(well.figures(&native).is_right, Some(true));
    }

    #[test]
    fn kills_are_told_beside_a_run_that_went_well() {
        let mut killed = Series::new(Leg::Zram, Some(5));
        killed.count_kill();
        killed.add(trial(1.0, 0, End::Well), None);
        let figures = killed.figures(&series(Leg::Native, &[1.0]));
        assert_eq!((figures.out_of_memory_kills, figures.is_right, figures.runs), (1, Some(true), 1));
    }

    #[test]
    fn what_was_not_run_is_neither_right_nor_wrong() {
        let mut skipped = Series::new(Leg::Zram, Some(5));
        skipped.skip("type this".to_owned());
        let figures = skipped.figures(&series(Leg::Native, &[1.0]));
        assert!(skipped.is_over());
        assert_eq!((figures.is_right, figures.seconds, figures.runs), (None, None, 0));
        assert_eq!(figures.skipped.as_deref(), Some("type this"));
    }
}
