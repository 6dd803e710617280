//! Figure 8: goodput by client threads, 1 KiB requests, synchronous and asynchronous.
//!
//! The threads have the real clients' windows (section 4.4): congestion and incast windows with the settings that
//! Yonder runs with. Asynchronous threads keep as many operations under way as those let them, up to a number.

use yonder_report::Quantity;
use yonder_wire::Kind;

use super::node::{BOARD_PAGES, Node};
use super::random;
use super::thread::{Load, Pace};
use super::world::{Measured, World};
use crate::figure::{Check, Figure, Outcome, Run, Table, picture, row};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "clio-fig8",
    source: "Clio, Figure 8",
    title: "Goodput by client threads, 1 KiB reads and writes, synchronous and asynchronous",
    run,
};

/// Threads of each point.
const THREADS: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Bytes of a request.
const BYTES: u64 = 1024;
/// Operations that an asynchronous thread submits before it waits.
const DEPTH: usize = 64;
/// Requests of each point of a full run.
const REQUESTS: u64 = 40_000;
/// The paper's line rate, in gigabits a second.
const LINE_RATE: f64 = 9.4;
/// The curves: API, what it does, and how much at once.
const CURVES: [(&str, &str, Kind, usize); 4] = [
    ("sync", "read", Kind::Read, 1),
    ("sync", "write", Kind::Write, 1),
    ("async", "read", Kind::Read, DEPTH),
    ("async", "write", Kind::Write, DEPTH),
];

fn run(run: &mut Run<'_>) -> Outcome {
    let requests = run.requests(REQUESTS);
    let mut table = Table::new(
        "goodput",
        "Goodput of 1 KiB requests",
        &[
            ("api", 0),
            ("op", 0),
            ("threads", 0),
            ("goodput_gbps", 2),
            ("mean_us", 2),
            ("p99_us", 2),
            ("window_packets", 1),
            ("retried", 0),
        ],
    );
    let (mut lines, mut checks, mut simulated) = (Vec::new(), Vec::new(), 0);
    for (index, (api, op, kind, depth)) in CURVES.into_iter().enumerate() {
        let mut points = Vec::new();
        for threads in THREADS {
            let done = index as f64 + points.len() as f64 / THREADS.len() as f64;
            (run.progress)(&format!("{threads} threads, {api} {op}"), done / CURVES.len() as f64);
            let measured = measure(run.seed, threads, kind, depth, requests);
            let goodput = measured.gbps(BYTES);
            let (mean, p99, retried) = (measured.mean_us(), measured.percentile_us(0.99), measured.retried as f64);
            table.push(row([api, op], [threads as f64, goodput, mean, p99, measured.window_packets, retried]));
            points.push((threads as f64, goodput));
            simulated += measured.operations;
        }
        let most = points.iter().map(|(_, goodput)| *goodput).fold(0.0, f64::max);
        checks.push(Check::new(format!("most goodput, {api} {op}, Gbps"), LINE_RATE, most));
        lines.push((format!("{api} {op}"), points));
    }
    Outcome {
        tables: vec![table],
        pictures: vec![picture(
            "clio-fig8",
            ["Goodput by client threads", "1 KiB requests over a port of 10 Gbps; higher is better"],
            [Quantity::Counts("threads"), Quantity::Number("Gbps")],
            lines,
        )],
        checks,
        notes: vec![
            "Yonder's line rate is 8.8 Gbps where Clio's is 9.4: a header of 80 bytes behind IP and UDP takes more of a frame \
             than Clio's over raw Ethernet."
                .into(),
            "The text says that asynchronous threads reach the line rate quickly and synchronous ones fairly quickly, not \
             with how many: that is only a shape."
                .into(),
        ],
        requests: simulated,
        ..Outcome::default()
    }
}

/// So many threads of one address space, with `depth` operations under way in each.
fn measure(seed: u64, threads: u64, kind: Kind, depth: usize, requests: u64) -> Measured {
    let mut rng = random(seed, threads * 4 + u64::from(kind == Kind::Write) * 2 + u64::from(depth > 1));
    let mut node = Node::hardware(BOARD_PAGES, &mut rng);
    let space = node.space(threads);
    let mut world = World::new(vec![node], rng);
    for _ in 0..threads {
        world.add(0, Load { kind, bytes: BYTES, space: space.clone(), pace: Pace::Always(depth) });
    }
    world.warm_up(requests / 4 + 2 * threads * depth as u64);
    world.measure(requests)
}
