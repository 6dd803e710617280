//! [`Auto`]: how much local memory a program gets that is to be slowed down by no more than somebody allows.
//!
//! A program that is held up less than allowed gets less, ever faster while nothing is missed; one that is held up more
//! keeps what it touches. As TMO does (Weiner et al., ASPLOS '22), memory is taken until it is felt, and what is felt
//! is time; but that is measured where it is lost, in faults, and compared with the program's own work, not with the
//! clock. What was not used of the allowance is kept for a while, and what was overdrawn is paid back: a program that
//! needs its memory again all at once is slowed down for a moment, and the sum is kept. So that it is kept by programs
//! too that do not run for long, no more is taken than the allowance would pay for if all that was taken of late were
//! missed.

use yonder_units::Nanos;

/// What is known of a program at one time: sums since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moment {
    /// When that was.
    pub at: Nanos,
    /// CPU time of the program's own work, without what faults and reclaim have taken.
    pub worked: Nanos,
    /// How long its threads were held up by faults, all together.
    pub stalled: Nanos,
    /// Pages that are local now.
    pub local: u64,
    /// Pages that were ever touched, or about as many.
    pub touched: u64,
    /// Pages that reclaim has taken from it since its start.
    pub taken: u64,
    /// Pages that have come back since.
    pub returned: u64,
    /// Pages that were touched for the first time, in faults that are part of `stalled`.
    pub made: u64,
}

/// Work for which an allowance is kept that was not used, or for which one that was overdrawn is paid back at most, if
/// nothing else is said.
pub(crate) const HORIZON: Nanos = 10_000_000_000;
/// What a page costs at least that is missed, and of how many pages it is to be known that one costs more.
const COST: f64 = 10e3;
const COST_PAGES: f64 = 256.0;
/// What was taken counts as what may be missed for this part of the time for which an allowance is kept.
const RISK_PART: f64 = 0.5;
/// A program rests that works for less than this share of the time.
const REST_SHARE: f64 = 0.01;
/// Time over which pressure is measured.
const WINDOW: f64 = 200e6;
/// Pressure above which a program needs what it touches, whatever it has saved.
const PRESSURE_MAX: f64 = 4.0;
/// Pressure below which more and more is taken.
const PRESSURE_LOW: f64 = 0.5;
/// Share of its local memory that a program loses in a second, at first, at least and at most.
const RATE: f64 = 0.05;
const RATE_MIN: f64 = 0.01;
const RATE_MAX: f64 = 0.5;
/// Part of the rate that is left where a program begins to miss what was taken in haste.
const RATE_FALLS: f64 = 8.0;
/// So many times as fast where others wait for memory, and so much faster from one moment to the next.
const HASTE: f64 = 4.0;
/// Time in which that doubles while nothing is missed.
const DOUBLES_IN: f64 = 1e9;
/// Part by which local memory may grow until the next look, and pages that come on top.
const GROWTH_PART: u64 = 8;
const GROWTH_PAGES: u64 = 1024;
/// Reclaim keeps less than this part of the limit free.
const FREE_PART: u64 = 60;
/// The limit is at most this part below what is local: reclaim takes its time.
const LAG_PART: u64 = 16;
const LAG_PART_GIVEN: u64 = 4;

/// See the head of this file.
#[derive(Clone, PartialEq, Debug)]
pub struct Auto {
    /// Share of a program's work that it may be held up for.
    slowdown: f64,
    /// The most that is kept or owed of that, in nanoseconds.
    most: f64,
    /// For how long what was not used is kept, in nanoseconds.
    horizon: f64,
    /// Pages that were taken of late and have not come back.
    at_risk: f64,
    /// What faults have cost of late, and for how many pages, the older the less.
    cost: [f64; 2],
    /// Pages that it always has.
    least: u64,
    before: Option<Moment>,
    /// Time that it may be held up for yet, in nanoseconds.
    allowance: f64,
    /// What was worked and what was lost of late, the older the less.
    worked: f64,
    stalled: f64,
    /// Share of local memory that is taken in a second.
    rate: f64,
    /// Whether something was taken in haste since it last missed any.
    was_hasty: bool,
    limit: Option<u64>,
}

impl Auto {
    /// For a program that may be slowed down by `slowdown`, a share of its time, and has at least `least` pages.
    #[must_use]
    pub fn new(slowdown: f64, least: u64) -> Self {
        Self::with_horizon(slowdown, least, HORIZON)
    }

    /// One that keeps and owes what is allowed for so much work at most.
    #[must_use]
    pub fn with_horizon(slowdown: f64, least: u64, horizon: Nanos) -> Self {
        assert!(slowdown > 0.0, "nothing can be taken from a program that may not be slowed down");
        let (before, allowance, worked, stalled) = (None, 0.0, 0.0, 0.0);
        Self {
            slowdown,
            most: slowdown * horizon as f64,
            horizon: horizon as f64,
            at_risk: 0.0,
            cost: [0.0; 2],
            least,
            before,
            allowance,
            worked,
            stalled,
            rate: RATE,
            was_hasty: false,
            limit: None,
        }
    }

