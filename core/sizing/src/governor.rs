//! [`Governor`]: how much local memory each of several programs gets of what a machine has for all.
//!
//! What a program wants it shows by what it misses ([`Auto`]): it gives back what it does not miss, and what it gives
//! back another can have. Where all together want more than there is, [`divide`] gives each its share. LightSwap has
//! such a daemon (Zhong et al., section 5); here what programs want is measured in lost time.
//!
//! All limits together are never more than there is, also on the way from one division to the next: what is to be given
//! is given once it was taken.

use std::collections::BTreeMap;

use yonder_units::Nanos;

use crate::auto::{Auto, Moment};
use crate::divide::{Claim, divide};

/// A program may grow by this part, and so many pages, until it is looked at again.
const GROWTH_PART: u64 = 8;
const GROWTH_PAGES: u64 = 1024;
/// What programs are owed or owe of their slowdown is that of so much work: memory goes from one to another by what they
/// need now.
const HORIZON: Nanos = 1_000_000_000;

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
    /// Whether all together wanted more than there was, at the last look.
    is_short: bool,
}

impl Governor {
    /// What each program gets from now on, of `total` pages for all of them. Programs that are not seen any more are
    /// forgotten.
    pub fn look(&mut self, total: u64, seen: &BTreeMap<u32, Seen>) -> BTreeMap<u32, Order> {
        self.programs.retain(|number, _| seen.contains_key(number));
        let exempt = seen.values().filter(|seen| seen.terms.is_exempt);
        let total = total.saturating_sub(exempt.map(|seen| seen.moment.local).sum());
        let governed: Vec<(u32, &Seen)> =
            seen.iter().filter(|(_, seen)| !seen.terms.is_exempt).map(|(number, seen)| (*number, seen)).collect();
        let soft_limits: Vec<Option<u64>> = governed.iter().map(|(number, seen)| self.wants(*number, seen)).collect();
        let claims: Vec<Claim> =
            governed.iter().zip(&soft_limits).map(|((_, seen), soft)| claim(seen, *soft)).collect();
        self.is_short = claims.iter().map(|claim| claim.wanted).sum::<u64>() > total;
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
    fn wants(&mut self, number: u32, Seen { moment, terms, .. }: &Seen) -> Option<u64> {
        let auto =
            self.programs.entry(number).or_insert_with(|| Auto::with_horizon(terms.slowdown, terms.least, HORIZON));
        auto.next_beside(*moment, self.is_short)
    }
}

fn claim(Seen { moment, most, terms, .. }: &Seen, soft_limit: Option<u64>) -> Claim {
    let grown = moment.local + moment.local / GROWTH_PART + GROWTH_PAGES;
    let least = terms.least.min(*most);
    Claim { weight: terms.weight, least, wanted: soft_limit.unwrap_or(grown).clamp(least, (*most).max(least)) }
}

/// The limits of now: those that fall fall at once, those that rise rise by what is free.
fn limits(total: u64, governed: &[(u32, &Seen)], claims: &[Claim]) -> Vec<u64> {
    let given = divide(total, claims);
    // What nobody wants is room to grow.
    let left = total.saturating_sub(given.iter().sum());
    let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of pages")]
    let part = |of: u64, share: f64| (of as f64 * share) as u64;
    let goals: Vec<u64> = governed
        .iter()
        .zip(claims)
        .zip(&given)
        .map(|(((_, seen), claim), given)| (given + part(left, claim.weight / weights)).min(seen.most))
        .collect();
    let goals_of = || governed.iter().map(|(_, seen)| *seen).zip(&goals);
    let held = |(seen, goal): (&Seen, &u64)| if *goal < seen.limit { seen.moment.local.max(*goal) } else { seen.limit };
    let free = total.saturating_sub(goals_of().map(held).sum());
    let rises: u64 = goals_of().map(|(seen, goal)| goal.saturating_sub(seen.limit)).sum();
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
    }

    impl Model {
        fn new(set: u64, most: u64, terms: Terms) -> Self {
            Self { set, seen: Seen { moment: Moment::default(), limit: most, most, terms }, soft_limit: None }
        }

        fn obey(&mut self, order: Order) {
            (self.seen.limit, self.soft_limit) = (order.limit, order.soft_limit);
        }

        /// What it does until the next look.
        fn work(&mut self) {
            let Moment { at, worked, stalled, local, touched } = &mut self.seen.moment;
            *at += LOOK;
            let missing = self.set.saturating_sub(*local);
            let lost = LOOK * missing / self.set.max(1);
            *worked += LOOK - lost;
            *stalled += lost;
            *touched = (*touched).max(self.set);
            // What it misses comes, as fast as pages do.
            *local += missing.min(lost / 10_000);
            *local = (*local).min(self.seen.limit);
            if let Some(soft) = self.soft_limit {
                *local = (*local).min(soft.max(512));
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
        let local = models.each_ref().map(|model| model.seen.moment.local);
        assert!(local[1] > 11_000, "{local:?}");
        assert!((10_000..14_000).contains(&local[0]) && (33_000..38_000).contains(&local[2]), "{local:?}");
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

    proptest! {
        /// Whatever programs do: what is local of all of them together is within what there is, once it was, and so is
        /// what they may have.
        #[test]
        fn together_they_never_have_more_than_there_is(
            steps in prop::collection::vec((0usize..4, 1u64..200_000), 1..60), totals in prop::collection::vec(20_000u64..80_000, 1..4),
        ) {
            let mut governor = Governor::default();
            let mut models: Vec<Model> = (0..4).map(|_| Model::new(1_000, 100_000, TERMS)).collect();
            for total in totals {
                // Those that had more need a moment to give it back.
                (0..3).for_each(|_| _ = look(&mut governor, total, &mut models));
                for (which, set) in &steps {
                    models[*which].set = *set;
                    let limits = look(&mut governor, total, &mut models);
                    let local: u64 = models.iter().map(|model| model.seen.moment.local).sum();
                    prop_assert!(limits <= total && local <= total, "{limits} and {local} of {total}");
                }
            }
        }
    }
}
