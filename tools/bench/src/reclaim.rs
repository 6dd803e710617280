//! `bench reclaim`: pages reclaimed per second and what each costs in CPU.
//!
//! One thread touches random pages of a region larger than local memory as fast as it can, so reclaim runs all the
//! time. Three kinds of pages: `dirty` (every touch writes), `clean` (pages that were written back before and are only
//! read), `sealed` (dropped without a copy).

use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::units::{Nanos, PAGE_BYTES};
use yonder::{Config, FarMemory, Region, Stats};
use yonder_load::{LatencyRecorder, LatencySummary};

use crate::flags::{BENCHMARK, MemoryArgs, positive_duration};
use crate::{BenchError, Counts};

const PAGE: u64 = PAGE_BYTES as u64;

/// Settings of one run.
#[derive(Clone, Debug, Args)]
pub struct ReclaimSettings {
    /// Far memory
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Measured time for each kind of page; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub duration: Duration,
}

/// One kind's cost; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ReclaimResult {
    /// Always `reclaim`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// `dirty`, `clean` or `sealed`.
    pub pages: &'static str,
    /// Measured seconds.
    pub seconds: f64,
    /// Pages reclaimed per second, not counting those that were touched again while they were on standby.
    pub ops_per_s: f64,
    /// CPU of the reclaimer for one page, in microseconds.
    pub cpu_us_per_page: f64,
    /// Touches per second of the thread that causes the reclaim.
    pub touches_per_s: f64,
    /// Median time of a touch, faults included.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Pages taken with one sweep of a block; 0 for sealed pages.
    pub pages_per_block: f64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Measures each kind of page.
pub fn run(settings: &ReclaimSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<ReclaimResult>, BenchError> {
    let config = Config {
        reclaimer_cpu: yonder::place(1).reclaimer,
        ..Config::with_local(settings.memory.local.resolve(settings.memory.size))
    };
    let far = FarMemory::open(&settings.memory.far, config)?;
    let mut region = far.region(settings.memory.size)?;
    // Every page once, so that no first touch of the node's memory is measured.
    for page in 0..region.bytes() / PAGE {
        region.write_u64(page * PAGE, value_of(page, 0))?;
    }
    let mut results = Vec::new();
    for (pages, touch) in [("dirty", Touch::Write), ("clean", Touch::Read), ("sealed", Touch::Read)] {
        if pages == "sealed" {
            region.seal()?;
        }
        let mut toucher = Toucher::new(&region, touch);
        // Until the pages of the kind before are gone.
        toucher.touch_for(settings.duration / 4, &mut |share| progress(pages, share / 5.0))?;
        toucher.latency = LatencyRecorder::new();
        let (before, start) = (far.stats(), yonder::clock::now());
        toucher.touch_for(settings.duration, &mut |share| progress(pages, 0.2 + 0.8 * share))?;
        let (after, measured_ns) = (far.stats(), yonder::clock::now() - start);
        if toucher.wrong > 0 {
            return Err(BenchError::WrongValues(toucher.wrong));
        }
        let latency = toucher.latency.summary();
        results.push(result(settings, far.local(), pages, (&before, &after), measured_ns as f64 / 1e9, latency));
    }
    Ok(results)
}

fn result(
    settings: &ReclaimSettings,
    local_bytes: u64,
    pages: &'static str,
    (before, after): (&Stats, &Stats),
    seconds: f64,
    latency: LatencySummary,
) -> ReclaimResult {
    let swept = after.swept_pages - before.swept_pages;
    let rescued = after.rescues - before.rescues;
    // A page that got its second chance was not made free.
    let reclaimed = swept.saturating_sub(rescued) + after.dropped_pages - before.dropped_pages;
    let blocks = after.swept_blocks - before.swept_blocks;
    ReclaimResult {
        bench: "reclaim",
        far: settings.memory.far.clone(),
        memory_bytes: settings.memory.size,
        local_bytes,
        pages,
        seconds,
        ops_per_s: reclaimed as f64 / seconds,
        cpu_us_per_page: (after.reclaim_cpu_ns - before.reclaim_cpu_ns) as f64 / 1e3 / reclaimed.max(1) as f64,
        touches_per_s: latency.count as f64 / seconds,
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
        p999_us: latency.p999_us,
        pages_per_block: swept as f64 / blocks.max(1) as f64,
        counts: Counts::between(before, after),
    }
}

#[derive(Clone, Copy)]
enum Touch {
    Read,
    Write,
}

/// Touches random pages of a region, and checks what it reads.
struct Toucher<'a> {
    region: &'a Region,
    touch: Touch,
    random: SmallRng,
    latency: LatencyRecorder,
    touches: u64,
    wrong: u64,
}

impl<'a> Toucher<'a> {
    fn new(region: &'a Region, touch: Touch) -> Self {
        let random = SmallRng::seed_from_u64(5);
        Self { region, touch, random, latency: LatencyRecorder::new(), touches: 0, wrong: 0 }
    }

    fn touch_for(&mut self, time: Duration, progress: &mut dyn FnMut(f64)) -> Result<(), BenchError> {
        /// Touches between two reports of progress.
        const REPORT_EVERY: u64 = 1 << 14;
        let (start, time) = (yonder::clock::now(), time.as_nanos() as Nanos);
        let mut now = start;
        while now - start < time {
            let page = self.random.random_range(0..self.region.bytes() / PAGE);
            match self.touch {
                Touch::Write => self.region.write_u64(page * PAGE, value_of(page, self.touches))?,
                Touch::Read => {
                    self.wrong += u64::from(page_of(self.region.read_u64(page * PAGE)?) != Some(page));
                }
            }
            let done = yonder::clock::now();
            self.latency.record(done - now);
            now = done;
            self.touches += 1;
            if self.touches.is_multiple_of(REPORT_EVERY) {
                progress((now - start) as f64 / time as f64);
                now = yonder::clock::now();
            }
        }
        Ok(())
    }
}

/// What is written to a page: a count that makes it differ from what was there, and the page, so that no other page's
/// content and no zero passes for it.
fn value_of(page: u64, count: u64) -> u64 {
    count << 32 | (page + 1) & 0xFFFF_FFFF
}

/// The page that a value was written to.
fn page_of(value: u64) -> Option<u64> {
    (value & 0xFFFF_FFFF).checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_their_page_and_change() {
        for page in [0, 1, 65_535, 0xFFFF_FFFE] {
            assert_eq!(page_of(value_of(page, 0)), Some(page));
            assert_eq!(page_of(value_of(page, 77)), Some(page));
            assert_ne!(value_of(page, 1), value_of(page, 2));
        }
        assert_eq!(page_of(0), None);
    }
}
