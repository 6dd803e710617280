//! `bench fault-breakdown`: where the time of a major fault goes, step by step, when faults yield and when they
//! busy-wait (LightSwap, Figure 11).
//!
//! One request on one worker touches one far page at a time, so nothing queues. The times are taken around what is
//! public of the runtime (`stamps`): by whoever touches, by an observer of faults, and by a fabric that wraps the one
//! below. Only the end of an install is inside; what comes after it is counted by the runtime itself
//! ([`yonder::FaultStages`], `resume`), to an eighth, and its median is taken off. Policies and fabrics take turns in
//! several runs, whose faults count together.
//!
//! Neighbours: `fault` measures every kind of fault as a whole; `steps` does the sums.

mod stamps;
mod steps;
mod touching;

use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use yonder::sched::{Idle, SchedConfig, SchedStats, serve};
use yonder::units::{LocalSize, PAGE_BYTES, parse_bytes};
use yonder::{Access, Config, FarMemory, FaultPolicy, Prefetch, Region};
use yonder_load::LatencyRecorder;

use crate::comparison::{Ended, Series, take_turns};
use crate::flags::{BENCHMARK, FAR, count_to, positive_number};
use crate::policies::{Choice as _, choice};
use crate::{BenchError, Counts, OnProgress};
use stamps::{StampedFabric, Stamps};
use steps::{Steps, percent_of};
use touching::{Asking, Toucher, value_of};

pub use steps::{By, Step, StepResult};

const PAGE: u64 = PAGE_BYTES as u64;
/// Most runs: each takes a port of its far memory for each policy, and there are few.
pub const RUNS_MAX: usize = 50;
/// Faults before those that count, as a share of them.
const WARM_UP_SHARE: u64 = 8;

/// What `yonder bench fault-breakdown --help` ends with.
const AFTER_HELP: &str = "Over an emulated network, a memory node and a disk, with a picture:
  yonder bench fault-breakdown --far emu://?latency=2.5us --far tcp://127.0.0.1:7070 --far file:///var/tmp/far?size=1GiB --out pictures

Steps: exception (from the touch to the handler), post (page table, and asking for the page), away (with
yield: to other requests), fetch (until the page is there), install (mapping it), back (with yield: from other
requests) and return (to the code). Yonder's own are post, away and back; exception, install and return are
the kernel's, fetch is the fabric's.";

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Memory node: tcp://host:port, shm:///path.sock, file:///path?size=SIZE, or emu://, emulated in this process; may be repeated
    #[arg(long = "far", value_name = "URL", default_value = FAR)]
    pub fars: Vec<String>,
    /// Far memory to use of each
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub local: LocalSize,
    /// What a worker does while a page is on its way: modes with commas between, which take turns
    #[arg(long = "faults", help_heading = BENCHMARK, value_name = "MODES", default_value = "yield,busy", value_delimiter = ',', value_parser = choice::<FaultPolicy>())]
    pub policies: Vec<FaultPolicy>,
    /// Faults of a run; a warm-up of an eighth of them comes before
    #[arg(long = "touches", help_heading = BENCHMARK, value_name = "N", default_value_t = 20_000, value_parser = positive_number)]
    pub faults: u64,
    /// Runs of each mode over each memory node, whose faults count together
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value = "3", value_parser = count_to(RUNS_MAX))]
    pub runs: usize,
}

/// One policy over one fabric; the fields are a contract with scripts.
#[derive(Clone, Debug, Serialize)]
pub struct BreakdownResult {
    /// Always `fault-breakdown`.
    pub bench: &'static str,
    /// Fabric.
    pub far: String,
    /// `yield`, `busy` or `hybrid`.
    pub faults: &'static str,
    /// Size of the region in bytes.
    pub memory_bytes: u64,
    /// Limit of local memory in bytes.
    pub local_bytes: u64,
    /// Runs, whose faults count together.
    pub runs: usize,
    /// Faults per second of one request that does nothing else.
    pub ops_per_s: f64,
    /// Median from the touch to the value.
    pub p50_us: f64,
    /// The least and the greatest median of a run.
    pub p50_us_spread: [f64; 2],
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The steps, one behind the other.
    pub steps: Vec<StepResult>,
    /// The share of Yonder's own code in the sum of the steps' medians.
    pub runtime_percent: f64,
    /// That of the CPU's exception and the operating system.
    pub kernel_percent: f64,
    /// That of the way to far memory and back.
    pub fabric_percent: f64,
    /// What it costs to take one time, of which every step has one.
    pub stamp_us: f64,
    /// Faults that are not among them, because they were not one plain fetch.
    pub left_out: u64,
    /// Faults, bytes and errors.
    #[serde(flatten)]
    pub counts: Counts,
}

