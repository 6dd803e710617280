//! Figure 5: latency by the number of page table entries, and of RDMA's memory regions.
//!
//! As in the paper, up to 4 TB of virtual memory are mapped, and one client reads anywhere in it. The real page table
//! holds an entry for each page; a read of a page that was never written is zeros and takes no memory.

use std::rc::Rc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use yonder_report::Quantity;
use yonder_units::Nanos;
use yonder_wire::Kind;

use super::node::{Node, Space};
use super::rdma::{Access, NICS, Nic};
use super::thread::{Load, Pace};
use super::world::World;
use super::{SMALL_BYTES, random};
use crate::costs::Cost;
use crate::costs::clio::{DRAM, PAGE, REGIONS_MAX, TLB_ENTRIES};
use crate::figure::{Check, Figure, Outcome, Run, Table, picture, row};

/// The figure.
pub(crate) const FIGURE: Figure = Figure {
    name: "clio-fig5",
    source: "Clio, Figure 5",
    title: "Latency by the number of page table entries and memory regions, Clio and RDMA",
    run,
};

/// The logarithm of the most entries: 4 TB in pages of 4 MB.
const ENTRIES_LOG_MAX: u32 = 20;
/// Requests of each point of a full run.
const REQUESTS: u64 = 20_000;
/// How much more than with one entry is no longer the same latency.
const SAME_LEVEL: f64 = 1.01;
const TEBIBYTE: f64 = 1_099_511_627_776.0;

/// The boards, each with its name in tables.
const BOARDS: [(&str, NewBoard); 2] = [("clio", Node::hardware), ("yonder-software", Node::software)];
type NewBoard = fn(u32, &mut ChaCha8Rng) -> Node;

/// Mean latencies of one system, in microseconds, by the logarithm of the number of entries; `None` where it fails.
struct Curve {
    system: String,
    means_us: Vec<Option<f64>>,
}

fn run(run: &mut Run<'_>) -> Outcome {
    let requests = run.requests(REQUESTS);
    let mut curves = Vec::new();
    for (index, (name, new)) in BOARDS.into_iter().enumerate() {
        (run.progress)(name, index as f64 / BOARDS.len() as f64);
        let mut rng = random(run.seed, index as u64);
        let mut node = new(1 << ENTRIES_LOG_MAX, &mut rng);
        let all = node.space(1 << ENTRIES_LOG_MAX);
        curves.push(board(name, World::new(vec![node], rng), &all, requests));
    }
    for (nic, entries) in NICS {
        curves.push(rdma(&format!("rdma-ptes-{nic}"), entries, run.seed, requests, Many::Pages));
        curves.push(rdma(&format!("rdma-regions-{nic}"), entries, run.seed, requests, Many::Regions));
    }
    outcome(&curves, requests)
}

/// One client that reads in the first pages of `all`, in more and more of them.
fn board(name: &str, mut world: World, all: &Space, requests: u64) -> Curve {
    let first = |log: u32| {
        let pages = all.pages[..1 << log].to_vec();
        Rc::new(Space { pid: all.pid, capability: all.capability, pages })
    };
    world.add(0, Load { kind: Kind::Read, bytes: SMALL_BYTES, space: first(0), pace: Pace::Always(1) });
    let measure = |log| {
        world.go_to(0, first(log));
        // Until the TLB has all that it can hold.
        world.warm_up(40 * TLB_ENTRIES.value as u64);
        Some(world.measure(requests).mean_us())
    };
    Curve { system: name.to_owned(), means_us: (0..=ENTRIES_LOG_MAX).map(measure).collect() }
}

/// What there are many of, for RDMA.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    /// Pages of one region.
    Pages,
    /// Regions, each with one page.
    Regions,
}

