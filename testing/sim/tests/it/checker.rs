//! The simulator as a whole: seeds hold and repeat themselves, and each sabotage is caught, so the checker can fail.

use yonder_sim::Count::{
    self, Aborts, Attacks, Cancelled, Done, InPieces, LeasesOver, NumbersAgain, ProcessRestarts, Renewals, Repeated,
    Requests, Restarts, Revoked, Sessions, SessionsRenewed, Spent, TurnedAway, Unknown, Words,
};
use yonder_sim::{Sabotage, simulate};
use yonder_simulation::{Counts, Trace};

/// Seeds that must hold. `cargo xtask ci` runs 10,000.
const SEEDS: u64 = 400;
/// Seeds within which a sabotage must be caught.
const CAUGHT_WITHIN: u64 = 1000;

#[test]
fn seeds_hold_and_everything_happens_in_some() {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        match simulate(seed, None, Trace::Silent) {
            Ok(outcome) => counts.merge(&outcome.counts),
            Err(failure) => panic!("seed {seed}: {}; type cargo xtask sim --seed {seed} --trace", failure.cause),
        }
    }
    let least = |counted: &[Count]| counted.iter().map(|count| counts.of(*count)).min();
    let often = [Done, Unknown, Cancelled, Requests, Repeated, Aborts, Restarts, InPieces, Words];
    assert!(least(&often) >= Some(100), "something hardly ever happens: {counts:?}");
    assert!(least(&[LeasesOver, Renewals, ProcessRestarts, Revoked]) >= Some(50), "{counts:?}");
    assert!(counts.of(NumbersAgain) >= 10, "{counts:?}");
    assert!(least(&[Spent, Attacks, Sessions, SessionsRenewed, TurnedAway]) >= Some(100), "{counts:?}");
    // Bad address, no memory, bad length, bad capability, not allowed, too old, moved.
    assert!(least(&[1, 2, 3, 4, 5, 8, 11].map(Count::Refused)) > Some(10), "{counts:?}");
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(simulate(seed, None, Trace::Silent), simulate(seed, None, Trace::Silent));
    }
}

/// Each sabotage, and what the checker must say about it in one of the first seeds.
const CAUGHT: [(Sabotage, &str); 31] = [
    (Sabotage::ForgetfulRing, "a copy of an executed request changed memory"),
    (Sabotage::LostWrites, "was read as"),
    (Sabotage::ForgottenAborts, "executed after it was Aborted"),
    (Sabotage::DirtyPages, "was read as"),
    (Sabotage::WrongPage, "was read as"),
    (Sabotage::OpenDoors, "executed, though: the node does not know this address space"),
    (Sabotage::LeakedPages, "has leaked"),
    (Sabotage::TornAtomics, "an atomic answered"),
    (Sabotage::WrongOrder, "on its lane, was executed after number"),
    (Sabotage::OpenFences, "was passed before operation"),
    (Sabotage::BrokenLocks, "hold the lock"),
    (Sabotage::MixedAnswers, "bytes were delivered that no node has sent"),
    (Sabotage::LostMoves, "was read as"),
    (Sabotage::StoppedTimers, "nothing happens any more"),
    (Sabotage::RisingBound, "something does not end"),
    (Sabotage::CorrectedTimes, "a copy of an executed request changed memory"),
    (Sabotage::AnsweredEarly, "was answered before its last piece was done"),
    (Sabotage::AbortedBetween, "executed after it was Aborted"),
    (Sabotage::GivenOutInPieces, "without a reason"),
    (Sabotage::LeasesThatLeap, "ns after a renewal of its"),
    (Sabotage::LateLeases, "before its lease was over"),
    (Sabotage::WindowsAcceptTwice, "has let in twice"),
    (Sabotage::OneKeyBothWays, "has taken what its node has not sealed"),
    (Sabotage::RetriesCountAgain, "share a key and the counter"),
    (Sabotage::EndlessSessions, "has let in after the end of its session"),
    (Sabotage::AnyAddress, "has let in from another address"),
    (Sabotage::PlainIsLetIn, "a plain message was let in"),
    (Sabotage::ThreadsCountTogether, "share a key and the counter"),
    (Sabotage::ThreadsAreOne, "a copy of an executed request changed memory"),
    (Sabotage::KeptSecret, "two sessions have one secret"),
    (Sabotage::NothingIsRevoked, "executed, though: the node does not know this address space"),
];

#[test]
fn every_sabotage_is_caught() {
    for (sabotage, words) in CAUGHT {
        let mut causes = (0..CAUGHT_WITHIN).filter_map(|seed| simulate(seed, Some(sabotage), Trace::Silent).err());
        let found = causes.find(|failure| failure.cause.contains(words));
        let found = found.unwrap_or_else(|| panic!("nobody noticed {sabotage:?}"));
        println!("{sabotage:?}: seed {}", found.seed);
    }
}
