//! `bench ycsb`: YCSB's workloads on `yonder kv` whose memory is far, beside the kernel's swap on the same disk.
//!
//! LightSwap (section 5.4) has memcached's memory in a file on a local disk, and compares it with swap on that disk.
//! Here the server is `yonder kv`: with page faults that yield, with faults that wait, and with all of its memory
//! local, in a control group that leaves it the same bytes, so that the kernel swaps what is more. Stock memcached can
//! stand beside it in such a group. Each run has a new server: filled, warmed up, measured in a closed loop or at a
//! rate. Ways take turns, and ratios compare runs of one turn. A server whose memory is far may be run with several
//! dispatch policies, of which the latency of hits is compared: requests that meet no page which has to be fetched.
//!
//! `server` says which server is started, `series` sums runs up, `kernel_swap` is the kernel's side. A way that cannot
//! run is skipped with a reason that says what to type.

mod series;
mod server;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use yonder::sched::DispatchPolicy;
use yonder::units::LocalSize;
use yonder_load::{KvLoad, LoadError, LoadResult, LoadSettings, Rate, Requests, Workload};

use crate::BenchError;
use crate::array::dispatch_policy_name;
use crate::children::Launch;
use crate::folder::Folder;
use crate::kernel_swap::{ATTEMPTS_MAX, KernelCounts, KernelSwap, OUT_OF_MEMORY, SwapOn};
use crate::limited_server::Server;
use crate::process::stopped;
use series::Series;
use server::Task;

pub use series::YcsbResult;

/// Part of a run's time that comes before it, unmeasured.
const WARM_UP_SHARE: u32 = 4;
/// A server's memory as a multiple of the values at the start, and at least so much more: for what is stored with them,
/// and for inserts.
const SERVER_TIMES_DATA: u64 = 2;
const SERVER_MORE_MIN: u64 = 16 << 20;
/// A far file's size as a multiple of the server's memory: a log needs room to be cleaned with little work.
const FILE_TIMES_SERVER: u64 = 2;
/// How long a server may be silent: the kernel's swap makes it so for seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One way to have less memory than data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Far memory; page faults yield.
    Yield,
    /// Far memory; page faults wait.
    Busy,
    /// The same server, with the kernel's swap.
    Swap,
    /// Stock memcached, with the kernel's swap.
    SwapMemcached,
}

/// Where the kernel swaps to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapPlace {
    /// A file beside the one that far memory is in; among the temporary files if that is not in a file.
    Beside,
    /// This file, which must not be there yet.
    File(PathBuf),
    /// Compressed memory.
    Zram,
}

/// Settings of a comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is asked for.
    pub workloads: Vec<Workload>,
    /// Bytes of all values at the start.
    pub memory: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Local memory; a percentage is one of `memory`.
    pub local: LocalSize,
    /// The ways, in their order.
    pub ways: Vec<Way>,
    /// Which request is next, of servers whose memory is far; with several of them, each such way is run with each.
    pub dispatch: Vec<DispatchPolicy>,
    /// How fast requests are started.
    pub rate: Rate,
    /// Far memory; a temporary file if none is named.
    pub far: Option<String>,
    /// The kernel's swap.
    pub swap: SwapPlace,
    /// Worker threads of a server whose memory is far.
    pub workers: usize,
    /// Worker threads of a server with the kernel's swap: each waits for one page at a time.
    pub swap_workers: usize,
    /// Connections; a server works at one request of each at a time.
    pub connections: usize,
    /// Requests that a connection may have outstanding.
    pub depth: usize,
    /// Loading threads.
    pub threads: usize,
    /// Time of each run; a warm-up comes before.
    pub duration: Duration,
    /// Runs of each way, of which the median counts.
    pub runs: usize,
    /// What to type before the flags of `kv`.
    pub kv: Vec<OsString>,
    /// Becomes true when the user wants to stop: servers are killed, and what was set up is undone.
    pub stop: Arc<AtomicBool>,
}

/// A way, and what its server is told of the order of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leg {
    way: Way,
    /// None where requests do not wait for far memory.
    dispatch: Option<DispatchPolicy>,
}

