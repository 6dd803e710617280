//! Traces of touches, and how many of them a prefetcher leaves to wait for the node.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A memory in which everything that was fetched stays, and windows are mapped as a whole.
struct World {
    prefetcher: Prefetcher,
    mapped: BTreeSet<u32>,
    ahead: Vec<Vec<u32>>,
    misses: usize,
    hits: usize,
    fetched_ahead: usize,
}

impl World {
    fn new(algorithm: Algorithm) -> Self {
        let prefetcher = Prefetcher::new(algorithm);
        Self { prefetcher, mapped: BTreeSet::new(), ahead: Vec::new(), misses: 0, hits: 0, fetched_ahead: 0 }
    }

    /// Of windows that were fetched ahead only so many are kept.
    const WINDOWS_MAX: usize = 8;

    fn touch(&mut self, page: u32) {
        if self.mapped.contains(&page) {
            return;
        }
        let window = self.ahead.iter().position(|window| window.contains(&page));
        let touch = if let Some(window) = window {
            self.mapped.extend(self.ahead.remove(window));
            self.hits += 1;
            Touch::Hit
        } else {
            self.mapped.insert(page);
            self.misses += 1;
            Touch::Miss
        };
        let Some(plan) = self.prefetcher.touched(0, PageIndex(page), touch) else { return };
        assert!((1..=WINDOW_PAGES_MAX).contains(&plan.count) && plan.stride != 0);
        let is_new = |page: &u32| !self.mapped.contains(page);
        let window: Vec<u32> = plan.pages().map(|page| page.0).filter(is_new).collect();
        self.fetched_ahead += window.len();
        self.ahead.push(window);
        if self.ahead.len() > Self::WINDOWS_MAX {
            let unused = self.ahead.remove(0).len();
            self.prefetcher.unused(unused as u32);
        }
    }
}

fn run(algorithm: Algorithm, trace: impl IntoIterator<Item = u32>) -> World {
    let mut world = World::new(algorithm);
    trace.into_iter().for_each(|page| world.touch(page));
    world
}

/// A generator of numbers without a pattern.
fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 40) as u32
}

#[test]
fn a_sequence_is_missed_twice() {
    let world = run(Algorithm::Readahead, 0..10_000);
    assert_eq!(world.misses, 2);
    assert!(world.hits <= 10_000 / WINDOW_PAGES_MAX as usize + 4, "{} hits", world.hits);
    assert!(world.fetched_ahead <= 10_000 + 2 * WINDOW_PAGES_MAX as usize);
}

#[test]
fn sequences_beside_one_another_are_kept_apart() {
    let trace = (0..1000).flat_map(|step| (0..8).map(move |stream| stream * 100_000 + step));
    assert_eq!(run(Algorithm::Readahead, trace).misses, 16);
}

#[test]
fn nothing_is_fetched_ahead_without_an_algorithm_or_a_pattern() {
    assert_eq!(run(Algorithm::None, 0..1000).fetched_ahead, 0);
    for algorithm in [Algorithm::Readahead, Algorithm::Trend] {
        let mut state = 1;
        let world = run(algorithm, (0..100_000).map(|_| random(&mut state)));
        assert!(world.fetched_ahead <= 100, "{algorithm:?} fetches {} pages ahead", world.fetched_ahead);
    }
}

#[test]
fn a_trend_is_found_where_readahead_sees_nothing() {
    for stride in [7, 513] {
        let trace = || (0..10_000).map(move |step| step * stride);
        assert_eq!(run(Algorithm::Readahead, trace()).fetched_ahead, 0);
        let world = run(Algorithm::Trend, trace());
        assert!(world.misses <= 6, "{} misses", world.misses);
    }
    let back = run(Algorithm::Trend, (0..10_000).rev());
    assert!(back.misses <= 6, "{} misses backwards", back.misses);
}

#[test]
fn a_trend_is_found_in_noise() {
    let mut state = 5;
    let noisy = (0..10_000u32).flat_map(|step| {
        let noise = (step % 12 == 11).then(|| (1 << 24) + random(&mut state));
        std::iter::once(3 * step).chain(noise)
    });
    let world = run(Algorithm::Trend, noisy);
    assert!(world.misses <= 10_000 / 12 + 50, "{} misses", world.misses);
}

#[test]
fn a_prefetcher_that_does_not_pay_turns_itself_off_and_tries_again() {
    let mut state = 9;
    // Two neighbours and no third: readahead is wrong every time.
    let pairs = (0..40_000).flat_map(|_| {
        let page = random(&mut state) & !7;
        [page, page + 1]
    });
    let mut world = run(Algorithm::Readahead, pairs);
    assert!(world.fetched_ahead <= 1200, "{} pages fetched in vain of {}", world.fetched_ahead, world.misses);
    // Afterwards a sequence ends the pause.
    let before = world.misses;
    ((1 << 26)..(1 << 26) + 200_000).for_each(|page| world.touch(page));
    assert!(world.misses - before <= PAUSE_MISSES_MAX, "{} misses", world.misses - before);
}

/// Two looks at misses, of which the first has some of before, and what begins a sequence.
const PAUSE_MISSES_MAX: usize = 2 * 64 + 4;

