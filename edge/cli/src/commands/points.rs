//! Runs of benchmarks as points of a curve: their medians, their rows in a table, and pictures of them.

use yonder_bench::array::ArrayResult;
use yonder_report::{Cell, Line, Picture, Point, Quantity};

/// A point's columns in a table.
pub(super) const COLUMNS: [(&str, usize); 6] =
    [("offered_per_s", 0), ("achieved_per_s", 0), ("p50_us", 1), ("p99_us", 1), ("p999_us", 1), ("dropped", 0)];

/// A point's cells in those columns.
pub(super) fn cells(point: &Point) -> [Cell; 6] {
    let Point { offered_per_s, achieved_per_s, p50_us, p99_us, p999_us, dropped } = *point;
    [offered_per_s, achieved_per_s, p50_us, p99_us, p999_us, dropped as f64].map(Cell::from)
}

/// Latencies, the most telling first, and throughput of curves, by what is offered; the files begin with `name`.
pub(super) fn pictures(name: &str, curves: &[(&str, Vec<Point>)]) -> Vec<Picture> {
    let lines = |value: fn(&Point) -> f64| {
        let at = |point: &Point| (point.offered_per_s / 1e3, value(point));
        let line = |(name, points): &(&str, Vec<Point>)| Line {
            name: (*name).to_owned(),
            points: points.iter().map(at).collect(),
        };
        curves.iter().map(line).collect()
    };
    let offered = Quantity::Number("offered, K requests/s");
    let latency = |about, title, value| {
        let words = [title, "By what is offered; medians of the rounds."];
        Picture::new(&format!("{name}-{about}"), words, [offered, Quantity::Latency], lines(value))
    };
    vec![
        latency("p999", "P99.9 latency", |point| point.p999_us),
        latency("p99", "P99 latency", |point| point.p99_us),
        latency("p50", "P50 latency", |point| point.p50_us),
        Picture::new(
            &format!("{name}-throughput"),
            ["Throughput", "By what is offered; K requests/s."],
            [offered, Quantity::Number("")],
            lines(|point| point.achieved_per_s / 1e3),
        ),
    ]
}

/// The median of each figure by itself.
pub(super) fn median_point(points: &[Point]) -> Point {
    let median = |pick: fn(&Point) -> f64| {
        let mut values: Vec<f64> = points.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Point {
        offered_per_s: median(|point| point.offered_per_s),
        achieved_per_s: median(|point| point.achieved_per_s),
        p50_us: median(|point| point.p50_us),
        p99_us: median(|point| point.p99_us),
        p999_us: median(|point| point.p999_us),
        dropped: median(|point| point.dropped as f64) as u64,
    }
}

/// What a run of the array benchmark measured.
pub(super) fn point(result: &ArrayResult) -> Point {
    Point {
        offered_per_s: result.offered_per_s.unwrap_or(result.ops_per_s),
        achieved_per_s: result.ops_per_s,
        p50_us: result.p50_us,
        p99_us: result.p99_us,
        p999_us: result.p999_us,
        dropped: result.dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_median_of_its_own() {
        let point = |offered_per_s, p99_us, dropped| Point {
            offered_per_s,
            achieved_per_s: 1.0,
            p50_us: 2.0,
            p99_us,
            p999_us: 4.0,
            dropped,
        };
        let median = median_point(&[point(3.0, 10.0, 0), point(1.0, 30.0, 9), point(2.0, 20.0, 4)]);
        assert_eq!(median, point(2.0, 20.0, 4));
    }
}
