//! `bench peers`: Yonder and its peers side by side in one run, on the same data and under the same load.
//!
//! The peers are what a machine without Yonder does when data is larger than memory: the kernel's swap on compressed
//! memory or on a disk, and a file that is mapped. Each has the same local memory, by a control group. Random reads of
//! an array are compared with faults that yield, by traps and by probes, and with faults that busy-wait; stock
//! memcached and Redis in a group with swap are compared with the same servers under `yonder run`, and memcached with
//! `yonder kv`.
//!
//! Every run is a process of its own, filled anew, whose swap and group are made for it and undone after it, so that
//! disks and compressed memory can take turns. All take turns in a closed loop; then, if they are to, at one rate that
//! is common to all, where latency counts from the intended start. Ratios compare runs of one turn.
//!
//! `contenders` says what is compared, `array` and `servers` run it, `resident` is what the kernel's processes do,
//! `series` sums up and judges. What cannot run is skipped with a reason, and the others go on.

mod array;
mod contenders;
mod resident;
mod series;
mod servers;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use yonder::units::{LocalSize, parse_bytes};
use yonder_load::{LoadSettings, Mix, Protocol, Rate, Requests};

use crate::children::{Launch, folder};
use crate::comparison::{self, Ended, Measured, take_turns};
use crate::flags::{BENCHMARK, FAR, byte_count, per_second, positive_count, positive_duration};
use crate::kernel_swap::{KernelSwap, SwapOn};
use crate::process::stopped;
use crate::stock;
use crate::{BenchError, OnProgress};
use contenders::{Contender, Variant};
use tempfile::TempDir;

pub use resident::{ResidentTask, run_resident};
pub use series::{Bar, Measure, PeersResult};

/// Swap and servers' far memory as a multiple of the data, and at least so much more.
const ROOM_TIMES_DATA: u64 = 2;
const ROOM_MORE: u64 = 64 << 20;
/// The common rate as a share of what the kernel's swap on compressed memory does at most.
const COMMON_SHARE: f64 = 0.5;
/// How long a server may be silent: the kernel's swap makes it so for seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is done with data that is larger than local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Random reads of an array, requested within the process
    Array,
    /// GETs of random values of stock memcached
    Memcached,
    /// GETs of random values of stock Redis
    Redis,
}

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Peer {
    /// Yonder with faults that yield: the array
    Yield,
    /// The same with probes instead of traps
    Probe,
    /// Yonder with faults that busy-wait: the array
    Busy,
    /// yonder run: memcached and Redis
    Run,
    /// yonder kv in the place of memcached
    Kv,
    /// The same with faults that busy-wait
    KvBusy,
    /// The kernel's swap
    Swap,
    /// A mapped file, whose pages the kernel drops: the array
    Mmap,
}

/// Where the kernel swaps to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapTo {
    /// Compressed memory.
    Zram,
    /// A new file; among the temporary files if none is named.
    File(Option<PathBuf>),
}

/// The rate of the runs that are no closed loop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CommonRate {
    /// Half of what the kernel's swap on compressed memory does at most; of the slowest of all if there is none.
    Auto,
    /// So many requests per second.
    PerSecond(f64),
    /// There are no such runs.
    None,
}

/// What `yonder bench peers --help` ends with.
const AFTER_HELP: &str = "Faults that yield beside the kernel's swap on compressed memory, and nothing else:
  yonder bench peers --workloads array --peers yield,probe,swap --swap zram
Stock servers beside swap on a disk:
  yonder bench peers --workloads memcached,redis --swap file:/mnt/ssd/swap
memcached itself beside yonder kv, at most and at a rate:
  yonder bench peers --workloads memcached --peers run,kv,kv-busy --rate 60k

Every peer has the same local memory. First all of them take turns in a closed loop, as fast as each can; then
at one rate, where latency counts from the intended start. Swap and control groups take root, and are undone
at the end, after Ctrl-C too; what cannot run prints SKIP and what to type. Local memory of a group is beside
what its process takes before it has data.";

