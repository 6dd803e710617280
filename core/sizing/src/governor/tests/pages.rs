//! Programs page by page: what they touch, what faults cost them, and what reclaim takes.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const BLOCK: usize = 512;
const TICK: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * TICK;
/// Time between two looks of a governor, and where memory is short.
const LOOK: Nanos = 50 * TICK;
const LOOK_WHERE_SHORT: Nanos = 20 * TICK;
/// What a page costs that was unmapped only, and one that has no content yet.
const RESCUE: Nanos = 5_000;
const FIRST: Nanos = 2_500;
/// Pages that reclaim takes in a tick, at most.
const TAKEN: usize = 200;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Mapped,
    /// As that entry of the queue says.
    Standby(u32),
    Far,
}

/// Which page is touched next, and the work on it; `None` if it rests for now.
type Step = Box<dyn FnMut(Nanos, &mut SmallRng) -> Option<(usize, Nanos)>>;

struct Program {
    places: Vec<Place>,
    mapped: usize,
    standing: usize,
    standby: VecDeque<(u32, usize)>,
    entries: u32,
    hand: usize,
    step: Step,
    /// What a page costs that is fetched; `None` if pages have no content yet.
    fetch: Option<Nanos>,
    /// When it begins, and how much it works until it ends.
    from: Nanos,
    work: Nanos,
    seen: Seen,
    soft_limit: Option<u64>,
    random: SmallRng,
    /// Of its local pages, over time.
    local_sum: f64,
}

impl Program {
    /// One of so many pages, of which `limit` may be local at first.
    fn new(pages: usize, limit: u64, total: u64, step: Step) -> Self {
        let mapped = pages.min(limit as usize);
        let moment = Moment { touched: pages as u64, ..Moment::default() };
        Self {
            places: (0..pages).map(|page| if page < mapped { Place::Mapped } else { Place::Far }).collect(),
            mapped,
            standing: 0,
            standby: VecDeque::new(),
            entries: 0,
            hand: 0,
            step,
            fetch: Some(10_000),
            from: 0,
            work: Nanos::MAX,
            seen: Seen { moment, limit, most: total, terms: TERMS, finds_out: None },
            soft_limit: None,
            random: SmallRng::seed_from_u64(3),
            local_sum: 0.0,
        }
    }

    /// As it is before it has touched anything, with so much that may be local.
    fn empty(mut self, limit: u64) -> Self {
        self.places.fill(Place::Far);
        (self.mapped, self.seen.limit) = (0, limit);
        self
    }

    fn local(&self) -> usize {
        self.mapped + self.standing
    }

    fn is_there(&self, now: Nanos) -> bool {
        now >= self.from && self.seen.moment.worked < self.work
    }

    /// What it does in a tick.
    fn tick(&mut self, now: Nanos) {
        let mut time = 0;
        while time < TICK {
            let Some((page, work)) = (self.step)(now + time, &mut self.random) else { return };
            let is_full = self.local() as u64 >= self.seen.limit;
            let moment = &mut self.seen.moment;
            let cost = match (self.places[page], self.fetch) {
                (Place::Mapped, _) => 0,
                (Place::Standby(_), _) => {
                    self.standing -= 1;
                    moment.returned += 1;
                    RESCUE
                }
                (Place::Far, _) if is_full => {
                    // It waits for room.
                    moment.stalled += TICK.saturating_sub(time);
                    return;
                }
                (Place::Far, None) => {
                    moment.touched += 1;
                    FIRST
                }
                (Place::Far, Some(fetch)) => {
                    moment.returned += 1;
                    moment.fetched += 1;
                    moment.fetching += fetch;
                    fetch
                }
            };
            self.mapped += usize::from(cost > 0);
            self.places[page] = Place::Mapped;
            (moment.worked, moment.stalled) = (moment.worked + work, moment.stalled + cost);
            time += cost + work;
        }
    }

    /// What reclaim does in a tick.
    fn give_back(&mut self) {
        let limit = self.seen.limit - self.seen.limit / 50;
        let most = self.soft_limit.map_or(limit, |soft| limit.min(soft - soft / 100)) as usize;
        let mut taken = 0;
        while self.local() > most && taken < TAKEN {
            while self.mapped > 0 && self.standing < (most / 16).max(256) {
                self.sweep();
            }
            let Some((entry, page)) = self.standby.pop_front() else { return };
            if self.places[page] == Place::Standby(entry) {
                self.places[page] = Place::Far;
                (self.standing, taken) = (self.standing - 1, taken + 1);
            }
        }
    }