/// RDMA with so many pages or regions, over one queue pair.
fn rdma(name: &str, entries: Cost, seed: u64, requests: u64, many: Many) -> Curve {
    let measure = |log: u32| {
        let count = 1u64 << log;
        if many == Many::Regions && count as f64 > REGIONS_MAX.value {
            return None;
        }
        let mut rng = random(seed, u64::MAX - u64::from(log));
        let mut nic = Nic::new(entries);
        let mut access = |number| {
            let region = if many == Many::Regions { number } else { 0 };
            nic.access(Access { queue_pair: 0, region, page: number })
        };
        for number in 0..count.min(2 * entries.value as u64) {
            access(number);
        }
        let sum: Nanos = (0..requests).map(|_| access(rng.random_range(0..count))).sum();
        Some(sum as f64 / requests as f64 / 1000.0)
    };
    Curve { system: name.to_owned(), means_us: (0..=ENTRIES_LOG_MAX).map(measure).collect() }
}

impl Curve {
    /// The mean with 2^`log` entries.
    fn at(&self, log: usize) -> f64 {
        self.means_us[log].unwrap_or(f64::NAN)
    }

    /// The most entries with which it does not fail.
    fn count_max(&self) -> f64 {
        2f64.powi(self.means_us.iter().take_while(|mean| mean.is_some()).count() as i32 - 1)
    }

    /// The most entries with which the latency is that of one entry.
    fn level_end(&self) -> f64 {
        let same = self.means_us.iter().take_while(|mean| mean.is_some_and(|mean| mean <= self.at(0) * SAME_LEVEL));
        2f64.powi(same.count() as i32 - 1)
    }
}

fn outcome(curves: &[Curve], requests: u64) -> Outcome {
    let of = |system: &str| curves.iter().find(|curve| curve.system == system).expect("it was simulated");
    let clio = of("clio");
    let miss_ns = (clio.at(ENTRIES_LOG_MAX as usize) - clio.at(0)) * 1000.0;
    // Sizes of caches and the most regions are inputs: where a level ends says that they are used, and nothing more.
    let checks = vec![
        Check::new("entries that Clio's lower level ends at", 16.0, clio.level_end()).calibration(),
        Check::new("latency with 2^20 entries / 2^10, Clio", 1.0, clio.at(20) / clio.at(10)),
        Check::new("accesses to DRAM of a TLB miss, Clio", 1.0, miss_ns / DRAM.value),
        Check::new("TiB that are read without failure, Clio", 4.0, clio.count_max() * PAGE.value / TEBIBYTE),
        Check::new("regions that RDMA does not fail with", 262_144.0, of("rdma-regions-connectx3").count_max())
            .calibration(),
        Check::new("entries that ConnectX-3's lower level ends at", 256.0, of("rdma-ptes-connectx3").level_end())
            .calibration(),
        Check::new("entries that ConnectX-5's lower level ends at", 4096.0, of("rdma-ptes-connectx5").level_end())
            .calibration(),
        Check::new("regions that ConnectX-3's lower level ends at", 256.0, of("rdma-regions-connectx3").level_end())
            .calibration(),
    ];
    let mut table =
        Table::new("latency", "Mean latency of 16-byte reads", &[("system", 0), ("entries", 0), ("mean_us", 3)]);
    for curve in curves {
        for (log, mean) in curve.means_us.iter().enumerate() {
            table.push(row([&curve.system], [2f64.powi(log as i32), mean.unwrap_or(f64::NAN)]));
        }
    }
    let line = |curve: &Curve| {
        let points = curve.means_us.iter().enumerate();
        let points = points.filter_map(|(log, mean)| mean.map(|mean| (2f64.powi(log as i32), mean)));
        (curve.system.clone(), points.collect::<Vec<_>>())
    };
    Outcome {
        tables: vec![table],
        pictures: vec![picture(
            "clio-fig5",
            ["Latency by page table entries and regions", "Mean of 16-byte reads anywhere; lower is better"],
            [Quantity::Counts("entries"), Quantity::Latency],
            curves.iter().map(line),
        )],
        checks,
        notes: vec![
            "Where levels end and that RDMA fails above 2^18 regions is the paper's; how steep its curves rise is only a shape."
                .into(),
            "More regions cost RDMA more than more entries, as the paper finds: the entry of another region misses as well."
                .into(),
            "yonder-software is Yonder's data thread behind the same network: it looks at one bucket for every request, so it \
             has one level."
                .into(),
        ],
        requests: curves.iter().map(|curve| curve.means_us.iter().flatten().count() as u64 * requests).sum(),
        ..Outcome::default()
    }
}
