//! [`Costs`] and [`Curve`]: from what would be missed to how long it would take, and how much is enough.

use yonder_units::{Narrow, PAGE_BYTES};

use crate::model::{PAGES_MIN, Replayed, replay_weighted};
use crate::sample::Unfolded;

/// What happens to a page costs a program, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// A page that is fetched when it is touched.
    pub random_ns: f64,
    /// A page that is fetched ahead.
    pub sequence_ns: f64,
    /// A page that was unmapped and had not left.
    pub rescue_ns: f64,
    /// A page that is touched for the first time while local memory is short, over what it costs alone.
    pub first_ns: f64,
}

impl Costs {
    /// How much longer it takes, in seconds.
    #[must_use]
    pub fn seconds(&self, replayed: &Replayed) -> f64 {
        let random = replayed.misses - replayed.in_sequences;
        let parts = [
            (random, self.random_ns),
            (replayed.in_sequences, self.sequence_ns),
            (replayed.rescues, self.rescue_ns),
            (replayed.firsts, self.first_ns),
        ];
        parts.iter().map(|(pages, cost)| *pages as f64 * cost * 1e-9).sum()
    }
}

/// What is predicted of one size of local memory.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Local memory of each process.
    pub local_bytes: u64,
    /// What all processes would miss.
    pub replayed: Replayed,
}

/// What is predicted of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Curve {
    /// How long it takes with all of it local.
    pub seconds: f64,
    /// Sizes of local memory, the smallest first.
    pub points: Vec<Point>,
}

impl Curve {
    /// Replays the touches of each process of a program, which takes `seconds` alone, with each size of local memory
    /// that is large enough to be replayed.
    #[must_use]
    pub fn new(seconds: f64, processes: &[Unfolded], sizes: &[u64]) -> Self {
        let least = processes.iter().map(|process| process.stands_for).max().unwrap_or(1) * PAGES_MIN as u64;
        let sizes = sizes.iter().filter(|size| *size / PAGE_BYTES as u64 >= least);
        let point = |local_bytes: &u64| {
            let replay_in = |Unfolded { trace, weights, stands_for }: &Unfolded| {
                let pages = local_bytes / PAGE_BYTES as u64 / stands_for;
                replay_weighted(trace, weights, pages.narrow_usize()).times(*stands_for)
            };
            let replayed = processes.iter().map(replay_in).fold(Replayed::default(), Replayed::plus);
            Point { local_bytes: *local_bytes, replayed }
        };
        let mut points: Vec<Point> = sizes.map(point).collect();
        points.sort_unstable_by_key(|point| point.local_bytes);
        Self { seconds, points }
    }

    /// How long the program would take, as a multiple of what it takes alone.
    #[must_use]
    pub fn slowdown(&self, point: &Point, costs: &Costs) -> f64 {
        1.0 + costs.seconds(&point.replayed) / self.seconds
    }

