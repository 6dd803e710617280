//! [`Governor`]: how much local memory each of several programs gets of what a machine has for all.
//!
//! What a program wants it shows by what it misses ([`Auto`]): it gives back what it does not miss, and what it gives
//! back another can have. Where all together want more than there is, [`divide`] gives each its share. LightSwap has
//! such a daemon (Zhong et al., section 5); here what programs want is measured in lost time.
//!
//! Two programs that both lack a little stand still both. So those that want more than their shares take [`Turns`].
//!
//! All limits together are never more than there is, also on the way from one division to the next: what is to be given
//! is given once it was taken.

use std::collections::BTreeMap;

use yonder_units::Nanos;

use crate::auto::{Auto, Moment, Others};
use crate::divide::{Claim, divide};
use crate::turns::{Contender, Turns};

/// A program may grow by this part, and so many pages, until it is looked at again.
const GROWTH_PART: u64 = 2;
const GROWTH_PAGES: u64 = 1024;
/// What a page that is missed may cost, as long as that is not known.
const PAGE_COST: Nanos = 10_000;
/// A program that has all that it may and misses needs up to so many times as much.
const NEEDED_TIMES: u64 = 2;
/// Part of their shares that programs have while they wait for their turns.
const WAITING_PART: u64 = 2;
/// A program that has all of its share but this part, and misses, needs more than its share.
const SHARE_ROOM_PART: u64 = 16;
/// What a program wants is this part more than its soft limit: reclaim keeps some of a limit free.
const ROOM_PART: u64 = 24;
/// Part of what a program touches that it needs beside all of that: reclaim begins a little before a limit is reached.
const USABLE_PART: u64 = 48;
/// Part of what is local that reclaim may keep free below a limit.
const FREE_PART: u64 = 6;
/// Pressure above which a program misses something.
const PRESSURE: f64 = 1.0;

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
    programs: BTreeMap<u32, Auto>,
    is_short: bool,
    turns: Turns,
}

