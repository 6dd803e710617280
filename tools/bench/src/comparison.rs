//! Comparisons in turn: [`take_turns`] runs every variant once in each turn, a [`Series`] has the trials of one
//! variant, and what they come to is their median, with the least and the greatest beside it. Ratios compare trials of
//! one turn. A variant that fails or cannot run is over, and the others go on.
//!
//! What trials of servers and arrays have in common is `Measured`, and what comes of several is a [`Summary`].

use serde::{Deserialize, Serialize};
use yonder_load::{LoadError, LoadResult};

use crate::kernel_swap::OUT_OF_MEMORY;
use crate::{BenchError, Counts, OnProgress};

/// Attempts at a trial while the kernel kills it because memory is short.
const ATTEMPTS_MAX: usize = 3;

/// What became of a trial.
pub enum Ended<T> {
    /// With what it has come to.
    Well(T),
    /// How it failed.
    Badly(String),
    /// The kernel has killed it because memory was short.
    OutOfMemory,
    /// It cannot be run here; what to type.
    Skipped(String),
}

/// The trials of one variant.
#[derive(Debug)]
pub struct Series<V, T> {
    /// What is compared.
    pub variant: V,
    /// One for each turn, until one fails.
    pub trials: Vec<T>,
    /// Attempts that the kernel has killed.
    pub(crate) kills: u64,
    pub(crate) failed: Option<String>,
    pub(crate) skipped: Option<String>,
}

/// What one trial has come to; `bench array` prints the same.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) ops_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) dropped: u64,
    /// Memory of the control group, where there is one.
    #[serde(default)]
    pub(crate) group_bytes: Option<u64>,
}

/// What the trials of one variant have come to; the fields are a contract with scripts.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct Summary {
    /// Runs that ended well. What follows is the median of them, unless it says otherwise.
    pub runs: usize,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
    /// Of the slowest and of the fastest run.
    pub ops_per_s_spread: Option<[f64; 2]>,
    /// Median latency; at a rate, from the intended start.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Of the best and of the worst run.
    pub p99_us_spread: Option<[f64; 2]>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
    /// Of the best and of the worst run.
    pub p999_us_spread: Option<[f64; 2]>,
    /// Faults that fetched a page, or that waited for swap or for a disk.
    pub major_faults: Option<f64>,
    /// Other faults.
    pub minor_faults: Option<f64>,
    /// Bytes fetched, swapped in or read.
    pub fetched_bytes: Option<f64>,
    /// Bytes written to far memory or swapped out.
    pub written_bytes: Option<f64>,
    /// Memory of the control group: the local one, and what the process took before it had data.
    pub group_bytes: Option<u64>,
    /// Requests of all runs that an open loop had no room for.
    pub dropped: u64,
    /// Requests of all runs that failed, values that were wrong, and values that were not there.
    pub errors: u64,
    /// How a run failed.
    pub failed: Option<String>,
    /// Why it was not run, and what to type.
    pub skipped: Option<String>,
}

/// Runs every variant once in each of so many turns, again if the kernel kills it. Each turn begins with another one,
/// so that it is not always the same one that runs behind the same other. `progress` gets what runs, and the share of
/// all that is done.
pub fn take_turns<V, T, E>(
    all: &mut [Series<V, T>],
    turns: usize,
    progress: OnProgress<'_>,
    label: impl Fn(&V) -> String,
    mut trial: impl FnMut(&V, usize) -> Result<Ended<T>, E>,
) -> Result<(), E> {
    let variants = all.len();
    for turn in 0..turns {
        for number in 0..variants {
            let series = &mut all[(number + turn) % variants];
            if series.is_over() {
                continue;
            }
            let share = (turn * variants + number) as f64 / (turns * variants) as f64;
            progress(&format!("{} ({}/{turns})", label(&series.variant), turn + 1), share);
            series.attempt(|variant| trial(variant, turn))?;
        }
    }
    Ok(())
}

/// What has become of a server that was asked, as its load and its end tell.
pub(crate) fn served<T>(
    asked: Result<T, LoadError>,
    was_out_of_memory: bool,
    end: Option<String>,
) -> Result<Ended<T>, BenchError> {
    Ok(match (asked, end) {
        (Err(_), _) if was_out_of_memory => Ended::OutOfMemory,
        (Err(LoadError::System(error)), _) => return Err(error.into()),
        (Err(error), None) => Ended::Badly(error.to_string()),
        (Err(error), Some(how)) => Ended::Badly(format!("{error}; the server: {how}")),
        (Ok(_), Some(how)) => Ended::Badly(how),
        (Ok(trial), None) => Ended::Well(trial),
    })
}

