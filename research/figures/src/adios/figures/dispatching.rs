//! Figures 10e and 11: page-fault-aware dispatch against round-robin, and requests a hundred times as long among short
//! ones.

use yonder_dispatch::DispatchPolicy;
use yonder_report::Quantity;

use super::{REQUESTS, picture};
use crate::adios::state::Setup;
use crate::adios::sweep::{Point, curve, peak, testbed};
use crate::adios::system::System;
use crate::adios::workload::Workload;
use crate::figure::{Check, Figure, Outcome, Run, Table, row};

pub(crate) const FIG10E: Figure = Figure {
    name: "adios-fig10e",
    source: "Adios, Figure 10e",
    title: "memcached's GETs with page-fault-aware dispatch and in turn",
    run: fig10e,
};

pub(crate) const FIG11: Figure = Figure {
    name: "adios-fig11",
    source: "Adios, Figure 11",
    title: "RocksDB: 99 % GET and 1 % SCAN(100)",
    run: fig11,
};

/// Why DiLOS-P fares otherwise than in the paper.
const PREEMPTED: &str = "A request that is preempted passes the one dispatcher again, at the price of an arrival; the paper does not tell its price, and few SCANs make the tail.";
/// The load at which the paper compares systems under RocksDB.
const COMPARED: f64 = 0.49e6;

const COLUMNS: [(&str, usize); 8] = [
    ("system", 0),
    ("dispatch", 0),
    ("request", 0),
    ("offered_per_s", 0),
    ("ops_per_s", 0),
    ("p50_us", 2),
    ("p99_us", 2),
    ("p999_us", 2),
];

fn policy_name(policy: DispatchPolicy) -> &'static str {
    match policy {
        DispatchPolicy::RoundRobin => "round-robin",
        DispatchPolicy::PageFaultAware => "pf-aware",
        DispatchPolicy::Predicted => "predicted",
    }
}

/// A system's curve over a workload, and its rows.
fn rows(table: &mut Table, run: &Run<'_>, setup: &Setup, system: System, rates: &[f64]) -> Vec<Point> {
    let setup = Setup { requests: run.requests(2 * REQUESTS), seed: run.seed, ..setup.clone() };
    let points = curve(&setup, rates.iter().copied());
    for Point { offered, measured } in &points {
        for (kind, of) in setup.workload.kinds.iter().enumerate() {
            let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| measured.latency_us(percent, Some(kind as u8)));
            let words = [system.name(), policy_name(setup.policy), of.name];
            table.push(row(words, [*offered, measured.ops_per_s(), p50, p99, p999]));
        }
    }
    points
}

/// Tail of the first kind.
fn tail(point: &Point) -> f64 {
    point.measured.latency_us(99.9, Some(0))
}

/// By how much page-fault-aware dispatch lowers the tail at most, in percent, up to the load at which the paper
/// compares systems.
fn lowered(aware: &[Point], round_robin: &[Point], compared: f64) -> f64 {
    let both = aware.iter().zip(round_robin).filter(|(point, _)| point.offered <= compared);
    both.map(|(aware, round_robin)| (1.0 - tail(aware) / tail(round_robin)) * 100.0).fold(f64::NEG_INFINITY, f64::max)
}

fn both_policies(table: &mut Table, run: &mut Run<'_>, workload: &Workload, rates: &[f64]) -> [Vec<Point>; 2] {
    [DispatchPolicy::PageFaultAware, DispatchPolicy::RoundRobin].map(|policy| {
        (run.progress)(policy_name(policy), 0.5);
        let setup = Setup { policy, ..testbed(System::Adios, workload.clone()) };
        rows(table, run, &setup, System::Adios, rates)
    })
}

