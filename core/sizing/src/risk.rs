//! [`Risk`]: what it could still cost that pages were taken from a program.

use yonder_units::Nanos;

use crate::auto::Moment;

/// Pages that outweigh what was supposed of their cost, and as many as what is known of it is made of, at most.
const SUPPOSED_PAGES: f64 = 64.0;
const KNOWN_PAGES: f64 = 4096.0;
/// For how long a page that was taken may be missed by a program that rests, in nanoseconds.
const AT_REST: f64 = 60e9;

/// See the head of this file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Risk {
    /// For how long a page that was taken may be missed by a program that works, in nanoseconds.
    lasts: f64,
    /// Pages that were taken of late and have not come back; those that were taken earlier count for less.
    pages: f64,
    /// What fetches have cost, and how many pages they have brought.
    fetched: [f64; 2],
}

impl Risk {
    /// Nothing was taken yet. A page that is missed costs `cost`, it is supposed.
    pub(crate) fn new(lasts: f64, cost: Nanos) -> Self {
        Self { lasts, pages: 0.0, fetched: [SUPPOSED_PAGES * cost as f64, SUPPOSED_PAGES] }
    }

    /// Looks at what has happened between two moments.
    pub(crate) fn look(&mut self, before: &Moment, now: &Moment, rests: bool) {
        let since = |of: fn(&Moment) -> u64| of(now).saturating_sub(of(before)) as f64;
        let [passed, taken, returned] = [since(|at| at.at), since(|at| at.taken), since(|at| at.returned)];
        // Of those that come back, as many are recent ones as of all that are away.
        let away = (before.taken.saturating_sub(before.returned) as f64).max(self.pages) + taken;
        let older = (-passed / if rests { AT_REST } else { self.lasts }).exp();
        self.pages = self.pages * older + taken;
        if returned > 0.0 {
            self.pages *= (1.0 - returned / away.max(returned)).max(0.0);
        }
        let more = [since(|at| at.fetching), since(|at| at.fetched)];
        self.fetched.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        let [cost, pages] = self.fetched;
        if pages > KNOWN_PAGES {
            self.fetched = [cost * KNOWN_PAGES / pages, KNOWN_PAGES];
        }
    }

    /// How many pages may be taken, so that an `allowance` in nanoseconds pays for all that were taken of late.
    pub(crate) fn room(&self, allowance: f64) -> f64 {
        let [cost, pages] = self.fetched;
        (allowance * pages / cost.max(1.0) - self.pages).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    /// Looks a second later, when so many pages more were taken, and have come back, each of which took so long.
    fn look(risk: &mut Risk, now: &mut Moment, [taken, returned, each]: [u64; 3], rests: bool) {
        let before = *now;
        now.at += SECOND;
        now.taken += taken;
        now.returned += returned;
        now.fetched += returned;
        now.fetching += returned * each;
        risk.look(&before, now, rests);
    }

    #[test]
    fn no_more_is_taken_than_is_paid_for() {
        let (mut risk, mut now) = (Risk::new(5e9, 10_000), Moment::default());
        assert_eq!(risk.room(1e6) as u64, 100);
        look(&mut risk, &mut now, [60, 0, 0], false);
        assert_eq!(risk.room(1e6) as u64, 40);
        look(&mut risk, &mut now, [60, 0, 0], false);
        assert_eq!((risk.room(1e6), risk.room(-1e6)), (0.0, 0.0));
        // What was not missed for long is not missed, it seems; later if the program rests.
        let mut at_rest = (risk.clone(), now);
        (0..10).for_each(|_| look(&mut risk, &mut now, [0; 3], false));
        (0..10).for_each(|_| look(&mut at_rest.0, &mut at_rest.1, [0; 3], true));
        assert!(risk.room(1e6) > 80.0 && at_rest.0.room(1e6) < 20.0, "{risk:?} {at_rest:?}");
    }

    #[test]
    fn what_was_taken_long_ago_and_comes_back_hides_nothing() {
        let (mut risk, mut now) = (Risk::new(5e9, 10_000), Moment::default());
        look(&mut risk, &mut now, [100_000, 0, 0], false);
        (0..100).for_each(|_| look(&mut risk, &mut now, [0; 3], false));
        look(&mut risk, &mut now, [1_000, 0, 0], false);
        look(&mut risk, &mut now, [0, 1_000, 10_000], false);
        assert!(risk.pages > 700.0, "{risk:?}");
        look(&mut risk, &mut now, [0, 100_000, 10_000], false);
        assert!(risk.pages < 1.0, "{risk:?}");
    }

    #[test]
    fn what_pages_cost_is_learned() {
        let (mut risk, mut now) = (Risk::new(5e9, 10_000), Moment::default());
        look(&mut risk, &mut now, [0, 20_000, 400_000], false);
        assert!(risk.room(400e6) < 1_100.0, "{risk:?}");
        (0..10).for_each(|_| look(&mut risk, &mut now, [0, 2_000, 10_000], false));
        assert!(risk.room(400e6) > 10_000.0, "{risk:?}");
    }

    #[test]
    fn numbers_that_jump_do_no_harm() {
        let (mut risk, mut now) = (Risk::new(5e9, 10_000), Moment::default());
        look(&mut risk, &mut now, [1 << 62, 0, 0], false);
        look(&mut risk, &mut now, [0, 1 << 62, 0], false);
        let back = Moment { at: now.at + 1, ..Moment::default() };
        risk.look(&now, &back, true);
        assert!(risk.room(1e9).is_finite() && risk.pages.is_finite(), "{risk:?}");
    }
}
