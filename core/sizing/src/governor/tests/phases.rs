//! Programs that touch pages at random, among all of theirs and among a tenth in turn, page by page.

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const PAGES: usize = 60 * 512;
const BLOCK: usize = 512;
const TICK: Nanos = 1_000_000;
/// Time between two looks of a governor, and where memory is short.
const LOOK: Nanos = 50 * TICK;
const LOOK_WHERE_SHORT: Nanos = 20 * TICK;
/// What is worked on a page that is touched, among all and among a part, which caches have.
const WORK_OF_ALL: Nanos = 480;
const WORK_OF_PART: Nanos = 120;
/// What a page costs that is fetched, and one that was unmapped only.
const FETCH: Nanos = 10_000;
const RESCUE: Nanos = 5_000;
/// Pages that reclaim takes in a tick, at most.
const TAKEN: usize = 200;

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Mapped,
    /// As that entry of the queue says.
    Standby(u32),
    Far,
}

struct Program {
    places: Vec<Place>,
    mapped: usize,
    standing: usize,
    standby: VecDeque<(u32, usize)>,
    entries: u32,
    hand: usize,
    /// Work of one phase, and whether each is on all pages. There are no more behind the last.
    phases: VecDeque<(Nanos, bool)>,
    left: Nanos,
    seen: Seen,
    soft_limit: Option<u64>,
    random: SmallRng,
}

impl Program {
    fn new(phases: impl IntoIterator<Item = (Nanos, bool)>, local: usize, most: u64) -> Self {
        let mapped = local.min(PAGES);
        let (moment, limit) = (Moment { touched: PAGES as u64, ..Moment::default() }, local as u64);
        let phases: VecDeque<_> = phases.into_iter().collect();
        Self {
            places: (0..PAGES).map(|page| if page < mapped { Place::Mapped } else { Place::Far }).collect(),
            mapped,
            standing: 0,
            standby: VecDeque::new(),
            entries: 0,
            hand: 0,
            left: phases[0].0,
            phases,
            seen: Seen { moment, limit, most, terms: TERMS, finds_out: None },
            soft_limit: None,
            random: SmallRng::seed_from_u64(3),
        }
    }

    fn local(&self) -> usize {
        self.mapped + self.standing
    }

    fn has_ended(&self) -> bool {
        self.phases.is_empty()
    }

    /// What it does in a tick.
    fn work(&mut self) {
        let mut time = 0;
        while time < TICK {
            let Some((_, is_of_all)) = self.phases.front() else { return };
            let (pages, work) = if *is_of_all { (PAGES, WORK_OF_ALL) } else { (PAGES / 10, WORK_OF_PART) };
            let page = self.random.random_range(0..pages);
            let cost = match self.places[page] {
                Place::Mapped => 0,
                Place::Standby(_) => RESCUE,
                // It waits for room.
                Place::Far if self.local() as u64 >= self.seen.limit => TICK - time,
                Place::Far => FETCH,
            };
            time += cost + work;
            let moment = &mut self.seen.moment;
            (moment.worked, moment.stalled) = (moment.worked + work, moment.stalled + cost);
            match self.places[page] {
                Place::Far if cost == FETCH => {
                    self.mapped += 1;
                    moment.returned += 1;
                    moment.fetched += 1;
                    moment.fetching += cost;
                    self.places[page] = Place::Mapped;
                }
                Place::Standby(_) => {
                    (self.mapped, self.standing) = (self.mapped + 1, self.standing - 1);
                    moment.returned += 1;
                    self.places[page] = Place::Mapped;
                }
                _ => {}
            }
            self.left = self.left.saturating_sub(work);
            if self.left == 0 {
                self.phases.pop_front();
                self.left = self.phases.front().map_or(0, |(work, _)| *work);
            }
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
        for page in self.hand..self.hand + BLOCK {
            if self.places[page] == Place::Mapped {
                self.entries += 1;
                self.places[page] = Place::Standby(self.entries);
                self.standby.push_back((self.entries, page));
                (self.mapped, self.standing) = (self.mapped - 1, self.standing + 1);
                self.seen.moment.taken += 1;
            }
        }
        self.hand = (self.hand + BLOCK) % PAGES;
    }
}

/// What programs have come to.
#[derive(Debug)]
struct Ran {
    /// Until all have ended.
    seconds: f64,
    fetched: u64,
    /// Pages of all of them together, on average and at most.
    local: f64,
    peak: usize,
}

/// Runs programs until all have ended, or for so long, with so many pages for all of them.
fn run(programs: &mut [Program], total: u64, most: Nanos) -> Ran {
    let (mut governor, mut now, mut looked, mut sum, mut peak) = (Governor::default(), 0, 0, 0.0, 0);
    while programs.iter().any(|program| !program.has_ended()) && now < most {
        now += TICK;
        let mut local = 0;
        for program in programs.iter_mut().filter(|program| !program.has_ended()) {
            program.work();
            program.give_back();
            program.seen.moment.at = now;
            program.seen.moment.local = program.local() as u64;
            local += program.local();
        }
        peak = peak.max(local);
        sum += local as f64 * TICK as f64;
        if now - looked >= if governor.is_short() { LOOK_WHERE_SHORT } else { LOOK } {
            looked = now;
            let seen = (0..).zip(&*programs).filter(|(_, program)| !program.has_ended());
            let seen = seen.map(|(number, program)| (number, program.seen)).collect();
            for (number, order) in governor.look(total, &seen) {
                let program = &mut programs[number as usize];
                (program.seen.limit, program.soft_limit) = (order.limit, order.soft_limit);
            }
        }
    }
    let fetched = programs.iter().map(|program| program.seen.moment.fetched).sum();
    Ran { seconds: now as f64 / 1e9, fetched, local: sum / now as f64, peak }
}

/// Two that work on all of their pages while the other works on a part, which would take `4 * phase` each.
fn trade(phase: Nanos, total: u64) -> Ran {
    let of = |first: bool| (0..4).map(move |number| (phase, (number % 2 == 0) == first));
    let half = total as usize / 2;
    run(&mut [true, false].map(|first| Program::new(of(first), half, total)), total, Nanos::MAX)
}

#[test]
fn programs_that_trade_phases_do_so_with_three_quarters_of_what_both_would_need() {
    let total = 2 * PAGES as u64 * 108 / 100 * 3 / 4;
    for (seconds, slower) in [(2, 1.25), (4, 1.15)] {
        let ran = trade(seconds * 1_000_000_000, total);
        assert!(ran.seconds < 4.0 * seconds as f64 * slower, "{seconds}: {ran:?}");
        assert!(ran.fetched < 9 * PAGES as u64 && ran.local < 0.9 * total as f64, "{seconds}: {ran:?}");
        assert!(ran.peak as u64 <= total, "{seconds}: {ran:?}");
    }
}

/// With a fifth too little for both, each would miss all the time.
#[test]
fn programs_that_both_lack_a_little_take_turns() {
    let total = 2 * PAGES as u64 * 4 / 5;
    let second = 1_000_000_000;
    let mut programs = [0, 1].map(|_| Program::new([(100 * second, true)], total as usize / 2, total));
    run(&mut programs, total, 40 * second);
    let worked = programs.each_ref().map(|program| program.seen.moment.worked as f64 / second as f64);
    assert!(worked.iter().all(|worked| (15.0..25.0).contains(worked)), "{worked:?} s of 40");
}
