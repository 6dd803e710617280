//! What a figure is, and what comes out of one: tables, pictures, and checks against the paper.

use serde_json::Value;
use yonder_report::{Bar, Bars, Line, Picture, Quantity};
pub use yonder_report::{Cell, Column, Table};

/// One experiment of a paper.
#[derive(Debug)]
pub struct Figure {
    /// What a user types: `adios-fig7`.
    pub name: &'static str,
    /// Whose it is: `Adios, Figure 7`.
    pub source: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// Simulates it.
    pub run: fn(&mut Run<'_>) -> Outcome,
}

/// How a figure is to be simulated.
pub struct Run<'a> {
    /// Of all that is random. The same seed gives the same outcome.
    pub seed: u64,
    /// Share of a full run's requests, above 0 and at most 1: tests need fewer.
    pub effort: f64,
    /// Is told what is being simulated, and what share of the whole is done.
    pub progress: &'a mut dyn FnMut(&str, f64),
}

impl Run<'_> {
    /// Of `full` requests, those that this run simulates; never fewer than a thousandth.
    #[must_use]
    pub fn requests(&self, full: u64) -> u64 {
        (full as f64 * self.effort.clamp(0.001, 1.0)) as u64
    }
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("seed", &self.seed).field("effort", &self.effort).finish_non_exhaustive()
    }
}

/// What a simulation gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Numbers, a table for each part of the figure.
    pub tables: Vec<Table>,
    /// Curves to look at.
    pub pictures: Vec<Picture>,
    /// Bars to look at.
    pub bars: Vec<Bars>,
    /// The paper's numbers beside ours.
    pub checks: Vec<Check>,
    /// What a reader should know, a sentence each.
    pub notes: Vec<String>,
    /// Requests (or faults, or operations) that were simulated.
    pub requests: u64,
}

/// A row of a table: words, and the numbers behind them.
pub(crate) fn row<const W: usize, const N: usize>(words: [&str; W], numbers: [f64; N]) -> Vec<Cell> {
    words.into_iter().map(Cell::from).chain(numbers.map(Cell::from)).collect()
}

/// A picture of `lines`, each with its name.
pub(crate) fn picture(
    name: &str,
    words: [&str; 2],
    axes: [Quantity; 2],
    lines: impl IntoIterator<Item = (impl Into<String>, Vec<(f64, f64)>)>,
) -> Picture {
    let lines = lines.into_iter().map(|(name, points)| Line { name: name.into(), points }).collect();
    Picture::new(name, words, axes, lines)
}

/// Bars whose parts have these names.
pub(crate) fn bars(name: &str, title: &str, caption: &str, parts: &[&str], bars: Vec<Bar>) -> Bars {
    let [name, title, caption] = [name, title, caption].map(str::to_owned);
    Bars { name, title, caption, parts: parts.iter().map(|part| (*part).to_owned()).collect(), bars }
}

/// A number of a paper beside the simulation's.
#[derive(Clone, PartialEq, Debug)]
pub struct Check {
    /// What is compared: `peak throughput, Adios / DiLOS`.
    pub what: String,
    /// The paper's number.
    pub paper: f64,
    /// The simulation's.
    pub simulated: f64,
    /// How far they may be apart, in percent of the paper's.
    pub tolerance_percent: f64,
    /// Why they are apart, where that is known; a sentence.
    pub why: Option<&'static str>,
    /// Whether an input of the simulation fixes it, so that it says nothing of the model and does not count.
    pub is_calibration: bool,
}

impl Check {
    /// A check at the usual tolerance of 15 %.
    #[must_use]
    pub fn new(what: impl Into<String>, paper: f64, simulated: f64) -> Self {
        Self { what: what.into(), paper, simulated, tolerance_percent: 15.0, why: None, is_calibration: false }
    }

    /// The same within another tolerance.
    #[must_use]
    pub fn within(self, tolerance_percent: f64) -> Self {
        Self { tolerance_percent, ..self }
    }

    /// The same with the reason why it is not met.
    #[must_use]
    pub fn because(self, why: &'static str) -> Self {
        Self { why: Some(why), ..self }
    }

    /// The same of a number that an input of the simulation fixes: one that a cost was calibrated by, or that follows
    /// from the paper's own inputs alone.
    #[must_use]
    pub fn calibration(self) -> Self {
        Self { is_calibration: true, ..self }
    }

    /// The same as [`Check::calibration`] if `is` holds.
    #[must_use]
    pub fn calibration_if(self, is: bool) -> Self {
        Self { is_calibration: self.is_calibration || is, ..self }
    }

    /// How far the simulation is above the paper (below: negative), in percent of the paper's.
    #[must_use]
    pub fn deviation_percent(&self) -> f64 {
        (self.simulated / self.paper - 1.0) * 100.0
    }

    /// Whether they are close enough.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.deviation_percent().abs() <= self.tolerance_percent
    }

    /// It as a JSON object of figure `sim`.
    #[must_use]
    pub fn object(&self, sim: &str) -> Value {
        serde_json::json!({
            "sim": sim, "check": self.what, "paper": self.paper, "simulated": self.simulated,
            "deviation_percent": self.deviation_percent(), "tolerance_percent": self.tolerance_percent,
            "met": self.is_met(), "calibration": self.is_calibration, "why": self.why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_met_within_its_tolerance_on_both_sides() {
        let check = |simulated| Check::new("a ratio", 2.0, simulated);
        assert!(check(2.29).is_met() && check(1.71).is_met() && !check(2.31).is_met() && !check(1.69).is_met());
        assert!(check(2.59).within(30.0).is_met() && !check(f64::NAN).is_met());
        let object = check(3.0).because("It is so.").object("a-fig1");
        assert_eq!(
            (&object["met"], &object["deviation_percent"], &object["why"]),
            (&false.into(), &50.0.into(), &"It is so.".into())
        );
    }

    #[test]
    fn tests_simulate_a_share_of_the_requests() {
        let requests = |effort| Run { seed: 1, effort, progress: &mut |_, _| () }.requests(1_000_000);
        assert_eq!([1.0, 0.05, 0.0].map(requests), [1_000_000, 50_000, 1_000]);
    }
}