    /// The soft limit of its local memory from now on, in pages: `None` if it may have what it wants.
    pub fn next(&mut self, now: Moment) -> Option<u64> {
        self.next_beside(now, false)
    }

    /// As [`Auto::next`]. If others wait for memory, what is not missed is given back in haste.
    pub fn next_beside(&mut self, now: Moment, others_wait: bool) -> Option<u64> {
        let Some(before) = self.before.replace(now) else { return self.limit };
        let since = |now: Nanos, before: Nanos| now.saturating_sub(before) as f64;
        let passed = since(now.at, before.at);
        let (worked, stalled) = (since(now.worked, before.worked), since(now.stalled, before.stalled));
        let earned = self.slowdown * worked - stalled;
        self.allowance = (self.allowance + earned).clamp(-self.most, self.most);
        let older = (-passed / WINDOW).exp();
        (self.worked, self.stalled) = (self.worked * older + worked, self.stalled * older + stalled);
        self.look_at_pages(before, now, stalled);
        // What is new or was missed stays, and has room as long as that goes on. Reclaim takes what it is told to, and
        // nothing for what it keeps free.
        let come = now.touched.saturating_sub(before.touched) + now.returned.saturating_sub(before.returned);
        let all = now.local + now.local / FREE_PART;
        let from = self.limit.map_or(all, |limit| (limit + come).min(all));
        let pressure = self.pressure();
        let is_saved = self.allowance > 0.0;
        if pressure > PRESSURE_MAX || pressure > 1.0 && !is_saved {
            // What was taken in haste was too much.
            let falls = if std::mem::take(&mut self.was_hasty) { RATE_FALLS } else { (passed / DOUBLES_IN).exp2() };
            self.rate = (self.rate / falls).max(RATE_MIN);
            let wanted = now.local + now.local / GROWTH_PART + GROWTH_PAGES;
            self.limit = self.limit.map(|limit| limit.max(wanted));
        } else if pressure < 1.0 && is_saved {
            let (haste, lag_part) = if others_wait { (HASTE, LAG_PART_GIVEN) } else { (1.0, LAG_PART) };
            if pressure < PRESSURE_LOW {
                self.rate = (self.rate * (haste * passed / DOUBLES_IN).exp2()).min(RATE_MAX);
            }
            let rate = haste * self.rate;
            self.was_hasty |= others_wait;
            let rests = worked < REST_SHARE * passed;
            let most = if others_wait || rests { f64::INFINITY } else { self.pages_to_risk(now) };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of pages")]
            let taken = (rate * passed / 1e9 * now.local as f64).min(most) as u64;
            let limit = (from + come).saturating_sub(taken).max(now.local - now.local / lag_part);
            self.limit = Some(limit.max(self.least));
        } else {
            self.limit = self.limit.map(|limit| limit.max(from + come));
        }
        self.limit
    }

    /// What was taken since, what has come back, and what that has cost.
    fn look_at_pages(&mut self, before: Moment, now: Moment, stalled: f64) {
        let older = (-(now.at.saturating_sub(before.at) as f64) / (self.horizon * RISK_PART)).exp();
        let since = |of: fn(&Moment) -> u64| of(&now).saturating_sub(of(&before)) as f64;
        let [taken, returned, made] = [since(|at| at.taken), since(|at| at.returned), since(|at| at.made)];
        self.at_risk = (self.at_risk * older + taken - returned).max(0.0);
        let more = [stalled, returned + made];
        self.cost.iter_mut().zip(more).for_each(|(cost, more)| *cost = *cost * older + more);
    }

    /// How many pages may be taken, so that the allowance pays for all of them that were taken of late.
    fn pages_to_risk(&self, now: Moment) -> f64 {
        let [cost, pages] = self.cost;
        let cost = (cost / pages.max(COST_PAGES)).max(COST);
        // What reclaim has not come to yet is as good as taken.
        let ordered = self.limit.map_or(0, |limit| now.local.saturating_sub(limit));
        (self.allowance / cost - self.at_risk - ordered as f64).max(0.0)
    }

    /// How much it is held up, of what it may be, over the last moments.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        self.stalled / (self.slowdown * self.worked + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use rand::rngs::SmallRng;
    use rand::{Rng as _, SeedableRng as _};

    use super::*;

    const MS: Nanos = 1_000_000;
    const TICK: Nanos = 20 * MS;
    /// What the program works between two touches, and what a miss and a first touch cost.
    const WORK: Nanos = 10_000;
    const MISS: Nanos = 40_000;
    const FIRST: Nanos = 2_500;

    /// Local memory from which the page goes that was touched longest ago.
    #[derive(Default)]
    struct Lru {
        touched: HashMap<u32, u64>,
        order: BTreeMap<u64, u32>,
        clock: u64,
    }

    impl Lru {
        fn touch(&mut self, page: u32) -> bool {
            self.clock += 1;
            let before = self.touched.insert(page, self.clock);
            before.iter().for_each(|before| _ = self.order.remove(before));
            self.order.insert(self.clock, page);
            before.is_some()
        }

