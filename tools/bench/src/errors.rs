//! `bench errors`: what becomes of a key-value server when pages of its memory are lost under load.
//!
//! LightSwap (section 5.5, Table 3) has 10,000 swap-ins and 15,000 pieces of memory fail under memcached, and counts
//! how often it lives on. Here the same is done to `yonder kv`, in this process, under its Readmost workload: reads of
//! the emulated node end with a page lost, and then pages of local memory are damaged as an uncorrectable error does
//! it. They are drawn from all of the server's local memory: of mapped pages, of frames and of the metadata of the
//! store and of the pager. What hits frames or metadata would end the server (`sys/trap` says why and ends it), so that
//! it is counted as fatal and not done. An error is survived unless it is fatal or a command is answered with an error
//! of the server; the load checks every value that comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;
use yonder::sched::SchedConfig;
use yonder::units::{PAGE_BYTES, parse_bytes};
use yonder::{Config, EmuControl, EmuFabric, FarError, FarMemory, Region};
use yonder_kv::Store;
use yonder_load::{KvLoad, LoadResult, LoadSettings, Rate, Requests, Workload};

use crate::flags::{BENCHMARK, positive_count, positive_number};
use crate::kv_here::{KvHere, load_failed};
use crate::{BenchError, Counts, comparison};

/// Chance that a swap-in fails.
const LOSS_CHANCE: f64 = 0.02;
/// Time between two batches of damage, and pages in a batch.
const DAMAGE_EVERY: Duration = Duration::from_millis(1);
const DAMAGE_BATCH: u64 = 2;
/// Length of one run of the load: the errors are counted between runs.
const RUN: Duration = Duration::from_millis(500);
/// Runs before the errors are there or never will be.
const RUNS_MAX: usize = 240;

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failing {
    /// Reads of the node: it has lost the page.
    SwapIn,
    /// Local memory, with the page that is mapped there.
    Memory,
}

impl Failing {
    fn progress(self) -> &'static str {
        match self {
            Self::SwapIn => "swap-ins fail",
            Self::Memory => "memory is damaged",
        }
    }
}

/// Settings of one run.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// Local memory of the server
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub local: u64,
    /// Far memory of the server, which is emulated
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Keys at the start
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 200_000, value_parser = positive_number)]
    pub keys: u64,
    /// Bytes of a value
    #[arg(long = "value-size", help_heading = BENCHMARK, value_name = "B", default_value_t = 1024, value_parser = positive_count)]
    pub value_bytes: usize,
    /// Swap-ins that fail: the node has lost the page
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10_000)]
    pub swap_in_errors: u64,
    /// Pages of local memory that are damaged; errors in frames and metadata would end the server, and are counted
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 15_000)]
    pub memory_errors: u64,
    /// Connections of the load
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub connections: usize,
    /// Seed of the load and of the damage
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What became of the errors of one kind; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorsResult {
    /// Always `errors`.
    pub bench: &'static str,
    /// What failed.
    pub failing: Failing,
    /// Fabric.
    pub far: String,
    /// Far memory in bytes.
    pub memory_bytes: u64,
    /// Local memory in bytes.
    pub local_bytes: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Errors that were injected, fatal ones included.
    pub injected: u64,
    /// Errors in frames and metadata: each would have ended the server.
    pub fatal: u64,
    /// Items that were dropped because a page of them was lost: commands met so many.
    pub lost_items: u64,
    /// Slots that were taken out of use because nothing could be written to them.
    pub retired_slots: u64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
    /// Share of the injected errors that neither were fatal nor had a command answered with an error, in percent.
    pub survived_percent: f64,
    /// Values that came back and were not what was stored. Anything but 0 is a bug.
    pub wrong_values: u64,
    /// Gets that found something, in percent.
    pub hit_percent: f64,
    /// Requests per second, the median of all runs.
    pub ops_per_s: f64,
    /// The same before the first error.
    pub ops_per_s_before: f64,
    /// Median latency, of the last run.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

/// Runs both kinds of errors against one server, and calls `progress` with what it does and how much of that is done.
pub fn run(settings: &Settings, mut progress: impl FnMut(&str, f64)) -> Result<Vec<ErrorsResult>, BenchError> {
    let fabric = Arc::new(EmuFabric::open("emu://?latency=2.5us&gbps=100").map_err(FarError::from)?);
    let control = fabric.control();
    let far = FarMemory::new(fabric, Config::with_local(settings.local))?;
    let region = Arc::new(far.region(settings.memory)?);
    let sched = SchedConfig::with_workers(1);
    let server = KvHere { far: &far, region: &region, items: settings.keys, sched: &sched };
    server.serve(
        |handler| handler,
        |address, store| {
            let load = LoadSettings {
                keys: settings.keys,
                value_size: settings.value_bytes,
                requests: Requests::Workload(Workload::Readmost),
                connections: settings.connections,
                seed: settings.seed,
                ..LoadSettings::new(address.to_string())
            };
            let fatal = AtomicU64::new(0);
            let world = World { settings, far: &far, region: &region, control: &control, store, fatal };
            world.measure(load, &mut progress)
        },
    )
}

struct World<'a> {
    settings: &'a Settings,
    far: &'a FarMemory,
    region: &'a Region,
    control: &'a EmuControl,
    store: &'a Store<Arc<Region>>,
    /// Errors that would have ended the server, so far.
    fatal: AtomicU64,
}