impl<V, T> Series<V, T> {
    /// Without trials.
    #[must_use]
    pub fn new(variant: V) -> Self {
        Self { variant, trials: Vec::new(), kills: 0, failed: None, skipped: None }
    }

    /// Whether no more trials of it make sense.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.failed.is_some() || self.skipped.is_some()
    }

    /// Makes a trial, again if the kernel kills it.
    pub(crate) fn attempt<E>(&mut self, mut trial: impl FnMut(&V) -> Result<Ended<T>, E>) -> Result<(), E> {
        for _ in 0..ATTEMPTS_MAX {
            match trial(&self.variant)? {
                Ended::OutOfMemory => self.kills += 1,
                ended => {
                    self.add(ended);
                    return Ok(());
                }
            }
        }
        self.failed = Some(OUT_OF_MEMORY.to_owned());
        Ok(())
    }

    fn add(&mut self, ended: Ended<T>) {
        match ended {
            Ended::Well(trial) => self.trials.push(trial),
            Ended::Badly(how) => self.failed = Some(how),
            Ended::Skipped(missing) => self.skipped = Some(missing),
            Ended::OutOfMemory => unreachable!("such a trial is made again"),
        }
    }

    /// A figure, turn by turn.
    fn figures(&self, figure: impl Fn(&T) -> f64) -> Vec<f64> {
        self.trials.iter().map(figure).collect()
    }

    /// The median of a figure; none without trials.
    pub fn median(&self, figure: impl Fn(&T) -> f64) -> Option<f64> {
        median(&sorted(self.figures(figure)))
    }

    /// The least and the greatest of a figure.
    pub fn spread(&self, figure: impl Fn(&T) -> f64) -> Option<[f64; 2]> {
        ends(&sorted(self.figures(figure)))
    }

    /// The trial whose figure is the median one.
    pub(crate) fn median_trial(&self, figure: impl Fn(&T) -> f64) -> Option<&T> {
        let mut trials: Vec<&T> = self.trials.iter().collect();
        trials.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
        trials.get(trials.len() / 2).copied()
    }

    /// The sum of a count.
    pub(crate) fn sum(&self, count: impl Fn(&T) -> u64) -> u64 {
        self.trials.iter().map(count).sum()
    }

    /// Turn by turn, how many times a figure is the greatest of the others'. Sorted.
    pub(crate) fn ratios<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
        figure: impl Fn(&T) -> f64 + Copy,
    ) -> Vec<f64>
    where
        V: 'a,
        T: 'a,
    {
        let others: Vec<_> = others.into_iter().map(|other| other.figures(figure)).collect();
        ratios(&self.figures(figure), &others)
    }

    /// What the trials have come to.
    pub(crate) fn summary(&self, measured: fn(&T) -> &Measured) -> Summary {
        let median = |figure: fn(&Measured) -> f64| self.median(|trial| figure(measured(trial)));
        let spread = |figure: fn(&Measured) -> f64| self.spread(|trial| figure(measured(trial)));
        Summary {
            runs: self.trials.len(),
            ops_per_s: median(|trial| trial.ops_per_s),
            ops_per_s_spread: spread(|trial| trial.ops_per_s),
            p50_us: median(|trial| trial.p50_us),
            p99_us: median(|trial| trial.p99_us),
            p99_us_spread: spread(|trial| trial.p99_us),
            p999_us: median(|trial| trial.p999_us),
            p999_us_spread: spread(|trial| trial.p999_us),
            major_faults: median(|trial| trial.counts.major_faults as f64),
            minor_faults: median(|trial| trial.counts.minor_faults as f64),
            fetched_bytes: median(|trial| trial.counts.fetched_bytes as f64),
            written_bytes: median(|trial| trial.counts.written_bytes as f64),
            group_bytes: self.trials.iter().filter_map(|trial| measured(trial).group_bytes).max(),
            dropped: self.sum(|trial| measured(trial).dropped),
            errors: self.sum(|trial| measured(trial).counts.errors),
            failed: self.failed.clone(),
            skipped: self.skipped.clone(),
        }
    }
}

