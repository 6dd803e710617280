//! [`Governor`]: how much local memory each of several programs gets of what a machine has for all.
//!
//! What a program wants it shows by what it misses ([`Auto`]): it gives back what it does not miss, and what it gives
//! back another can have. Where all together want more than there is, [`divide`] gives each its share. LightSwap has
//! such a daemon (Zhong et al., section 5); here what programs want is measured in lost time.
//!
//! Two programs that both lack a little stand still both. So those that want more than their shares take turns: one has
//! what the others have above half of theirs, and if it misses nothing with that, its turns go on; one that misses all
//! the same, such as one that touches everything, has fewer and fewer.
//!
//! All limits together are never more than there is, also on the way from one division to the next: what is to be given
//! is given once it was taken.

use std::collections::{BTreeMap, BTreeSet};

use yonder_units::Nanos;

use crate::auto::{Auto, Moment};
use crate::divide::{Claim, divide};

/// A program may grow by this part, and so many pages, until it is looked at again.
const GROWTH_PART: u64 = 8;
const GROWTH_PAGES: u64 = 1024;
/// What programs are owed or owe of their slowdown is that of so much work: memory goes from one to another by what
/// they need now.
const HORIZON: Nanos = 500_000_000;
/// What a page that is missed may cost, as long as that is not known.
const PAGE_COST: Nanos = 10_000;

/// How long a program has more than its share.
const TURN: Nanos = 2_000_000_000;
/// Part of their shares that the others have meanwhile.
const WAITING_PART: u64 = 2;
/// Part of what is local that reclaim may keep free below a limit.
const FREE_PART: u64 = 6;
/// Pressure below which a turn was of use.
const PRESSURE_OF_USE: f64 = 1.0;
/// Turns that one whose turns are of no use is passed over, at most.
const PASSED_OVER_MAX: u32 = 64;

/// What is laid down for a program.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    /// Of two that want more than there is, one with twice the weight gets twice as much.
    pub weight: f64,
    /// Pages that it has in any case.
    pub least: u64,
    /// By which share of its work it may be slowed down while there is enough for all.
    pub slowdown: f64,
    /// It has what it wants, and nothing is taken from it.
    pub is_exempt: bool,
}

/// A program at one time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// What it does.
    pub moment: Moment,
    /// The limit that it has, in pages.
    pub limit: u64,
    /// The largest that it can have.
    pub most: u64,
    /// What is laid down for it.
    pub terms: Terms,
    /// It finds out itself what it needs, and wants so much, or all that it can have.
    pub finds_out: Option<Option<u64>>,
}

/// What a program gets, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Order {
    /// What it wants.
    pub wanted: u64,
    /// The limit.
    pub limit: u64,
    /// What reclaim keeps local at most; `None` is as much as the limit.
    pub soft_limit: Option<u64>,
}

/// See the head of this file. Programs are told apart by a number.
#[derive(Debug, Default)]
pub struct Governor {
    programs: BTreeMap<u32, Program>,
    /// Whether all together wanted more than there was, at the last look.
    is_short: bool,
    turn: Option<Turn>,
}

/// The time in which one has more than its share.
#[derive(Debug)]
struct Turn {
    holder: u32,
    since: Nanos,
    /// Who lacks memory as well.
    waiting: BTreeSet<u32>,
}

/// What is remembered of a program.
#[derive(Debug)]
struct Program {
    auto: Auto,
    /// How long it has had more than its share, by its weight.
    favoured: f64,
    /// Turns that it is passed over yet, and after the next one that is of no use.
    passed_over: u32,
    next_passed_over: u32,
    /// Least pressure in its turn.
    pressure: f64,
}

