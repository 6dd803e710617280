//! Which key a request touches: uniform or zipfian, with the popular keys spread over the whole key space.
//!
//! Pure and seeded. A zipfian choice costs the same for a thousand keys and for a billion (rejection-inversion, no
//! table). Ranks are scrambled by a bijection, so every key can be chosen and neighbours in rank are not neighbours in
//! memory.

use std::fmt;
use std::str::FromStr;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Zipf;

use crate::settings::SettingError;

/// Largest number of keys: products of two ranks must fit in 64 bits.
pub const KEYS_MAX: u64 = u32::MAX as u64;

/// Largest zipfian exponent that is accepted; beyond it practically every request goes to one key.
const THETA_MAX: f64 = 5.0;

/// How popular each key is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Distribution {
    /// Every key is equally likely.
    Uniform,
    /// The key of rank r is chosen with a probability in proportion to 1 / r^theta.
    Zipf {
        /// The exponent; YCSB uses 0.99.
        theta: f64,
    },
}

impl FromStr for Distribution {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let bad = || SettingError::Distribution(text.to_owned());
        let text = text.trim();
        if text == "uniform" {
            return Ok(Self::Uniform);
        }
        let theta: f64 = text.strip_prefix("zipf:").ok_or_else(bad)?.parse().map_err(|_| bad())?;
        if theta > 0.0 && theta <= THETA_MAX { Ok(Self::Zipf { theta }) } else { Err(bad()) }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
        }
    }
}

/// Chooses keys in `0..keys`, seeded.
#[derive(Clone, Debug)]
pub struct KeyChooser {
    keys: u64,
    ranks: Ranks,
    rng: SmallRng,
}

#[derive(Clone, Debug)]
enum Ranks {
    Uniform,
    Zipf { zipf: Zipf<f64>, stride: u64 },
}

impl KeyChooser {
    /// A chooser among `keys` keys. Equal seeds give equal sequences; the seed does not change which keys are popular.
    ///
    /// # Panics
    /// If there are no keys or more than [`KEYS_MAX`], or if the exponent is negative.
    #[must_use]
    pub fn new(keys: u64, distribution: Distribution, seed: u64) -> Self {
        assert!((1..=KEYS_MAX).contains(&keys), "a key is chosen among 1 to {KEYS_MAX} keys, not {keys}");
        let ranks = match distribution {
            Distribution::Uniform => Ranks::Uniform,
            Distribution::Zipf { theta } => {
                let zipf = Zipf::new(keys as f64, theta).expect("parsed exponents are positive");
                Ranks::Zipf { zipf, stride: golden_stride(keys) }
            }
        };
        Self { keys, ranks, rng: SmallRng::seed_from_u64(seed) }
    }

    /// The next key, in `0..keys`.
    pub fn next_key(&mut self) -> u64 {
        match &self.ranks {
            Ranks::Uniform => self.rng.random_range(0..self.keys),
            Ranks::Zipf { zipf, stride } => {
                let rank = (self.rng.sample(zipf) as u64).clamp(1, self.keys);
                rank * stride % self.keys
            }
        }
    }
}

/// The step nearest above the golden section of `keys` that shares no factor with it: multiplying by it permutes the
/// keys and keeps any few consecutive ranks as far apart as can be.
fn golden_stride(keys: u64) -> u64 {
    let golden = (keys as f64 * 0.618_033_988_749_895) as u64;
    (golden.max(1)..).find(|stride| greatest_common_divisor(*stride, keys) == 1).expect("keys + 1 always qualifies")
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn counts(keys: u64, distribution: Distribution, draws: u64) -> HashMap<u64, u64> {
        let mut chooser = KeyChooser::new(keys, distribution, 42);
        let mut counts = HashMap::new();
        for _ in 0..draws {
            let key = chooser.next_key();
            assert!(key < keys);
            *counts.entry(key).or_default() += 1;
        }
        counts
    }

    #[test]
    fn uniform_keys_are_equally_likely() {
        let counts = counts(100, Distribution::Uniform, 200_000);
        assert_eq!(counts.len(), 100);
        assert!(counts.values().all(|count| (1700..2300).contains(count)), "{counts:?}");
    }

    #[test]
    fn zipf_follows_its_law() {
        let (keys, draws) = (1_000_000, 400_000);
        let counts = counts(keys, Distribution::Zipf { theta: 0.99 }, draws);
        let mut popular: Vec<u64> = counts.values().copied().collect();
        popular.sort_unstable_by(|a, b| b.cmp(a));
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-0.99)).sum();
        for rank in [1usize, 2, 10] {
            let expected = draws as f64 / zeta / (rank as f64).powf(0.99);
            let seen = popular[rank - 1] as f64;
            assert!((seen / expected - 1.0).abs() < 0.08, "rank {rank}: {seen}, expected {expected}");
        }
    }

    #[test]
    fn popular_keys_lie_far_apart() {
        let counts = counts(1_000_000, Distribution::Zipf { theta: 1.2 }, 100_000);
        let mut by_count: Vec<(u64, u64)> = counts.into_iter().map(|(key, count)| (count, key)).collect();
        by_count.sort_unstable_by(|a, b| b.cmp(a));
        let mut hot: Vec<u64> = by_count[..10].iter().map(|(_, key)| *key).collect();
        hot.sort_unstable();
        let nearest = hot.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert!(nearest > 10_000, "two of the ten most popular keys are {nearest} apart");
    }

    #[test]
    fn the_scramble_is_a_bijection() {
        for keys in [1, 2, 3, 10, 16, 97, 1000, 4096, 65_536] {
            let stride = golden_stride(keys);
            let reached: HashSet<u64> = (1..=keys).map(|rank| rank * stride % keys).collect();
            assert_eq!(reached.len() as u64, keys);
        }
        assert!(golden_stride(KEYS_MAX).checked_mul(KEYS_MAX).is_some());
    }

    #[test]
    fn distributions_parse() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf:0.99".parse(), Ok(Distribution::Zipf { theta: 0.99 }));
        assert_eq!(Distribution::Zipf { theta: 0.99 }.to_string(), "zipf:0.99");
        for bad in ["", "zipf", "zipf:", "zipf:-1", "zipf:0", "zipf:NaN", "zipf:99", "pareto"] {
            assert!(bad.parse::<Distribution>().is_err(), "{bad}");
        }
        assert_eq!(
            "pareto".parse::<Distribution>().unwrap_err().to_string(),
            "'pareto' is not a distribution of keys: type uniform or zipf:THETA, such as zipf:0.99"
        );
    }
}