impl Governor {
    /// Forgets all programs but these. One that is not seen for a moment is not forgotten.
    pub fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.programs.retain(|number, _| is_there(*number));
        self.turns.retain(is_there);
    }

    /// Whether programs need more than there is: then a look a moment later is worth it.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// What each program gets from now on, of `total` pages for all of them.
    pub fn look(&mut self, total: u64, seen: &BTreeMap<u32, Seen>) -> BTreeMap<u32, Order> {
        let exempt = seen.values().filter(|seen| seen.terms.is_exempt);
        let total = total.saturating_sub(exempt.map(|seen| seen.moment.local).fold(0, u64::saturating_add));
        let governed: Vec<(u32, &Seen)> =
            seen.iter().filter(|(_, seen)| !seen.terms.is_exempt).map(|(number, seen)| (*number, seen)).collect();
        let weights: f64 = governed.iter().map(|(_, seen)| seen.terms.weight).sum();
        let share = |seen: &Seen| part(total, seen.terms.weight / weights);
        let soft_limits: Vec<Option<u64>> =
            governed.iter().map(|(number, seen)| self.wants(*number, seen, share(seen))).collect();
        let mut claims: Vec<Claim> =
            governed.iter().zip(&soft_limits).map(|((_, seen), soft)| claim(seen, *soft)).collect();
        let needs = |(claim, (number, seen)): (&Claim, &(u32, &Seen))| {
            if self.is_held_up(*number) && is_full(seen) {
                claim.wanted.max(seen.moment.local.saturating_mul(NEEDED_TIMES)).min(seen.most)
            } else {
                claim.wanted
            }
        };
        self.is_short = claims.iter().zip(&governed).map(needs).fold(0, u64::saturating_add) > total;
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
    fn wants(&mut self, number: u32, Seen { moment, terms, finds_out, .. }: &Seen, share: u64) -> Option<u64> {
        let others = match (self.is_short, self.turns.is_turn_of(number)) {
            (false, _) => Others::HaveEnough,
            (true, false) => Others::Wait,
            (true, true) => Others::WaitForTurn,
        };
        let program = self.programs.entry(number);
        let program = program.or_insert_with(|| Auto::beside_others(terms.slowdown, terms.least, PAGE_COST));
        finds_out.unwrap_or(program.next_beside(*moment, others, share))
    }

    fn is_held_up(&self, number: u32) -> bool {
        self.programs[&number].pressure() > PRESSURE
    }

    /// Where several lack memory, all but the one whose turn it is want less than their shares.
    fn take_turns(&mut self, total: u64, governed: &[(u32, &Seen)], claims: &mut [Claim]) {
        // What they have if all that lack memory want everything.
        let mut wanting = claims.to_vec();
        for (claim, (number, seen)) in wanting.iter_mut().zip(governed) {
            if self.is_held_up(*number) || self.turns.takes_part(*number) {
                claim.wanted = seen.most.max(claim.least);
            }
        }
        let shares = divide(total, &wanting);
        let contender = |(((number, seen), claim), share): (((&u32, &&Seen), &Claim), &u64)| {
            let (program, is_held_up) = (&self.programs[number], self.is_held_up(*number));
            // It is the limit that makes it miss, and not what it gives back by itself.
            let may_have_more = seen.limit < seen.most;
            // Whatever it seems to want, it could not use more than it touches.
            let wants_more = claim.wanted.min(usable(&seen.moment)) > *share;
            let has_share = seen.moment.local + share / SHARE_ROOM_PART >= *share;
            let lacks = self.is_short
                && is_held_up
                && is_full(seen)
                && may_have_more
                && wants_more
                && has_share
                && program.wants_back();
            let (weight, local, is_cold) = (seen.terms.weight, seen.moment.local, program.is_cold());
            Contender { number: *number, weight, local, lacks, is_held_up, is_cold, wants_more }
        };
        let programs = governed.iter().map(|(number, seen)| (number, seen)).zip(&*claims).zip(&shares);
        let contenders: Vec<Contender> = programs.map(contender).collect();
        let now = governed.iter().map(|(_, seen)| seen.moment.at).max().unwrap_or_default();
        self.turns.look(now, &contenders);
        for ((claim, (number, _)), share) in claims.iter_mut().zip(governed).zip(shares) {
            let most = match () {
                () if self.turns.waits(*number) => share / WAITING_PART,
                // What others do without in a turn is for the one whose turn it is.
                () if self.turns.is_any() && !self.turns.is_turn_of(*number) => share,
                () => continue,
            };
            claim.wanted = claim.wanted.min(most).max(claim.least);
        }
    }
}

fn part(of: u64, share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of pages")]
    let part = (of as f64 * share) as u64;
    part
}

/// What a program could have that has all that it touches.
fn usable(moment: &Moment) -> u64 {
    moment.touched.saturating_add(moment.touched / USABLE_PART)
}

fn is_full(seen: &Seen) -> bool {
    seen.moment.local + seen.moment.local / FREE_PART >= seen.limit
}

fn claim(Seen { moment, most, terms, .. }: &Seen, soft_limit: Option<u64>) -> Claim {
    let grown = moment.local.saturating_add(moment.local / GROWTH_PART + GROWTH_PAGES);
    let least = terms.least.min(*most);
    Claim {
        weight: terms.weight,
        least,
        wanted: soft_limit
            .map_or(grown, |soft| soft.saturating_add(soft / ROOM_PART))
            .min(grown)
            .clamp(least, (*most).max(least)),
    }
}

/// The limits of now: those that fall fall at once, those that rise rise by what is free.
fn limits(total: u64, governed: &[(u32, &Seen)], claims: &[Claim]) -> Vec<u64> {
    let given = divide(total, claims);
    let sum = |pages: &mut dyn Iterator<Item = u64>| pages.fold(0, u64::saturating_add);
    // What none of them wants is room to grow.
    let left = total.saturating_sub(sum(&mut given.iter().copied()));
    let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
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
        .zip(claims)
        .map(|((seen, goal), claim)| {
            let limit = if *goal <= seen.limit { *goal } else { seen.limit + part(goal - seen.limit, share) };
            limit.max(claim.least)
        })
        .collect()
}

#[cfg(test)]
mod tests;