/// Runs of eight pages are no sequences for which windows pay.
#[test]
fn short_sequences_do_not_end_a_pause() {
    let mut state = 9;
    let mut runs = |pages: u32, count| -> Vec<u32> {
        (0..count)
            .flat_map(|_| {
                let page = random(&mut state) & !31;
                page..page + pages
            })
            .collect()
    };
    let (pairs, eights) = (runs(2, 20_000), runs(8, 5_000));
    let mut world = run(Algorithm::Readahead, pairs);
    let before = world.fetched_ahead;
    eights.into_iter().for_each(|page| world.touch(page));
    assert!(world.fetched_ahead - before <= 1_200, "{} pages fetched ahead", world.fetched_ahead - before);
}

#[test]
fn a_window_that_is_cut_short_is_gone_on_with_from_there() {
    let mut prefetcher = Prefetcher::new(Algorithm::Readahead);
    let mut touched = |page, touch| prefetcher.touched(0, PageIndex(page), touch);
    assert_eq!(touched(10, Touch::Miss), None);
    let plan = touched(11, Touch::Miss).unwrap();
    assert_eq!((plan.first, plan.count), (PageIndex(12), 4));
    prefetcher.shortened(&plan, 2);
    assert_eq!(prefetcher.touched(0, PageIndex(13), Touch::Miss), None, "a miss in a window is a coincidence");
    let next = prefetcher.touched(0, PageIndex(14), Touch::Miss).unwrap();
    assert_eq!((next.first, next.count), (PageIndex(15), 8), "windows grow all the same");
    prefetcher.shortened(&next, 0);
    let next = prefetcher.touched(0, PageIndex(15), Touch::Miss).unwrap();
    assert_eq!((next.first, next.count), (PageIndex(16), 16));
}

#[test]
fn a_region_that_is_forgotten_is_unknown() {
    for algorithm in [Algorithm::Readahead, Algorithm::Trend] {
        let mut prefetcher = Prefetcher::new(algorithm);
        for page in 0..8 {
            prefetcher.touched(3, PageIndex(page), Touch::Miss);
        }
        prefetcher.forget(3);
        assert_eq!(prefetcher.touched(3, PageIndex(8), Touch::Miss), None);
    }
}

#[test]
fn a_plan_ends_where_numbers_do() {
    let pages = |first, stride| Plan { region: 0, first: PageIndex(first), stride, count: 4 }.pages().count();
    assert_eq!((pages(2, -1), pages(u32::MAX - 1, 1), pages(10, 5)), (3, 2, 4));
}

/// What is fetched together is a sequence if it follows what was, and none if it lies anywhere.
#[test]
fn what_is_fetched_together_continues_what_was() {
    let mut prefetcher = Prefetcher::new(Algorithm::Readahead);
    let plan = |first, count| Some(Plan { region: 0, first: PageIndex(first), stride: 1, count });
    assert_eq!(prefetcher.fetched_together(0, 100..116), None);
    assert_eq!([300..302, 500..502].map(|pages| prefetcher.fetched_together(0, pages)), [None, None]);
    assert_eq!(prefetcher.fetched_together(0, 116..132), plan(132, 4));
    assert_eq!(prefetcher.touched(0, PageIndex(132), Touch::Hit), plan(136, 8));
    assert_eq!(prefetcher.fetched_together(0, 144..148), plan(148, 16));
    // Windows grow, and lie behind what was just fetched.
    let ranges = (0..6).map(|range| 1_000 + 32 * range..1_032 + 32 * range);
    let plans = ranges.map(|pages| prefetcher.fetched_together(1, pages).map(|plan| (plan.first.0, plan.count)));
    let wanted = [None, Some((1_064, 4)), Some((1_096, 8)), Some((1_128, 16)), Some((1_160, 32)), Some((1_192, 32))];
    assert_eq!(plans.collect::<Vec<_>>(), wanted);
}

/// What was passed long ago may be read again, as any other sequence.
#[test]
fn what_was_passed_is_a_sequence_where_it_is_read() {
    let mut prefetcher = Prefetcher::new(Algorithm::Readahead);
    (0..1_024).step_by(32).for_each(|first| _ = prefetcher.fetched_together(0, first..first + 32));
    assert_eq!(prefetcher.touched(0, PageIndex(100), Touch::Miss), None);
    let plan = Plan { region: 0, first: PageIndex(102), stride: 1, count: 4 };
    assert_eq!(prefetcher.touched(0, PageIndex(101), Touch::Miss), Some(plan));
}

#[test]
fn a_plan_that_would_begin_before_the_first_page_is_empty() {
    let mut streams = Streams::new();
    assert_eq!(streams.find(0, PageIndex(129), Touch::Miss), Found::Nothing);
    streams.begin(0, PageIndex(129), -129);
    let Found::Next(plan) = streams.find(0, PageIndex(0), Touch::Miss) else { panic!("page 0 was expected") };
    assert_eq!(plan.pages().count(), 0);
}

proptest! {
    /// Whatever is touched, a plan lies ahead of the touched page, and never has it.
    #[test]
    fn plans_lie_ahead(trace in prop::collection::vec((0u32..3, 0u32..300, any::<bool>()), 1..400), trend in any::<bool>()) {
        let mut prefetcher = Prefetcher::new(if trend { Algorithm::Trend } else { Algorithm::Readahead });
        for (region, page, is_hit) in trace {
            let touch = if is_hit { Touch::Hit } else { Touch::Miss };
            let Some(plan) = prefetcher.touched(region, PageIndex(page), touch) else { continue };
            prop_assert_eq!(plan.region, region);
            prop_assert!((1..=WINDOW_PAGES_MAX).contains(&plan.count));
            for ahead in plan.pages() {
                prop_assert_ne!(ahead.0, page);
                prop_assert_eq!(ahead.0 > page, plan.stride > 0);
            }
        }
    }
}
