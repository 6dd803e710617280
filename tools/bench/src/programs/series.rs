//! [`Figures`]: what the runs of one variant come to.

use serde::Serialize;

use super::{Series, Variant};
use crate::comparison::{ends, median, sorted};

/// What the runs of a variant have come to; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// `native`, `yonder` or `zram`.
    pub leg: Variant,
    /// Limit of local memory in bytes; none alone.
    pub local_bytes: Option<u64>,
    /// The most memory that one of the program's processes had alone, in the first run: what local memory is a share
    /// of.
    pub native_peak_bytes: Option<u64>,
    /// The same in any run of this variant, with everything that is in the process.
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
    /// Under Yonder: median of the times as multiples of the time with swap on zram in the same turn, with the same
    /// local memory.
    pub ratio_to_zram: Option<f64>,
    /// Of the turn in which it did best beside zram, and of the one in which it did worst.
    pub ratio_to_zram_spread: Option<[f64; 2]>,
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
    /// Why the variant was not run, and what to type.
    pub skipped: Option<String>,
}

impl Series {
    /// What its runs have come to, beside those of the program alone, and those with zram if they are compared.
    pub(super) fn beside(&self, native: &Self, zram: Option<&Self>) -> Figures {
        let gets: Vec<_> = self.trials.iter().filter_map(|trial| trial.gets.as_ref()).collect();
        let latency = |percent| median(&sorted(gets.iter().map(|(latency, _)| latency.percentile_us(percent))));
        let rates = sorted(gets.iter().map(|(latency, seconds)| latency.len() as f64 / seconds));
        let errors = self.sum(|trial| trial.wrong);
        let has_failed = self.failed.is_some();
        // A program that failed beside one of the two, or whose answers were wrong, is no comparison.
        let compared = zram.filter(|zram| zram.failed.is_none() && errors == 0 && zram.sum(|trial| trial.wrong) == 0);
        let to_zram = compared.map_or_else(Vec::new, |zram| self.ratios([zram], |trial| trial.seconds));
        // A variant that has failed once is no measure.
        let counted = |figure: Option<f64>| figure.filter(|_| !has_failed);
        Figures {
            leg: self.variant.0,
            local_bytes: self.variant.1,
            native_peak_bytes: native.trials.first().map(|trial| trial.peak_bytes),
            peak_bytes: self.trials.iter().map(|trial| trial.peak_bytes).max(),
            runs: self.trials.len(),
            seconds: counted(self.median(|trial| trial.seconds)),
            wall_seconds: counted(self.median(|trial| trial.wall_seconds)),
            seconds_spread: self.spread(|trial| trial.seconds).filter(|_| !has_failed),
            ratio: counted(median(&self.ratios([native], |trial| trial.seconds))),
            ratio_to_zram: counted(median(&to_zram)),
            ratio_to_zram_spread: ends(&to_zram).filter(|_| !has_failed),
            ops_per_s: counted(median(&rates)),
            p50_us: counted(latency(50.0)),
            p99_us: counted(latency(99.0)),
            p999_us: counted(latency(99.9)),
            errors,
            is_right: (has_failed || !self.trials.is_empty()).then_some(!has_failed && errors == 0),
            out_of_memory_kills: self.kills,
            failed: self.failed.clone(),
            skipped: self.skipped.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use yonder_load::LatencyRecorder;

    use super::*;
    use crate::process::End;
    use crate::programs::trial::Trial;

    fn trial(seconds: f64, wrong: u64) -> Trial {
        let mut latency = LatencyRecorder::new();
        (0..10).for_each(|_| latency.record(7000));
        let (peak_bytes, gets) = ((seconds * 100.0) as u64, Some((latency, seconds)));
        Trial { seconds, wall_seconds: seconds, peak_bytes, wrong, gets, end: End::Well }
    }

    fn series(variant: Variant, runs: &[(f64, u64)]) -> Series {
        let trials = runs.iter().map(|(seconds, wrong)| trial(*seconds, *wrong)).collect();
        Series { trials, ..Series::new((variant, Some(9))) }
    }

    #[test]
    fn medians_and_ratios_of_turns() {
        let native = series(Variant::Native, &[(1.0, 0), (2.0, 0), (4.0, 0)]);
        let figures = series(Variant::Yonder, &[(6.0, 0), (4.0, 0), (4.0, 0)]).beside(&native, None);
        assert_eq!((figures.seconds, figures.seconds_spread), (Some(4.0), Some([4.0, 6.0])));
        // 6, 2 and 1 times as long: the median of the turns, not the ratio of the medians.
        assert_eq!(figures.ratio, Some(2.0));
        assert_eq!((figures.native_peak_bytes, figures.peak_bytes, figures.runs), (Some(100), Some(600), 3));
        assert_eq!((figures.ops_per_s, figures.is_right, figures.errors), (Some(2.5), Some(true), 0));
        assert!(figures.p999_us.is_some_and(|latency| (latency - 7.0).abs() < 0.1));
        assert_eq!((figures.ratio_to_zram, figures.ratio_to_zram_spread), (None, None));
    }

    #[test]
    fn yonder_is_compared_with_zram_turn_by_turn_if_both_are_right() {
        let native = series(Variant::Native, &[(1.0, 0), (1.0, 0), (1.0, 0)]);
        let yonder = series(Variant::Yonder, &[(2.0, 0), (9.0, 0), (3.0, 0)]);
        let zram = |wrong| series(Variant::Zram, &[(4.0, 0), (3.0, 0), (2.0, wrong)]);
        let figures = yonder.beside(&native, Some(&zram(0)));
        assert_eq!((figures.ratio_to_zram, figures.ratio_to_zram_spread), (Some(1.5), Some([0.5, 3.0])));
        assert_eq!(yonder.beside(&native, Some(&zram(1))).ratio_to_zram, None);
        let killed = Series { failed: Some("it was killed".to_owned()), ..zram(0) };
        assert_eq!(yonder.beside(&native, Some(&killed)).ratio_to_zram, None);
    }

    #[test]
    fn what_is_wrong_fails_or_was_not_run_is_not_right() {
        let native = series(Variant::Native, &[(1.0, 0)]);
        let figures = series(Variant::Zram, &[(1.0, 0), (1.0, 3)]).beside(&native, None);
        assert_eq!((figures.is_right, figures.errors, figures.seconds), (Some(false), 3, Some(1.0)));
        let failed =
            Series { failed: Some("it was killed".to_owned()), kills: 2, ..series(Variant::Zram, &[(1.0, 0)]) };
        let figures = failed.beside(&native, None);
        assert_eq!((figures.failed.as_deref(), figures.is_right), (Some("it was killed"), Some(false)));
        assert_eq!((figures.seconds, figures.ratio, figures.runs, figures.out_of_memory_kills), (None, None, 1, 2));
        let skipped = Series { skipped: Some("type this".to_owned()), ..series(Variant::Zram, &[]) };
        let figures = skipped.beside(&native, None);
        assert_eq!((figures.is_right, figures.seconds, figures.runs), (None, None, 0));
        assert_eq!(figures.skipped.as_deref(), Some("type this"));
    }
}