impl Measured {
    /// What a load has measured, and what the server says of its faults, if it does.
    pub(crate) fn of(load: &LoadResult) -> Self {
        Self {
            ops_per_s: load.ops_per_s,
            p50_us: load.p50_us,
            p99_us: load.p99_us,
            p999_us: load.p999_us,
            counts: Counts {
                major_faults: load.major_faults,
                minor_faults: load.minor_faults,
                fetched_bytes: load.fetched_bytes,
                written_bytes: load.written_bytes,
                errors: load.errors + load.wrong_values,
            },
            dropped: load.dropped,
            group_bytes: None,
        }
    }

    /// The same with what was counted of faults and bytes in another place.
    pub(crate) fn with_counts(self, counts: Counts) -> Self {
        Self { counts: Counts { errors: self.counts.errors, ..counts }, ..self }
    }

    /// The same with so many errors more.
    pub(crate) fn with_errors(self, more: u64) -> Self {
        Self { counts: Counts { errors: self.counts.errors + more, ..self.counts }, ..self }
    }
}

/// Sorted figures.
pub(crate) fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// The median of sorted figures, of an even number the mean of the two in the middle; none of none.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, *upper))
}

/// The least and the greatest of sorted figures.
pub(crate) fn ends(sorted: &[f64]) -> Option<[f64; 2]> {
    Some([*sorted.first()?, *sorted.last()?])
}

/// Turn by turn, how many times as much as the best of the others; of turns in which there is one. Sorted.
pub(crate) fn ratios(own: &[f64], others: &[Vec<f64>]) -> Vec<f64> {
    let best = |turn: usize| others.iter().filter_map(|other| other.get(turn).copied()).max_by(f64::total_cmp);
    sorted(own.iter().enumerate().filter_map(|(turn, figure)| Some(figure / best(turn).filter(|best| *best > 0.0)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_turn_and_to_the_best_of_the_others() {
        let own = [6.0, 8.0, 9.0, 5.0];
        // 6 to 3, 8 to 1 and 9 to 9; in the fourth turn nobody else was left.
        assert_eq!(ratios(&own, &[vec![3.0, 1.0], vec![2.0, 0.5, 9.0]]), [1.0, 2.0, 8.0]);
        assert!(ratios(&own, &[]).is_empty());
        assert!(ratios(&own, &[vec![0.0]]).is_empty(), "nothing is no measure");
        assert_eq!((median(&[1.0, 2.0, 8.0]), ends(&[1.0, 2.0, 8.0])), (Some(2.0), Some([1.0, 8.0])));
        assert_eq!(median(&[1.0, 2.0, 4.0, 8.0]), Some(3.0), "not the better half");
        assert_eq!((median(&[]), ends(&[])), (None, None));
    }

    #[test]
    fn variants_take_turns_and_those_that_are_over_are_left_out() {
        let mut all = ["well", "bad", "missing", "killed"].map(Series::new);
        let (mut shown, mut killed) = (Vec::new(), 0);
        let mut progress = |what: &str, share: f64| shown.push((what.to_owned(), share));
        take_turns(
            &mut all,
            2,
            &mut progress,
            |variant| (*variant).to_owned(),
            |variant, turn| {
                Ok::<_, BenchError>(match *variant {
                    "well" => Ended::Well(turn as f64 + 1.0),
                    "bad" => Ended::Badly("exit status: 1".to_owned()),
                    "missing" => Ended::Skipped("type this".to_owned()),
                    _ => {
                        killed += 1;
                        // The second attempt goes well, and later all are killed.
                        if killed == 2 { Ended::Well(5.0) } else { Ended::OutOfMemory }
                    }
                })
            },
        )
        .unwrap();
        let names: Vec<_> = shown.iter().map(|(what, _)| what.as_str()).collect();
        assert_eq!(names, ["well (1/2)", "bad (1/2)", "missing (1/2)", "killed (1/2)", "killed (2/2)", "well (2/2)"]);
        assert!(shown.is_sorted_by_key(|(_, share)| *share) && shown[5].1 < 1.0);
        let [well, bad, missing, killed] = &all;
        assert_eq!(
            (&*well.trials, well.median(|trial| *trial), well.spread(|trial| *trial)),
            (&[1.0, 2.0][..], Some(1.5), Some([1.0, 2.0]))
        );
        assert_eq!((bad.failed.as_deref(), missing.skipped.as_deref()), (Some("exit status: 1"), Some("type this")));
        assert_eq!((&*killed.trials, killed.kills, killed.failed.as_deref()), (&[5.0][..], 4, Some(OUT_OF_MEMORY)));
        assert_eq!(killed.ratios([well], |trial| *trial), [5.0]);
    }
}