/// A comparison, and what it stands on.
pub struct Bench<'a> {
    settings: &'a Settings,
    launch: &'a dyn Launch,
    far: String,
    /// The kernel's side, or why there is none.
    kernel: Result<KernelSwap, String>,
    /// Temporary files, which go last.
    folder: Folder,
}

/// What became of one run.
enum Ended {
    Well(Box<Trial>),
    Badly(String),
    /// It cannot be run here; what to type.
    Not(String),
}

/// One measured run.
#[derive(Clone, Debug)]
struct Trial {
    result: LoadResult,
    /// Values that were wrong before the measured time.
    wrong_before: u64,
    /// What the kernel counts of a server that it swaps; it has no counters of its own.
    kernel: Option<KernelCounts>,
}

impl Way {
    fn is_kernel(self) -> bool {
        matches!(self, Self::Swap | Self::SwapMemcached)
    }

    /// Its name, as results have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yield => "yield",
            Self::Busy => "busy",
            Self::Swap => "swap",
            Self::SwapMemcached => "swap-memcached",
        }
    }
}

impl Leg {
    /// What results call its policy.
    fn dispatch_name(self) -> Option<&'static str> {
        self.dispatch.map(dispatch_policy_name)
    }
}

impl Settings {
    /// What is run in a turn.
    fn legs(&self) -> Vec<Leg> {
        let far = |way| self.dispatch.iter().map(move |dispatch| Leg { way, dispatch: Some(*dispatch) }).collect();
        let legs = |way: &Way| if way.is_kernel() { vec![Leg { way: *way, dispatch: None }] } else { far(*way) };
        self.ways.iter().flat_map(legs).collect()
    }

    /// What a leg is called while it runs.
    fn label(&self, leg: Leg) -> String {
        let policy = leg.dispatch_name().filter(|_| self.dispatch.len() > 1);
        leg.way.name().to_owned() + &policy.map_or_else(String::new, |policy| format!(", {policy}"))
    }

    /// How many keys there are at the start.
    fn keys(&self) -> u64 {
        self.memory / self.value_bytes as u64
    }

    fn local_bytes(&self) -> u64 {
        self.local.resolve(self.memory)
    }

    fn server_bytes(&self) -> u64 {
        (self.memory * SERVER_TIMES_DATA).max(self.memory + SERVER_MORE_MIN)
    }

    fn load(&self, target: String, workload: Workload, round: usize) -> LoadSettings {
        LoadSettings {
            keys: self.keys(),
            value_size: self.value_bytes,
            requests: Requests::Workload(workload),
            connections: self.connections,
            threads: self.threads,
            depth: self.depth,
            patience: TIMEOUT,
            seed: 1 + round as u64,
            ..LoadSettings::new(target)
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        if self.workloads.is_empty() || self.ways.is_empty() {
            return Err(BenchError::Settings("nothing is compared: type --workloads a,b,c --faults yield".to_owned()));
        }
        if self.dispatch.is_empty() {
            return Err(BenchError::Settings("no policy is run: type --dispatch pf-aware,predicted".to_owned()));
        }
        if self.keys() == 0 {
            return Err(BenchError::Settings("--memory holds no value: type a smaller --value-size".to_owned()));
        }
        let checked = self.load(String::new(), self.workloads[0], 0).validate();
        checked.map_err(|error| BenchError::Settings(error.to_string()))
    }
}

impl<'a> Bench<'a> {
    /// Checks the settings, and sets up the kernel's swap if a way needs it.
    pub fn prepare(settings: &'a Settings, launch: &'a dyn Launch) -> Result<Self, BenchError> {
        settings.check()?;
        let folder = Folder::new("ycsb")?;
        let file = folder.path().join("far");
        let temporary = || format!("file://{}?size={}", file.display(), settings.server_bytes() * FILE_TIMES_SERVER);
        let far = settings.far.clone().unwrap_or_else(temporary);
        let is_asked_for = settings.ways.iter().any(|way| way.is_kernel());
        let swap = |path| SwapOn::File { path, bytes: settings.server_bytes() };
        let kernel = if is_asked_for {
            KernelSwap::ready(&match &settings.swap {
                SwapPlace::Zram => SwapOn::Zram,
                SwapPlace::File(path) => swap(path.clone()),
                SwapPlace::Beside => swap(beside(&far).unwrap_or_else(|| folder.path().join("swap"))),
            })
        } else {
            Err("not asked for".to_owned())
        };
        Ok(Self { settings, launch, far, kernel, folder })
    }

