//! DiLOS' and LightSwap's figures: the same seed gives the same, and what they show beside the papers does not drift.

use yonder_figures::{FIGURES, Figure, Outcome, Run};

/// Enough for the shares to be those of a full run.
const EFFORT: f64 = 0.1;

/// Checks that are not met: of which figure, what, and what is simulated.
const MISSES: &[(&str, &str, f64)] = &[
    ("dilos-tables", "Fastswap: read, GB/s", 0.828),
    ("dilos-tables", "Fastswap: write, GB/s", 0.601),
    ("lightswap-table1", "eBPF, 32 threads, us", 1.60),
    ("lightswap-table1", "eBPF, 64 threads, us", 2.00),
    ("lightswap-fig10", "Lightswap-RDMA, 1 thread, us", 8.30),
    ("lightswap-fig10", "Infiniswap / Lightswap-RDMA, mean of all threads", 3.34),
    ("lightswap-fig10", "Linux swap / Lightswap-RDMA, mean of all threads", 5.39),
];

fn figures() -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(|figure| figure.name.starts_with("dilos-") || figure.name.starts_with("lightswap-"))
}

fn outcome(figure: &Figure, seed: u64) -> Outcome {
    (figure.run)(&mut Run { seed, effort: EFFORT, progress: &mut |_, _| {} })
}

#[test]
fn the_same_seed_gives_the_same() {
    for figure in figures() {
        assert_eq!(outcome(figure, 7), outcome(figure, 7), "{}", figure.name);
    }
}

#[test]
fn every_check_is_met_or_missed_by_as_much_as_is_known() {
    let mut misses = Vec::new();
    for figure in figures() {
        let outcome = outcome(figure, 1);
        assert!(!outcome.checks.is_empty() && outcome.requests > 0, "{}", figure.name);
        for check in outcome.checks.iter().filter(|check| !check.is_met()) {
            let known = MISSES.iter().find(|(name, what, _)| *name == figure.name && *what == check.what);
            let (_, _, recorded) = known.unwrap_or_else(|| panic!("{}: {check:?}", figure.name));
            assert!((check.simulated / recorded - 1.0).abs() < 0.1, "{}: {check:?} has drifted", figure.name);
            assert!(check.why.is_some(), "{}: {check:?} has no reason", figure.name);
            misses.push((figure.name, check.what.clone()));
        }
        let reasons = outcome.checks.iter().filter(|check| check.why.is_some());
        assert!(reasons.clone().all(|check| !check.is_met()), "{}: a reason for what is met", figure.name);
    }
    assert_eq!(misses.len(), MISSES.len(), "some are met now: {misses:?}");
}