    /// The least local memory from which on the program is slowed down by no more than a share, such as 0.05: `None`
    /// if no size is enough.
    #[must_use]
    pub fn enough(&self, share: f64, costs: &Costs) -> Option<u64> {
        let is_enough = |point: &&Point| self.slowdown(point, costs) <= 1.0 + share;
        self.points.iter().rev().take_while(is_enough).last().map(|point| point.local_bytes)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use yonder_units::{BLOCK_PAGES_U32, PageIndex};

    use super::*;
    use crate::sample::{Coarseness, Sample, Seen, Weight, is_sampled};
    use crate::trace::{Touch, Trace};

    const COSTS: Costs = Costs { random_ns: 10_000.0, sequence_ns: 1_000.0, rescue_ns: 3_000.0, first_ns: 2_000.0 };

    #[test]
    fn each_page_costs_what_happens_to_it() {
        let replayed = Replayed { misses: 300, in_sequences: 100, rescues: 10, firsts: 20 };
        let seconds = COSTS.seconds(&replayed);
        assert!((seconds - (200.0 * 10.0 + 100.0 + 30.0 + 40.0) * 1e-6).abs() < 1e-9, "{seconds}");
        assert!(COSTS.seconds(&Replayed::default()).abs() < 1e-9);
    }

    #[test]
    fn what_is_enough_is_enough_for_all_that_is_more() {
        let point = |local_bytes, misses| Point { local_bytes, replayed: Replayed { misses, ..Replayed::default() } };
        // A policy may miss more with more memory.
        let points = vec![point(1, 900), point(2, 400), point(3, 700), point(4, 50), point(5, 0)];
        let curve = Curve { seconds: 0.01, points };
        let enough = |share| curve.enough(share, &COSTS);
        assert_eq!([0.0, 0.06, 0.5, 0.8, 0.95].map(enough), [5, 4, 4, 2, 1].map(Some));
        assert_eq!(Curve { points: vec![point(5, 100)], ..curve }.enough(0.05, &COSTS), None);
        assert!((curve_slowdown() - 1.5).abs() < 1e-9);
    }

    fn curve_slowdown() -> f64 {
        let point = Point { local_bytes: 1, replayed: Replayed { misses: 50, ..Replayed::default() } };
        Curve { seconds: 0.001, points: vec![point] }.slowdown(&point, &COSTS)
    }

    /// A program that reads some pages in a circle and others at random, of which half are asked for more than others.
    fn program(pages: u32, touches: u32) -> impl Iterator<Item = Touch> {
        let mut random = SmallRng::seed_from_u64(5);
        let first = (0..pages).map(|page| Touch { page: PageIndex(page), is_first: true });
        first.chain((0..touches).map(move |touch| {
            let of_half = random.random_range(0..pages / 2);
            let page = match touch % 4 {
                0 => pages / 2 + touch / 4 % (pages / 2),
                1 => of_half.min(random.random_range(0..pages / 2)),
                _ => of_half / 4,
            };
            Touch { page: PageIndex(page), is_first: false }
        }))
    }

    #[test]
    fn a_sample_predicts_what_all_pages_show() {
        let (pages, touches) = (64 * BLOCK_PAGES_U32, 600_000);
        let all = Unfolded { trace: Trace::new(program(pages, touches)), weights: Vec::new(), stands_for: 1 };
        let sizes = [1, 2, 3].map(|quarter| u64::from(pages) * PAGE_BYTES as u64 * quarter / 4);
        let expected = Curve::new(1.0, &[all], &sizes);
        for (coarseness, most) in [(0, usize::MAX), (1, usize::MAX), (0, 400_000)] {
            let coarseness = Coarseness(coarseness);
            let seen = program(pages, touches).filter(|touch| is_sampled(touch.page, coarseness)).map(Seen::Touch);
            let sample = Sample::new([Seen::Coarser(coarseness)].into_iter().chain(seen).collect());
            let curve = Curve::new(1.0, &[sample.unfold(most)], &sizes);
            for (point, expected) in curve.points.iter().zip(&expected.points) {
                let ratio = point.replayed.misses as f64 / expected.replayed.misses as f64;
                assert!((0.85..1.15).contains(&ratio), "{ratio} with {coarseness:?}, {point:?} and {expected:?}");
            }
        }
    }

    #[test]
    fn what_was_seen_now_and_then_stands_for_all() {
        let (pages, touches) = (64 * BLOCK_PAGES_U32, 1_200_000);
        let sizes = [1, 2, 3].map(|quarter| u64::from(pages) * PAGE_BYTES as u64 * quarter / 4);
        let all: Vec<Seen> = program(pages, touches).map(Seen::Touch).collect();
        let (first, again) = all.split_at(pages as usize);
        // Of what is touched again, one touch in four is seen, in some times.
        let windows = again.chunks(400_000).flat_map(|time| {
            time[..100_000].iter().copied().chain([Seen::Counts(Weight::of(time.len() as f64 / 1e5))])
        });
        let seen = first.iter().copied().chain([Seen::Counts(Weight::ONE)]).chain(windows);
        let is_seen = |seen: &Seen| !matches!(seen, Seen::Touch(touch) if !is_sampled(touch.page, Coarseness(0)));
        let [all, some] = [all.clone(), seen.collect()]
            .map(|seen: Vec<Seen>| Sample::new(seen.into_iter().filter(is_seen).collect()).unfold(usize::MAX));
        assert_eq!((some.weights.len(), all.weights.len()), (4, 0));
        let [expected, curve] = [all, some].map(|unfolded| Curve::new(1.0, &[unfolded], &sizes));
        for (point, expected) in curve.points.iter().zip(&expected.points) {
            let ratio = point.replayed.misses as f64 / expected.replayed.misses as f64;
            assert!((0.9..1.1).contains(&ratio), "{ratio} with {point:?} and {expected:?}");
            assert!(point.replayed.firsts == expected.replayed.firsts, "first touches are always seen");
        }
    }
}
