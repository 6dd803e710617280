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

use crate::risk::Risk;

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
    /// Pages that it has touched and not given back, or about as many.
    pub touched: u64,
    /// Pages that reclaim has taken from it since its start.
    pub taken: u64,
    /// Pages that have come back since.
    pub returned: u64,
    /// Of those, the pages that were far.
    pub fetched: u64,
    /// The part of `stalled` in which these came.
    pub fetching: Nanos,
}

/// Work for which an allowance is kept that was not used, or for which one that was overdrawn is paid back at most, and
/// the time over which pressure is measured, in nanoseconds.
const HORIZON: f64 = 10e9;
const WINDOW: f64 = 200e6;
/// The same beside others that may need the memory: it goes from one to another by what they need now.
const HORIZON_BESIDE: f64 = 0.5e9;
const WINDOW_BESIDE: f64 = 50e6;
/// What was taken counts as what may be missed for this part of the time for which an allowance is kept.
const RISK_PART: f64 = 0.5;
/// A program rests that works for less than this share of the time.
const REST_SHARE: f64 = 0.01;
/// After a rest of so long, in nanoseconds, this part of the most that is kept may be lost at its end, whatever was
/// kept.
const LONG_REST: f64 = 60e9;
const REST_PART: f64 = 0.1;
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
/// The same where others wait and what is taken does not come back.
const DOUBLES_IN_COLD: f64 = 30e6;
/// Taken pages from which on it is known whether they come back, or this part of what is local, and the shares of them
/// that tell.
const JUDGED_PAGES: f64 = 64.0;
const JUDGED_PART: f64 = 256.0;
const COLD_SHARE: f64 = 0.15;
const WANTED_SHARE: f64 = 0.5;
/// Part by which local memory may grow until the next look, and pages that come on top.
const GROWTH_PART: u64 = 8;
const GROWTH_PAGES: u64 = 1024;
/// Reclaim keeps less than this part of the limit free.
const FREE_PART: u64 = 60;
/// The limit is at most this part below what is local: reclaim takes its time.
const LAG_PART: u64 = 16;
const LAG_PART_GIVEN: u64 = 4;

/// Whether other programs lack memory that this one may not need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// They do not.
    HaveEnough,
    /// They do, and wait for it.
    Wait,
    /// They do, and it is this one's turn to have more than its share: what it does not touch is looked for, no faster
    /// than it shows.
    WaitForTurn,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Debug)]
pub struct Auto {
    /// Share of a program's work that it may be held up for.
    slowdown: f64,
    /// The most that is kept or owed of that, in nanoseconds.
    most: f64,
    /// Time over which pressure is measured, in nanoseconds.
    window: f64,
    risk: Risk,
    /// For how long it has rested, in nanoseconds.
    rested: f64,
    /// Pages that it always has.
    least: u64,
    before: Option<Moment>,
    /// Time that it may be held up for yet, in nanoseconds.
    allowance: f64,
    /// What was worked and what was lost of late, the older the less.
    worked: f64,
    stalled: f64,
    /// Pages that were taken and that came back of late, the older the less.
    took: f64,
    came_back: f64,
    /// Share of local memory that is taken in a second.
    rate: f64,
    /// Whether something was taken in haste since it last missed any.
    was_hasty: bool,
    limit: Option<u64>,
}

impl Auto {
    /// For a program that may be slowed down by `slowdown`, a share of its time, and has at least `least` pages. A page
    /// that is missed may cost `page_cost`, as far as is known before any was.
    #[must_use]
    pub fn new(slowdown: f64, least: u64, page_cost: Nanos) -> Self {
        Self::of(slowdown, least, page_cost, [HORIZON, WINDOW])
    }

    /// One for a program beside others.
    pub(crate) fn beside_others(slowdown: f64, least: u64, page_cost: Nanos) -> Self {
        Self::of(slowdown, least, page_cost, [HORIZON_BESIDE, WINDOW_BESIDE])
    }

    fn of(slowdown: f64, least: u64, page_cost: Nanos, [horizon, window]: [f64; 2]) -> Self {
        assert!(slowdown > 0.0, "nothing can be taken from a program that may not be slowed down");
        let (before, allowance, worked, stalled) = (None, 0.0, 0.0, 0.0);
        Self {
            slowdown,
            most: slowdown * horizon,
            window,
            risk: Risk::new(RISK_PART * horizon, page_cost),
            rested: 0.0,
            least,
            before,
            allowance,
            worked,
            stalled,
            took: 0.0,
            came_back: 0.0,
            rate: RATE,
            was_hasty: false,
            limit: None,
        }
    }

