//! The pager's simulator: many seeds hold, each sabotage is caught, and what seeds have found stays mended.

use yonder_pager_sim::{Count, Sabotage, simulate};
use yonder_simulation::{Counts, Trace};

/// Seeds of which at least one catches each sabotage.
const SEEDS_TO_CATCH: u64 = 10_000;

#[test]
fn seeds_hold() {
    let mut counts = Counts::default();
    for seed in 0..400 {
        counts.merge(&simulate(seed, None, Trace::Silent).unwrap_or_else(|failure| panic!("{failure:?}")));
    }
    // The seeds do what they are for.
    for (count, least) in [(Count::Checked, 50_000), (Count::Executed, 10_000), (Count::Failed, 100)] {
        assert!(counts.of(count) > least, "{counts:?}");
    }
}

#[test]
fn a_seed_is_the_same_each_time() {
    let twice = [7, 7].map(|seed| simulate(seed, None, Trace::Silent));
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn every_sabotage_is_caught() {
    let is_missed = |sabotage: &Sabotage| {
        let caught = (0..SEEDS_TO_CATCH).find(|seed| simulate(*seed, Some(*sabotage), Trace::Silent).is_err());
        println!("{sabotage:?}: caught by seed {caught:?}");
        caught.is_none()
    };
    // A panic of the pager counts as caught, and need not be told.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let missed: Vec<Sabotage> = Sabotage::all().filter(is_missed).collect();
    std::panic::set_hook(hook);
    assert!(Sabotage::all().count() >= 46 && missed.is_empty(), "{missed:?} are missed");
}
