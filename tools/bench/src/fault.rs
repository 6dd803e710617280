//! `bench fault`: what one page fault costs, by kind and by stage.
//!
//! One thread touches one page at a time, so nothing queues. Kinds: `major` (fetched from the node), `standby` (second
//! chance), `zero` (first touch). Each is measured with a trap and with a probe of the page table, which skips it.

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use yonder::units::PAGE_BYTES;
use yonder::{Access, Config, FarMemory, Region, StageHistogram, Stats};
use yonder_load::LatencyRecorder;

use crate::flags::{BENCHMARK, MemoryArgs, positive_number};
use crate::{BenchError, Counts};

const PAGE: u64 = PAGE_BYTES as u64;

/// Settings of one run.
#[derive(Clone, Debug, Args)]
pub struct FaultSettings {
    /// Far memory
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Random touches of pages, for each way of access
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 50_000, value_parser = positive_number)]
    pub touches: u64,
}

/// One kind's cost; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct FaultResult {
    /// Always `fault`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Random touches made, of which some met a page that was local.
    pub touches: u64,
    /// `major`, `standby` or `zero`.
    pub kind: &'static str,
    /// `trap` or `probe`.
    pub access: &'static str,
    /// Faults per second of one thread that does nothing else.
    pub ops_per_s: f64,
    /// Median from before the access to after it.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
    /// Medians of a major fault's stages, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
}

/// Medians of the stages of a major fault, in microseconds, each within an eighth of its value.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stages {
    /// From the handler's first instruction to the posted read.
    pub post_us: f64,
    /// From the posted read to its completion.
    pub fetch_us: f64,
    /// From the completion to the mapped page.
    pub install_us: f64,
    /// All of the handler.
    pub handler_us: f64,
    /// Trap and return: the access as a whole less the handler.
    pub trap_us: f64,
}

/// Measures every kind with traps, then with probes.
pub fn run(settings: &FaultSettings, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<FaultResult>, BenchError> {
    let mut results = Vec::new();
    for access in [Access::Trap, Access::Probe] {
        let far = FarMemory::open(
            &settings.memory.far,
            Config::with_local(settings.memory.local.resolve(settings.memory.size)),
        )?;
        let region = far.region(settings.memory.size)?.with_access(access);
        let pages = region.bytes() / PAGE;
        let kinds = [Kind::new("major"), Kind::new("standby"), Kind::new("zero")];
        let mut run = Run { settings, far: &far, access, kinds, wrong: 0 };
        progress(access_name(access), 0.0);
        for page in 0..pages {
            run.touch(&region, page, 0)?;
        }
        for page in 0..pages {
            region.write_u64(page * PAGE, value_of(page))?;
        }
        let mut random = SmallRng::seed_from_u64(11);
        let before = far.stats();
        for touch in 0..settings.touches {
            let page = random.random_range(0..pages);
            run.touch(&region, page, value_of(page))?;
            if touch % 1024 == 0 {
                progress(access_name(access), touch as f64 / settings.touches as f64);
            }
        }
        if run.wrong > 0 {
            return Err(BenchError::WrongValues(run.wrong));
        }
        results.extend(run.results(&before));
    }
    Ok(results)
}

/// What a page holds once it was written: never zero, as a page that was lost would be.
fn value_of(page: u64) -> u64 {
    !page
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Trap => "trap",
        Access::Probe => "probe",
    }
}

struct Kind {
    name: &'static str,
    latency: LatencyRecorder,
}

impl Kind {
    fn new(name: &'static str) -> Self {
        Self { name, latency: LatencyRecorder::new() }
    }
}

struct Run<'a> {
    settings: &'a FaultSettings,
    far: &'a FarMemory,
    access: Access,
    kinds: [Kind; 3],
    wrong: u64,
}

impl Run<'_> {
    /// Touches a page, which should hold `wanted`, and files the time under what the counters say happened.
    fn touch(&mut self, region: &Region, page: u64, wanted: u64) -> Result<(), BenchError> {
        if region.is_resident(page * PAGE) {
            return Ok(());
        }
        let before = self.far.stats();
        let start = yonder::clock::now();
        let value = region.read_u64(page * PAGE)?;
        let took = yonder::clock::now() - start;
        self.wrong += u64::from(value != wanted);
        let after = self.far.stats();
        let counts = |stats: &Stats| [stats.major_faults, stats.rescues, stats.zero_faults];
        if let Some(kind) = (0..3).find(|kind| counts(&after)[*kind] > counts(&before)[*kind]) {
            self.kinds[kind].latency.record(took);
        }
        Ok(())
    }

    fn results(self, before: &Stats) -> Vec<FaultResult> {
        let after = self.far.stats();
        let median = |pick: fn(&Stats) -> &StageHistogram| pick(&after).since(pick(before)).quantile(0.5) as f64 / 1e3;
        let result = |kind: Kind| {
            let latency = kind.latency.summary();
            let handler_us = median(|stats| &stats.stages.total);
            let stages = (kind.name == "major").then(|| Stages {
                post_us: median(|stats| &stats.stages.post),
                fetch_us: median(|stats| &stats.stages.fetch),
                install_us: median(|stats| &stats.stages.install),
                handler_us,
                trap_us: (latency.p50_us - handler_us).max(0.0),
            });
            let major = kind.name == "major";
            FaultResult {
                bench: "fault",
                far: self.settings.memory.far.clone(),
                memory_bytes: self.settings.memory.size,
                local_bytes: self.far.local(),
                touches: self.settings.touches,
                kind: kind.name,
                access: access_name(self.access),
                ops_per_s: if latency.mean_us > 0.0 { 1e6 / latency.mean_us } else { 0.0 },
                p50_us: latency.p50_us,
                p99_us: latency.p99_us,
                p999_us: latency.p999_us,
                counts: Counts {
                    major_faults: if major { latency.count } else { 0 },
                    minor_faults: if major { 0 } else { latency.count },
                    fetched_bytes: if major { latency.count * PAGE } else { 0 },
                    written_bytes: if major { after.written_bytes - before.written_bytes } else { 0 },
                    ..Counts::default()
                },
                stages,
            }
        };
        self.kinds.into_iter().map(result).collect()
    }
}
