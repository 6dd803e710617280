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
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use yonder::sched::DispatchPolicy;
use yonder::units::{LocalSize, parse_bytes};
use yonder_load::{LatencySummary, LoadSettings, Predicted, Rate, Requests, Workload};

use crate::children::{Launch, folder, free_address};
use crate::comparison::{self, Ended, Measured, take_turns};
use crate::flags::{BENCHMARK, byte_count, positive_count, positive_duration};
use crate::kernel_swap::{KernelSwap, SwapOn};
use crate::limited_server::{Asked, Server, Start};
use crate::policies::{Choice as _, choice, name_of};
use crate::{BenchError, OnProgress};
use tempfile::TempDir;

pub use series::YcsbResult;

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
pub enum Variant {
    /// Far memory; page faults yield.
    Yield,
    /// Far memory; page faults wait.
    Busy,
    /// The same server, with the kernel's swap.
    Swap,
    /// Stock memcached, with the kernel's swap.
    SwapMemcached,
}

/// Where the kernel swaps to, if not to a file beside the one that far memory is in, or among the temporary files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapPlace {
    /// Nowhere: there is no comparison with it.
    None,
    /// This file, which must not be there yet.
    File(PathBuf),
    /// Compressed memory.
    Zram,
}

/// What `yonder bench ycsb --help` ends with.
const AFTER_HELP: &str =
    "A data set of 1 GiB, a quarter of it local, on the disk at /mnt/ssd, with 128 requests under way:
  yonder bench ycsb --far file:///mnt/ssd/far?size=4GiB --memory 1GiB --local 25% --workers 2
What requests gain that do not fault, when those that will fault queue apart:
  yonder bench ycsb --far tcp://127.0.0.1:7070 --workloads b,c --swap none --rate 30k --dispatch pf-aware,predicted

The ways are yonder kv with faults that yield (and with faults that wait, --faults yield,busy), and the same
server with all of its memory local, in a control group that leaves it the same bytes, so that the kernel
swaps. That takes root, to make the group and to swap to a file or to zram; both are undone at the end. A scan
is a get of 1 to 100 consecutive keys at once.";

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Far memory: file:///path?size=SIZE on the disk to measure, or another store [default: a temporary file]
    #[arg(long, value_name = "URL")]
    pub far: Option<String>,
    /// Values that are stored at the start; the server has room for as much again
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Local memory of each way: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "25%")]
    pub local: LocalSize,
    /// What is asked for, with commas between: a to f are YCSB's; readmost, readwrite and writemost LightSwap's
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "a,b,c", value_delimiter = ',', value_parser = workload)]
    pub workloads: Vec<Workload>,
    /// Size of every value
    #[arg(long = "value-size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "1KiB", value_parser = byte_count)]
    pub value_bytes: usize,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Runs of each way; medians count, and ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub runs: usize,
    /// What servers whose memory is far do about page faults, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "MODES", default_value = "yield", value_delimiter = ',')]
    pub faults: Vec<Faults>,
    /// Which request is next, of servers whose memory is far: policies with commas between, each of which is run
    #[arg(long, help_heading = BENCHMARK, value_name = "POLICIES", default_value = "pf-aware", value_delimiter = ',', value_parser = choice::<DispatchPolicy>())]
    pub dispatch: Vec<DispatchPolicy>,
    /// Requests per second with Poisson arrivals, such as 30k; or max for a closed loop
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|max", default_value = "max")]
    pub rate: Rate,
    /// The kernel's swap: zram, file:PATH of a new file, or none [default: a file beside that of --far]
    #[arg(long, help_heading = BENCHMARK, value_name = "WHERE", value_parser = swap_place)]
    pub swap: Option<SwapPlace>,
    /// Which servers the kernel swaps, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "kv", value_delimiter = ',')]
    pub swap_servers: Vec<Swapped>,
    /// Worker threads of servers whose memory is far
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub workers: usize,
    /// Worker threads of servers that the kernel swaps: each of them waits for one page at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub swap_workers: usize,
    /// Connections; a server works at one request of each at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 128, value_parser = positive_count)]
    pub connections: usize,
    /// Requests that one connection may have outstanding
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub depth: usize,
    /// Threads that load the server
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub threads: usize,
    /// What to type before the flags of `kv`
    #[arg(skip)]
    pub kv: Vec<OsString>,
    /// Becomes true when the user wants to stop: servers are killed, and what was set up is undone
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

/// What a server whose memory is far does about a page fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Faults {
    /// Park the request and run others
    Yield,
    /// Spin until the page is there
    Busy,
}

/// Which server the kernel swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Swapped {
    /// yonder kv with all of its memory local
    Kv,
    /// Stock memcached
    Memcached,
}

/// A workload; YCSB's by their letters too.
fn workload(text: &str) -> Result<Workload, String> {
    let letter = ["a", "b", "c", "d", "e", "f"].contains(&text);
    let name = if letter { format!("ycsb-{text}") } else { text.to_owned() };
    name.parse().map_err(|_| {
        format!("'{text}' is not a workload: type a, b, c, d, e or f of YCSB, or readmost, readwrite or writemost")
    })
}

