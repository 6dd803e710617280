//! The figures: [`Turn`] is one line, [`Summary`] the last one. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use yonder_load::LoadResult;

use crate::{Fault, Rebuild};

/// What came of one fault.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Turn {
    /// Counted from 1.
    pub turn: usize,
    /// What was injected.
    pub fault: Fault,
    /// At how many nodes pages were to be.
    pub protection: String,
    /// Commands a second that were asked for.
    pub offered_per_s: f64,
    /// Commands that were answered, and not with an error.
    pub commands: u64,
    /// Commands that were refused, or not answered at all.
    pub errors: u64,
    /// What the first of them was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Commands that were not sent, because too many waited.
    pub dropped: u64,
    /// Keys that had been stored and were not there.
    pub misses: u64,
    /// Values that cannot be right.
    pub wrong_values: u64,
    /// What was wrong with the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wrong_value: Option<String>,
    /// Longest time between two answers.
    pub longest_gap_ms: f64,
    /// Slowest answer, from when it should have been asked for.
    pub slowest_ms: f64,
    /// That of 999 of 1000 commands.
    pub p999_ms: f64,
    /// From the fault until everything was at as many nodes as was asked for; none if it was all the time.
    pub protected_again_s: Option<f64>,
    /// How pages got new places, if some did.
    #[serde(flatten)]
    pub rebuild: Option<Rebuild>,
    /// Bytes of pages that got new places though no node was gone: said where only the controller stood still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needless_rebuild_bytes: Option<u64>,
}

impl Turn {
    /// What a load has seen of a fault.
    pub(crate) fn of(fault: Fault, load: &LoadResult, protected_again: Option<Duration>) -> Self {
        Self {
            turn: 0,
            fault,
            protection: String::new(),
            offered_per_s: load.offered_per_s,
            commands: load.completed,
            errors: load.errors,
            first_error: load.first_error.clone(),
            dropped: load.dropped,
            misses: load.misses,
            wrong_values: load.wrong_values,
            first_wrong_value: load.first_wrong_value.clone(),
            longest_gap_ms: load.longest_gap_us / 1e3,
            slowest_ms: load.max_us / 1e3,
            p999_ms: load.p999_us / 1e3,
            protected_again_s: protected_again.map(|time| time.as_secs_f64()),
            rebuild: None,
            needless_rebuild_bytes: None,
        }
    }

    /// The same, with how pages got new places. What that cost is not known if some commands failed.
    pub(crate) fn with(self, rebuild: Option<Rebuild>) -> Self {
        let foreground_cost = |rebuild: Rebuild| rebuild.foreground_cost.filter(|_| self.errors == 0);
        let rebuild = rebuild.map(|rebuild| Rebuild { foreground_cost: foreground_cost(rebuild), ..rebuild });
        Self { rebuild, ..self }
    }
}

/// Least, median and most of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// The one in the middle, or the mean of both.
    pub median: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of some figures; none if there are none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = [sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]];
        Some(Self { least, median: f64::midpoint(middle[0], middle[1]), most })
    }
}

/// What came of all turns.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// How many there were.
    pub turns: usize,
    /// Commands a second in a closed loop, before the first turn.
    pub peak_per_s: f64,
    /// Commands of all turns that were answered.
    pub commands: u64,
    /// Errors of all turns.
    pub errors: u64,
    /// Commands of all turns that were dropped.
    pub dropped: u64,
    /// Keys that were not there.
    pub misses: u64,
    /// Wrong values of all turns.
    pub wrong_values: u64,
    /// Each figure over the turns, by the name that it has there.
    #[serde(flatten)]
    pub spreads: BTreeMap<&'static str, Spread>,
}