    fn sweep(&mut self) {
        for page in self.hand..(self.hand + BLOCK).min(self.places.len()) {
            if self.places[page] == Place::Mapped {
                self.entries += 1;
                self.places[page] = Place::Standby(self.entries);
                self.standby.push_back((self.entries, page));
                (self.mapped, self.standing) = (self.mapped - 1, self.standing + 1);
                self.seen.moment.taken += 1;
            }
        }
        self.hand = if self.hand + BLOCK < self.places.len() { self.hand + BLOCK } else { 0 };
    }
}

/// Runs programs until all have ended or it is `end`, with so many pages for all. What each had worked and lost before
/// `start` does not count: returns how much each was slowed down since, and what it worked, in seconds.
fn run(programs: &mut [Program], total: u64, [start, end]: [Nanos; 2]) -> Vec<[f64; 2]> {
    let (mut governor, mut now, mut looked) = (Governor::default(), 0, 0);
    let mut before = vec![Moment::default(); programs.len()];
    while now < end && programs.iter().any(|program| program.is_there(now.max(program.from))) {
        now += TICK;
        let mut local = 0;
        for (program, before) in programs.iter_mut().zip(&mut before).filter(|(program, _)| program.is_there(now)) {
            program.tick(now);
            program.give_back();
            program.seen.moment.at = now;
            program.seen.moment.local = program.local() as u64;
            program.local_sum += program.local() as f64;
            local += program.local() as u64;
            if now <= start {
                *before = program.seen.moment;
            }
        }
        assert!(local <= total, "{local} of {total} at {now}");
        if now - looked >= if governor.is_short() { LOOK_WHERE_SHORT } else { LOOK } {
            looked = now;
            let seen = (0..).zip(&*programs).filter(|(_, program)| program.is_there(now));
            let seen: BTreeMap<u32, Seen> = seen.map(|(number, program)| (number, program.seen)).collect();
            governor.retain(|number| seen.contains_key(&number));
            for (number, order) in governor.look(total, &seen) {
                let program = &mut programs[number as usize];
                (program.seen.limit, program.soft_limit) = (order.limit, order.soft_limit);
            }
        }
    }
    let came_to = |(program, before): (&Program, &Moment)| {
        let since = |of: fn(&Moment) -> Nanos| (of(&program.seen.moment) - of(before)) as f64;
        let worked = since(|at| at.worked);
        [since(|at| at.stalled) / worked, worked / SECOND as f64]
    };
    programs.iter().zip(&before).map(came_to).collect()
}

fn random(pages: usize, work: Nanos) -> Step {
    Box::new(move |_, random| Some((random.random_range(0..pages), work)))
}

fn in_turn(pages: usize, work: Nanos) -> Step {
    let mut page = 0;
    Box::new(move |_, _| {
        page = (page + 1) % pages;
        Some((page, work))
    })
}

/// As [`in_turn`] for so long, and then it rests for so long.
fn bursts(pages: usize, [works, rests]: [Nanos; 2]) -> Step {
    let mut step = in_turn(pages, 2_000);
    Box::new(move |now, random| if now % (works + rests) < works { step(now, random) } else { None })
}

/// At random among all pages and among a tenth in turn, for so much work each.
fn phases(pages: usize, phase: Nanos, begins_with_all: bool) -> Step {
    let mut worked = 0;
    Box::new(move |_, random| {
        let is_of_all = (worked / phase).is_multiple_of(2) == begins_with_all;
        let (among, work) = if is_of_all { (pages, 480) } else { (pages / 10, 120) };
        worked += work;
        Some((random.random_range(0..among), work))
    })
}

const ALL: usize = 60 * BLOCK;

/// It touches all of far more than there is.
fn greedy(total: u64) -> Program {
    Program::new(200_000, total / 2, total, random(200_000, 480))
}

#[test]
fn programs_that_trade_phases_do_so_with_three_quarters_of_what_both_would_need() {
    let total = 2 * ALL as u64 * 108 / 100 * 3 / 4;
    for (seconds, slower) in [(2, 1.36), (4, 1.24)] {
        let of = |first| Program {
            work: 4 * seconds * SECOND,
            ..Program::new(ALL, total / 2, total, phases(ALL, seconds * SECOND, first))
        };
        let mut programs = [true, false].map(of);
        run(&mut programs, total, [0, Nanos::MAX]);
        let took = programs.iter().map(|program| program.seen.moment.at).max().unwrap_or_default() as f64;
        let fetched: u64 = programs.iter().map(|program| program.seen.moment.fetched).sum();
        let local = programs.iter().map(|program| program.local_sum).sum::<f64>() * TICK as f64 / took;
        let ratio = took / (4 * seconds * SECOND) as f64;
        assert!(ratio < slower, "{seconds} s: {ratio} times as long, {fetched} fetched, {local} local");
        assert!(
            fetched < 16 * ALL as u64 && local < 0.9 * total as f64,
            "{seconds} s: {fetched} fetched, {local} local"
        );
    }
}

