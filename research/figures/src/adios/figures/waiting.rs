//! Beyond the paper: faults that wait for their page for a time before they yield.

use yonder_report::Quantity;
use yonder_units::Nanos;

use super::{REQUESTS, picture};
use crate::adios::state::Setup;
use crate::adios::sweep::{Point, curve, peak, testbed};
use crate::adios::system::{Profile, System};
use crate::adios::workload::Workload;
use crate::figure::{Figure, Outcome, Run, Table, row};

pub(crate) const HYBRID: Figure = Figure {
    name: "yonder-hybrid",
    source: "beyond the papers",
    title: "Faults that busy-wait for a time, then yield",
    run: hybrid,
};

/// How long a fault waits before it yields: not at all, for less than a fetch, for most fetches, and for all of them.
const SPINS: [(&str, Nanos); 4] = [("yield", 0), ("1 us", 1_000), ("2.3 us", 2_300), ("4 us", 4_000)];

fn hybrid(run: &mut Run<'_>) -> Outcome {
    let columns = [("spins", 0), ("offered_per_s", 0), ("ops_per_s", 0), ("p50_us", 2), ("p99_us", 2), ("p999_us", 2)];
    let mut table = Table::new("all", "Yonder over the offered load", &columns);
    let requests = run.requests(REQUESTS);
    let mut curves = Vec::new();
    for (index, (name, spins)) in SPINS.into_iter().enumerate() {
        (run.progress)(name, index as f64 / SPINS.len() as f64);
        let yonder = testbed(System::Yonder, Workload::array());
        let setup = Setup { requests, seed: run.seed, profile: Profile { spins, ..yonder.profile }, ..yonder };
        let points = curve(&setup, (1..=10).map(|step| f64::from(step) * 0.15e6));
        for Point { offered, measured } in &points {
            let [p50, p99, p999] = measured.latencies_us([50.0, 99.0, 99.9]);
            table.push(row([name], [*offered, measured.ops_per_s(), p50, p99, p999]));
        }
        curves.push((name, points));
    }
    let [yielding, waiting] = [&curves[0], &curves[SPINS.len() - 1]].map(|(_, points)| peak(points));
    let lines: Vec<(&str, &[Point])> = curves.iter().map(|(name, points)| (*name, points.as_slice())).collect();
    Outcome {
        pictures: vec![picture("yonder-hybrid", "Yonder: P99.9", Quantity::Latency, &lines, |point| {
            point.measured.latency_us(99.9, None)
        })],
        requests: curves.iter().map(|(_, points)| points.len() as u64).sum::<u64>() * requests,
        notes: vec![format!(
            "Waiting saves two switches where the page comes in time, and the worker's time until then is lost: peaks are {:.2} \
             MRPS for faults that yield at once, and {:.2} for those that always wait.",
            yielding / 1e6,
            waiting / 1e6
        )],
        tables: vec![table],
        ..Outcome::default()
    }
}
