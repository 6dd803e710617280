//! `bench reclaim`: pages reclaimed per second and what each costs in CPU.
//!
//! One thread touches random pages of a region larger than local memory as fast as it can, so reclaim runs all the time.
//! Three kinds of pages: `dirty` (every touch writes), `clean` (pages that were written back before and are only read),
//! `sealed` (dropped without a copy).

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::units::{LocalSize, PAGE_BYTES};
use yonder::{Config, FarMemory};

use crate::BenchError;

const PAGE: u64 = PAGE_BYTES as u64;

/// Settings of one run.
#[derive(Clone, Debug)]
pub struct ReclaimSettings {
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory: u64,
    /// Limit of local memory.
    pub local: LocalSize,
    /// Time for each kind.
    pub duration: Duration,
}

/// One kind's cost; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ReclaimResult {
    /// Always `reclaim`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// `dirty`, `clean` or `sealed`.
    pub pages: &'static str,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Pages reclaimed per second.
    pub ops_per_s: f64,
    /// CPU of the reclaimer for one page, in microseconds.
    pub cpu_us_per_page: f64,
    /// Touches per second of the thread that causes the reclaim.
    pub touches_per_s: f64,
    /// Pages taken with one sweep of a block; 0 for sealed pages.
    pub pages_per_block: f64,
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// Bytes fetched.
    pub fetched_bytes: u64,
    /// Bytes written back.
    pub written_bytes: u64,
    /// Always 0: an error ends the run.
    pub errors: u64,
}

/// Measures each kind of page.
pub fn run(settings: &ReclaimSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<ReclaimResult>, BenchError> {
    let config = Config {
        reclaimer_cpu: yonder::place(1).reclaimer,
        ..Config::with_local(settings.local.resolve(settings.memory))
    };
    let far = FarMemory::open(&settings.far, config)?;
    let mut region = far.region(settings.memory)?;
    let pages = region.bytes() / PAGE;
    let mut results = Vec::new();
    // Every page once, so that no first touch of the node's memory is measured.
    for page in 0..pages {
        region.write_u64(page * PAGE, 1)?;
    }
    for kind in ["dirty", "clean", "sealed"] {
        if kind == "sealed" {
            region.seal()?;
        }
        let mut random = SmallRng::seed_from_u64(5);
        let (before, start) = (far.stats(), yonder::clock::now());
        let end = start + settings.duration.as_nanos() as u64;
        let mut touches = 0u64;
        while yonder::clock::now() < end {
            for _ in 0..64 {
                let offset = random.random_range(0..pages) * PAGE;
                if kind == "dirty" {
                    region.write_u64(offset, touches | 1)?;
                } else {
                    region.read_u64(offset)?;
                }
                touches += 1;
            }
            progress(
                kind,
                1.0 - (end.saturating_sub(yonder::clock::now())) as f64 / settings.duration.as_nanos() as f64,
            );
        }
        let (after, seconds) = (far.stats(), (yonder::clock::now() - start) as f64 / 1e9);
        let swept = after.swept_pages - before.swept_pages;
        let reclaimed = swept + after.dropped_pages - before.dropped_pages;
        let blocks = after.swept_blocks - before.swept_blocks;
        results.push(ReclaimResult {
            bench: "reclaim",
            far: settings.far.clone(),
            pages: kind,
            local_bytes: far.local(),
            ops_per_s: reclaimed as f64 / seconds,
            cpu_us_per_page: (after.reclaim_cpu_ns - before.reclaim_cpu_ns) as f64 / 1e3 / reclaimed.max(1) as f64,
            touches_per_s: touches as f64 / seconds,
            pages_per_block: swept as f64 / blocks.max(1) as f64,
            major_faults: after.major_faults - before.major_faults,
            minor_faults: after.minor_faults - before.minor_faults,
            fetched_bytes: after.fetched_bytes - before.fetched_bytes,
            written_bytes: after.written_bytes - before.written_bytes,
            errors: 0,
        });
    }
    Ok(results)
}
