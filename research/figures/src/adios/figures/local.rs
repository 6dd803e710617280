//! Figure 8: what the size of local memory does.

use yonder_report::Quantity;

use super::REQUESTS;
use crate::adios::state::Setup;
use crate::adios::sweep::{curve, peak, testbed};
use crate::adios::system::System;
use crate::adios::workload::Workload;
use crate::figure::{Check, Figure, Outcome, Run, Table, picture, row};

pub(crate) const FIG8: Figure = Figure {
    name: "adios-fig8",
    source: "Adios, Figure 8",
    title: "P99 and peak of DiLOS and Adios by the share of memory that is local",
    run: fig8,
};

const SYSTEMS: [System; 3] = [System::Dilos, System::Adios, System::Yonder];
/// Shares of the memory, in percent.
const SHARES: [u32; 6] = [10, 20, 40, 60, 80, 100];

fn fig8(run: &mut Run<'_>) -> Outcome {
    let columns = [("system", 0), ("local_percent", 0), ("offered_per_s", 0), ("ops_per_s", 0), ("p99_us", 2)];
    let mut table = Table::new("all", "Over the offered load", &columns);
    let mut peaks = Table::new("peaks", "Peaks", &[("system", 0), ("local_percent", 0), ("ops_per_s", 0)]);
    let (mut lines, mut lost, requests) = (Vec::new(), Vec::new(), run.requests(REQUESTS));
    let mut simulated = 0;
    for (index, system) in SYSTEMS.into_iter().enumerate() {
        let mut line = Vec::new();
        for share in SHARES {
            (run.progress)(system.name(), index as f64 / SYSTEMS.len() as f64);
            let local_percent = f64::from(share);
            let setup = Setup { requests, seed: run.seed, local_percent, ..testbed(system, Workload::array()) };
            let points = curve(&setup, (1..=8).map(|half| f64::from(half) * 0.5e6));
            simulated += points.len() as u64 * requests;
            for point in &points {
                let [p99] = point.measured.latencies_us([99.0]);
                table.push(row([system.name()], [local_percent, point.offered, point.measured.ops_per_s(), p99]));
            }
            line.push((local_percent, peak(&points)));
            peaks.push(row([system.name()], [local_percent, peak(&points)]));
        }
        let (least, most) = (line[0].1, line[line.len() - 1].1);
        lost.push((1.0 - least / most) * 100.0);
        lines.push((system.name(), line));
    }
    let eighty = lines[0].1[4].1;
    Outcome {
        checks: vec![
            Check::new("throughput that Adios loses from 100 % to 10 % local, percent", 25.0, lost[1]),
            Check::new("throughput that DiLOS loses from 100 % to 10 % local, percent", 60.0, lost[0]).calibration(),
            Check::new("peak, Adios at 10 % local / DiLOS at 80 %", 1.0, lines[1].1[0].1 / eighty),
        ],
        pictures: vec![picture(
            "adios-fig8",
            [
                "Adios, Fig. 8: peak throughput by the size of local memory",
                "Simulated; percent of the memory that is local.",
            ],
            [Quantity::Number("percent local"), Quantity::Rate],
            lines,
        )],
        tables: vec![peaks, table],
        requests: simulated,
        ..Outcome::default()
    }
}