impl Governor {
    /// Forgets all programs but these. One that is not seen for a moment is not forgotten.
    pub fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.programs.retain(|number, _| is_there(*number));
    }

    /// What each program gets from now on, of `total` pages for all of them.
    pub fn look(&mut self, total: u64, seen: &BTreeMap<u32, Seen>) -> BTreeMap<u32, Order> {
        let exempt = seen.values().filter(|seen| seen.terms.is_exempt);
        let total = total.saturating_sub(exempt.map(|seen| seen.moment.local).fold(0, u64::saturating_add));
        let governed: Vec<(u32, &Seen)> =
            seen.iter().filter(|(_, seen)| !seen.terms.is_exempt).map(|(number, seen)| (*number, seen)).collect();
        let soft_limits: Vec<Option<u64>> = governed.iter().map(|(number, seen)| self.wants(*number, seen)).collect();
        let mut claims: Vec<Claim> =
            governed.iter().zip(&soft_limits).map(|((_, seen), soft)| claim(seen, *soft)).collect();
        self.is_short = claims.iter().map(|claim| claim.wanted).fold(0, u64::saturating_add) > total;
        self.take_turns(total, &governed, &mut claims);
        let limits = limits(total, &governed, &claims);
        let orders = governed.iter().zip(claims).zip(limits).zip(soft_limits);
        let mut orders: BTreeMap<u32, Order> = orders
            .map(|((((number, _), claim), limit), soft_limit)| {
                (*number, Order { wanted: claim.wanted, limit, soft_limit: soft_limit.filter(|soft| *soft < limit) })
            })
            .collect();
        for (number, seen) in seen.iter().filter(|(_, seen)| seen.terms.is_exempt) {
            orders.insert(*number, Order { wanted: seen.moment.local, limit: seen.most, soft_limit: None });
        }
        orders
    }

    /// What a program needs to be slowed down by no more than it may be.
    fn wants(&mut self, number: u32, Seen { moment, terms, finds_out, .. }: &Seen) -> Option<u64> {
        let program = self.programs.entry(number).or_insert_with(|| Program {
            auto: Auto::with_horizon(terms.slowdown, terms.least, PAGE_COST, HORIZON),
            favoured: 0.0,
            passed_over: 0,
            next_passed_over: 1,
            pressure: f64::INFINITY,
        });
        let has_turn = self.turn.as_ref().is_some_and(|turn| turn.holder == number);
        let wants = program.auto.next_beside(*moment, self.is_short && !has_turn);
        finds_out.unwrap_or(wants)
    }

    /// Where several lack memory, all but the one whose turn it is want less than their shares.
    fn take_turns(&mut self, total: u64, governed: &[(u32, &Seen)], claims: &mut [Claim]) {
        let now = governed.iter().map(|(_, seen)| seen.moment.at).max().unwrap_or_default();
        // Who misses nothing lacks nothing, though it may want room to grow.
        let misses = |number: u32| self.programs[&number].auto.pressure() > PRESSURE_OF_USE;
        let takes_part = |number: u32| {
            let in_turn = |turn: &Turn| turn.holder == number || turn.waiting.contains(&number);
            misses(number) || self.turn.as_ref().is_some_and(in_turn)
        };
        // What they have if all of those want everything.
        let mut wanting = claims.to_vec();
        for (claim, (number, _)) in wanting.iter_mut().zip(governed) {
            if takes_part(*number) {
                claim.wanted = u64::MAX;
            }
        }
        let shares = divide(total, &wanting);
        let lacks = |which: usize| {
            let (number, seen) = governed[which];
            // It is the limit that makes it miss, and not what it gives back by itself.
            let is_full = seen.moment.local + seen.moment.local / FREE_PART >= seen.limit;
            claims[which].wanted > shares[which] && seen.limit >= shares[which] && is_full && misses(number)
        };
        let mut lacking: BTreeSet<u32> =
            (0..governed.len()).filter(|which| lacks(*which)).map(|which| governed[which].0).collect();
        let is_over = match &mut self.turn {
            Some(turn) => {
                let has_settled = now.saturating_sub(turn.since) > TURN / 4;
                let is_there = |number: &u32| governed.iter().any(|(other, _)| other == number);
                turn.waiting.retain(|number| is_there(number) && (!has_settled || misses(*number)));
                turn.waiting.extend(lacking.iter().filter(|number| **number != turn.holder));
                now.saturating_sub(turn.since) >= TURN || turn.waiting.is_empty() || !is_there(&turn.holder)
            }
            None => lacking.len() > 1,
        };
        if let Some(turn) = &self.turn
            && let Some(program) = self.programs.get_mut(&turn.holder)
        {
            program.pressure = program.pressure.min(program.auto.pressure());
        }
        if is_over {
            if let Some(turn) = self.turn.take() {
                self.end_turn(&turn, now);
                lacking = turn.waiting;
                // It waits for the others now, if it needs more than its share.
                let needs_more = (0..governed.len()).filter(|which| claims[*which].wanted > shares[*which]);
                lacking.extend(needs_more.map(|which| governed[which].0).filter(|number| *number == turn.holder));
            }
            self.turn = if lacking.len() > 1 { self.next_turn(lacking, governed, now) } else { None };
        }
        let Some(turn) = &self.turn else { return };
        for ((claim, (number, _)), share) in claims.iter_mut().zip(governed).zip(shares) {
            if turn.waiting.contains(number) {
                claim.wanted = claim.wanted.min(share / WAITING_PART).max(claim.least);
            }
        }
    }

    fn end_turn(&mut self, turn: &Turn, now: Nanos) {
        let Some(program) = self.programs.get_mut(&turn.holder) else { return };
        program.favoured += now.saturating_sub(turn.since) as f64;
        if std::mem::replace(&mut program.pressure, f64::INFINITY) < PRESSURE_OF_USE {
            program.next_passed_over = 1;
        } else {
            program.passed_over = program.next_passed_over;
            program.next_passed_over = (2 * program.next_passed_over).min(PASSED_OVER_MAX);
        }
    }

    /// The turn of the one that has had the least turns for its weight.
    fn next_turn(&mut self, lacking: BTreeSet<u32>, governed: &[(u32, &Seen)], now: Nanos) -> Option<Turn> {
        let mut candidates = Vec::new();
        for (number, seen) in governed.iter().filter(|(number, _)| lacking.contains(number)) {
            let program = self.programs.get_mut(number).expect("all that are seen are remembered");
            if program.passed_over > 0 {
                program.passed_over -= 1;
            } else {
                candidates.push((program.favoured / seen.terms.weight, *number));
            }
        }
        let (_, holder) = candidates.into_iter().min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        let waiting = lacking.into_iter().filter(|number| *number != holder).collect();
        Some(Turn { holder, since: now, waiting })
    }
}

