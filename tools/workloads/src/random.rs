//! [`generator`]: random numbers that stay the same.
//!
//! rand's own generators may change with its version and with the machine; ChaCha's output is fixed. Drawn from it are
//! whole numbers alone: logarithms differ between mathematical libraries.

use rand::SeedableRng as _;
pub(crate) use rand_chacha::ChaCha8Rng as Random;

/// What random numbers are for: each use has its own, so that a change of one leaves the others alone.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Values,
    Order,
    Edges,
    Sources,
}

/// A generator for one use.
pub(crate) fn generator(seed: u64, usage: Use) -> Random {
    let mut random = Random::seed_from_u64(seed);
    random.set_stream(usage as u64);
    random
}

#[cfg(test)]
mod tests {
    use rand::Rng as _;

    use super::*;

    #[test]
    fn each_seed_and_each_use_has_numbers_of_its_own_that_come_again() {
        let first = |seed, usage| generator(seed, usage).random::<u64>();
        assert_eq!(first(1, Use::Values), first(1, Use::Values));
        let all = [Use::Values, Use::Order, Use::Edges, Use::Sources].map(|usage| first(1, usage));
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "{all:?}");
        assert_ne!(first(1, Use::Values), first(2, Use::Values));
    }
}
