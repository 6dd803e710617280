//! [`Clusters`]: vectors that are made up.

use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::StandardNormal;

use crate::vectors::Vectors;

/// Numbers of a vector, as in BIGANN.
pub const DIMENSION: usize = 128;
/// From here on numbers are those of queries: vectors like the others, which no index has.
pub const QUERIES: u64 = 1 << 40;

/// Directions in which vectors differ. Descriptors of images lie near a space of few dimensions too: in 128 that are
/// independent all vectors would be equally far from one another, and lists of no use.
const DIRECTIONS: usize = 16;
const CENTRES: usize = 256;
/// How far centres are from one another, in units of how far the vectors of one are.
const SPREAD: f32 = 1.5;
/// The mean of a number, how much it varies with the directions, and how much by itself.
const MEAN: f32 = 100.0;
const SCALE: f32 = 6.0;
const NOISE: f32 = 4.0;

/// Vectors in clusters that run into one another, of whole numbers from 0 to 255. Each follows from its number, and
/// where the clusters are from the seed.
pub struct Clusters {
    centres: Vec<[f32; DIRECTIONS]>,
    /// What each direction adds to each number.
    directions: Vec<[f32; DIRECTIONS]>,
}

impl Clusters {
    /// Other seeds have other vectors.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut points = |count: usize, scale: f32| -> Vec<[f32; DIRECTIONS]> {
            (0..count).map(|_| normal(&mut random).map(|number| number * scale)).collect()
        };
        Self { centres: points(CENTRES, SPREAD), directions: points(DIMENSION, SCALE) }
    }

    /// The vectors of these numbers.
    #[must_use]
    pub fn vectors(&self, numbers: Range<u64>) -> Vectors {
        let mut all = Vec::with_capacity((numbers.end - numbers.start) as usize * DIMENSION);
        for number in numbers {
            let mut random = SmallRng::seed_from_u64(!number);
            let centre = &self.centres[random.random_range(0..CENTRES)];
            let mut place = normal(&mut random);
            place.iter_mut().zip(centre).for_each(|(place, centre)| *place += centre);
            all.extend(self.directions.iter().map(|direction| {
                let along: f32 = direction.iter().zip(&place).map(|(one, other)| one * other).sum();
                let noise: f32 = random.sample(StandardNormal);
                (MEAN + along + NOISE * noise).round().clamp(0.0, 255.0)
            }));
        }
        Vectors::new(DIMENSION, all)
    }
}

fn normal(random: &mut SmallRng) -> [f32; DIRECTIONS] {
    std::array::from_fn(|_| random.sample(StandardNormal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_follow_from_their_numbers_and_the_seed() {
        let clusters = Clusters::new(1);
        let all = clusters.vectors(0..100);
        assert_eq!((all.count(), all.dimension()), (100, DIMENSION));
        let some = clusters.vectors(40..60);
        assert!((0..20).all(|at| some.get(at) == all.get(40 + at)), "whoever asks, and for how many");
        assert!(Clusters::new(2).vectors(0..100) != all);
        assert!(clusters.vectors(QUERIES..QUERIES + 100) != all);
        assert!((1..100).all(|at| all.get(at) != all.get(0)), "no two are the same");
    }

    #[test]
    fn numbers_are_bytes_that_use_their_range() {
        let all = Clusters::new(3).vectors(0..1000);
        assert!(all.numbers().iter().all(|number| number.fract() == 0.0 && (0.0..=255.0).contains(number)));
        let share = |is: fn(&f32) -> bool| {
            all.numbers().iter().filter(|number| is(number)).count() as f64 / all.numbers().len() as f64
        };
        assert!(share(|number| *number == 0.0 || *number == 255.0) < 0.05, "few are cut off");
        assert!(share(|number| *number < 60.0) > 0.1 && share(|number| *number > 140.0) > 0.1, "they vary");
    }
}