fn claim(Seen { moment, most, terms, .. }: &Seen, soft_limit: Option<u64>) -> Claim {
    let grown = moment.local.saturating_add(moment.local / GROWTH_PART + GROWTH_PAGES);
    let least = terms.least.min(*most);
    Claim {
        weight: terms.weight,
        least,
        wanted: soft_limit.unwrap_or(grown).min(grown).clamp(least, (*most).max(least)),
    }
}

/// The limits of now: those that fall fall at once, those that rise rise by what is free.
fn limits(total: u64, governed: &[(u32, &Seen)], claims: &[Claim]) -> Vec<u64> {
    let given = divide(total, claims);
    let sum = |pages: &mut dyn Iterator<Item = u64>| pages.fold(0, u64::saturating_add);
    // What none of them wants is room to grow.
    let left = total.saturating_sub(sum(&mut given.iter().copied()));
    let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of pages")]
    let part = |of: u64, share: f64| (of as f64 * share) as u64;
    let goals: Vec<u64> = governed
        .iter()
        .zip(claims)
        .zip(&given)
        .map(|(((_, seen), claim), given)| (given + part(left, claim.weight / weights)).min(seen.most))
        .collect();
    // While others have not given back what they must, nobody grows into that.
    let local = || governed.iter().map(|(_, seen)| seen.moment.local).zip(&goals);
    let needed = sum(&mut local().map(|(local, goal)| local.max(*goal)));
    let growth = sum(&mut local().map(|(local, goal)| goal.saturating_sub(local)));
    let over = needed.saturating_sub(total).min(growth);
    let may_grow = if over > 0 { (growth - over) as f64 / growth as f64 } else { 1.0 };
    // A limit below the least would be refused, and the program keep what it has.
    let goals: Vec<u64> = local()
        .zip(claims)
        .map(|((local, goal), claim)| (local + part(goal.saturating_sub(local), may_grow)).max(claim.least).min(*goal))
        .collect();
    let goals_of = || governed.iter().map(|(_, seen)| *seen).zip(&goals);
    // A limit that is lowered now is one that is used up until then.
    let held = |(seen, _): (&Seen, &u64)| seen.moment.local.max(seen.limit);
    let free = total.saturating_sub(sum(&mut goals_of().map(held)));
    let rises = sum(&mut goals_of().map(|(seen, goal)| goal.saturating_sub(seen.limit)));
    let share = if rises > free { free as f64 / rises as f64 } else { 1.0 };
    goals_of()
        .map(|(seen, goal)| if *goal <= seen.limit { *goal } else { seen.limit + part(goal - seen.limit, share) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOOK: Nanos = 100_000_000;
    const TERMS: Terms = Terms { weight: 1.0, least: 512, slowdown: 0.05, is_exempt: false };

    /// A program that needs `set` pages: with less it misses in proportion, with more nothing.
    #[derive(Clone, Debug)]
    struct Model {
        set: u64,
        seen: Seen,
        soft_limit: Option<u64>,
        /// Pages that reclaim takes until the next look.
        leaves: u64,
    }

    impl Model {
        fn new(set: u64, most: u64, terms: Terms) -> Self {
            let seen = Seen { moment: Moment::default(), limit: most, most, terms, finds_out: None };
            Self { set, seen, soft_limit: None, leaves: u64::MAX }
        }

        fn obey(&mut self, order: Order) {
            (self.seen.limit, self.soft_limit) = (order.limit, order.soft_limit);
        }

        /// What it does until the next look.
        fn work(&mut self) {
            let Moment { at, worked, stalled, local, touched, .. } = &mut self.seen.moment;
            *at += LOOK;
            let missing = self.set.saturating_sub(*local);
            let lost = LOOK * missing / self.set.max(1);
            *worked += LOOK - lost;
            *stalled += lost;
            *touched = (*touched).max(self.set);
            // What it misses comes, as fast as pages do, and what is too much leaves as fast as reclaim is.
            let most = self.seen.limit.min(self.soft_limit.map_or(u64::MAX, |soft| soft.max(512)));
            if *local > most {
                *local = most.max(local.saturating_sub(self.leaves));
            } else {
                *local = (*local + missing.min(lost / 10_000)).min(most);
            }
        }
    }

    fn look(governor: &mut Governor, total: u64, models: &mut [Model]) -> u64 {
        models.iter_mut().for_each(Model::work);
        let seen = (0..).zip(&*models).map(|(number, model)| (number, model.seen)).collect();
        let orders = governor.look(total, &seen);
        (0..).zip(models).for_each(|(number, model)| model.obey(orders[&number]));
        orders.values().map(|order| order.limit).sum()
    }

    #[test]
    fn what_one_does_not_need_another_has() {
        let (total, most) = (60_000, 100_000);
        let mut models = [Model::new(50_000, most, TERMS), Model::new(5_000, most, TERMS)];
        let mut governor = Governor::default();
        for round in 0..6 {
            for _ in 0..300 {
                look(&mut governor, total, &mut models);
            }
            let [large, small] = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            let local = [large, small].map(|which| models[which].seen.moment.local);
            assert!(local[0] > 45_000 && local[1] < 12_000, "round {round}: {local:?}");
            models.iter_mut().for_each(|model| model.set = 55_000 - model.set);
        }
        let slowdown = |model: &Model| model.seen.moment.stalled as f64 / model.seen.moment.worked as f64;
        assert!(models.iter().all(|model| slowdown(model) < 0.1), "{:?}", models.each_ref().map(slowdown));
    }

    #[test]
    fn whoever_touches_everything_gets_its_share_and_no_more() {
        let (total, most) = (60_000, 1_000_000);
        let heavy = Terms { weight: 3.0, ..TERMS };
        let mut models =
            [Model::new(900_000, most, TERMS), Model::new(12_000, most, TERMS), Model::new(900_000, most, heavy)];
        let mut governor = Governor::default();
        (0..500).for_each(|_| _ = look(&mut governor, total, &mut models));
        let (mut sums, before) = ([0; 3], models[1].seen.moment);
        for _ in 0..1_000 {
            look(&mut governor, total, &mut models);
            sums.iter_mut().zip(&models).for_each(|(sum, model)| *sum += model.seen.moment.local);
        }
        let average = sums.map(|sum| sum / 1_000);
        assert!((9_000..15_000).contains(&average[0]) && (32_000..39_000).contains(&average[2]), "{average:?}");
        // Others do not slow it down: it has what it is allowed to lose, and two points.
        let modest = models[1].seen.moment;
        let slowdown = (modest.stalled - before.stalled) as f64 / (modest.worked - before.worked) as f64;
        assert!(average[1] > 10_000 && slowdown < 0.07, "{average:?}, {slowdown}");
    }

    /// Each lacks a fifth of what it works on. At the same time both would miss all the time.
    #[test]
    fn programs_that_both_lack_a_little_take_turns() {
        let (total, most) = (80_000, 100_000);
        let mut models = [Model::new(50_000, most, TERMS), Model::new(50_000, most, TERMS)];
        let mut governor = Governor::default();
        let mut has_enough = [0, 0];
        for _ in 0..600 {
            look(&mut governor, total, &mut models);
            for (which, model) in models.iter().enumerate() {
                has_enough[which] += u32::from(model.seen.moment.local > 48_000);
            }
        }
        assert!(has_enough.iter().all(|looks| (100..400).contains(looks)), "{has_enough:?} of 600 looks");
    }

    #[test]
    fn nothing_is_taken_from_the_exempt() {
        let exempt = Terms { is_exempt: true, ..TERMS };
        let mut models = [Model::new(30_000, 40_000, exempt), Model::new(900_000, 1_000_000, TERMS)];
        let mut governor = Governor::default();
        (0..500).for_each(|_| _ = look(&mut governor, 50_000, &mut models));
        let [exempt, other] = models.each_ref().map(|model| model.seen);
        assert!(exempt.moment.local > 29_900 && exempt.limit == 40_000, "{exempt:?}");
        assert!((18_000..20_100).contains(&other.limit), "{other:?}");
    }

    /// It has nothing yet, and another holds more than there is.
    #[test]
    fn a_program_that_begins_has_the_least_while_others_give_back() {
        let (total, most) = (20_000, 100_000);
        let large = Model { leaves: 10, ..Model::new(90_000, most, TERMS) };
        let mut models = [large, Model::new(1, most, TERMS)];
        models[0].seen.moment.local = 90_000;
        let mut governor = Governor::default();
        for _ in 0..20 {
            look(&mut governor, total, &mut models);
            assert!(models[1].seen.limit >= TERMS.least, "{models:?}");
        }
    }

    proptest! {
        /// Whatever programs do, and however slowly they give back: what is local of all of them together is within
        /// what there is, or becomes less, and so is what they may have.
        #[test]
        fn together_they_never_have_more_than_there_is(
            steps in prop::collection::vec((0usize..4, 1u64..200_000), 1..60),
            totals in prop::collection::vec(20_000u64..80_000, 1..4), leaves in 100u64..20_000,
        ) {
            let mut governor = Governor::default();
            let mut models: Vec<Model> =
                (0..4).map(|_| Model { leaves, ..Model::new(1_000, 100_000, TERMS) }).collect();
            let mut before = 0;
            for total in totals {
                // All limits fall first.
                look(&mut governor, total, &mut models);
                before = before.max(models.iter().map(|model| model.seen.moment.local).sum());
                for (which, set) in &steps {
                    models[*which].set = *set;
                    let limits = look(&mut governor, total, &mut models);
                    let local: u64 = models.iter().map(|model| model.seen.moment.local).sum();
                    prop_assert!(models.iter().all(|model| model.seen.limit >= TERMS.least), "{models:?}");
                    prop_assert!(limits <= total && local <= total.max(before), "{limits} and {local} of {total}");
                    before = local;
                }
            }
        }
    }
}