/// Settings of a comparison.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct Settings {
    /// Yonder's far memory: emu://, emulated in the process, or a memory node at tcp://host:port or shm:///path.sock
    #[arg(long, value_name = "URL", default_value = FAR)]
    pub far: String,
    /// Size of the array, and of all values of a server
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Local memory of each peer: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub local: LocalSize,
    /// What is done, with commas between
    #[arg(long = "workloads", help_heading = BENCHMARK, value_name = "NAMES", default_value = "array,memcached,redis", value_delimiter = ',')]
    pub works: Vec<Work>,
    /// Who does it, with commas between, in the order of a turn
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "yield,probe,busy,run,kv,kv-busy,swap,mmap", value_delimiter = ',')]
    pub peers: Vec<Peer>,
    /// Where the kernel swaps to, with commas between: zram, file (a temporary one), or file:PATH of a new file; each
    /// is a peer
    #[arg(long = "swap", help_heading = BENCHMARK, value_name = "WHERE", default_value = "zram,file", value_delimiter = ',', value_parser = swap_to)]
    pub swaps: Vec<SwapTo>,
    /// Threads that read the array where the kernel pages it: each waits for one page at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value = "1,16", value_delimiter = ',', value_parser = positive_count)]
    pub threads: Vec<usize>,
    /// Connections to a server, with one request under way on each
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub connections: usize,
    /// Bytes of a value
    #[arg(long = "value-size", help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = byte_count)]
    pub value_bytes: usize,
    /// The rate at which all are compared, such as 20k; auto is half of what swap on zram does at most, none leaves
    /// those runs out
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|auto|none", default_value = "auto", value_parser = common_rate)]
    pub rate: CommonRate,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub duration: Duration,
    /// Runs of each peer; medians count, and peers take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub runs: usize,
    /// The program that `yonder` is
    #[arg(skip)]
    pub yonder: OsString,
    /// Why `yonder run` cannot run, if it cannot
    #[arg(skip)]
    pub run_is_missing: Option<String>,
    /// Becomes true when the user wants to stop: processes are killed, and what was set up is undone
    #[arg(skip)]
    pub stop: Arc<AtomicBool>,
}

fn swap_to(text: &str) -> Result<SwapTo, String> {
    match text.split_once(':') {
        None if text == "zram" => Ok(SwapTo::Zram),
        None if text == "file" => Ok(SwapTo::File(None)),
        Some(("file", path)) if path.starts_with('/') => Ok(SwapTo::File(Some(PathBuf::from(path)))),
        _ => Err(format!("'{text}' is not a place for swap: type zram, file, or file:PATH such as file:/mnt/ssd/swap")),
    }
}

fn common_rate(text: &str) -> Result<CommonRate, String> {
    match text {
        "auto" => Ok(CommonRate::Auto),
        "none" => Ok(CommonRate::None),
        _ => per_second(text).map(CommonRate::PerSecond).ok_or_else(|| {
            format!("'{text}' is not a rate: type auto, none, or requests per second such as 20000 or 20k")
        }),
    }
}

/// What one run has come to, and how its swap is called, if it had one.
struct Trial {
    measured: Measured,
    swap: Option<String>,
}

type Series = comparison::Series<Contender, Trial>;

/// A comparison.
pub struct Bench<'a> {
    settings: &'a Settings,
    launch: &'a dyn Launch,
    /// Swap files, mapped files, boards of runs.
    folder: TempDir,
}

impl Work {
    /// Its name, as it is typed and shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// The language of the server that does it, if one does.
    fn protocol(self) -> Option<Protocol> {
        match self {
            Self::Array => None,
            Self::Memcached => Some(Protocol::Memcached),
            Self::Redis => Some(Protocol::Redis),
        }
    }
}

impl Settings {
    fn local_bytes(&self) -> u64 {
        self.local.resolve(self.memory)
    }

    /// Bytes of swap, and of a server's far memory.
    fn room_bytes(&self) -> u64 {
        self.memory * ROOM_TIMES_DATA + ROOM_MORE
    }

    /// How many values there are.
    fn keys(&self) -> u64 {
        self.memory / self.value_bytes as u64
    }

    fn load(&self, target: String, protocol: Protocol, round: usize) -> LoadSettings {
        let dist = yonder_load::Distribution::Uniform;
        LoadSettings {
            protocol,
            keys: self.keys(),
            value_size: self.value_bytes,
            requests: Requests::Mixed { dist, mix: Mix::gets(100) },
            connections: self.connections,
            depth: 1,
            patience: TIMEOUT,
            seed: 1 + round as u64,
            ..LoadSettings::new(target)
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let settings = |text: &str| Err(BenchError::Settings(text.to_owned()));
        if self.works.is_empty() || self.works.iter().all(|work| self.contenders(*work).is_empty()) {
            return settings("nothing is compared: type --workloads array,memcached,redis --peers yield,run,swap");
        }
        if self.keys() == 0 {
            return settings("--memory holds no value: type a smaller --value-size");
        }
        let checked = self.load(String::new(), Protocol::Memcached, 0).validate();
        checked.map_err(|error| BenchError::Settings(error.to_string()))
    }
}

impl<'a> Bench<'a> {
    /// Checks the settings.
    pub fn prepare(settings: &'a Settings, launch: &'a dyn Launch) -> Result<Self, BenchError> {
        settings.check()?;
        Ok(Self { settings, launch, folder: folder("peers")? })
    }

