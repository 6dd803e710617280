//! Figures 2 and 7: latency, throughput and the link's use, over the offered load.

use yonder_report::{Bar, Bars, Quantity};

use super::{REQUESTS, REQUESTS_CHECKED, picture};
use crate::adios::measure::{Measured, Parts};
use crate::adios::node::run as simulate;
use crate::adios::state::Setup;
use crate::adios::sweep::{Point, curve, peak, testbed};
use crate::adios::system::System;
use crate::adios::workload::Workload;
use crate::figure::{self, Check, Figure, Outcome, Run, Table, row};

pub(crate) const FIG2: Figure = Figure {
    name: "adios-fig2",
    source: "Adios, Figure 2",
    title: "What busy-waiting costs: DiLOS, with and without preemption, over the offered load",
    run: fig2,
};

pub(crate) const FIG7: Figure = Figure {
    name: "adios-fig7",
    source: "Adios, Figure 7",
    title: "Latency, throughput and the link's use of every system, over the offered load",
    run: fig7,
};

/// The load at which the paper looks inside.
const CLOSER_LOOK: f64 = 1.3e6;

/// Offered loads of the curves.
fn rates() -> impl Iterator<Item = f64> {
    [0.2, 0.4, 0.6, 0.7, 0.8, 1.0, 1.1, 1.2, 1.3, 1.35, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.3, 2.4, 2.6, 3.0]
        .into_iter()
        .map(|rate| rate * 1e6)
}

/// Curves of some systems.
fn curves(run: &mut Run<'_>, systems: &[System]) -> Vec<(System, Vec<Point>)> {
    let requests = run.requests(REQUESTS);
    let mut curves = Vec::new();
    for (index, system) in systems.iter().enumerate() {
        (run.progress)(system.name(), index as f64 / systems.len() as f64);
        let setup = Setup { requests, seed: run.seed, ..testbed(*system, Workload::array()) };
        curves.push((*system, curve(&setup, rates())));
    }
    curves
}

/// One system under the load that is looked into.
fn closer(run: &Run<'_>, system: System) -> Measured {
    let requests = run.requests(REQUESTS_CHECKED);
    simulate(&Setup { rate: CLOSER_LOOK, requests, seed: run.seed, ..testbed(system, Workload::array()) })
}

/// What is drawn, as a table.
fn over_load(part: &'static str, title: &str, curves: &[(System, Vec<Point>)]) -> Table {
    let columns = [
        ("system", 0),
        ("offered_per_s", 0),
        ("ops_per_s", 0),
        ("p50_us", 2),
        ("p99_us", 2),
        ("p999_us", 2),
        ("link_percent", 1),
        ("dropped_percent", 2),
    ];
    let mut table = Table::new(part, title, &columns);
    for (system, points) in curves {
        for Point { offered, measured } in points {
            let [p50, p99, p999] = measured.latencies_us([50.0, 99.0, 99.9]);
            let dropped_percent = measured.dropped as f64 * 100.0 / measured.arrived as f64;
            let numbers = [*offered, measured.ops_per_s(), p50, p99, p999, measured.link_percent, dropped_percent];
            table.push(row([system.name()], numbers));
        }
    }
    table
}

/// Where the time of requests goes, at percentiles of their whole time.
fn breakdown(systems: &[(System, &Measured)]) -> (Table, Bars) {
    let columns = [
        ("system", 0),
        ("percentile", 1),
        ("queued_us", 2),
        ("queued_behind_busy_waiting_us", 2),
        ("fetching_us", 2),
        ("ready_us", 2),
        ("running_us", 2),
    ];
    let mut table = Table::new("c", "Where the time goes at 1.3 MRPS, at the compute node", &columns);
    let mut bars = Vec::new();
    for (system, measured) in systems {
        for percentile in [10.0, 50.0, 99.0, 99.9] {
            let parts = measured.around(percentile);
            let Parts { queued, queued_busy: busy, fetching, ready, running } = parts;
            table.push(row([system.name()], [percentile, queued, busy, fetching, ready, running]));
            bars.push(Bar {
                name: format!("{}, P{percentile}", system.name()),
                numbers: format!("{:.1} us", queued + fetching + ready + running),
                parts: vec![busy, queued - busy, fetching, ready, running],
            });
        }
    }
    let (title, caption) =
        ("Where the time of a request goes at 1.3 MRPS", "Simulated; means of the requests around each percentile.");
    let names = ["queued behind busy-waiting", "queued", "fetching", "ready", "running"];
    (table, figure::bars("adios-breakdown", title, caption, &names, bars))
}

fn named(curves: &[(System, Vec<Point>)]) -> Vec<(&'static str, &[Point])> {
    curves.iter().map(|(system, points)| (system.name(), points.as_slice())).collect()
}

fn requests_of(curves: &[(System, Vec<Point>)], run: &Run<'_>, closer: u64) -> u64 {
    let points: usize = curves.iter().map(|(_, points)| points.len()).sum();
    points as u64 * run.requests(REQUESTS) + closer * run.requests(REQUESTS_CHECKED)
}

