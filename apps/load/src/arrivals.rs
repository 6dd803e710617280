//! Poisson arrivals: when an open loop means to start each request (Adios, section 4).
//!
//! Pure: the caller owns the clock. The arrivals of several generators with rates that add up to R are together again
//! Poisson arrivals of rate R, so threads need not share one generator.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::Exp1;
use yonder_units::Nanos;

/// An endless sequence of intended start times with exponentially distributed gaps.
#[derive(Clone, Debug)]
pub struct PoissonArrivals {
    start: Nanos,
    mean_gap_ns: f64,
    elapsed_ns: f64,
    rng: SmallRng,
}

impl PoissonArrivals {
    /// Arrivals at `rate_per_s` on average, the first one some time after `start`. Equal seeds give equal sequences.
    ///
    /// # Panics
    /// If the rate is not a positive, finite number.
    #[must_use]
    pub fn new(rate_per_s: f64, start: Nanos, seed: u64) -> Self {
        assert!(rate_per_s > 0.0 && rate_per_s.is_finite(), "arrivals need a positive rate, not {rate_per_s}");
        Self { start, mean_gap_ns: 1e9 / rate_per_s, elapsed_ns: 0.0, rng: SmallRng::seed_from_u64(seed) }
    }
}

impl Iterator for PoissonArrivals {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        let gap: f64 = self.rng.sample(Exp1);
        // The sum is kept as a fraction: rounding each gap would bias high rates.
        self.elapsed_ns += gap * self.mean_gap_ns;
        Some(self.start + self.elapsed_ns as Nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 200_000;

    fn gaps(rate_per_s: f64) -> Vec<f64> {
        let times: Vec<Nanos> = PoissonArrivals::new(rate_per_s, 5_000, 7).take(COUNT).collect();
        assert!(times.iter().all(|time| *time >= 5_000));
        times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect()
    }

    #[test]
    fn gaps_are_exponential() {
        let gaps = gaps(100_000.0);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 10_000.0).abs() < 100.0, "mean gap {mean} ns");
        // An exponential distribution's standard deviation equals its mean, and e^-1 of it lies above the mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "deviation {} of mean {mean}", variance.sqrt());
        let above = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((above - (-1f64).exp()).abs() < 0.01, "share above the mean {above}");
    }

    #[test]
    fn rates_above_a_request_per_nanosecond_are_not_rounded_away() {
        let last = PoissonArrivals::new(3e9, 0, 1).nth(COUNT - 1).unwrap() as f64;
        assert!((last - COUNT as f64 / 3.0).abs() < COUNT as f64 * 0.01, "{last} ns");
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let first = |seed| PoissonArrivals::new(1e5, 0, seed).take(10).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    #[should_panic(expected = "positive rate")]
    fn a_rate_of_zero_is_refused() {
        let _ = PoissonArrivals::new(0.0, 0, 1);
    }
}
