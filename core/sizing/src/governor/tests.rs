//! The governor over programs whose misses are in proportion to what they lack; [`pages`] has some page by page.

mod pages;

use proptest::prelude::*;

use super::*;

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

/// One has not given back what it must, and the other could grow into that by the limit that it has.
#[test]
fn a_limit_falls_that_reaches_into_what_another_has_not_given_back() {
    let (total, most) = (60_000, 100_000);
    let [mut slow, mut other] = [0, 1].map(|_| Model::new(90_000, most, TERMS).seen);
    (slow.moment.local, slow.limit) = (50_000, 20_000);
    (other.moment.local, other.limit) = (8_000, 20_000);
    let orders = Governor::default().look(total, &BTreeMap::from([(0, slow), (1, other)]));
    assert!(slow.moment.local + orders[&1].limit <= total, "{orders:?}");
}

#[test]
fn a_limit_below_the_least_becomes_the_least_though_nothing_is_free() {
    let (total, most) = (60_000, 100_000);
    let [mut large, mut small] = [0, 1].map(|_| Model::new(90_000, most, TERMS).seen);
    (large.moment.local, large.limit) = (total, total);
    small.limit = 100;
    let orders = Governor::default().look(total, &BTreeMap::from([(0, large), (1, small)]));
    assert!(orders[&1].limit >= TERMS.least, "{orders:?}");
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