fn fig2(run: &mut Run<'_>) -> Outcome {
    let curves = curves(run, &[System::Dilos, System::DilosP]);
    let measured = closer(run, System::Dilos);
    let mut shares = Table::new(
        "b",
        "DiLOS at 1.3 MRPS: latency by the share of requests below it",
        &[("percent", 1), ("latency_us", 2)],
    );
    for percent in (0..100).step_by(5).map(f64::from).chain([99.0, 99.5, 99.9]) {
        shares.push(row([], [percent, measured.latency_us(percent, None)]));
    }
    let (parts, bars) = breakdown(&[(System::Dilos, &measured)]);
    let dilos = &curves[0].1;
    let used = dilos.iter().map(|point| point.measured.link_percent).fold(0.0, f64::max);
    let at = |percent| f64::from(measured.at(percent, None).whole()) / 1e3;
    let lines = named(&curves);
    Outcome {
        pictures: vec![
            picture("adios-fig2a", "Adios, Fig. 2a: P99 over the load", Quantity::Latency, &lines, |point| point.measured.latency_us(99.0, None)),
            picture("adios-fig2d", "Adios, Fig. 2d: throughput over the load", Quantity::Rate, &lines, |point| point.measured.ops_per_s()),
            picture("adios-fig2e", "Adios, Fig. 2e: use of the link", Quantity::Number("percent"), &lines, |point| point.measured.link_percent),
        ],
        checks: vec![
            Check::new("peak of DiLOS, MRPS", 1.38, peak(dilos) / 1e6),
            Check::new("use of the link by DiLOS at its peak, percent", 50.0, used),
            Check::new("DiLOS at 1.3 MRPS, P99 / P50 at the node", 5.0, at(99.0) / at(50.0)).because(
                "The paper's DiLOS peaks at 1.38 MRPS, ours a little higher, so that 1.3 MRPS are nearer to its end than to ours.",
            ),
        ],
        requests: requests_of(&curves, run, 1),
        tables: vec![over_load("a", "Over the offered load", &curves), shares, parts],
        bars: vec![bars],
        ..Outcome::default()
    }
}

fn fig7(run: &mut Run<'_>) -> Outcome {
    let curves = curves(run, &System::ALL);
    let [dilos, adios] = [System::Dilos, System::Adios].map(|system| closer(run, system));
    let (parts, bars) = breakdown(&[(System::Dilos, &dilos), (System::Adios, &adios)]);
    let points = |system: System| &curves.iter().find(|(other, _)| *other == system).expect("all are drawn").1;
    let peaks = System::ALL.map(|system| (system, peak(points(system))));
    let peak = |system: System| peaks.iter().find(|(other, _)| *other == system).expect("all are drawn").1;
    let used = points(System::Adios).iter().map(|point| point.measured.link_percent).fold(0.0, f64::max);
    let tail = |measured: &Measured| measured.latency_us(99.9, None);
    let at = |system: System, rate: f64| {
        tail(
            &points(system)
                .iter()
                .min_by(|a, b| (a.offered - rate).abs().total_cmp(&(b.offered - rate).abs()))
                .expect("there are points")
                .measured,
        )
    };
    let queued = |percent| dilos.around(percent).queued / adios.around(percent).queued;
    let inside = "The paper's P99.9 at this load is 2.83 times lower as clients see it, but its queueing 36.8 times; the two are of different runs, and with one model only one of them can hold.";
    let lines = named(&curves);
    Outcome {
        pictures: vec![
            picture("adios-fig7a", "Adios, Fig. 7a: P99.9 over the load", Quantity::Latency, &lines, |point| tail(&point.measured)),
            picture("adios-fig7b", "Adios, Fig. 7b: P50 over the load", Quantity::Latency, &lines, |point| point.measured.latency_us(50.0, None)),
            picture("adios-fig7d", "Adios, Fig. 7d: throughput over the load", Quantity::Rate, &lines, |point| point.measured.ops_per_s()),
            picture("adios-fig7e", "Adios, Fig. 7e: use of the link", Quantity::Number("percent"), &lines, |point| point.measured.link_percent),
        ],
        checks: vec![
            Check::new("peak throughput, Adios / DiLOS", 1.58, peak(System::Adios) / peak(System::Dilos)),
            Check::new("peak throughput, Adios / Hermit", 2.11, peak(System::Adios) / peak(System::Hermit)),
            Check::new("peak throughput, Adios / DiLOS-P", 1.59, peak(System::Adios) / peak(System::DilosP)),
            Check::new("peak throughput, DiLOS / Hermit", 1.29, peak(System::Dilos) / peak(System::Hermit)).calibration(),
            Check::new("P99.9 at 1.3 MRPS, DiLOS / Adios", 2.83, tail(&dilos) / tail(&adios)),
            Check::new("P99.9 at 0.7 MRPS, Hermit / DiLOS", 42.0, at(System::Hermit, 0.7e6) / at(System::Dilos, 0.7e6)).calibration(),
            Check::new("P99.9 at 0.2 MRPS, Adios / DiLOS", 1.06, at(System::Adios, 0.2e6) / at(System::Dilos, 0.2e6)).calibration(),
            Check::new("queueing delay at P99, DiLOS / Adios", 16.3, queued(99.0)).within(30.0).because(inside),
            Check::new("queueing delay at P99.9, DiLOS / Adios", 36.8, queued(99.9)).within(30.0).because(inside),
            Check::new("use of the link by Adios at its peak, percent", 82.0, used),
        ],
        requests: requests_of(&curves, run, 2),
        tables: vec![over_load("abde", "Over the offered load", &curves), parts],
        bars: vec![bars],
        notes: vec!["yonder: the costs of `yonder bench fault-breakdown` on a virtual machine whose kernel takes 4.7 us of a fault, on Adios' testbed.".to_owned()],
    }
}