    /// The soft limit of its local memory from now on, in pages: `None` if it may have what it wants.
    pub fn next(&mut self, now: Moment) -> Option<u64> {
        self.next_beside(now, Others::HaveEnough, 0)
    }

    /// As [`Auto::next`]. If others wait for memory, what is not missed is given back in haste, and what is above its
    /// `share`, in pages, whatever is allowed.
    pub(crate) fn next_beside(&mut self, now: Moment, others: Others, share: u64) -> Option<u64> {
        let Some(before) = self.before.replace(now) else { return self.limit };
        let since = |now: Nanos, before: Nanos| now.saturating_sub(before) as f64;
        let passed = since(now.at, before.at);
        let (worked, stalled) = (since(now.worked, before.worked), since(now.stalled, before.stalled));
        let earned = self.slowdown * worked - stalled;
        self.allowance = (self.allowance + earned).clamp(-self.most, self.most);
        let older = (-passed / self.window).exp();
        (self.worked, self.stalled) = (self.worked * older + worked, self.stalled * older + stalled);
        let since = |of: fn(&Moment) -> u64| of(&now).saturating_sub(of(&before)) as f64;
        self.took = self.took * older + since(|at| at.taken);
        self.came_back = self.came_back * older + since(|at| at.returned);
        let rests = worked < REST_SHARE * passed;
        self.rested = if rests { self.rested + passed } else { 0.0 };
        self.risk.look(&before, &now, rests);
        // What is new or was missed stays, and has room as long as that goes on. Reclaim takes what it is told to, and
        // nothing for what it keeps free.
        let came = |of: fn(&Moment) -> u64| of(&now).saturating_sub(of(&before));
        let come = came(|at| at.touched).saturating_add(came(|at| at.returned));
        let all = now.local.saturating_add(now.local / FREE_PART);
        let from = self.limit.map_or(all, |limit| limit.saturating_add(come).min(all));
        let pressure = self.pressure();
        let is_saved = self.allowance > 0.0 || self.rested > LONG_REST;
        if pressure > PRESSURE_MAX || pressure > 1.0 && !is_saved {
            // What was taken in haste was too much.
            let falls = if std::mem::take(&mut self.was_hasty) { RATE_FALLS } else { (passed / DOUBLES_IN).exp2() };
            self.rate = (self.rate / falls).max(RATE_MIN);
            let wanted = now.local.saturating_add(now.local / GROWTH_PART + GROWTH_PAGES);
            self.limit = self.limit.map(|limit| limit.max(wanted));
        } else if pressure < 1.0 && (is_saved || others != Others::HaveEnough) {
            let is_alone = others == Others::HaveEnough;
            let (haste, lag_part) = if is_alone { (1.0, LAG_PART) } else { (HASTE, LAG_PART_GIVEN) };
            let doubled_in = |time: f64| self.rate * (passed / time).exp2();
            let rate = match others {
                _ if pressure >= PRESSURE_LOW => self.rate,
                Others::HaveEnough => doubled_in(DOUBLES_IN),
                _ if self.is_cold() => doubled_in(DOUBLES_IN_COLD),
                Others::Wait if self.is_judged() && self.wants_back() => doubled_in(-DOUBLES_IN_COLD),
                Others::Wait => doubled_in(DOUBLES_IN / HASTE),
                Others::WaitForTurn => RATE,
            };
            self.rate = rate.clamp(RATE_MIN, RATE_MAX);
            let rate = haste * self.rate;
            self.was_hasty |= !is_alone;
            let above = if is_alone { 0 } else { now.local.saturating_sub(share) };
            let most = self.room(now).max(above as f64);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of pages")]
            let taken = (rate * passed / 1e9 * now.local as f64).min(most) as u64;
            let limit = from.saturating_add(come).saturating_sub(taken).max(now.local - now.local / lag_part);
            self.limit = Some(limit.max(self.least));
        } else {
            self.limit = self.limit.map(|limit| limit.max(from.saturating_add(come)));
        }
        self.limit
    }

    /// How many pages may be taken of a program that has rested for so long.
    fn room(&self, now: Moment) -> f64 {
        let allowance =
            if self.rested > LONG_REST { self.allowance.max(self.most * REST_PART) } else { self.allowance };
        // What reclaim has not come to yet is as good as taken.
        let ordered = self.limit.map_or(0, |limit| now.local.saturating_sub(limit));
        (self.risk.room(allowance) - ordered as f64).max(0.0)
    }