        /// How many pages that are.
        fn shrink(&mut self, limit: Option<u64>) -> u64 {
            let before = self.touched.len();
            while limit.is_some_and(|limit| self.touched.len() as u64 > limit) {
                let (_, page) = self.order.pop_first().expect("there are pages");
                self.touched.remove(&page);
            }
            (before - self.touched.len()) as u64
        }
    }

    /// What a program has come to.
    #[derive(Debug)]
    struct Run {
        slowdown: f64,
        /// Over its time, on average, and at most.
        local: f64,
        peak: u64,
    }

    /// Which page is touched next.
    type NextPage = Box<dyn FnMut(&mut SmallRng) -> u32>;

    /// A program of `phases`, each of which works for so long and says which page is touched next.
    fn run(slowdown: f64, phases: &mut [(Nanos, NextPage)]) -> Run {
        let (mut auto, mut lru, mut rng) = (Auto::new(slowdown, 64), Lru::default(), SmallRng::seed_from_u64(7));
        let (mut now, mut ever) = (Moment::default(), std::collections::HashSet::new());
        let (mut ticked, mut sum, mut ticks, mut limit, mut peak) = (0, 0, 0, None, 0);
        for (time, next_page) in phases {
            let end = now.worked + *time;
            while now.worked < end {
                let page = next_page(&mut rng);
                now.worked += WORK;
                now.at += WORK;
                if !lru.touch(page) {
                    let cost = if ever.insert(page) { FIRST } else { MISS };
                    now.returned += u64::from(cost == MISS);
                    now.stalled += if cost == MISS { MISS } else { 0 };
                    now.at += cost;
                    now.taken += lru.shrink(limit);
                }
                if now.at - ticked >= TICK {
                    ticked = now.at;
                    limit = auto.next(Moment { local: lru.touched.len() as u64, touched: ever.len() as u64, ..now });
                    now.taken += lru.shrink(limit);
                    sum += lru.touched.len() as u64;
                    ticks += 1;
                    peak = peak.max(lru.touched.len() as u64);
                }
            }
        }
        Run { slowdown: now.stalled as f64 / now.worked as f64, local: sum as f64 / f64::from(ticks), peak }
    }

    fn among(pages: std::ops::Range<u32>) -> NextPage {
        Box::new(move |rng| rng.random_range(pages.clone()))
    }

    fn in_turn(pages: std::ops::Range<u32>) -> NextPage {
        let mut next = pages.start;
        Box::new(move |_| {
            next = if next + 1 < pages.end { next + 1 } else { pages.start };
            next
        })
    }

    #[test]
    fn what_is_not_missed_is_given_back() {
        let second = 1_000 * MS;
        let run = run(0.05, &mut [(second, in_turn(0..20_000)), (20 * second, among(0..2_000))]);
        assert!(run.slowdown < 0.06, "{run:?}");
        assert!(run.local < 0.35 * run.peak as f64, "{run:?}");
    }

    #[test]
    fn a_program_that_needs_all_of_it_is_not_slowed_down_for_more_than_is_allowed() {
        let second = 1_000 * MS;
        for phases in [among(0..10_000), in_turn(0..10_000)] {
            let run = run(0.05, &mut [(30 * second, phases)]);
            assert!(run.slowdown < 0.07, "{run:?}");
        }
    }

    #[test]
    fn phases_that_change_are_followed() {
        let second = 1_000 * MS;
        let mut phases = Vec::new();
        for _ in 0..4 {
            phases.push((3 * second, among(0..12_000)));
            phases.push((12 * second, among(12_000..13_200)));
        }
        let run = run(0.05, &mut phases);
        assert!(run.slowdown < 0.07, "{run:?}");
        assert!(run.local < 0.75 * run.peak as f64, "{run:?}");
    }

    #[test]
    fn a_short_program_that_comes_back_to_all_of_its_memory_is_not_slowed_down_for_more_than_is_allowed() {
        let second = 1_000 * MS;
        for pages in [5_000, 20_000, 50_000] {
            let run = run(
                0.05,
                &mut [
                    (second, in_turn(0..pages)),
                    (second, among(0..pages / 10)),
                    (second / 2, in_turn(0..pages)),
                    (second / 2, among(0..pages)),
                ],
            );
            assert!(run.slowdown < 0.06, "{run:?}");
            assert!(run.local < 0.99 * pages as f64, "{run:?}");
        }
    }

    #[test]
    fn a_program_that_rests_gives_back_as_well() {
        let mut auto = Auto::new(0.05, 64);
        let mut now = Moment { worked: 1_000 * MS, local: 100_000, ..Moment::default() };
        auto.next(now);
        now.worked += TICK;
        for _ in 0..1_000 {
            now.at += TICK;
            now.local = auto.next(now).unwrap_or(now.local).min(now.local);
        }
        assert!(now.local < 10_000, "{now:?}");
    }

    #[test]
    fn a_program_always_has_the_least() {
        let mut auto = Auto::new(0.5, 64);
        for tick in 0..10_000 {
            let now = Moment { at: tick * TICK, worked: tick * TICK, local: 70, ..Moment::default() };
            assert!(auto.next(now).is_none_or(|limit| limit >= 64));
        }
    }
}
