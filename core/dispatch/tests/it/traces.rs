//! The predictor on synthetic traces: a cache of pages in the order of their use, and keys of every popularity.
//!
//! A trace is served in order. Each request touches the page of its key; pages beyond the limit leave the cache. The
//! predictor is compared with what always saying hit, or always saying fault, would have got right.

use proptest::prelude::*;
use yonder_dispatch::predict::{Outcome, Prediction, Predictor};
use yonder_units::Residence;
use yonder_units::{PageId, PageIndex};

use crate::cache::{Cache, Leaves};
use crate::keys::{uniform, zipf};

/// Whether the predictor learns where a key's page is.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Places {
    Known,
    Unknown,
}

/// (Predicted, was) by number.
#[derive(Default, Debug)]
struct Score {
    hits_right: u32,
    hits_wrong: u32,
    faults_right: u32,
    faults_wrong: u32,
}

impl Score {
    fn all(&self) -> f64 {
        f64::from(self.hits_right + self.hits_wrong + self.faults_right + self.faults_wrong)
    }

    fn accuracy(&self) -> f64 {
        f64::from(self.hits_right + self.faults_right) / self.all()
    }

    /// What the better of always hit and always fault would have got right.
    fn best_constant(&self) -> f64 {
        let faults = f64::from(self.faults_right + self.hits_wrong) / self.all();
        faults.max(1.0 - faults)
    }

    /// Hits that were predicted to fault, which have to wait.
    fn delayed_hits(&self) -> f64 {
        f64::from(self.faults_wrong) / f64::from(self.hits_right + self.faults_wrong)
    }
}

struct World {
    cache: Cache,
    predictor: Predictor,
    places: Places,
    keys_per_page: u32,
    pages_per_key: u32,
}

impl World {
    fn new(local_pages: usize, leaves: Leaves, places: Places) -> Self {
        let predictor = Predictor::new(local_pages as u64);
        Self { cache: Cache::new(local_pages, leaves), predictor, places, keys_per_page: 1, pages_per_key: 1 }
    }

    fn serve(&mut self, keys: impl Iterator<Item = u32>) -> Score {
        let mut score = Score::default();
        for key in keys {
            let is_local = |cache: &Cache, page_id: PageId| {
                if cache.has(page_id.page.0) { Residence::Local } else { Residence::Far }
            };
            let forecast = self.predictor.predict(u64::from(key), |page_id| is_local(&self.cache, page_id));
            let first = key / self.keys_per_page * self.pages_per_key;
            let mut outcome = Outcome { major_faults: 0, page_id: None };
            for page in first..first + self.pages_per_key {
                if self.cache.touch(page) {
                    outcome.major_faults += 1;
                    let page_id = PageId { region: 0, page: PageIndex(page) };
                    outcome.page_id = (self.places == Places::Known).then_some(page_id);
                }
            }
            *match (forecast.prediction, outcome.major_faults > 0) {
                (Prediction::Hit, false) => &mut score.hits_right,
                (Prediction::Hit, true) => &mut score.hits_wrong,
                (Prediction::Fault, true) => &mut score.faults_right,
                (Prediction::Fault, false) => &mut score.faults_wrong,
            } += 1;
            self.predictor.learn(u64::from(key), forecast, outcome, |page_id| is_local(&self.cache, page_id));
        }
        score
    }
}

const KEYS: u32 = 40_000;
const LOCAL: usize = KEYS as usize / 5;

#[test]
fn zipfian_keys_beat_every_constant_and_no_hit_waits_where_places_are_known() {
    for leaves in [Leaves::LeastRecent, Leaves::First] {
        let mut world = World::new(LOCAL, leaves, Places::Known);
        world.serve(zipf(KEYS, 0, 1).take(200_000));
        let score = world.serve(zipf(KEYS, 0, 2).take(200_000));
        assert!(score.accuracy() > 0.99, "{leaves:?}: {} of {}", score.accuracy(), score.best_constant());
        assert!(score.best_constant() < 0.9 && score.delayed_hits() < 0.005, "{score:?}");
    }
}

#[test]
fn zipfian_keys_beat_every_constant_by_their_age_alone() {
    for (leaves, gain) in [(Leaves::LeastRecent, 0.15), (Leaves::First, 0.08)] {
        let mut world = World::new(LOCAL, leaves, Places::Unknown);
        world.serve(zipf(KEYS, 0, 1).take(200_000));
        let score = world.serve(zipf(KEYS, 0, 2).take(200_000));
        assert!(score.accuracy() > score.best_constant() + gain, "{leaves:?}: {score:?}");
    }
}

#[test]
fn keys_that_share_pages_are_told_apart() {
    let mut world = World { keys_per_page: 4, ..World::new(LOCAL / 4, Leaves::LeastRecent, Places::Known) };
    world.serve(zipf(KEYS, 0, 1).take(400_000));
    let score = world.serve(zipf(KEYS, 0, 2).take(200_000));
    assert!(score.accuracy() > 0.95 && score.delayed_hits() < 0.05, "{score:?}");
}

