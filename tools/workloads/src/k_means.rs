//! `k-means` (DiLOS, figure 7b): `size` bytes of points, which gather around centres, and the cluster of each.
//!
//! Lloyd's algorithm with a fixed number of iterations: each point goes to its nearest centre, and each centre to the
//! mean of its points.

use rand::Rng as _;

use crate::checksum::Checksum;
use crate::random::{Random, Use, generator};
use crate::result::{Details, Outcome, Settings, WorkloadError, require, timed};

const DIMENSIONS: usize = 4;
const CLUSTERS: usize = 10;
const ITERATIONS: usize = 10;
/// Coordinates of the centres that points are made up around, and how far from them points are at most.
const SPAN: i32 = 10_000;
const SPREAD: i32 = 3_000;

type Point = [f32; DIMENSIONS];
type Centre = [f64; DIMENSIONS];

pub(crate) fn run(settings: &Settings) -> Result<Outcome, WorkloadError> {
    let bytes_each = size_of::<Point>() + size_of::<u8>();
    let count = settings.count_of(bytes_each as u64, CLUSTERS as u64)?;
    let (points, setup_seconds) = timed(|| draw_points(count, settings.seed));
    let (clusters, seconds) = timed(|| cluster(&points, ITERATIONS));
    require(|| clusters.mean_squares.is_sorted_by(|one, next| one >= next), "an iteration made clusters wider")?;
    let mut check = Checksum::of_floats(clusters.centres.iter().flatten());
    check.add_bytes(&clusters.of_points);
    Ok(Outcome {
        bytes: (count * bytes_each) as u64,
        seconds,
        setup_seconds,
        check: check.text(),
        details: Details::KMeans {
            points: count,
            dimensions: DIMENSIONS,
            clusters: CLUSTERS,
            iterations: ITERATIONS,
            mean_square: clusters.mean_squares[ITERATIONS - 1],
        },
    })
}

/// Points around centres. Whole numbers, whose sums are exact.
fn draw_points(count: usize, seed: u64) -> Vec<Point> {
    let mut random = generator(seed, Use::Values);
    let centre = |random: &mut Random| [(); DIMENSIONS].map(|()| random.random_range(-SPAN..=SPAN));
    let centres = [(); CLUSTERS].map(|()| centre(&mut random));
    let mut point = || {
        let centre = centres[random.random_range(0..CLUSTERS)];
        centre.map(|coordinate| (coordinate + random.random_range(-SPREAD..=SPREAD)) as f32)
    };
    (0..count).map(|_| point()).collect()
}

struct Clusters {
    centres: [Centre; CLUSTERS],
    /// The cluster of each point.
    of_points: Vec<u8>,
    /// Means of squares of distances to centres, one for each iteration.
    mean_squares: Vec<f64>,
}

/// Begins with the first points as centres.
fn cluster(points: &[Point], iterations: usize) -> Clusters {
    let mut centres: [Centre; CLUSTERS] = std::array::from_fn(|cluster| points[cluster].map(f64::from));
    let (mut of_points, mut mean_squares) = (vec![0; points.len()], Vec::new());
    for _ in 0..iterations {
        let (mut sums, mut counts, mut squares) = ([[0.0; DIMENSIONS]; CLUSTERS], [0_u64; CLUSTERS], 0.0);
        for (point, of_point) in points.iter().zip(&mut of_points) {
            let (nearest, square) = nearest(point, &centres);
            for (sum, coordinate) in sums[nearest].iter_mut().zip(point) {
                *sum += f64::from(*coordinate);
            }
            counts[nearest] += 1;
            squares += square;
            *of_point = nearest as u8;
        }
        mean_squares.push(squares / points.len() as f64);
        for ((centre, sum), count) in centres.iter_mut().zip(sums).zip(counts) {
            // A centre that has no points stays.
            if count > 0 {
                *centre = sum.map(|sum| sum / count as f64);
            }
        }
    }
    Clusters { centres, of_points, mean_squares }
}

/// The nearest centre, the first of several, and the square of the distance to it.
fn nearest(point: &Point, centres: &[Centre; CLUSTERS]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (cluster, centre) in centres.iter().enumerate() {
        let distances = point.iter().zip(centre).map(|(one, other)| f64::from(*one) - other);
        let square = distances.map(|distance| distance * distance).sum();
        if square < best.1 {
            best = (cluster, square);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same from its definition: all distances, then for each cluster a pass over all points.
    fn naive(points: &[Point], iterations: usize) -> (Vec<Centre>, Vec<u8>) {
        let mut centres: Vec<Centre> = points[..CLUSTERS].iter().map(|point| point.map(f64::from)).collect();
        let mut of_points = Vec::new();
        for _ in 0..iterations {
            let distance = |point: &Point, centre: &Centre| {
                (0..DIMENSIONS).map(|d| (f64::from(point[d]) - centre[d]).powi(2)).sum::<f64>().sqrt()
            };
            let by_distance = |point: &Point| {
                let all = centres.iter().map(|centre| distance(point, centre)).enumerate();
                all.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap().0 as u8
            };
            of_points = points.iter().map(by_distance).collect();
            for (cluster, centre) in centres.iter_mut().enumerate() {
                let mine = points.iter().zip(&of_points).filter(|(_, of_point)| usize::from(**of_point) == cluster);
                let mine: Vec<&Point> = mine.map(|(point, _)| point).collect();
                for (d, coordinate) in centre.iter_mut().enumerate().filter(|_| !mine.is_empty()) {
                    *coordinate = mine.iter().map(|point| f64::from(point[d])).sum::<f64>() / mine.len() as f64;
                }
            }
        }
        (centres, of_points)
    }

    #[test]
    fn clusters_are_those_of_the_definition() {
        for seed in 0..5 {
            let points = draw_points(300, seed);
            let clusters = cluster(&points, 4);
            let (centres, of_points) = naive(&points, 4);
            assert_eq!(clusters.of_points, of_points);
            for (one, other) in clusters.centres.iter().flatten().zip(centres.iter().flatten()) {
                assert!((one - other).abs() < 1e-6, "{one} is not {other}");
            }
        }
    }

    #[test]
    fn distances_are_squares_and_shrink() {
        let points = draw_points(1000, 1);
        let clusters = cluster(&points, ITERATIONS);
        assert!(clusters.mean_squares.is_sorted_by(|one, next| one >= next));
        assert!(clusters.mean_squares[ITERATIONS - 1] < clusters.mean_squares[0] / 1.5, "{:?}", clusters.mean_squares);
        let at = |d| if d == 0 { 3.0 } else { 0.0 };
        let mut centres = [[100.0; DIMENSIONS]; CLUSTERS];
        (centres[4], centres[7]) = ([0.0; DIMENSIONS], [0.0; DIMENSIONS]);
        assert_eq!(nearest(&std::array::from_fn(at), &centres), (4, 9.0));
    }
}