fn swap_place(text: &str) -> Result<SwapPlace, String> {
    match text.split_once(':') {
        None if text == "none" => Ok(SwapPlace::None),
        None if text == "zram" => Ok(SwapPlace::Zram),
        Some(("file", path)) if path.starts_with('/') => Ok(SwapPlace::File(PathBuf::from(path))),
        _ => Err(format!("'{text}' is not a place for swap: type zram, none, or file:PATH such as file:/mnt/ssd/swap")),
    }
}

/// A way, and what its server is told of the order of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Contender {
    variant: Variant,
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
    folder: TempDir,
}

/// One measured run.
#[derive(Clone, Debug)]
struct Trial {
    measured: Measured,
    /// Time at the server of requests without a major fault, if it tells and there were some.
    hit: Option<LatencySummary>,
    predicted: Predicted,
    misses: u64,
    wrong_values: u64,
}

type Series = comparison::Series<Contender, Trial>;

impl Variant {
    fn is_kernel(self) -> bool {
        matches!(self, Self::Swap | Self::SwapMemcached)
    }

    /// Its name, as results have it.
    #[must_use]
    pub fn name(self) -> String {
        name_of(self)
    }
}

impl Contender {
    /// What results call its policy.
    fn dispatch_name(self) -> Option<&'static str> {
        self.dispatch.map(DispatchPolicy::name)
    }
}

impl Settings {
    /// The ways that are compared, each once, in the order of a turn.
    fn ways(&self) -> Vec<Variant> {
        let far = [(Faults::Yield, Variant::Yield), (Faults::Busy, Variant::Busy)];
        let swapped = [(Swapped::Kv, Variant::Swap), (Swapped::Memcached, Variant::SwapMemcached)];
        let far = far.into_iter().filter(|(mode, _)| self.faults.contains(mode)).map(|(_, way)| way);
        let is_swapped = |server: &Swapped| self.swap != Some(SwapPlace::None) && self.swap_servers.contains(server);
        far.chain(swapped.into_iter().filter(|(server, _)| is_swapped(server)).map(|(_, way)| way)).collect()
    }

    /// What is run in a turn.
    fn contenders(&self) -> Vec<Contender> {
        let far = |way| {
            self.dispatch.iter().map(move |dispatch| Contender { variant: way, dispatch: Some(*dispatch) }).collect()
        };
        let contenders =
            |way: &Variant| if way.is_kernel() { vec![Contender { variant: *way, dispatch: None }] } else { far(*way) };
        self.ways().iter().flat_map(contenders).collect()
    }

    /// What a contender is called while it runs.
    fn label(&self, contender: Contender) -> String {
        let policy = contender.dispatch_name().filter(|_| self.dispatch.len() > 1);
        contender.variant.name() + &policy.map_or_else(String::new, |policy| format!(", {policy}"))
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
        if self.workloads.is_empty() || self.ways().is_empty() {
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
        let folder = folder("ycsb")?;
        let file = folder.path().join("far");
        let temporary = || format!("file://{}?size={}", file.display(), settings.server_bytes() * FILE_TIMES_SERVER);
        let far = settings.far.clone().unwrap_or_else(temporary);
        let is_asked_for = settings.ways().iter().any(|way| way.is_kernel());
        let swap = |path| SwapOn::File { path, bytes: settings.server_bytes() };
        let kernel = if is_asked_for {
            KernelSwap::ready(&match &settings.swap {
                Some(SwapPlace::Zram) => SwapOn::Zram,
                Some(SwapPlace::File(path)) => swap(path.clone()),
                Some(SwapPlace::None) | None => swap(beside(&far).unwrap_or_else(|| folder.path().join("swap"))),
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
    pub fn run(&self, workload: Workload, progress: OnProgress<'_>) -> Result<Vec<YcsbResult>, BenchError> {
        let mut all: Vec<Series> = self.settings.contenders().into_iter().map(Series::new).collect();
        let label = |contender: &Contender| format!("{workload}: {}", self.settings.label(*contender));
        take_turns(&mut all, self.settings.runs, progress, label, |one, turn| self.trial(workload, *one, turn))?;
        Ok(all.iter().map(|series| series.result(self, workload, &all)).collect())
    }

    fn trial(&self, workload: Workload, contender: Contender, turn: usize) -> Result<Ended<Trial>, BenchError> {
        let settings = self.settings;
        if let Some(missing) = self.missing(contender) {
            return Ok(Ended::Skipped(missing));
        }
        let (address, local_bytes) = (free_address()?, settings.local_bytes());
        let kernel = contender.variant.is_kernel().then_some(self.kernel.as_ref());
        let to_start =
            |kernel: Result<&KernelSwap, &String>| kernel.map_err(String::clone)?.group_to_start(local_bytes);
        let start = Start {
            launch: self.launch,
            words: self.words(contender, address),
            address,
            group: kernel.map(to_start).transpose(),
            local_bytes,
            temporary: self.folder.path(),
            stop: &settings.stop,
        };
        let load = settings.load(address.to_string(), workload, turn);
        start.ask(load, (settings.rate, settings.duration), &Server::kernel_counts, |asked| {
            let Asked { warm, result, measured } = asked;
            Trial {
                measured: measured.with_errors(warm.wrong_values),
                hit: result.server_hit.filter(|hits| hits.count > 0),
                predicted: result.predicted,
                misses: result.misses,
                wrong_values: result.wrong_values + warm.wrong_values,
            }
        })
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
