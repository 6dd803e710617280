//! Runs of the array benchmark as points of a curve.

use yonder_bench::array::ArrayResult;
use yonder_report::Point;

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
