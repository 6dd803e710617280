//! `bench poster`: requests of a key-value server without page faults, with synchronous and with asynchronous ones (the
//! poster's Table 1), and what predicting them adds (its section 4.2).
//!
//! Twice: `emulated` as the poster does it, where a share of the GETs waits as if for a page (`delays`), on its 1024
//! keys of 128 bytes; and `paged`, where the items are in far memory and local memory is so small that the same share
//! of GETs has a fault, which waits (sync) or yields (async). There the requests that will fault can also queue apart
//! (predicted). Each run has a new server in this process, loaded over loopback in a closed loop; ways take turns, and
//! ratios compare runs of one turn.
//!
//! `series` sums runs up.

mod delays;
mod series;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use yonder::sched::{DispatchPolicy, Idle, InstallDelegation, SchedConfig};
use yonder::units::{PAGE_BYTES, parse_bytes};
use yonder::{Config, FarMemory, FaultPolicy, Region};
use yonder_load::{KvLoad, LatencySummary, LoadResult, LoadSettings, Mix, Rate, Requests};

use crate::comparison::{self, Ended, Measured, take_turns};
use crate::flags::{BENCHMARK, FAR, duration, each_once, positive_count, positive_duration};
use crate::kv_here::{KvHere, load_failed};
use crate::policies::name_of;
use crate::{BenchError, OnProgress};
use delays::{Delayed, Delays, Switchboard, Waits};

pub use series::PosterResult;

/// Keys of the poster's workload.
pub const EMULATED_KEYS: u64 = 1024;
/// Far memory as a multiple of the values, and at least so much more: for what is stored with them.
const MEMORY_TIMES_VALUES: u64 = 3;
const MEMORY_MORE_MIN: u64 = 16 << 20;
/// Part of a run's time that each of the runs before it takes: warm-up, and search for the local memory.
const WARM_UP_SHARE: u32 = 4;
/// Runs that look for the local memory with which the share of faults is the one that was asked for.
const SEARCHES: usize = 4;
/// Of local memory, what is free or on its way out while reclaim works: a first guess, which the search corrects.
const NOT_MAPPED: f64 = 0.16;
/// Least local memory that is tried.
const LOCAL_MIN: u64 = 2 << 20;
/// How long idle threads spin before they sleep, as those of `yonder kv`.
const IDLE_SPIN: Duration = Duration::from_micros(50);

/// Where the faults come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Set {
    /// Requests wait as if for a page, as in the poster
    Emulated,
    /// Items are in far memory
    Paged,
}

/// What is done about faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paging {
    /// There are none.
    NoFault,
    /// They wait.
    Sync,
    /// They yield.
    Async,
    /// They yield, and requests that will probably fault queue apart.
    Predicted,
}

impl Set {
    /// What results call it.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }

    /// What is compared, in the order of a turn. An emulated fault has no history: nothing would tell it beforehand.
    fn variants(self) -> &'static [Paging] {
        match self {
            Self::Emulated => &[Paging::NoFault, Paging::Sync, Paging::Async],
            Self::Paged => &[Paging::NoFault, Paging::Sync, Paging::Async, Paging::Predicted],
        }
    }
}

impl Paging {
    /// What results call it.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }

    /// Requests per second and P99 latency in microseconds in the poster's Table 1.
    #[must_use]
    pub fn poster(self) -> Option<(f64, f64)> {
        match self {
            Self::NoFault => Some((172_000.0, 230.0)),
            Self::Sync => Some((146_000.0, 550.0)),
            Self::Async => Some((175_000.0, 240.0)),
            Self::Predicted => None,
        }
    }

    fn waits(self) -> Waits {
        match self {
            Self::NoFault => Waits::Never,
            Self::Sync => Waits::Synchronously,
            Self::Async | Self::Predicted => Waits::Asynchronously,
        }
    }
}

/// What `yonder bench poster --help` ends with.
const AFTER_HELP: &str = "\
The same with a fetch that takes as long as it does over a plain network, where sockets take longer than a
fetch by RDMA:
  yonder bench poster --fetch-time 25us --far emu://?latency=25us

