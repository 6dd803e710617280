//! DiLOS (EuroSys'23, sections 3 and 6.1): what a page fault costs a thread that goes through 20 GB of which an eighth
//! is local.
//!
//! One thread touches page after page; a second CPU reclaims; a NIC has a queue pair for faults and one for what is
//! fetched ahead. Pages, watermarks, hands and prefetchers are `core`'s own, as `core/pager` drives them; what a step
//! takes is in [`crate::costs::dilos`]. Every pass begins after an earlier one that only read: what is local is clean.
//!
//! A GB of the paper's sizes is 2^30 bytes (Table 3's faults say so), and of its throughputs it is taken as 10^9: then
//! a page at 1.24 GB/s takes the 3.2 us that Figure 6 leaves of Fastswap's 6.3 and a touch.
//!
//! Files: `system` the systems, `world` the thread and the reclaimer, `memory` the pages, `ahead` what is fetched
//! ahead, `link` the network, `breakdown` Figures 1 and 6, `tables` Tables 1 to 3.

mod ahead;
mod breakdown;
mod link;
mod memory;
mod system;
mod tables;
mod world;

use crate::costs::dilos;
use crate::figure::{Figure, Run};
use system::System;
use world::{Counts, Op};

/// The share of the paper's pages that a full run simulates.
const SCALE: u64 = 16;
/// Fewest pages: an eighth of them, and the share of that which reclaim keeps free, must be some windows.
const PAGES_MIN: u64 = 16_384;

/// Figure 1.
pub(crate) const FIG1: Figure = Figure {
    name: "dilos-fig1",
    source: "DiLOS, Figure 1",
    title: "Where the time of a page fault goes in Fastswap",
    run: breakdown::fig1,
};

/// Figure 6.
pub(crate) const FIG6: Figure = Figure {
    name: "dilos-fig6",
    source: "DiLOS, Figure 6",
    title: "Where the time of a page fault goes in DiLOS and in Fastswap, in a sequential read without prefetching",
    run: breakdown::fig6,
};

/// Tables 1 to 3.
pub(crate) const TABLES: Figure = Figure {
    name: "dilos-tables",
    source: "DiLOS, Tables 1 to 3",
    title: "Throughput and page faults of a sequential read and write of 20 GB, 2.5 GB of it local",
    run: tables::run,
};

/// A system that has gone through the array once.
struct Pass {
    system: &'static System,
    pages: u64,
    counts: Counts,
}

impl Pass {
    fn new(system: &'static System, op: Op, run: &mut Run<'_>, done: f64) -> Self {
        (run.progress)(system.name, done);
        let full = dilos::PAGES.value as u64;
        let pages = run.requests(full / SCALE).max(PAGES_MIN);
        let limit = (pages as f64 * dilos::LOCAL.value / 100.0) as u32;
        let order: Vec<u32> = (0..pages as u32).collect();
        Self { system, pages, counts: world::simulate(system, op, (pages as u32, limit), &order) }
    }

    /// In GB (10^9 bytes) a second.
    fn throughput(&self) -> f64 {
        (self.pages * yonder_units::PAGE_BYTES as u64) as f64 / self.counts.elapsed as f64
    }

    /// Of all the paper's pages, if as many of them were what `count` of ours are.
    fn scaled(&self, count: u64) -> f64 {
        count as f64 * dilos::PAGES.value / self.pages as f64
    }
}

#[cfg(test)]
mod tests;