    /// Enough was taken of late to see what comes back.
    fn is_judged(&self) -> bool {
        let local = self.before.map_or(0.0, |before| before.local as f64);
        self.took >= JUDGED_PAGES.min(local / JUDGED_PART).max(1.0)
    }

    /// It has hardly touched what was taken of late.
    pub(crate) fn is_cold(&self) -> bool {
        self.is_judged() && self.came_back < COLD_SHARE * self.took
    }

    /// It has come back for most of what was taken of late.
    pub(crate) fn wants_back(&self) -> bool {
        self.came_back > WANTED_SHARE * self.took
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
    /// Time between two looks while it rests.
    const AT_REST: Nanos = 200 * MS;

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
        run_with(slowdown, MISS, phases, 0)
    }

    /// As [`run`], with misses that cost `miss` where half of that was supposed, and a rest behind each phase.
    fn run_with(slowdown: f64, miss: Nanos, phases: &mut [(Nanos, NextPage)], rest: Nanos) -> Run {
        let (mut auto, mut lru, mut rng) =
            (Auto::new(slowdown, 64, miss / 2), Lru::default(), SmallRng::seed_from_u64(7));
        let (mut now, mut ever) = (Moment::default(), std::collections::HashSet::new());
        let (mut ticked, mut sum, mut limit, mut peak) = (0, 0.0, None, 0);
        let mut look = |now: &mut Moment, lru: &mut Lru, limit: &mut Option<u64>, ever: usize| {
            let local = lru.touched.len() as u64;
            *limit = auto.next(Moment { local, touched: ever as u64, ..*now });
            now.taken += lru.shrink(*limit);
            sum += local as f64 * (now.at - ticked) as f64;
            peak = peak.max(local);
            ticked = now.at;
        };
        for (time, next_page) in phases {
            let end = now.worked + *time;
            let mut looked = now.at;
            while now.worked < end {
                let page = next_page(&mut rng);
                now.worked += WORK;
                now.at += WORK;
                if !lru.touch(page) {
                    let is_new = ever.insert(page);
                    let cost = if is_new { FIRST } else { miss };
                    now.at += cost;
                    now.stalled += cost;
                    if !is_new {
                        now.returned += 1;
                        now.fetched += 1;
                        now.fetching += cost;
                    }
                    now.taken += lru.shrink(limit);
                }
                if now.at - looked >= TICK {
                    looked = now.at;
                    look(&mut now, &mut lru, &mut limit, ever.len());
                }
            }
            for _ in 0..rest / AT_REST {
                now.at += AT_REST;
                look(&mut now, &mut lru, &mut limit, ever.len());
            }
        }
        let missed = now.fetching as f64;
        Run { slowdown: missed / now.worked as f64, local: sum / now.at as f64, peak }
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
        for (pages, miss) in [(5_000, MISS), (20_000, MISS), (50_000, MISS), (50_000, 10_000), (50_000, 400_000)] {
            let mut phases = [
                (second, in_turn(0..pages)),
                (second, among(0..pages / 10)),
                (second / 2, in_turn(0..pages)),
                (second / 2, among(0..pages)),
            ];
            let run = run_with(0.05, miss, &mut phases, 0);
            assert!(run.slowdown < 0.07, "{miss} {run:?}");
            assert!(run.local < 0.999 * f64::from(pages), "{miss} {run:?}");
        }
    }

    #[test]
    fn a_program_that_rests_again_and_again_is_not_slowed_down_for_more_than_is_allowed() {
        for (rest, miss) in [(5_000, MISS), (20_000, MISS), (20_000, 400_000)] {
            let mut phases: Vec<_> = (0..20).map(|_| (1_000 * MS, in_turn(0..50_000))).collect();
            let run = run_with(0.05, miss, &mut phases, rest * MS);
            assert!(run.slowdown < 0.07, "{rest} {miss} {run:?}");
        }
    }

    #[test]
    fn a_program_that_rests_for_long_gives_back_as_well() {
        // The second phase is a moment.
        let mut phases = [(2_000 * MS, in_turn(0..50_000)), (MS, among(0..10))];
        let run = run_with(0.05, MISS, &mut phases, 1_200_000 * MS);
        assert!(run.local < 0.7 * run.peak as f64, "{run:?}");
    }

    #[test]
    fn a_program_always_has_the_least() {
        let mut auto = Auto::new(0.5, 64, 10_000);
        for tick in 0..10_000 {
            let now = Moment { at: tick * TICK, worked: tick * TICK, local: 70, ..Moment::default() };
            assert!(auto.next(now).is_none_or(|limit| limit >= 64));
        }
    }
}