Ways: no-fault, sync (a fault keeps its worker), async (its worker runs other requests), predicted (async, and
requests that will probably fault wait for those that will not). Emulated faults have no history, so nothing
predicts them.";

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Far memory of the paged set: tcp://host:port, shm:///path.sock, file:///path?size=SIZE, or emu://
    #[arg(long, value_name = "URL", default_value = FAR)]
    pub far: String,
    /// Values of the paged set; the emulated one has 1024 of them
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Where the faults come from, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "SETS", default_value = "emulated,paged", value_delimiter = ',')]
    pub sets: Vec<Set>,
    /// Share of the GETs that have a fault
    #[arg(long = "fault-share", help_heading = BENCHMARK, value_name = "PCT", default_value = "30%", value_parser = fault_share)]
    pub fault_percent: f64,
    /// Time of an emulated fault that keeps its worker in any case: the exception, and asking for the page
    #[arg(long = "busy-time", help_heading = BENCHMARK, value_name = "TIME", default_value = "800ns", value_parser = duration)]
    pub busy: Duration,
    /// Time of an emulated fault until its page is there
    #[arg(long = "fetch-time", help_heading = BENCHMARK, value_name = "TIME", default_value = "2.5us", value_parser = duration)]
    pub fetch: Duration,
    /// Bytes of a value
    #[arg(long = "value-size", help_heading = BENCHMARK, value_name = "B", default_value_t = 128, value_parser = positive_count)]
    pub value_bytes: usize,
    /// Worker threads of the server
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub workers: usize,
    /// Connections, each with one request at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 50, value_parser = positive_count)]
    pub connections: usize,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Runs of each way; medians count, and ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub runs: usize,
}

/// A share that is neither nothing nor everything.
fn fault_share(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err(format!("'{text}' is not a share: type more than 0% and less than 100%, such as 30%")),
    }
}

/// One measured run.
#[derive(Clone, Debug)]
struct Trial {
    /// With latencies of GETs.
    measured: Measured,
    load: LoadResult,
    /// Requests with a fault, in percent.
    fault_percent: f64,
    local_bytes: u64,
}

type Series = comparison::Series<(Set, Paging), Trial>;

impl Settings {
    fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Settings(text));
        if self.sets.is_empty() || self.runs == 0 {
            return wrong("there is nothing to measure: type --sets emulated,paged --runs 3".to_owned());
        }
        if !(self.fault_percent > 0.0 && self.fault_percent < 100.0) {
            return wrong(format!(
                "--fault-share {}% is out of range: type more than 0%, less than 100%",
                self.fault_percent
            ));
        }
        if self.keys(Set::Paged) == 0 {
            return wrong("--memory holds no value: type a smaller --value-size".to_owned());
        }
        self.load(Set::Emulated, String::new(), 0).validate().map_err(|error| BenchError::Settings(error.to_string()))
    }

    fn keys(&self, set: Set) -> u64 {
        match set {
            Set::Emulated => EMULATED_KEYS,
            Set::Paged => self.memory / self.value_bytes as u64,
        }
    }

    fn load(&self, set: Set, target: String, round: usize) -> LoadSettings {
        LoadSettings {
            keys: self.keys(set),
            value_size: self.value_bytes,
            requests: Requests::Mixed { mix: Mix::gets(100), dist: yonder_load::Distribution::Uniform },
            connections: self.connections,
            depth: 1,
            seed: 1 + round as u64,
            ..LoadSettings::new(target)
        }
    }

    fn share(&self) -> f64 {
        self.fault_percent / 100.0
    }

    fn sched(&self, set: Set, paging: Paging) -> SchedConfig {
        SchedConfig {
            faults: if paging == Paging::Sync && set == Set::Paged { FaultPolicy::Busy } else { FaultPolicy::Yield },
            dispatch: match paging {
                Paging::Predicted => DispatchPolicy::Predicted,
                Paging::NoFault | Paging::Sync | Paging::Async => DispatchPolicy::PageFaultAware,
            },
            reclaim: yonder::place(self.workers).reclaim(),
            idle: Idle::SleepAfter(IDLE_SPIN),
            // A fault that waits cannot use the dispatcher's CPU, so one that yields does not get it either.
            installs: InstallDelegation::Off,
            ..SchedConfig::with_workers(self.workers)
        }
    }
}

/// Measures every way of every set. `progress` gets what runs, and the share of everything that is done.
pub fn run(settings: &Settings, progress: OnProgress<'_>) -> Result<Vec<PosterResult>, BenchError> {
    settings.check()?;
    let mut sets = settings.sets.clone();
    each_once(&mut sets);
    let mut results = Vec::new();
    for (number, set) in sets.iter().enumerate() {
        let mut all: Vec<Series> = set.variants().iter().map(|paging| Series::new((*set, *paging))).collect();
        let mut progress = |what: &str, share: f64| progress(what, (number as f64 + share) / sets.len() as f64);
        let label = |(set, paging): &(Set, Paging)| format!("{}: {}", set.name(), paging.name());
        take_turns(&mut all, settings.runs, &mut progress, label, |(set, paging), turn| {
            trial(settings, *set, *paging, turn).map(Ended::Well)
        })?;
        results.extend(all.iter().map(|series| series.result(settings, &all)));
    }
    Ok(results)
}