impl World<'_> {
    fn measure(
        &self,
        load: LoadSettings,
        progress: &mut impl FnMut(&str, f64),
    ) -> Result<Vec<ErrorsResult>, BenchError> {
        let mut load = KvLoad::new(load).map_err(load_failed)?;
        progress("fill", 0.0);
        load.fill(|_| ()).map_err(load_failed)?;
        let mut results = Vec::new();
        for (failing, wanted) in
            [(Failing::SwapIn, self.settings.swap_in_errors), (Failing::Memory, self.settings.memory_errors)]
        {
            if wanted > 0 {
                progress("the load alone", 0.0);
                let before = load.run(Rate::Max, RUN, |_| ()).map_err(load_failed)?;
                results.push(self.fail(failing, wanted, &mut load, &before, progress)?);
            }
        }
        Ok(results)
    }

    /// Runs the load until `wanted` errors were injected, and once more.
    fn fail(
        &self,
        failing: Failing,
        wanted: u64,
        load: &mut KvLoad,
        before: &LoadResult,
        progress: &mut impl FnMut(&str, f64),
    ) -> Result<ErrorsResult, BenchError> {
        let (counts, paging) = (self.counts(), self.far.stats());
        let (injected_before, mut runs) = (self.injected(failing), Vec::new());
        let injected = || self.injected(failing) - injected_before;
        while injected() < wanted && runs.len() < RUNS_MAX {
            progress(failing.progress(), injected() as f64 / wanted as f64);
            let stop = AtomicBool::new(false);
            let result = std::thread::scope(|scope| {
                let seed = self.settings.seed + runs.len() as u64;
                match failing {
                    Failing::SwapIn => self.control.set_losses(LOSS_CHANCE),
                    Failing::Memory => {
                        let (most, stop) = (wanted - injected(), &stop);
                        scope.spawn(move || self.damage(most, seed, stop));
                    }
                }
                let result = load.run(Rate::Max, RUN, |_| ());
                stop.store(true, Ordering::Relaxed);
                self.control.set_losses(0.0);
                result
            })
            .map_err(load_failed)?;
            runs.push(result);
        }
        runs.push(load.run(Rate::Max, RUN, |_| ()).map_err(load_failed)?);
        let after = self.counts();
        let [lost_items, retired_slots, errors, hits, misses] =
            std::array::from_fn(|count| after[count] - counts[count]);
        let (now, injected) = (self.far.stats(), injected());
        let fatal = match failing {
            Failing::SwapIn => 0,
            Failing::Memory => self.fatal.load(Ordering::Relaxed),
        };
        let rates = comparison::sorted(runs.iter().map(|run| run.ops_per_s));
        let last = runs.last().expect("there is one");
        Ok(ErrorsResult {
            bench: "errors",
            failing,
            far: self.far.url().to_owned(),
            memory_bytes: self.settings.memory,
            local_bytes: self.settings.local,
            value_bytes: self.settings.value_bytes,
            injected,
            fatal,
            lost_items,
            retired_slots,
            counts: Counts { errors, ..Counts::between(&paging, &now) },
            survived_percent: survived_percent(injected, fatal + errors),
            wrong_values: runs.iter().map(|run| run.wrong_values).sum(),
            hit_percent: 100.0 * hits as f64 / (hits + misses).max(1) as f64,
            ops_per_s: comparison::median(&rates).expect("there is one"),
            ops_per_s_before: before.ops_per_s,
            p50_us: last.p50_us,
            p99_us: last.p99_us,
            p999_us: last.p999_us,
        })
    }

    /// Errors of a kind since the start.
    fn injected(&self, failing: Failing) -> u64 {
        match failing {
            Failing::SwapIn => self.control.losses(),
            Failing::Memory => self.far.stats().damaged_pages + self.fatal.load(Ordering::Relaxed),
        }
    }

    /// Lost items, retired slots, errors, hits and misses so far.
    fn counts(&self) -> [u64; 5] {
        let stats = self.store.stats();
        let of = |wanted: &str| stats.iter().find(|(name, _)| *name == wanted).expect("the store counts it").1;
        let errors = of("far_memory_errors") + of("store_no_memory");
        [of("lost_items"), of("retired_slots"), errors, of("get_hits"), of("get_misses")]
    }

    /// Pages of the server's local memory now: those mapped in the region, and its frames and metadata.
    fn local_pages(&self) -> (u64, u64) {
        let (far, stats) = (self.far.stats(), self.store.stats());
        let of_store = stats.iter().find(|(name, _)| *name == "local_metadata_bytes").expect("the store counts it").1;
        let metadata = (far.metadata_bytes + of_store).div_ceil(PAGE_BYTES as u64);
        (far.resident_pages, far.standby_pages + far.writing_pages + metadata)
    }

    /// Damages pages of local memory, up to `most`, a few at a time.
    fn damage(&self, most: u64, seed: u64, stop: &AtomicBool) {
        let mut random = SmallRng::seed_from_u64(seed);
        let (pages, mut damaged, mut next) = (self.region.bytes() / PAGE_BYTES as u64, 0, Instant::now());
        while damaged < most && !stop.load(Ordering::Relaxed) {
            let batch = DAMAGE_BATCH.min(most - damaged);
            let (mapped, others) = self.local_pages();
            let fatal =
                (0..batch).filter(|_| random.random_range(0..(mapped + others).max(1)) >= mapped).count() as u64;
            self.fatal.fetch_add(fatal, Ordering::Relaxed);
            let mut done = fatal;
            while done < batch && !stop.load(Ordering::Relaxed) {
                done += u64::from(self.region.inject_damage(random.random_range(0..pages) * PAGE_BYTES as u64));
            }
            damaged += done;
            next += DAMAGE_EVERY;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The share of `injected` errors that were survived, if `not` of them were not.
fn survived_percent(injected: u64, not: u64) -> f64 {
    100.0 * injected.saturating_sub(not) as f64 / injected.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_injected_counts_and_not_what_is_mended() {
        assert_eq!(
            [survived_percent(200, 0), survived_percent(200, 5), survived_percent(200, 300)],
            [100.0, 97.5, 0.0]
        );
    }

    #[test]
    fn the_server_survives_errors_of_both_kinds() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let settings = Settings {
            memory: 24 << 20,
            local: 4 << 20,
            keys: 10_000,
            value_bytes: 1024,
            swap_in_errors: 100,
            memory_errors: 100,
            connections: 8,
            seed: 1,
        };
        let results = run(&settings, |_, _| ()).unwrap();
        assert_eq!(results.iter().map(|result| result.failing).collect::<Vec<_>>(), [Failing::SwapIn, Failing::Memory]);
        for result in results {
            assert!(result.injected >= 100 && result.lost_items > 0, "{result:?}");
            assert_eq!(result.wrong_values, 0, "{result:?}");
            assert!(result.hit_percent > 50.0, "{result:?}");
            let fatal_percent = 100.0 * result.fatal as f64 / result.injected as f64;
            assert_eq!(result.fatal > 0, result.failing == Failing::Memory, "{result:?}");
            assert!(result.survived_percent >= 95.0 - fatal_percent, "{result:?}");
            assert!(result.survived_percent <= 100.0 - fatal_percent, "{result:?}");
        }
    }
}
