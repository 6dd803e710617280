//! The figures of a chart: which plots there are, what they say, and the ranges that they share. Pure.

use std::ops::Range;

use crate::ReportError;
use crate::axis::{Axis, round_down, round_up};
use crate::model::{Chart, Curve, Point};
use crate::numbers::{latency_tick, trimmed};
use crate::plot::{Axes, Behind, Mark, Marks, draw};

/// A plot with its words.
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    pub(crate) caption: &'static str,
    pub(crate) svg: String,
}

/// One of a point's latencies, in microseconds.
type Latency = fn(&Point) -> f64;

/// The percentiles that have a plot, with its title and caption.
const LATENCIES: [(&str, &str, Latency); 3] = [
    ("P99.9 latency", "One request in a thousand waits longer.", |point| point.p999_us),
    ("P99 latency", "One request in a hundred waits longer.", |point| point.p99_us),
    ("P50 latency", "Half of the requests wait longer.", |point| point.p50_us),
];

/// The figures of `chart`, most telling first; none if nothing was measured.
pub(crate) fn figures(chart: &Chart) -> Result<Vec<Figure>, ReportError> {
    let Some(range) = latency_range(&chart.curves) else { return Ok(Vec::new()) };
    let thousands = |name, marks: &[Marks], value: fn(&Mark) -> f64| {
        let most = marks.iter().flatten().map(value).fold(0.0, f64::max);
        Axis::linear(name, most, |thousands| trimmed(thousands, 1))
    };
    let mut figures = Vec::new();
    for (title, caption, latency) in LATENCIES {
        let marks = |curve: &Curve| marks(curve, |point| (point.achieved_per_s / 1e3, latency(point)), Some(0.0));
        let curves: Vec<_> = chart.curves.iter().map(marks).collect();
        let axes = Axes {
            horizontal: thousands("achieved, K requests/s", &curves, |mark| mark.x),
            vertical: Axis::decades("", range.clone(), latency_tick),
            behind: Behind::Nothing,
        };
        figures.push(Figure { title, caption, svg: draw(&axes, &curves)? });
    }
    let marks = |curve: &Curve| marks(curve, |point| (point.offered_per_s / 1e3, point.achieved_per_s / 1e3), None);
    let curves: Vec<_> = chart.curves.iter().map(marks).collect();
    let axes = Axes {
        horizontal: thousands("offered, K requests/s", &curves, |mark| mark.x),
        vertical: thousands("", &curves, |mark| mark.y),
        behind: Behind::Diagonal,
    };
    figures.push(Figure {
        title: "Throughput",
        caption: "K requests/s; dashed: all that was offered.",
        svg: draw(&axes, &curves)?,
    });
    Ok(figures)
}

/// The marks of `curve`, without those that have no place on the axes: a run without answers has no latency.
fn marks(curve: &Curve, position: impl Fn(&Point) -> (f64, f64), above: Option<f64>) -> Marks {
    let mark = |point: &Point| {
        let (x, y) = position(point);
        Mark { x, y, saturated: point.is_saturated() }
    };
    let fits = |mark: &Mark| mark.x.is_finite() && mark.y.is_finite() && above.is_none_or(|least| mark.y > least);
    curve.points.iter().map(mark).filter(fits).collect()
}

/// A range that all latency plots of a chart share, so that they can be compared: from and to a round number around all
/// points.
fn latency_range(curves: &[Curve]) -> Option<Range<f64>> {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let values = points.flat_map(|point| LATENCIES.map(|(_, _, latency)| latency(point)));
    let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
    let least = values.iter().copied().reduce(f64::min)?;
    let most = values.iter().copied().reduce(f64::max)?;
    Some(round_down(least * 0.9)..round_up(most * 1.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{point, report};

    #[test]
    fn there_is_a_figure_for_each_percentile_and_one_for_throughput() {
        for mut chart in report().charts {
            let titles: Vec<_> = figures(&chart).unwrap().iter().map(|figure| figure.title).collect();
            assert_eq!(titles, ["P99.9 latency", "P99 latency", "P50 latency", "Throughput"]);
            chart.curves.clear();
            assert!(figures(&chart).unwrap().is_empty());
        }
    }

    #[test]
    fn every_chart_has_a_range_of_its_own() {
        let ranges: Vec<_> = report().charts.iter().map(|chart| latency_range(&chart.curves).unwrap()).collect();
        assert_eq!(ranges, [5.0..20_000.0, 20.0..5_000.0]);
    }

    #[test]
    fn points_without_a_latency_are_left_out() {
        let mut chart = report().charts.swap_remove(0);
        chart.curves[0].points.push(point(1e6, 0.0, 0.0, 0.0, 0.0, 1_000_000));
        chart.curves[1].points.push(point(f64::NAN, f64::INFINITY, f64::NAN, 1.0, f64::INFINITY, 0));
        assert_eq!(figures(&chart).unwrap().len(), 4);
        chart.curves.iter_mut().for_each(|curve| {
            curve.points.iter_mut().for_each(|point| {
                (point.p50_us, point.p99_us, point.p999_us) = (0.0, 0.0, 0.0);
            })
        });
        assert!(figures(&chart).unwrap().is_empty());
    }
}