/// With a fifth too little for both, each would miss all the time.
#[test]
fn programs_that_both_lack_a_little_take_turns() {
    let total = 2 * ALL as u64 * 4 / 5;
    let mut programs = [0, 1].map(|_| Program::new(ALL, total / 2, total, random(ALL, 480)));
    let ran = run(&mut programs, total, [0, 40 * SECOND]);
    assert!(ran.iter().all(|[_, worked]| (15.0..25.0).contains(worked)), "{ran:?} of 40 s");
}

#[test]
fn programs_that_need_less_than_their_shares_are_slowed_down_by_no_more_than_they_may_be_whatever_others_do() {
    let total = 60_000;
    for (pages, fetch, step) in [
        (10_000, 10, random(10_000, 480)),
        (20_000, 10, random(20_000, 20_000)),
        (20_000, 10, in_turn(20_000, 20_000)),
        (20_000, 200, in_turn(20_000, 20_000)),
        (28_000, 60, in_turn(28_000, 2_000)),
        (28_500, 10, random(28_500, 480)),
        (29_300, 10, random(29_300, 480)),
        (28_500, 100, in_turn(28_500, 480)),
        (10_000, 100, bursts(10_000, [100 * TICK, 900 * TICK])),
        (10_000, 60, bursts(10_000, [SECOND, 3 * SECOND])),
    ] {
        let modest = Program { fetch: Some(fetch * 1_000), ..Program::new(pages, total / 2, total, step) };
        let ran = run(&mut [modest, greedy(total)], total, [5 * SECOND, 25 * SECOND]);
        assert!(ran[0][0] < 0.065, "{ran:?} of {pages} pages that cost {fetch} us");
    }
}

/// The other lacks memory too, and could use only some of what a turn would give it.
#[test]
fn one_that_almost_needs_its_share_has_it_beside_one_that_needs_a_little_more() {
    let total = 60_000;
    let [almost, more] = [28_500, 36_000].map(|pages| Program::new(pages, total / 2, total, random(pages, 480)));
    let ran = run(&mut [almost, more], total, [5 * SECOND, 45 * SECOND]);
    assert!(ran[0][0] < 0.065, "{ran:?}");
}

#[test]
fn programs_that_fit_beside_each_other_take_no_turns() {
    let total = 60_000;
    for (fetch, step) in [(100, in_turn as fn(usize, Nanos) -> Step), (10, random)] {
        let of =
            |_| Program { fetch: Some(fetch * 1_000), ..Program::new(27_000, total / 2, total, step(27_000, 20_000)) };
        let ran = run(&mut [0, 1].map(of), total, [5 * SECOND, 25 * SECOND]);
        assert!(ran.iter().all(|[slowdown, _]| *slowdown < 0.065), "{ran:?}");
    }
}

#[test]
fn one_that_may_have_no_more_keeps_nothing_from_others() {
    let total = 60_000;
    for step in [random(36_000, 480), in_turn(36_000, 20_000)] {
        let mut small = greedy(total).empty(20_000);
        small.seen.most = 20_000;
        let other = Program::new(36_000, 40_000, total, step);
        let ran = run(&mut [small, other], total, [5 * SECOND, 25 * SECOND]);
        assert!(ran[1][0] < 0.065, "{ran:?}");
    }
}

/// It never comes back, so it takes part in no turns.
#[test]
fn one_that_reads_only_what_is_new_has_its_share_while_others_take_turns() {
    let (total, pages) = (90_000, 50_000);
    let of = |_| Program::new(pages, total / 3, total, random(pages, 480));
    let fresh = Program { fetch: None, ..Program::new(4_000_000, total / 3, total, in_turn(4_000_000, 2_000)) }
        .empty(total / 3);
    let [one, other] = [0, 1].map(of);
    let mut programs = [one, other, fresh];
    run(&mut programs, total, [5 * SECOND, 35 * SECOND]);
    let local = programs[2].local_sum / 35e3;
    assert!(local < 1.05 * total as f64 / 3.0, "{local}");
}

#[test]
fn one_that_comes_late_has_no_more_turns_than_others() {
    let total = 2 * ALL as u64 * 4 / 5;
    let of = |_| Program::new(ALL, total / 2, total, random(ALL, 480));
    let late = Program { from: 30 * SECOND, ..of(0) }.empty(512);
    let [one, other] = [0, 1].map(of);
    let ran = run(&mut [one, other, late], total, [32 * SECOND, 62 * SECOND]);
    let worked: Vec<f64> = ran.iter().map(|[_, worked]| *worked).collect();
    assert!(worked[2] < 1.8 * worked[0].min(worked[1]), "{worked:?} of 30 s");
}