fn fig10e(run: &mut Run<'_>) -> Outcome {
    let rates: Vec<f64> = (2..=18).map(|step| f64::from(step) * 0.075e6).collect();
    let mut table = Table::new("e", "Over the offered load", &COLUMNS);
    let [aware, round_robin] = both_policies(&mut table, run, &Workload::memcached(), &rates);
    let lines = [("pf-aware", aware.as_slice()), ("round-robin", round_robin.as_slice())];
    Outcome {
        checks: vec![
            Check::new("P99.9 of GETs that page-fault-aware dispatch saves at most, percent", 7.5, lowered(&aware, &round_robin, 0.75e6)).because(
                "The paper's memcached ends at its NIC's queue pairs, which this model does not fill: at its load ours has room.",
            ),
        ],
        pictures: vec![picture("adios-fig10e", "Adios, Fig. 10e: P99.9 of memcached's GETs", Quantity::Latency, &lines, tail)],
        requests: 2 * rates.len() as u64 * run.requests(2 * REQUESTS),
        tables: vec![table],
        ..Outcome::default()
    }
}

fn fig11(run: &mut Run<'_>) -> Outcome {
    let rates: Vec<f64> = (1..=24).map(|step| f64::from(step) * 0.035e6).collect();
    let workload = Workload::rocksdb();
    let mut table = Table::new("abcde", "Over the offered load", &COLUMNS);
    let [dilos, dilos_p] = [System::Dilos, System::DilosP].map(|system| {
        (run.progress)(system.name(), 0.1);
        rows(&mut table, run, &testbed(system, workload.clone()), system, &rates)
    });
    let [aware, round_robin] = both_policies(&mut table, run, &workload, &rates);
    let at =
        |points: &[Point], rate: f64| points.iter().position(|point| point.offered >= rate).expect("the curve goes on");
    let look = at(&dilos, COMPARED);
    let median = |point: &Point| point.measured.latency_us(50.0, Some(0));
    let lines = [
        ("dilos", dilos.as_slice()),
        ("dilos-p", dilos_p.as_slice()),
        ("adios", aware.as_slice()),
        ("adios, round-robin", round_robin.as_slice()),
    ];
    let scans = |point: &Point| point.measured.latency_us(99.9, Some(1));
    Outcome {
        checks: vec![
            Check::new("peak throughput, Adios / DiLOS", 1.47, peak(&aware) / peak(&dilos)),
            Check::new("peak throughput, Adios / DiLOS-P", 1.34, peak(&aware) / peak(&dilos_p)).because(PREEMPTED),
            Check::new("P99.9 of GETs at 490 KRPS, DiLOS / Adios", 7.61, tail(&dilos[look]) / tail(&aware[look])).because(
                "A few SCANs at a time hold most of DiLOS' workers, and how long a SCAN takes the paper gives only as 25 to 100 GETs.",
            ),
            Check::new("P99.9 of GETs at 490 KRPS, DiLOS-P / Adios", 2.71, tail(&dilos_p[look]) / tail(&aware[look]))
                .because(PREEMPTED),
            Check::new("P50 of GETs at 490 KRPS, DiLOS / Adios", 1.37, median(&dilos[look]) / median(&aware[look])).calibration(),
            Check::new("P99.9 of GETs that page-fault-aware dispatch saves at most, percent", 27.0, lowered(&aware, &round_robin, COMPARED))
                .because("The most of fourteen loads, to which chance adds: by seed it is 31 to 36."),
        ],
        pictures: vec![
            picture("adios-fig11a", "Adios, Fig. 11: P99.9 of RocksDB's GETs", Quantity::Latency, &lines, tail),
            picture("adios-fig11b", "Adios, Fig. 11: P50 of RocksDB's GETs", Quantity::Latency, &lines, median),
            picture("adios-fig11c", "Adios, Fig. 11: P99.9 of RocksDB's SCANs", Quantity::Latency, &lines, scans),
        ],
        requests: 4 * rates.len() as u64 * run.requests(2 * REQUESTS),
        tables: vec![table],
        ..Outcome::default()
    }
}