/// Runs a new server, and measures it.
fn trial(settings: &Settings, set: Set, paging: Paging, round: usize) -> Result<Trial, BenchError> {
    let values = settings.keys(set) * settings.value_bytes as u64;
    let memory = (MEMORY_TIMES_VALUES * values + MEMORY_MORE_MIN).next_multiple_of(PAGE_BYTES as u64);
    let sched = settings.sched(set, paging);
    let placement = yonder::place(settings.workers);
    // Everything is local until the store is filled; twice as much, so that nothing is reclaimed.
    let config = Config { reclaimer_cpu: placement.reclaimer, ..Config::with_local(2 * memory) };
    let far = FarMemory::open(if set == Set::Paged { &settings.far } else { "emu://" }, config)?;
    let region = Arc::new(far.region(memory)?);
    let switchboard = Arc::<Switchboard>::default();
    let delays = Delays {
        waits: if set == Set::Emulated { paging.waits() } else { Waits::Never },
        busy: settings.busy,
        fetch: settings.fetch,
        share: settings.share(),
    };
    let server = KvHere { far: &far, region: &region, items: settings.keys(set), sched: &sched };
    server.serve(
        |inner| Delayed { inner, delays, switchboard: Arc::clone(&switchboard) },
        |address, _| {
            let mut load = KvLoad::new(settings.load(set, address.to_string(), round)).map_err(load_failed)?;
            load.fill(|_| ()).map_err(load_failed)?;
            switchboard.is_on.store(true, Ordering::Relaxed);
            let warm_up = (settings.duration / WARM_UP_SHARE).max(Duration::from_millis(1));
            if set == Set::Paged && paging != Paging::NoFault {
                leave_local(settings, &far, &region, || run_once(&mut load, warm_up))?;
            } else {
                run_once(&mut load, warm_up)?;
            }
            let before = switchboard.counts();
            let result = run_once(&mut load, settings.duration)?;
            let after = switchboard.counts();
            let fault_percent = match set {
                Set::Emulated => percent(after.1 - before.1, after.0 - before.0),
                Set::Paged => paged_fault_percent(&result),
            };
            let LatencySummary { p50_us, p99_us, p999_us, .. } = result.get;
            let measured = Measured { p50_us, p99_us, p999_us, ..Measured::of(&result) };
            Ok(Trial { measured, load: result, fault_percent, local_bytes: far.local() })
        },
    )
}

fn run_once(load: &mut KvLoad, duration: Duration) -> Result<LoadResult, BenchError> {
    let result = load.run(Rate::Max, duration, |_| ()).map_err(load_failed)?;
    if result.wrong_values > 0 { Err(BenchError::WrongValues(result.wrong_values)) } else { Ok(result) }
}

/// Leaves the server as much local memory as makes the wanted share of requests fault. Each run of `measure` corrects
/// the guess.
fn leave_local(
    settings: &Settings,
    far: &FarMemory,
    region: &Region,
    mut measure: impl FnMut() -> Result<LoadResult, BenchError>,
) -> Result<(), BenchError> {
    let most = far.local();
    // All pages that were ever touched are mapped so far.
    let data = far.stats().resident_pages.min(region.bytes() / PAGE_BYTES as u64) * PAGE_BYTES as u64;
    let mut local = data as f64 * (1.0 - settings.share()) / (1.0 - NOT_MAPPED);
    for _ in 0..SEARCHES {
        far.set_local((local as u64).clamp(LOCAL_MIN.min(most), most))?;
        local = corrected(local, settings.share(), paged_fault_percent(&measure()?) / 100.0);
    }
    Ok(())
}

/// The local memory with which the share of faults will be `wanted`, if it is `met` with `local`: what is mapped serves
/// the other requests.
fn corrected(local: f64, wanted: f64, met: f64) -> f64 {
    // A run that met hardly a page that was local says little.
    const FACTOR_MAX: f64 = 4.0;
    local * ((1.0 - wanted) / (1.0 - met).max(f64::MIN_POSITIVE)).min(FACTOR_MAX)
}

