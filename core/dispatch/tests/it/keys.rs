//! Which keys are asked for, seeded.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Keys that are all as popular.
pub(crate) fn uniform(keys: u32, seed: u64) -> impl Iterator<Item = u32> {
    let mut random = SmallRng::seed_from_u64(seed);
    std::iter::repeat_with(move || random.random_range(0..keys))
}

/// Zipfian keys whose popular ones lie apart, from `from` on.
pub(crate) fn zipf(keys: u32, from: u32, seed: u64) -> impl Iterator<Item = u32> {
    let zipf = rand_distr::Zipf::new(f64::from(keys), 0.99).unwrap();
    let mut random = SmallRng::seed_from_u64(seed);
    std::iter::repeat_with(move || from + ((random.sample(zipf) as u32).clamp(1, keys) - 1).wrapping_mul(7919) % keys)
}
