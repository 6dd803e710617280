//! DiLOS' and LightSwap's figures: the same seed gives the same, and what they show beside the papers does not drift.

use yonder_figures::{FIGURES, Figure, Outcome, Run};
use yonder_report::{bars_svg, picture_svg};

/// Enough for the shares to be those of a full run.
const EFFORT: f64 = 0.1;
/// How far a number may be from what it was, as a share: who changes a cost or the model looks at all of them.
const DRIFT: f64 = 0.02;

/// Whether a check is within its tolerance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Met,
    /// It says why not.
    Missed,
}
use Is::{Met, Missed};

/// All checks: of which figure, what, and what is simulated.
const CHECKS: &[(&str, &str, f64, Is)] = &[
    ("dilos-fig1", "share of the fetch, percent", 45.968, Met),
    ("dilos-fig1", "share of reclaim, percent", 29.074, Met),
    ("dilos-fig1", "share of the exception, percent", 9.004, Met),
    ("dilos-fig1", "faults that reclaim nothing themselves, percent", 99.301, Met),
    ("dilos-fig6", "a fault of DiLOS is shorter than Fastswap's, percent", 49.135, Met),
    ("dilos-fig6", "DiLOS' fault that is not reclaim, percent", 100.000, Met),
    ("dilos-tables", "Fastswap: read, GB/s", 0.827, Missed),
    ("dilos-tables", "Fastswap: write, GB/s", 0.598, Missed),
    ("dilos-tables", "Fastswap: major faults", 655_680.0, Met),
    ("dilos-tables", "Fastswap: minor faults", 4_587_200.0, Met),
    ("dilos-tables", "DiLOS, no prefetching: read, GB/s", 1.241, Met),
    ("dilos-tables", "DiLOS, no prefetching: write, GB/s", 1.141, Met),
    ("dilos-tables", "DiLOS, no prefetching: major faults", 5_242_880.0, Met),
    ("dilos-tables", "DiLOS, readahead: read, GB/s", 3.751, Met),
    ("dilos-tables", "DiLOS, readahead: write, GB/s", 3.517, Met),
    ("dilos-tables", "DiLOS, readahead: major faults", 655_680.0, Met),
    ("dilos-tables", "DiLOS, readahead: minor faults", 3_276_640.0, Met),
    ("dilos-tables", "DiLOS, trend: read, GB/s", 3.750, Met),
    ("dilos-tables", "DiLOS, trend: write, GB/s", 3.517, Met),
    ("dilos-tables", "DiLOS, trend: major faults", 656_000.0, Met),
    ("dilos-tables", "DiLOS, trend: minor faults", 3_276_320.0, Met),
    ("lightswap-table1", "eBPF, 1 thread, us", 1.600, Met),
    ("lightswap-table1", "eBPF, 16 threads, us", 1.600, Met),
    ("lightswap-table1", "eBPF, 32 threads, us", 1.600, Missed),
    ("lightswap-table1", "eBPF, 64 threads, us", 1.998, Missed),
    ("lightswap-table1", "eBPF, 128 threads, us", 4.006, Met),
    ("lightswap-fig10", "Lightswap-RDMA, 1 thread, us", 8.300, Missed),
    ("lightswap-fig10", "Lightswap-RDMA, 128 threads, us", 13.531, Met),
    ("lightswap-fig10", "Infiniswap, 1 thread, us", 25.202, Met),
    ("lightswap-fig10", "Infiniswap, 128 threads, us", 45.443, Met),
    ("lightswap-fig10", "Linux swap, 1 thread, us", 43.200, Met),
    ("lightswap-fig10", "Linux swap, 128 threads, us", 63.202, Met),
    ("lightswap-fig10", "Lightswap-SSD / Linux swap, mean of all threads", 0.608, Met),
    ("lightswap-fig10", "Infiniswap / Lightswap-RDMA, mean of all threads", 3.343, Missed),
    ("lightswap-fig10", "Linux swap / Lightswap-RDMA, mean of all threads", 5.392, Missed),
    ("lightswap-fig11", "Lightswap-RDMA: share of software, percent", 39.759, Met),
    ("lightswap-fig11", "Lightswap-SSD: share of software, percent", 13.089, Met),
    ("lightswap-fig11", "Infiniswap: share of software, percent", 80.160, Met),
    ("lightswap-fig11", "Infiniswap: in all, us", 25.202, Met),
    ("lightswap-fig11", "Linux swap: share of software, percent", 42.130, Met),
    ("lightswap-fig11", "Linux swap: in all, us", 43.200, Met),
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
fn every_picture_can_be_drawn() {
    for figure in figures() {
        let outcome = outcome(figure, 1);
        assert!(outcome.pictures.len() + outcome.bars.len() > 0, "{} has nothing to look at", figure.name);
        for svg in outcome.pictures.iter().map(picture_svg).chain(outcome.bars.iter().map(bars_svg)) {
            assert!(svg.is_ok_and(|svg| svg.contains("</svg>")), "{}", figure.name);
        }
    }
}

#[test]
fn every_check_shows_what_it_showed_and_is_met_or_says_why_not() {
    let mut known = CHECKS.iter();
    for figure in figures() {
        let outcome = outcome(figure, 1);
        assert!(!outcome.checks.is_empty() && outcome.requests > 0, "{}", figure.name);
        for check in &outcome.checks {
            let Some((name, what, recorded, is)) = known.next() else { panic!("{}: {check:?} is new", figure.name) };
            assert_eq!((*name, *what), (figure.name, check.what.as_str()));
            assert!((check.simulated / recorded - 1.0).abs() < DRIFT, "{}: {check:?} was {recorded}", figure.name);
            assert_eq!(if check.is_met() { Met } else { Missed }, *is, "{}: {check:?}", figure.name);
            assert_eq!(check.why.is_some(), *is == Missed, "{}: {check:?}", figure.name);
        }
    }
    assert_eq!(known.next(), None, "a check is gone");
}