impl Summary {
    /// Of these turns.
    #[must_use]
    pub fn of(turns: &[Turn], peak_per_s: f64) -> Self {
        let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum();
        let spread = |of: fn(&Turn) -> Option<f64>| Spread::of(turns.iter().filter_map(of));
        let spreads = [
            ("commands_of_a_turn", spread(|turn| Some(turn.commands as f64))),
            ("longest_gap_ms", spread(|turn| Some(turn.longest_gap_ms))),
            ("slowest_ms", spread(|turn| Some(turn.slowest_ms))),
            ("p999_ms", spread(|turn| Some(turn.p999_ms))),
            ("protected_again_s", spread(|turn| turn.protected_again_s)),
            ("rebuild_bytes", spread(|turn| Some(turn.rebuild?.rebuild_bytes as f64))),
            ("rebuild_s", spread(|turn| Some(turn.rebuild?.rebuild_s))),
            ("rebuild_bytes_per_s", spread(|turn| Some(turn.rebuild?.rebuild_bytes_per_s))),
            ("before_per_s", spread(|turn| Some(turn.rebuild?.before_per_s))),
            ("during_per_s", spread(|turn| Some(turn.rebuild?.during_per_s))),
            ("needless_rebuild_bytes", spread(|turn| Some(turn.needless_rebuild_bytes? as f64))),
            ("foreground_cost", spread(|turn| turn.rebuild?.foreground_cost)),
        ];
        Self {
            turns: turns.len(),
            peak_per_s,
            commands: sum(|turn| turn.commands),
            errors: sum(|turn| turn.errors),
            dropped: sum(|turn| turn.dropped),
            misses: sum(|turn| turn.misses),
            wrong_values: sum(|turn| turn.wrong_values),
            spreads: spreads.into_iter().filter_map(|(name, spread)| Some((name, spread?))).collect(),
        }
    }

    /// Commands that clients would have noticed, however late the others were.
    #[must_use]
    pub fn noticed(&self) -> u64 {
        self.errors + self.dropped + self.misses + self.wrong_values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_what_is_there() {
        let of = |figures: &[f64]| Spread::of(figures.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(Spread { least: 3.0, median: 3.0, most: 3.0 }));
        assert_eq!(of(&[9.0, 1.0, 2.0]), Some(Spread { least: 1.0, median: 2.0, most: 9.0 }));
        assert_eq!(of(&[9.0, 1.0, 2.0, 4.0]), Some(Spread { least: 1.0, median: 3.0, most: 9.0 }));
    }

    #[test]
    fn a_summary_adds_up_what_went_wrong_and_leaves_out_what_there_was_not() {
        let turn = |errors, protected_again_s| Turn {
            turn: 1,
            fault: Fault::Loss,
            protection: "copies=2".to_owned(),
            offered_per_s: 10.0,
            commands: 100,
            errors,
            first_error: None,
            dropped: 0,
            misses: 2,
            wrong_values: 0,
            first_wrong_value: None,
            longest_gap_ms: 5.0,
            slowest_ms: 7.0,
            p999_ms: 6.0,
            protected_again_s,
            rebuild: None,
            needless_rebuild_bytes: None,
        };
        let summary = Summary::of(&[turn(0, None), turn(3, Some(4.0))], 50.0);
        assert_eq!((summary.turns, summary.commands, summary.errors, summary.noticed()), (2, 200, 3, 7));
        assert_eq!(summary.spreads["protected_again_s"], Spread { least: 4.0, median: 4.0, most: 4.0 });
        assert!(!Summary::of(&[turn(0, None)], 50.0).spreads.contains_key("protected_again_s"));
        let rebuild = Rebuild {
            rebuild_bytes: 4096,
            rebuild_s: 1.0,
            rebuild_bytes_per_s: 4096.0,
            before_per_s: 100.0,
            during_per_s: 80.0,
            foreground_cost: Some(0.2),
        };
        assert_eq!(turn(0, None).with(Some(rebuild)).rebuild, Some(rebuild));
        let of_errors = turn(1, None).with(Some(rebuild)).rebuild;
        assert_eq!(of_errors, Some(Rebuild { foreground_cost: None, ..rebuild }), "errors are counted as answers are");
    }
}
