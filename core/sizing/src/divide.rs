//! [`divide`]: memory among programs that want more than there is, by their weights.

/// What one program wants, in pages.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claim {
    /// Of two programs that want more than they get, one with twice the weight gets twice as much.
    pub weight: f64,
    /// What it gets in any case.
    pub least: u64,
    /// What it wants.
    pub wanted: u64,
}

/// How much each gets of `total`: what it wants if that is less than its share by weight, and what others leave is
/// shared again (weighted max-min fairness). Whoever wants all of it gets its share, and takes nothing from those who
/// want less than theirs. The least of all together may be more than the total, and is given all the same.
#[must_use]
pub fn divide(total: u64, claims: &[Claim]) -> Vec<u64> {
    let mut given: Vec<u64> = claims.iter().map(|claim| claim.least).collect();
    // At this level of pages for each unit of weight, this much is given.
    let at = |level: f64, claim: &Claim| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` has limits")]
        let share = (level * claim.weight) as u64;
        share.min(claim.wanted).max(claim.least)
    };
    let sum = |level: f64| claims.iter().map(|claim| at(level, claim)).fold(0, u64::saturating_add);
    let weight = claims.iter().map(|claim| claim.weight).fold(f64::INFINITY, f64::min);
    if claims.is_empty() || sum(0.0) > total {
        return given;
    }
    // Whoever has the least weight has all of it at most.
    let (mut low, mut high) = (0.0, total as f64 / weight + 1.0);
    for _ in 0..LEVELS {
        let level = f64::midpoint(low, high);
        if sum(level) <= total { low = level } else { high = level }
    }
    given.iter_mut().zip(claims).for_each(|(given, claim)| *given = at(low, claim));
    given
}

/// Halves of the level until it is known to less than a page.
const LEVELS: u32 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(weight: f64, least: u64, wanted: u64) -> Claim {
        Claim { weight, least, wanted }
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_is_shared_by_weight() {
        let claims = [claim(1.0, 0, 100), claim(1.0, 0, u64::MAX), claim(2.0, 0, u64::MAX)];
        assert_eq!(divide(1_000, &claims), [100, 300, 600]);
        assert_eq!(divide(40, &claims), [10, 10, 20]);
    }

    #[test]
    fn the_least_is_given_in_any_case() {
        assert_eq!(divide(100, &[claim(1.0, 80, 80), claim(1.0, 70, 1_000)]), [80, 70]);
        assert_eq!(divide(200, &[claim(1.0, 10, 0), claim(1.0, 70, 1_000)]), [10, 190]);
        assert_eq!(divide(200, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn nothing_is_left_that_somebody_wants_and_no_share_is_taken(
            total in 1u64..1 << 40,
            claims in prop::collection::vec((0.01f64..100.0, 0u64..1 << 20, 0u64..1 << 40), 1..12),
        ) {
            let claims = claims.into_iter().map(|(weight, least, wanted)| claim(weight, least, wanted));
            let claims: Vec<Claim> = claims.collect();
            let given = divide(total, &claims);
            let (sum, least): (u64, u64) = (given.iter().sum(), claims.iter().map(|claim| claim.least).sum());
            prop_assert!(sum <= total.max(least));
            let wanted: u64 = claims.iter().map(|claim| claim.wanted.max(claim.least)).sum();
            // To less than a page for each, of what can be counted.
            let less = claims.len() as u64 + total / (1 << 40);
            prop_assert!(sum >= total.min(wanted).saturating_sub(less), "{sum} of {total}");
            let weights: f64 = claims.iter().map(|claim| claim.weight).sum();
            for (claim, given) in claims.iter().zip(&given) {
                prop_assert!(*given >= claim.least && *given <= claim.wanted.max(claim.least));
                let room = total.saturating_sub(least);
                let share = (room as f64 * claim.weight / weights) as u64;
                let expected = share.min(claim.wanted).min(total);
                prop_assert!(given + 2 >= expected, "{given} of a share of {share}: {claim:?}");
            }
        }
    }
}
