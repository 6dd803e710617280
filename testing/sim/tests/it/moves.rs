//! Moves of regions between nodes: seeds hold, everything happens in some, and each sabotage is caught.

use yonder_sim::MoveCount::{
    ByOldPlaces, Controllers, Executed, GivenUp, HeardOfController, HeardOfSource, Lost, Moved, Refused, Restarts,
};
use yonder_sim::{MoveSabotage, simulate_moves};
use yonder_simulation::{Counts, Trace};

/// Seeds that must hold.
const SEEDS: u64 = 600;
/// Seeds within which a sabotage must be caught.
const CAUGHT_WITHIN: u64 = 300;

#[test]
fn seeds_hold_and_everything_happens_in_some() {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        match simulate_moves(seed, None, Trace::Silent) {
            Ok(run) => counts.merge(&run),
            Err(failure) => panic!("seed {seed}: {}", failure.cause),
        }
    }
    let often = [Moved, GivenUp, HeardOfSource, HeardOfController, Executed, Refused];
    let often = often.into_iter().chain([ByOldPlaces, Restarts, Lost, Controllers]);
    let least = often.map(|count| counts.of(count)).min();
    assert!(least >= Some(100), "something hardly ever happens: {counts:?}");
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(simulate_moves(seed, None, Trace::Silent), simulate_moves(seed, None, Trace::Silent));
    }
}

/// What moves were before: the answer to the last message of a move was lost, and both nodes served the region.
#[test]
fn the_protocol_of_one_phase_serves_a_region_twice() {
    let run = |seed| simulate_moves(seed, Some(MoveSabotage::OnePhase), Trace::Silent);
    let failure = (0..30).find_map(|seed| run(seed).err()).expect("a message is lost in one of the first seeds");
    assert!(failure.cause.contains(TWICE), "{}", failure.cause);
}

const TWICE: &str = "is served by [";
const STALE: &str = "was the last that was written there";
const STUCK: &str = "a move has no end";

/// Each sabotage, and what the checker must say about it, one or the other, in one of the first seeds.
const CAUGHT: [(MoveSabotage, [&str; 2]); 7] = [
    (MoveSabotage::OnePhase, [TWICE, TWICE]),
    (MoveSabotage::EagerTarget, [TWICE, TWICE]),
    (MoveSabotage::HastySource, [STUCK, STUCK]),
    (MoveSabotage::AnyWord, [TWICE, STALE]),
    (MoveSabotage::AnyNumber, [TWICE, STALE]),
    (MoveSabotage::ForgetfulTarget, [STUCK, STUCK]),
    (MoveSabotage::SilentController, [STUCK, STUCK]),
];

#[test]
fn every_sabotage_is_caught() {
    for (sabotage, words) in CAUGHT {
        let caught = (0..CAUGHT_WITHIN).find_map(|seed| {
            let failure = simulate_moves(seed, Some(sabotage), Trace::Silent).err()?;
            words.iter().any(|words| failure.cause.contains(words)).then_some(failure)
        });
        assert!(caught.is_some(), "nothing was said of {sabotage:?}");
    }
}