    /// Where far memory is.
    #[must_use]
    pub fn far(&self) -> &str {
        &self.far
    }

    /// Runs a workload in each way. `progress` gets what runs, and the share of this workload that is done.
    pub fn run(&self, workload: Workload, progress: &mut dyn FnMut(&str, f64)) -> Result<Vec<YcsbResult>, BenchError> {
        let runs = self.settings.runs;
        let mut all: Vec<Series> = self.settings.legs().into_iter().map(Series::new).collect();
        let legs = all.len();
        for round in 0..runs {
            for (number, series) in all.iter_mut().enumerate().filter(|(_, series)| !series.is_over()) {
                let share = (round * legs + number) as f64 / (runs * legs) as f64;
                progress(&format!("{workload}: {} ({}/{runs})", self.settings.label(series.leg), round + 1), share);
                let ended = self.run_once(workload, series.leg, round)?;
                series.add(ended);
            }
        }
        Ok(all.iter().map(|series| series.result(self, workload, &all)).collect())
    }

    fn run_once(&self, workload: Workload, leg: Leg, round: usize) -> Result<Ended, BenchError> {
        for attempt in 1..=ATTEMPTS_MAX {
            let task = Task {
                leg,
                far: &self.far,
                settings: self.settings,
                launch: self.launch,
                temporary: self.folder.path(),
            };
            let server = match task.start(&self.kernel)? {
                Ok(server) => server,
                Err(missing) => return Ok(Ended::Not(missing)),
            };
            let measured = self.measure(&server, workload, round);
            let was_out_of_memory = server.was_out_of_memory();
            let end = server.end();
            // Who stops the benchmark has killed the server, and that is why the load has failed.
            if self.settings.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            match (measured, end?) {
                (Err(_), _) if was_out_of_memory && attempt < ATTEMPTS_MAX => {}
                (Err(_), _) if was_out_of_memory => return Ok(Ended::Badly(OUT_OF_MEMORY.to_owned())),
                (Err(LoadError::System(error)), _) => return Err(error.into()),
                (Err(error), None) => return Ok(Ended::Badly(error.to_string())),
                (Err(error), Some(how)) => return Ok(Ended::Badly(format!("{error}; the server: {how}"))),
                (Ok(_), Some(how)) => return Ok(Ended::Badly(how)),
                (Ok(trial), None) => return Ok(Ended::Well(Box::new(trial))),
            }
        }
        unreachable!("the last attempt returns")
    }

    fn measure(&self, server: &Server, workload: Workload, round: usize) -> Result<Trial, LoadError> {
        let duration = self.settings.duration;
        let mut load = KvLoad::new(self.settings.load(server.address.to_string(), workload, round))?;
        load.fill(|_| ())?;
        let warm_up = (duration / WARM_UP_SHARE).max(Duration::from_millis(1));
        let wrong_before = load.run(self.settings.rate, warm_up, |_| ())?.wrong_values;
        let before = server.kernel_counts();
        let result = load.run(self.settings.rate, duration, |_| ())?;
        let kernel = server.kernel_counts().zip(before).map(|(after, before)| after.since(before));
        Ok(Trial { result, wrong_before, kernel })
    }
}

/// A path beside that of a far file; none if far memory is not in a file.
fn beside(far: &str) -> Option<PathBuf> {
    let path = far.strip_prefix("file://")?.split('?').next()?;
    let mut name = Path::new(path).file_name()?.to_owned();
    name.push(".swap");
    Some(Path::new(path).with_file_name(name))
}

#[cfg(test)]
mod tests;