/// One run of one policy over one fabric.
struct Trial {
    steps: Steps,
    left_out: u64,
}

/// Far memory that is filled and sealed, and stamps its faults.
struct Stamped {
    far: FarMemory,
    region: Arc<Region>,
    stamps: Arc<Stamps>,
}

/// Measures every policy over every fabric. `progress` gets what runs, and the share of everything that is done.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<BreakdownResult>, BenchError> {
    if settings.fars.is_empty() || settings.policies.is_empty() || settings.runs == 0 || settings.faults == 0 {
        return Err(BenchError::Settings("there is nothing to measure: type --faults yield,busy --runs 3".to_owned()));
    }
    if settings.runs > RUNS_MAX {
        return Err(BenchError::Settings(format!("--runs {} is too many: type at most {RUNS_MAX}", settings.runs)));
    }
    let (fars, mut results) = (settings.fars.len() as f64, Vec::new());
    for (number, far) in settings.fars.iter().enumerate() {
        let mut progress = |what: &str, share: f64| progress(&format!("{what}, {far}"), (number as f64 + share) / fars);
        progress("filling", 0.0);
        let stamped = Stamped::fill(settings, far)?;
        let mut all: Vec<Series<FaultPolicy, Trial>> = settings.policies.iter().copied().map(Series::new).collect();
        let label = |policy: &FaultPolicy| policy.name().to_owned();
        take_turns(&mut all, settings.runs, &mut progress, label, |policy, turn| {
            stamped.run(settings, turn, *policy).map(Ended::Well)
        })?;
        let stamp_us = cost_of_a_stamp_us();
        results.extend(all.iter().map(|series| stamped.result(series, settings, stamp_us)));
    }
    Ok(results)
}

impl Stamped {
    fn fill(settings: &Settings, url: &str) -> Result<Self, BenchError> {
        let stamps = Arc::<Stamps>::default();
        let fabric = yonder::open(url).map_err(yonder::FarError::from)?;
        let config = Config {
            reclaimer_cpu: yonder::place(1).reclaimer,
            // A page that was fetched ahead is no major fault.
            prefetch: Prefetch::None,
            ..Config::with_local(settings.local.resolve(settings.memory))
        };
        let far = FarMemory::new(Arc::new(StampedFabric::new(fabric, Arc::clone(&stamps))), config)?;
        let mut region = far.region(yonder::units::pages_for(settings.memory) * PAGE)?;
        for page in 0..region.bytes() / PAGE {
            region.write_u64(page * PAGE, value_of(page))?;
        }
        // What is reclaimed of a sealed region is far, and not on standby.
        region.seal()?;
        let region = region.with_access(Access::Trap);
        region.observe_faults(Arc::clone(&stamps) as Arc<dyn yonder_paging::FaultObserver>);
        Ok(Self { far, region: Arc::new(region), stamps })
    }

    fn run(&self, settings: &Settings, turn: usize, policy: FaultPolicy) -> Result<Trial, BenchError> {
        self.touch(policy, (settings.faults / WARM_UP_SHARE).max(1), 2 * turn as u64)?;
        let before = self.far.stats().stages.resume;
        let asked = self.touch(policy, settings.faults, 2 * turn as u64 + 1)?;
        let mut steps = Steps::default();
        asked.touches.iter().for_each(|touch| steps.add(touch));
        steps.add_back(&self.far.stats().stages.resume.since(&before));
        Ok(Trial { steps, left_out: asked.left_out })
    }

    /// Has a worker touch far pages until there were so many faults.
    fn touch(&self, policy: FaultPolicy, faults: u64, seed: u64) -> Result<touching::Touched, BenchError> {
        let placement = yonder::place(1);
        let sched = SchedConfig {
            faults: policy,
            unithreads: 2,
            max_inflight: 1,
            idle: Idle::BusyPoll,
            reclaim: placement.reclaim(),
            cpus: placement.cpus,
            ..SchedConfig::default()
        };
        let handler = Arc::new(Toucher { region: Arc::clone(&self.region), stamps: Arc::clone(&self.stamps) });
        let mut asking = Asking::new(faults, seed);
        serve(&sched, &self.far, &handler, &mut asking, &SchedStats::default())?;
        if let Some(error) = asking.failed {
            return Err(error.into());
        }
        match (asking.panicked, asking.touched) {
            (0, touched) if touched.wrong > 0 => Err(BenchError::WrongValues(touched.wrong)),
            (0, touched) if touched.touches.is_empty() => Err(BenchError::Settings(
                "no touch met a far page: type a larger --memory or a smaller --local".to_owned(),
            )),
            (0, touched) => Ok(touched),
            (panicked, _) => Err(BenchError::Panicked(panicked)),
        }
    }

