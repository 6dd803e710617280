//! What both parts of the demo share: the loads offered, and the ratios drawn from two curves.

use yonder_report::{Curve, Point, Ratio};

/// Local memory as a share of the data set.
pub(super) const LOCAL_PERCENT: f64 = 20.0;
/// Loads offered, as shares of what busy-waiting can serve at most.
pub(super) const LOADS: [f64; 6] = [0.4, 0.7, 0.9, 1.0, 1.2, 1.4];

/// The paper's ratio of peak throughputs, and the least that this project asks of itself.
const PAPER_THROUGHPUT: f64 = 1.58;
/// The paper's best ratio of tail latencies.
const PAPER_TAIL: f64 = 10.89;

/// One mode's measurements: its peak in a closed loop and its curve.
pub(super) struct Mode {
    pub(super) name: &'static str,
    pub(super) peak_per_s: f64,
    pub(super) points: Vec<Point>,
}

impl Mode {
    pub(super) fn curve(&self) -> Curve {
        Curve { name: self.name.to_owned(), points: self.points.clone() }
    }
}

/// Throughput and tail of `yielding` against `busy`. `bar` says whether the project's bars apply.
pub(super) fn ratios(what: &str, busy: &Mode, yielding: &Mode, has_bar: HasBar) -> Vec<Ratio> {
    let bar = |value: f64| (has_bar == HasBar::Yes).then_some(value);
    // The lowest load that busy-waiting does not keep up with.
    let saturating = busy.points.iter().position(Point::is_saturated).unwrap_or(LOADS.len() - 1);
    let tail = |mode: &Mode| mode.points.get(saturating).map_or(f64::NAN, |point| point.p999_us);
    vec![
        Ratio {
            what: format!("{what}: peak throughput, yield / busy-wait"),
            ours: yielding.peak_per_s / busy.peak_per_s,
            paper: Some(PAPER_THROUGHPUT),
            paper_source: "Adios, section 5.1, microbenchmark".to_owned(),
            bar: bar(PAPER_THROUGHPUT),
            note: format!("{:.0} K/s against {:.0} K/s", yielding.peak_per_s / 1e3, busy.peak_per_s / 1e3),
        },
        Ratio {
            what: format!("{what}: P99.9 latency where busy-wait saturates, busy-wait / yield"),
            ours: tail(busy) / tail(yielding),
            paper: Some(PAPER_TAIL),
            paper_source: "Adios, abstract, best application".to_owned(),
            bar: bar(10.9),
            note: format!("{:.0} us against {:.0} us", tail(busy), tail(yielding)),
        },
    ]
}

/// Whether the project holds itself to a figure here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HasBar {
    Yes,
    No,
}
