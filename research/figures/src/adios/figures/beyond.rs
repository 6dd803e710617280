//! Beyond the paper: more workers than one dispatcher can feed, more memory nodes than one.

use super::REQUESTS;
use crate::adios::state::Setup;
use crate::adios::sweep::{curve, peak, testbed};
use crate::adios::system::System;
use crate::adios::workload::Workload;
use crate::figure::{Figure, Outcome, Run, Table, row};

pub(crate) const SCALE: Figure = Figure {
    name: "yonder-scale",
    source: "beyond the papers",
    title: "Up to 64 workers, 8 dispatchers, 4 reclaimers and 16 memory nodes",
    run: scale,
};

/// Fewest requests for eight workers: fewer are over before the first is answered.
const REQUESTS_LEAST: u64 = 4_000;
/// Workers, dispatchers, reclaimers and memory nodes.
const SHAPES: [[usize; 4]; 9] = [
    [8, 1, 1, 1],
    [16, 1, 1, 1],
    [16, 2, 1, 1],
    [16, 2, 1, 2],
    [32, 4, 1, 4],
    [64, 1, 1, 16],
    [64, 8, 1, 16],
    [64, 8, 4, 4],
    [64, 8, 4, 16],
];

fn scale(run: &mut Run<'_>) -> Outcome {
    let columns = [
        ("system", 0),
        ("workers", 0),
        ("dispatchers", 0),
        ("reclaimers", 0),
        ("nodes", 0),
        ("peak_per_s", 0),
        ("p999_us", 2),
        ("link_percent", 1),
    ];
    let mut table = Table::new("all", "Peak, and P99.9 at 80 % of it", &columns);
    let (requests, mut simulated) = (run.requests(REQUESTS), 0);
    for (system, (index, shape)) in [System::Adios, System::Yonder]
        .into_iter()
        .flat_map(|system| SHAPES.into_iter().enumerate().map(move |shape| (system, shape)))
    {
        (run.progress)(system.name(), index as f64 / SHAPES.len() as f64);
        let [workers, dispatchers, reclaimers, nodes] = shape;
        // As many for each worker, so that queues have the time to fill; and as much memory, so that what is on its way
        // is little of it.
        let requests = requests.max(REQUESTS_LEAST) * workers as u64 / 8;
        let array = Workload::array();
        let workload = Workload { pages: array.pages * workers as u32 / 8, ..array };
        let setup =
            Setup { workers, dispatchers, reclaimers, nodes, requests, seed: run.seed, ..testbed(system, workload) };
        let peak = peak(&curve(&setup, [workers as f64 * 0.4e6].into_iter()));
        let point = &curve(&setup, [peak * 0.8].into_iter())[0].measured;
        simulated += 2 * requests;
        let [p999] = point.latencies_us([99.9]);
        let [workers, dispatchers, reclaimers, nodes] = shape.map(|count| count as f64);
        let numbers = [workers, dispatchers, reclaimers, nodes, peak, p999, point.link_percent];
        table.push(row([system.name()], numbers));
    }
    Outcome {
        tables: vec![table],
        requests: simulated,
        notes: vec![
            "One dispatcher ends at 3.0 MRPS, one reclaimer at 8.1, one link at 3.3; what there is more of goes on."
                .to_owned(),
        ],
        ..Outcome::default()
    }
}