    fn result(&self, series: &Series<FaultPolicy, Trial>, settings: &Settings, stamp_us: f64) -> BreakdownResult {
        let mut all = Steps::default();
        series.trials.iter().for_each(|trial| all.merge(&trial.steps));
        let (total, steps) = (all.total.summary(), all.results());
        BreakdownResult {
            bench: "fault-breakdown",
            far: self.far.url().to_owned(),
            faults: series.variant.name(),
            memory_bytes: self.region.bytes(),
            local_bytes: self.far.local(),
            runs: settings.runs,
            ops_per_s: if total.mean_us > 0.0 { 1e6 / total.mean_us } else { 0.0 },
            p50_us: total.p50_us,
            p50_us_spread: series.spread(|trial| trial.steps.total.percentile_us(50.0)).unwrap_or_default(),
            p99_us: total.p99_us,
            p999_us: total.p999_us,
            runtime_percent: percent_of(&steps, By::Runtime),
            kernel_percent: percent_of(&steps, By::Kernel),
            fabric_percent: percent_of(&steps, By::Fabric),
            steps,
            stamp_us,
            left_out: series.sum(|trial| trial.left_out),
            counts: Counts { major_faults: total.count, fetched_bytes: total.count * PAGE, ..Counts::default() },
        }
    }
}

/// Median time between two looks at the clock.
fn cost_of_a_stamp_us() -> f64 {
    const LOOKS: usize = 10_000;
    let mut costs = LatencyRecorder::new();
    for _ in 0..LOOKS {
        let before = yonder::clock::now();
        costs.record(yonder::clock::now() - before);
    }
    costs.percentile_us(50.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            fars: vec!["emu://?latency=100us&gbps=100".to_owned()],
            memory: 16 << 20,
            local: LocalSize::Bytes(4 << 20),
            policies: vec![FaultPolicy::Yield, FaultPolicy::Busy],
            faults: 300,
            runs: 2,
        }
    }

    #[test]
    fn every_fault_is_taken_apart() {
        if let Err(error) = yonder::abilities().userfaultfd {
            println!("SKIP: {error}");
            return;
        }
        let results = run(&settings(), &mut |_, _| ()).unwrap();
        assert_eq!(results.iter().map(|result| result.faults).collect::<Vec<_>>(), ["yield", "busy"]);
        for result in &results {
            assert_eq!((result.counts.major_faults + result.left_out, result.runs), (600, 2), "{result:?}");
            assert!(result.counts.major_faults > 500, "{result:?}");
            let p50_us = |step: Step| result.steps.iter().find(|part| part.step == step).unwrap().p50_us;
            let sum: f64 = Step::ALL.into_iter().map(p50_us).sum();
            // The fetch is by far the longest, and in it is all of the emulated latency but what passed before the
            // first look.
            assert!(p50_us(Step::Fetch) + p50_us(Step::Away) >= 95.0 && result.fabric_percent > 50.0, "{result:?}");
            assert!((sum / result.p50_us - 1.0).abs() < 0.25, "the steps are the whole: {result:?}");
            assert!(
                [Step::Exception, Step::Post, Step::Install].into_iter().all(|step| p50_us(step) > 0.0),
                "{result:?}"
            );
            assert!(result.steps.iter().all(|step| step.p50_us <= step.p99_us), "{result:?}");
            let shares = result.runtime_percent + result.kernel_percent + result.fabric_percent;
            assert!((shares - 100.0).abs() < 1e-6, "{result:?}");
        }
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_type() {
        let message = |settings: Settings| run(&settings, &mut |_, _| ()).unwrap_err().to_string();
        assert!(message(Settings { policies: Vec::new(), ..settings() }).contains("type --faults yield,busy"));
        assert!(message(Settings { runs: RUNS_MAX + 1, ..settings() }).contains("type at most 50"));
        if yonder::abilities().userfaultfd.is_ok() {
            // Once each page was touched, all are local.
            let all_local = Settings { memory: 1 << 20, local: LocalSize::Bytes(64 << 20), faults: 4096, ..settings() };
            assert!(message(all_local).contains("a smaller --local"));
        }
    }
}