    /// Compares all peers at one piece of work. `progress` gets what runs, and the share of this work that is done.
    pub fn run(&self, work: Work, progress: OnProgress<'_>) -> Result<Vec<PeersResult>, BenchError> {
        let phases = if self.settings.rate == CommonRate::None { 1.0 } else { 2.0 };
        let mut closed: Vec<Series> = self.settings.contenders(work).into_iter().map(Series::new).collect();
        self.take_turns(work, &mut closed, &mut |what, share| progress(what, share / phases))?;
        let mut open: Vec<Series> = match self.common_rate(&closed) {
            Some(rate) => {
                let left = closed.iter().filter(|one| !one.is_over()).map(|one| one.variant.clone());
                left.map(|one| Series::new(Contender { rate: Rate::PerSecond(rate), ..one })).collect()
            }
            None => Vec::new(),
        };
        self.take_turns(work, &mut open, &mut |what, share| progress(what, (1.0 + share) / phases))?;
        let sums = |all: &[Series]| -> Vec<PeersResult> {
            all.iter().map(|series| series.result(self.settings, work, all)).collect()
        };
        Ok([sums(&closed), sums(&open)].concat())
    }

    fn take_turns(&self, work: Work, all: &mut [Series], progress: OnProgress<'_>) -> Result<(), BenchError> {
        let label = |contender: &Contender| format!("{}: {}", work.name(), contender.label_at_rate());
        take_turns(all, self.settings.runs, progress, label, |contender, turn| self.trial(work, contender, turn))
    }

    fn trial(&self, work: Work, contender: &Contender, turn: usize) -> Result<Ended<Trial>, BenchError> {
        if let Some(missing) = self.missing(work, contender) {
            return Ok(Ended::Skipped(missing));
        }
        let ended = match work.protocol() {
            None => self.read_array(contender),
            Some(protocol) => self.ask_server(protocol, contender, turn),
        };
        // Who stops the benchmark has killed the process, and that is why it has failed.
        if self.settings.stop.load(Ordering::Relaxed) { Err(stopped()) } else { ended }
    }

    /// Why a contender cannot be run on this machine, whatever its swap, and what to type.
    fn missing(&self, work: Work, contender: &Contender) -> Option<String> {
        let is_stock = !matches!(contender.variant, Variant::Kv | Variant::KvBusy);
        if let Some(missing) = work.protocol().filter(|_| is_stock).and_then(stock::missing) {
            return Some(missing);
        }
        if contender.variant.is_kernel() {
            return None;
        }
        let refused = yonder::abilities().userfaultfd.err().map(|error| error.to_string());
        refused.or_else(|| self.settings.run_is_missing.clone().filter(|_| contender.variant == Variant::Run))
    }

    /// The kernel's side of a contender, if it has one: its swap, and where groups are made; else what to type.
    /// Dropping it undoes what was set up.
    fn kernel(&self, variant: &Variant) -> Result<Option<KernelSwap>, String> {
        let on = match variant {
            Variant::Yield | Variant::Probe | Variant::Busy | Variant::Run | Variant::Kv | Variant::KvBusy => {
                return Ok(None);
            }
            Variant::Mmap => return KernelSwap::without_swap().map(Some),
            Variant::Swap(SwapTo::Zram) => SwapOn::Zram,
            Variant::Swap(SwapTo::File(path)) => {
                let path = path.clone().unwrap_or_else(|| self.folder.path().join("swap"));
                SwapOn::File { path, bytes: self.settings.room_bytes() }
            }
        };
        KernelSwap::ready(&on).map(Some)
    }

    /// The rate that all are run at, once it is known what they do at most.
    fn common_rate(&self, closed: &[Series]) -> Option<f64> {
        let ops_per_s = |series: &Series| series.median(|trial| trial.measured.ops_per_s);
        let zram = closed.iter().filter(|series| series.variant.variant == Variant::Swap(SwapTo::Zram));
        let most_of_zram = zram.filter_map(ops_per_s).max_by(f64::total_cmp);
        let least_of_all = closed.iter().filter_map(ops_per_s).min_by(f64::total_cmp);
        match self.settings.rate {
            CommonRate::None => None,
            CommonRate::PerSecond(rate) => Some(rate),
            CommonRate::Auto => {
                let most = most_of_zram.or(least_of_all)?;
                Some((most * COMMON_SHARE).round().max(1.0))
            }
        }
    }
}

#[cfg(test)]
mod tests;