#[test]
fn uniform_keys_are_no_worse_than_the_best_constant() {
    for places in [Places::Known, Places::Unknown] {
        for local in [LOCAL / 20, LOCAL, KEYS as usize / 2] {
            for leaves in [Leaves::LeastRecent, Leaves::First] {
                let mut world = World::new(local, leaves, places);
                world.serve(uniform(KEYS, 1).take(100_000));
                let score = world.serve(uniform(KEYS, 2).take(100_000));
                assert!(score.accuracy() > score.best_constant() - 0.02, "{places:?} {local} {leaves:?}: {score:?}");
            }
        }
    }
}

#[test]
fn everything_local_is_predicted_to_hit() {
    for places in [Places::Known, Places::Unknown] {
        let mut world = World::new(2 * KEYS as usize, Leaves::LeastRecent, places);
        world.serve(0..KEYS);
        let score = world.serve(uniform(KEYS, 1).take(100_000));
        assert!(score.accuracy() > 0.999, "{places:?}: {score:?}");
    }
}

#[test]
fn uniform_keys_with_hardly_any_local_memory_are_predicted_to_fault() {
    for places in [Places::Known, Places::Unknown] {
        let mut world = World::new(KEYS as usize / 1000, Leaves::LeastRecent, places);
        world.serve(uniform(KEYS, 1).take(100_000));
        let score = world.serve(uniform(KEYS, 2).take(100_000));
        assert!(score.accuracy() > 0.99, "{places:?}: {score:?}");
    }
}

#[test]
fn new_popular_keys_are_learned_soon() {
    for places in [Places::Known, Places::Unknown] {
        let mut world = World::new(LOCAL, Leaves::LeastRecent, places);
        world.serve(zipf(KEYS, 0, 1).take(200_000));
        let before = world.serve(zipf(KEYS, 0, 2).take(100_000));
        // All other keys from one request to the next; the time of as many faults as local memory has pages is theirs.
        world.serve(zipf(KEYS, KEYS, 3).take(40_000));
        let after = world.serve(zipf(KEYS, KEYS, 4).take(100_000));
        assert!(after.accuracy() > before.accuracy() - 0.02, "{places:?}: {before:?}, then {after:?}");
    }
}

/// Moved to where it has never been, as a set moves an item: the place that is remembered is wrong until it faults
/// again.
#[test]
fn a_place_that_is_out_of_date_is_forgotten() {
    let mut predictor = Predictor::new(1000);
    let far = |_| Residence::Far;
    let page_id = Some(PageId { region: 0, page: PageIndex(1) });
    let forecast = predictor.predict(7, far);
    predictor.learn(7, forecast, Outcome { major_faults: 1, page_id }, far);
    let forecast = predictor.predict(7, far);
    assert_eq!(forecast.prediction, Prediction::Fault);
    predictor.learn(7, forecast, Outcome { major_faults: 0, page_id: None }, far);
    assert_eq!(predictor.predict(7, |_| panic!("there is no page_id to look at")).prediction, Prediction::Hit);
}

/// Values of more pages than one: that one of them is here says little.
#[test]
fn keys_that_fault_although_their_page_is_here_are_learned() {
    let mut predictor = Predictor::new(1000);
    let here = |_| Residence::Local;
    let outcome =
        |key, major_faults| Outcome { major_faults, page_id: Some(PageId { region: 0, page: PageIndex(key) }) };
    for turn in 0..200 {
        for (key, faults) in [(1, 1), (2, 0), (3, 0), (4, 0)] {
            let forecast = predictor.predict(u64::from(key), here);
            if turn > 100 {
                assert_eq!(forecast.prediction == Prediction::Fault, faults > 0, "key {key} in turn {turn}");
            }
            predictor.learn(u64::from(key), forecast, outcome(key, faults), here);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]
    /// Whatever it is told, it takes the memory that it took at first, and goes on.
    #[test]
    fn memory_is_bounded(local in 0u64..100_000, keys in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 1..2000)) {
        let mut predictor = Predictor::new(local);
        let bytes = predictor.bytes();
        prop_assert!(bytes <= yonder_dispatch::predict::KEYS_MAX * 16);
        for (key, major_faults, page) in keys {
            let residence = |page_id: PageId| if page_id.page.0.is_multiple_of(2) { Residence::Local } else { Residence::Unknown };
            let forecast = predictor.predict(key, residence);
            let page_id = (page % 3 > 0).then_some(PageId { region: page % 64, page: PageIndex(page) });
            predictor.learn(key, forecast, Outcome { major_faults, page_id }, residence);
        }
        prop_assert_eq!(predictor.bytes(), bytes);
    }
}
