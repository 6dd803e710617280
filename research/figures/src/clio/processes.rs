//! Figure 4: latency by the number of client processes, each with an address space and a client of its own.
//!
//! The paper does not say how the processes share the wire. Here every compute node runs one of its processes after the
//! other, drawn at random, so that waiting for the port does not hide what the number of processes costs.

use rand::Rng;
use yonder_report::Quantity;
use yonder_units::Nanos;
use yonder_wire::Kind;

use super::node::{BOARD_PAGES, Node};
use super::rdma::{Access, NICS, Nic};
use super::thread::{Load, Pace};
use super::world::{Measured, World};
use super::{SMALL_BYTES, random};
use crate::costs::Cost;
use crate::figure::{Check, Figure, Outcome, Run, Table, picture, row};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "clio-fig4",
    source: "Clio, Figure 4",
    title: "Latency by the number of client processes, Clio and RDMA",
    run,
};

/// Processes of each point.
const PROCESSES: [u64; 7] = [1, 4, 16, 64, 256, 1000, 4000];
/// Up to here the paper goes.
const PAPER_MAX: u64 = 1000;
/// Requests of each point of a full run.
const REQUESTS: u64 = 40_000;

/// Why Clio's latency is not entirely flat.
const TLB: &str = "With more than 16 processes, each in a page of its own, every request misses the TLB: once, whatever their number.";

/// Latencies of one system with so many processes.
struct Point {
    system: String,
    processes: u64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn run(run: &mut Run<'_>) -> Outcome {
    let mut points = Vec::new();
    let requests = run.requests(REQUESTS);
    for (index, processes) in PROCESSES.into_iter().enumerate() {
        (run.progress)(&format!("{processes} processes"), index as f64 / PROCESSES.len() as f64);
        for kind in [Kind::Read, Kind::Write] {
            let name = if kind == Kind::Read { "clio-read" } else { "clio-write" };
            points.push(clio(name, processes, &measure(run.seed, processes, kind, requests)));
        }
        points.extend(NICS.map(|(nic, entries)| rdma(nic, entries, run.seed, processes, requests)));
    }
    let of = |system: &str, processes: u64| {
        points.iter().find(|point| point.system == system && point.processes == processes).expect("it was simulated")
    };
    let growth = |system| of(system, PAPER_MAX).mean_us / of(system, 1).mean_us;
    let checks = vec![
        // It fixed a cost, so it must be met as well as that can be.
        Check::new("median latency of a small read, one process, us", 2.5, of("clio-read", 1).p50_us).within(1.0).calibration(),
        Check::new("99th percentile of small reads, 1,000 processes, us", 3.2, of("clio-read", PAPER_MAX).p99_us)
            .because("Nothing in the model varies but what is in the TLB and what waits: the hardware's own variation is in no number of the paper."),
        Check::new("latency of Clio's reads, 1,000 processes / 1", 1.0, growth("clio-read")).because(TLB),
        Check::new("latency of Clio's writes, 1,000 processes / 1", 1.0, growth("clio-write")).because(TLB),
    ];
    let mut table = Table::new(
        "latency",
        "Latency of 16-byte requests",
        &[("system", 0), ("processes", 0), ("mean_us", 2), ("p50_us", 2), ("p99_us", 2)],
    );
    for Point { system, processes, mean_us, p50_us, p99_us } in &points {
        table.push(row([system], [*processes as f64, *mean_us, *p50_us, *p99_us]));
    }
    Outcome {
        tables: vec![table],
        pictures: vec![picture(
            "clio-fig4",
            ["Latency by client processes", "Mean of 16-byte requests; lower is better"],
            [Quantity::Counts("processes"), Quantity::Latency],
            lines(&points),
        )],
        checks,
        notes: vec![
            "RDMA's curves are only a shape: the text says that it scales poorly, but no latency; how far they rise rests on a cost \
             that no number of the paper fixes."
                .into(),
            "Clio's 2.5 us at one process is the number that fixed a cost, so it says nothing more than that the sum is right."
                .into(),
            "With the cache sizes that Figure 5 tells, ConnectX-5 degrades only with more than 4,096 processes; the paper \
             finds that newer NICs degrade too, but not where."
                .into(),
        ],
        requests: points.len() as u64 * requests,
        ..Outcome::default()
    }
}

/// Clio with so many processes.
fn measure(seed: u64, processes: u64, kind: Kind, requests: u64) -> Measured {
    let mut rng = random(seed, processes * 2 + u64::from(kind == Kind::Write));
    let mut node = Node::hardware(BOARD_PAGES.max(processes as u32), &mut rng);
    let spaces: Vec<_> = (0..processes).map(|_| node.space(1)).collect();
    let mut world = World::new(vec![node], rng);
    for space in spaces {
        world.add(0, Load { kind, bytes: SMALL_BYTES, space, pace: Pace::WhenAsked });
    }
    // The first write of a client learns the node's clock, and the first to a page gives it memory.
    world.ask_each();
    world.measure_in_turn(requests)
}

fn clio(name: &str, processes: u64, measured: &Measured) -> Point {
    let (p50_us, p99_us) = (measured.percentile_us(0.5), measured.percentile_us(0.99));
    Point { system: name.to_owned(), processes, mean_us: measured.mean_us(), p50_us, p99_us }
}

/// RDMA with so many processes, each with a queue pair, a region (section 2.2) and a page of its own.
fn rdma(nic: &str, entries: Cost, seed: u64, processes: u64, requests: u64) -> Point {
    let mut rng = random(seed, u64::MAX - processes);
    let mut nic_of_node = Nic::new(entries);
    let mut access = |process| nic_of_node.access(Access { queue_pair: process, region: process, page: process });
    for process in 0..processes {
        access(process);
    }
    let mut latencies: Vec<Nanos> = (0..requests).map(|_| access(rng.random_range(0..processes))).collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((requests as f64 * share).ceil() as usize).max(1) - 1] as f64 / 1000.0;
    let mean_us = latencies.iter().sum::<Nanos>() as f64 / requests as f64 / 1000.0;
    Point { system: format!("rdma-{nic}"), processes, mean_us, p50_us: at(0.5), p99_us: at(0.99) }
}

/// The means, a curve for each system.
fn lines(points: &[Point]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for point in points {
        let at = (point.processes as f64, point.mean_us);
        match lines.iter_mut().find(|(name, _)| *name == point.system) {
            Some((_, line)) => line.push(at),
            None => lines.push((point.system.clone(), vec![at])),
        }
    }
    lines
}
