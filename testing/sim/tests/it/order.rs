//! The order between the lanes of a process: seeds hold, and each sabotage of it is caught.
//!
//! `YONDER_ORDER_SEED=7 cargo test -p yonder-sim --test it order::seeds` runs one seed.

use yonder_sim::OrderCount::{Clean, Confirmed, GivenUp, Reads, Stalls, Writes};
use yonder_sim::{Sabotage, simulate_order};
use yonder_simulation::Counts;

const SEEDS: u64 = 600;
/// Seeds within which a sabotage must be caught.
const CAUGHT_WITHIN: u64 = 200;

#[test]
fn seeds_hold_and_everything_happens_in_some() {
    let only = std::env::var("YONDER_ORDER_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    let mut all = Counts::default();
    for seed in only.map_or(0..SEEDS, |seed: u64| seed..seed + 1) {
        match simulate_order(seed, None) {
            Ok(counts) => all.merge(&counts),
            Err(failure) => panic!("seed {seed}: {}", failure.cause),
        }
    }
    let least = [Writes, Reads, Clean, Confirmed, GivenUp, Stalls].into_iter().map(|count| all.of(count)).min();
    assert!(only.is_some() || least >= Some(1000), "something hardly ever happens: {all:?}");
}

#[test]
fn a_seed_repeats_itself() {
    (0..20).for_each(|seed| assert_eq!(simulate_order(seed, None), simulate_order(seed, None)));
}

/// Each sabotage, and what the oracle must say about it in one of the first seeds.
const CAUGHT: [(Sabotage, &str); 5] = [
    (Sabotage::GivenOutEarly, "what was acknowledged is"),
    (Sabotage::ForgottenDigest, "what was acknowledged is"),
    (Sabotage::CleanWhileHeld, "what was acknowledged is"),
    (Sabotage::ForgetfulLane, "what was acknowledged is"),
    (Sabotage::FreedRangeUsed, "ended Refused(BadAddress)"),
];

#[test]
fn every_sabotage_is_caught() {
    for (sabotage, words) in CAUGHT {
        let mut causes = (0..CAUGHT_WITHIN).filter_map(|seed| simulate_order(seed, Some(sabotage)).err());
        assert!(causes.any(|failure| failure.cause.contains(words)), "nobody noticed {sabotage:?}");
    }
}
