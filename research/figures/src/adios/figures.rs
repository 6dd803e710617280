//! Adios' figures.
//!
//! Files: `loads` has what is drawn over the offered load (Figures 2 and 7), `local` over the size of local memory (8),
//! `sending` replies with and without delegation (9), `dispatching` who gets a request (10e, 11), `switching` Table 1;
//! and beyond the paper, `beyond` more workers and nodes, and `waiting` faults that wait before they yield.

mod beyond;
mod dispatching;
mod loads;
mod local;
mod sending;
mod switching;
mod waiting;

use yonder_report::{Picture, Quantity};

use super::sweep::Point;
use crate::figure;

pub(crate) use beyond::SCALE;
pub(crate) use dispatching::{FIG10E, FIG11};
pub(crate) use loads::{FIG2, FIG7};
pub(crate) use local::FIG8;
pub(crate) use sending::FIG9;
pub(crate) use switching::TABLE1;
pub(crate) use waiting::HYBRID;

/// Requests of one point of a curve, in a full run.
const REQUESTS: u64 = 200_000;
/// Requests of the points that checks look at.
const REQUESTS_CHECKED: u64 = 1_000_000;

/// A picture over the offered load: a line for each of the curves, of what `height` says of a point.
fn picture(
    name: &str,
    title: &str,
    vertical: Quantity,
    curves: &[(&str, &[Point])],
    height: impl Fn(&Point) -> f64,
) -> Picture {
    let lines = curves.iter().map(|(name, points)| {
        let points = points.iter().map(|point| (point.offered, height(point)));
        (*name, points.filter(|(_, height)| height.is_finite()).collect())
    });
    figure::picture(name, [title, "Simulated; over the offered load."], [Quantity::Rate, vertical], lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Outcome, Run};

    const FIGURES: [Figure; 9] = [TABLE1, FIG2, FIG7, FIG8, FIG9, FIG10E, FIG11, SCALE, HYBRID];

    fn outcome(figure: &Figure, seed: u64, effort: f64) -> Outcome {
        (figure.run)(&mut Run { seed, effort, progress: &mut |_, _| {} })
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome_and_another_another() {
        for figure in &FIGURES {
            let [one, same] = [0; 2].map(|_| outcome(figure, 7, 0.004));
            assert_eq!(one, same, "{}", figure.name);
            assert!(one.requests == 0 || outcome(figure, 8, 0.004).tables != one.tables, "{}", figure.name);
        }
    }

    /// How far throughputs and shares may be from what they were, in percent.
    const DRIFT_PERCENT_MAX: f64 = 5.0;
    /// The same of latencies, whose tails are of few requests at this effort.
    const TAIL_DRIFT_PERCENT_MAX: f64 = 25.0;

    /// What a figure's checks showed when they were last looked at.
    fn has_not_drifted(figure: &Figure, recorded: &[f64]) {
        let outcome = outcome(figure, 1, 0.08);
        let simulated: Vec<f64> = outcome.checks.iter().map(|check| check.simulated).collect();
        assert_eq!(simulated.len(), recorded.len(), "{}: {simulated:.3?}", figure.name);
        for (check, recorded) in outcome.checks.iter().zip(recorded) {
            let drift = (check.simulated / recorded - 1.0) * 100.0;
            let is_tail = check.what.contains("P99") || check.what.contains("P50");
            let most = if is_tail { TAIL_DRIFT_PERCENT_MAX } else { DRIFT_PERCENT_MAX };
            assert!(drift.abs() <= most, "{}: {} was {recorded}: {simulated:.3?}", figure.name, check.what);
        }
    }

    #[test]
    fn figure_2_has_not_drifted() {
        has_not_drifted(&FIG2, &[1.4089, 42.834, 2.815]);
    }

    #[test]
    fn figure_7_has_not_drifted() {
        has_not_drifted(&FIG7, &[1.7142, 2.1357, 1.7142, 1.2459, 2.2171, 37.034, 1.0709, 9.5689, 9.9775, 72.776]);
    }

    #[test]
    fn figures_8_and_9_have_not_drifted() {
        has_not_drifted(&FIG8, &[24.559, 60.477, 0.9729]);
        has_not_drifted(&FIG9, &[1.141, 14.316]);
    }

    #[test]
    fn figures_10e_and_11_have_not_drifted() {
        has_not_drifted(&FIG10E, &[1.3853]);
        has_not_drifted(&FIG11, &[1.4546, 1.0764, 14.087, 2.1184, 4.75, 32.21]);
    }
}