/// Requests that had a major fault, as the server's hits tell.
fn paged_fault_percent(load: &LoadResult) -> f64 {
    let hits = load.server_hit.map_or(0, |hits| hits.count);
    percent(load.completed.saturating_sub(hits), load.completed)
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(sets: &[Set]) -> Settings {
        Settings {
            sets: sets.to_vec(),
            fault_percent: 40.0,
            busy: Duration::from_micros(1),
            fetch: Duration::from_micros(20),
            value_bytes: 512,
            far: "emu://?latency=20us&gbps=100".to_owned(),
            memory: 16 << 20,
            workers: 1,
            connections: 8,
            duration: Duration::from_millis(200),
            runs: 1,
        }
    }

    fn can_page() -> bool {
        let can = yonder::abilities().userfaultfd;
        if let Err(error) = &can {
            println!("SKIP: {error}");
        }
        can.is_ok()
    }

    /// Whether so many requests were answered that a share of them says something: a busy machine answers few.
    fn is_large(result: &PosterResult) -> bool {
        let is_large = result.summary.ops_per_s.is_some_and(|ops_per_s| ops_per_s * result.duration_s >= 500.0);
        if !is_large {
            println!("SKIP: the share of faults: this machine is too busy to answer 500 requests");
        }
        is_large
    }

    #[test]
    fn requests_wait_as_often_as_was_asked_for() {
        if !can_page() {
            return;
        }
        let results = run(&settings(&[Set::Emulated]), &mut |_, _| ()).unwrap();
        let [none, sync, yielding] = &results[..] else { panic!("{results:?}") };
        assert_eq!(none.fault_percent, 0.0);
        for waiting in [sync, yielding] {
            // How exact the draw is, is tested with it.
            assert!(!is_large(waiting) || (10.0..80.0).contains(&waiting.fault_percent), "{waiting:?}");
            assert!(
                Some(waiting.min_us) <= waiting.summary.p50_us && waiting.summary.p50_us <= Some(waiting.p95_us),
                "{waiting:?}"
            );
            assert!(
                Some(waiting.p95_us) <= waiting.summary.p99_us && waiting.summary.p99_us <= Some(waiting.max_us),
                "{waiting:?}"
            );
            assert!(waiting.ops_ratio_to_no_fault.is_some() && waiting.p99_ratio_to_no_fault.is_some());
            assert_eq!(
                (waiting.summary.errors, waiting.misses, waiting.summary.major_faults),
                (0, 0, Some(0.0)),
                "{waiting:?}"
            );
        }
    }

    /// A machine that is busy with something else is no reason to call the search wrong.
    const TRIES_MAX: usize = 5;

    #[test]
    fn the_share_of_faults_is_found_and_predicted() {
        if !can_page() {
            return;
        }
        // Far from exact on a busy machine, and far from what it would be without a search.
        let is_found = |result: &PosterResult| !is_large(result) || (15.0..70.0).contains(&result.fault_percent);
        let mut runs = (0..TRIES_MAX).map(|_| run(&settings(&[Set::Paged]), &mut |_, _| ()).unwrap());
        let results = runs.find(|results| results[1..].iter().all(is_found)).expect("the share of faults is found");
        let names: Vec<_> = results.iter().map(|result| result.paging.name()).collect();
        assert_eq!(names, ["no-fault", "sync", "async", "predicted"]);
        assert_eq!(
            (results[0].fault_percent, results[0].summary.major_faults),
            (0.0, Some(0.0)),
            "everything is local"
        );
        for faulting in &results[1..] {
            if is_large(faulting) {
                assert!(faulting.summary.major_faults > Some(0.0), "{faulting:?}");
            }
            assert!(faulting.local_bytes < results[0].local_bytes, "{faulting:?}");
            assert_eq!((faulting.summary.errors, faulting.misses), (0, 0));
            assert_eq!(faulting.predicted_right_percent.is_some(), faulting.paging == Paging::Predicted);
        }
    }

    #[test]
    fn a_guess_is_corrected_by_what_is_mapped() {
        assert_eq!(corrected(100.0, 0.2, 0.6), 200.0);
        assert_eq!(corrected(100.0, 0.25, 0.5), 150.0);
        assert_eq!(corrected(100.0, 0.5, 0.0), 50.0);
        assert_eq!(corrected(100.0, 0.2, 1.0), 400.0);
    }

    #[test]
    fn settings_that_cannot_work_say_what_to_type() {
        let message = |settings: Settings| run(&settings, &mut |_, _| ()).unwrap_err().to_string();
        let good = settings(&[Set::Emulated]);
        assert!(message(Settings { sets: Vec::new(), ..good.clone() }).contains("type --sets"));
        assert!(message(Settings { fault_percent: 100.0, ..good.clone() }).contains("type more than 0%"));
        assert!(message(Settings { memory: 100, ..good.clone() }).contains("smaller --value-size"));
        assert!(message(Settings { connections: 0, ..good }).contains("--connections 0"));
    }
}
