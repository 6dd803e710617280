//! Figure 9: replies whose transmission the dispatcher reaps, and replies for whose transmission workers wait.

use yonder_report::Quantity;

use super::{REQUESTS, picture};
use crate::adios::state::Setup;
use crate::adios::sweep::{Point, curve, peak, testbed};
use crate::adios::system::{Profile, System};
use crate::adios::workload::Workload;
use crate::figure::{Check, Figure, Outcome, Run, Table, row};

pub(crate) const FIG9: Figure =
    Figure { name: "adios-fig9", source: "Adios, Figure 9", title: "What polling delegation saves", run: fig9 };

fn fig9(run: &mut Run<'_>) -> Outcome {
    let columns = [("transmission", 0), ("offered_per_s", 0), ("ops_per_s", 0), ("p50_us", 2), ("p999_us", 2)];
    let mut table = Table::new("all", "Adios over the offered load", &columns);
    let requests = run.requests(REQUESTS);
    let mut of = |name: &'static str, delegates: bool| {
        (run.progress)(name, if delegates { 0.0 } else { 0.5 });
        let adios = testbed(System::Adios, Workload::array());
        let setup = Setup { requests, seed: run.seed, profile: Profile { delegates, ..adios.profile }, ..adios };
        let points = curve(&setup, (2..=26).map(|tenth| f64::from(tenth) * 0.1e6));
        for Point { offered, measured } in &points {
            let [p50, p999] = measured.latencies_us([50.0, 99.9]);
            table.push(row([name], [*offered, measured.ops_per_s(), p50, p999]));
        }
        points
    };
    let (delegated, waited) = (of("delegated", true), of("waited for", false));
    let tail = |point: &Point| point.measured.latency_us(99.9, None);
    // The last load with which even the slower keeps up.
    let end = waited.iter().rposition(|point| point.measured.keeps_up()).unwrap_or(0);
    let lines = [("delegated", delegated.as_slice()), ("waited for", waited.as_slice())];
    Outcome {
        checks: vec![
            Check::new("peak throughput, with / without polling delegation", 1.15, peak(&delegated) / peak(&waited))
                .calibration(),
            Check::new(
                "P99.9 at the peak without, without / with polling delegation",
                8.05,
                tail(&waited[end]) / tail(&delegated[end]),
            )
            .because("Near its peak a queue grows with every percent of load, and the paper does not tell how near."),
        ],
        pictures: vec![
            picture("adios-fig9a", "Adios, Fig. 9: P50", Quantity::Latency, &lines, |point| {
                point.measured.latency_us(50.0, None)
            }),
            picture("adios-fig9b", "Adios, Fig. 9: P99.9", Quantity::Latency, &lines, tail),
        ],
        requests: 2 * delegated.len() as u64 * requests,
        tables: vec![table],
        ..Outcome::default()
    }
}
