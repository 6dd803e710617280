//! A group under a program of several threads, a mender and a supervisor, on nodes that lose, delay and repeat, stand
//! still, are cut off, and die and come back with nothing or with what they had a while ago, while controllers come and
//! go. By seeds.
//!
//! What a read brings that counts is what was last acknowledged. Where one thing fails at a time no page is lost, and
//! where no node fails no place is given up, however long the program itself stood still. At the end all is mended.

mod controller;
mod node;
mod owner;
mod pair;
mod runs;
mod supervisor;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use yonder_protect::{Rule, Rules};

use world::World;

const PAGES: usize = 8;
const NODES_MAX: usize = 10;
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;

/// A rule of the group that is broken, or none.
#[derive(Clone, Copy, Debug)]
struct Broken(Option<Rule>);

impl Rules for Broken {
    fn breaks(self, rule: Rule) -> bool {
        self.0 == Some(rule)
    }
}

/// Something around the group that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sabotage {
    /// Nodes answer what was meant for an earlier incarnation.
    AnyIncarnation,
    /// A write that is repeated is executed again.
    RepeatedWrites,
    /// What was cancelled is taken for settled.
    SettledEarly,
    /// A pause of the program counts as silence of nodes.
    PausesAreSilence,
    /// Nodes that are not up are not probed.
    NothingIsProbed,
    /// A share that is mended is that of the slot behind.
    MendedShareIsAnother,
    /// A node serves a region that has moved.
    MovedIsServed,
    /// A region is written while it moves.
    OpenWhileMoving,
    /// A write that was cancelled is taken for settled when its place is said to have moved.
    SettledByWord,
    /// Regions that come back take what was sent before.
    NothingIsTooOld,
    /// Places that nobody uses are not asked whether they are there.
    QuietPlacesAreNotAsked,
    /// A node that a place moves to is as silent as it was.
    OldSilenceCounts,
}

#[derive(Clone, Copy, Debug)]
enum Breach {
    Rule(Rule),
    World(Sabotage),
}

/// What is counted, to see that runs are about something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    Read,
    ReadAgain,
    Unreadable,
    Hedged,
    /// A read was begun while a node did not keep up.
    Slow,
    Written,
    WrittenDegraded,
    WriteFailed,
    WriteRefused,
    /// It was posted again to where its place had moved.
    WrittenAgain,
    Forgotten,
    Settled,
    Mended,
    GivenUp,
    Retired,
    Kept,
    TakenBack,
    Adopted,
    Evacuated,
    ControllerAway,
    RegionMoved,
    /// The program has learned of it.
    Moved,
    /// A write waited only for places that are evacuated.
    HeldUp,
    Lost,
}

const COUNTS: [Count; 24] = [
    Count::Read,
    Count::ReadAgain,
    Count::Unreadable,
    Count::Hedged,
    Count::Slow,
    Count::Written,
    Count::WrittenDegraded,
    Count::WriteFailed,
    Count::WriteRefused,
    Count::WrittenAgain,
    Count::Forgotten,
    Count::Settled,
    Count::Mended,
    Count::GivenUp,
    Count::Retired,
    Count::Kept,
    Count::TakenBack,
    Count::Adopted,
    Count::Evacuated,
    Count::ControllerAway,
    Count::RegionMoved,
    Count::Moved,
    Count::HeldUp,
    Count::Lost,
];

type Counts = [u64; COUNTS.len()];

fn run(seed: u64, breach: Option<Breach>) -> Result<Counts, String> {
    let ended = catch_unwind(AssertUnwindSafe(|| World::new(seed, breach).run()));
    ended.unwrap_or_else(|panic| match panic.downcast::<String>() {
        Ok(text) => Err(*text),
        Err(panic) => Err(panic.downcast::<&str>().map_or_else(|_| "?".to_owned(), |text| (*text).to_owned())),
    })
}

/// Runs that the test makes, unless the variable `YONDER_PROTECT_SEEDS` says how many.
const SEEDS: u64 = 5_000;

#[test]
#[cfg_attr(miri, ignore = "a seed takes minutes")]
fn what_counts_is_what_was_acknowledged_and_all_is_mended() {
    let seeds = std::env::var("YONDER_PROTECT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let mut counts = Counts::default();
    for seed in 0..seeds {
        let more = run(seed, None).unwrap_or_else(|cause| panic!("seed {seed}: {cause}"));
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    for count in COUNTS {
        println!("{count:?}: {}", counts[count as usize]);
        assert!(counts[count as usize] > 0, "the runs are not about {count:?}");
    }
}

/// What is broken. Other rules are broken in `words`, and in the models of the crate.
const BREACHES: [Breach; 28] = [
    Breach::Rule(Rule::EndedWriteIsCurrentOnly),
    Breach::Rule(Rule::UnsettledIsRemembered),
    Breach::Rule(Rule::UnsettledIsLeftOut),
    Breach::Rule(Rule::MendedIsLeftOut),
    Breach::Rule(Rule::MendLooksAtVersion),
    Breach::Rule(Rule::MendAvoidsUnsettled),
    Breach::Rule(Rule::ReadGoesToCurrent),
    Breach::Rule(Rule::GivenUpIsNotAsked),
    Breach::Rule(Rule::ReadLooksAtVersion),
    Breach::Rule(Rule::HedgeIsLookedAt),
    Breach::Rule(Rule::ForgettingIsChange),
    Breach::Rule(Rule::SolePlaceStays),
    Breach::Rule(Rule::EvacuatedStaysUntilMoved),
    Breach::Rule(Rule::EvacuatedIsWrittenIfNeeded),
    Breach::Rule(Rule::ReadNeedsEnough),
    Breach::Rule(Rule::WriteNeedsEnough),
    Breach::World(Sabotage::AnyIncarnation),
    Breach::World(Sabotage::RepeatedWrites),
    Breach::World(Sabotage::SettledEarly),
    Breach::World(Sabotage::PausesAreSilence),
    Breach::World(Sabotage::NothingIsProbed),
    Breach::World(Sabotage::MendedShareIsAnother),
    Breach::World(Sabotage::MovedIsServed),
    Breach::World(Sabotage::OpenWhileMoving),
    Breach::World(Sabotage::SettledByWord),
    Breach::World(Sabotage::NothingIsTooOld),
    Breach::World(Sabotage::QuietPlacesAreNotAsked),
    Breach::World(Sabotage::OldSilenceCounts),
];

/// Within so many seeds each is found.
const SEEDS_TO_FIND: u64 = 1_000;

#[test]
#[cfg_attr(miri, ignore = "a seed takes minutes")]
fn every_breach_is_found() {
    let mut missed = Vec::new();
    for breach in BREACHES {
        match (0..SEEDS_TO_FIND).find_map(|seed| run(seed, Some(breach)).err().map(|cause| (seed, cause))) {
            Some((seed, cause)) => println!("{breach:?}: seed {seed}: {cause}"),
            None => missed.push(breach),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
