//! Every flag of every subcommand, as the design fixes them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use yonder::FaultPolicy;
use yonder::sched::{DispatchPolicy, PollingDelegation};
use yonder::units::{LocalSize, parse_bytes, parse_duration};
use yonder_load::{Distribution, Mix, Rate};
use yonder_node::{Listen, ListenError, parse_listen};

/// How long a hybrid fault spins before it yields: a little more than a fetch over a fast network.
const HYBRID_SPIN: Duration = Duration::from_micros(4);

/// Memory that lives on other machines, at microsecond cost: a page fault parks only the request that touched the page.
#[derive(Debug, Parser)]
#[command(name = "yonder", version, about, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// What this machine can do, what is missing, and the command that mends it
    Doctor(DoctorArgs),
    /// The main job on embedded far memory: serve, load, compare busy-waiting with yielding, write report.html
    Demo(DemoArgs),
    /// Run a memory node that keeps pages for other processes and machines
    Node(NodeArgs),
    /// Serve memcached's protocol with the items in far memory
    Kv(KvArgs),
    /// Put load on a server and measure it
    Load(LoadArgs),
    /// Run a benchmark
    Bench(BenchArgs),
    /// Watch a running server that was started with --metrics
    Top(TopArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// One JSON object for each check on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for report.html
    #[arg(long, value_name = "DIR", default_value = "demo-report")]
    pub(crate) out: PathBuf,
    /// One JSON object for each run on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A time of more than nothing.
fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time.is_zero() => Err(format!("'{text}' is no time at all: type more than 0, such as 5s")),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// A count of at least one.
fn positive_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("'{text}' is not a count: type a whole number of at least 1")),
    }
}

/// The addresses of a node, from one flag.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(pub(crate) Vec<Listen>);

fn parse_addresses(text: &str) -> Result<Addresses, ListenError> {
    parse_listen(text).map(Addresses)
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Where to listen: tcp://host:port and shm:///path, separated by commas
    #[arg(long, value_name = "URLS", value_parser = parse_addresses)]
    pub(crate) listen: Addresses,
    /// Memory to lend
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Serve Prometheus metrics here
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KvArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Where TCP clients connect
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) listen: SocketAddr,
    /// Where UDP requests arrive; none if not given
    #[arg(long, value_name = "ADDR")]
    pub(crate) udp: Option<SocketAddr>,
    /// Clients at a time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Largest value
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_bytes)]
    pub(crate) value_max: u64,
    /// Serve Prometheus metrics here, for yonder top and others
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
}

/// Far memory and the threads that page from it.
#[derive(Clone, Debug, Args)]
pub(crate) struct PagingArgs {
    /// Memory node: emu://?latency=2.5us&gbps=100, tcp://host:port or shm:///path
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Far memory to use
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub(crate) local: LocalSize,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) workers: usize,
    /// What a worker does while a page is on its way
    #[arg(long, value_name = "MODE", default_value = "yield")]
    pub(crate) faults: FaultMode,
    /// Which worker gets the next request
    #[arg(long, value_name = "POLICY", default_value = "pf-aware")]
    pub(crate) dispatch: Dispatch,
    /// Requests that one worker may have started and not finished
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub(crate) max_inflight: usize,
    /// Let long requests give way after this time of running, as preempting baselines do
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) preempt: Option<Duration>,
    /// Who waits until a reply has left: the dispatcher (on) or the worker (off)
    #[arg(long, value_name = "on|off", default_value = "on")]
    pub(crate) delegation: Delegation,
    /// Keep idle threads spinning
    #[arg(long)]
    pub(crate) busy_poll: bool,
    /// Time from the touch of a page to its paging error
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) deadline: Duration,
    /// Reclaim starts when less than this share of local memory is free, in percent
    #[arg(long, value_name = "PCT", default_value_t = 15.0)]
    pub(crate) reclaim_start: f64,
    /// Reclaim stops when this share of local memory is free, in percent
    #[arg(long, value_name = "PCT", default_value_t = 17.0)]
    pub(crate) reclaim_end: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FaultMode {
    /// Park the request and run others
    Yield,
    /// Spin
    Busy,
    /// Spin for a few microseconds, then park
    Hybrid,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Dispatch {
    /// Fewest outstanding fetches first
    PfAware,
    /// One after another
    RoundRobin,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Delegation {
    On,
    Off,
}

impl From<FaultMode> for FaultPolicy {
    fn from(mode: FaultMode) -> Self {
        match mode {
            FaultMode::Yield => Self::Yield,
            FaultMode::Busy => Self::Busy,
            FaultMode::Hybrid => Self::Hybrid(HYBRID_SPIN.as_nanos() as u64),
        }
    }
}

impl From<Dispatch> for DispatchPolicy {
    fn from(dispatch: Dispatch) -> Self {
        match dispatch {
            Dispatch::PfAware => Self::PageFaultAware,
            Dispatch::RoundRobin => Self::RoundRobin,
        }
    }
}

impl From<Delegation> for PollingDelegation {
    fn from(delegation: Delegation) -> Self {
        match delegation {
            Delegation::On => Self::On,
            Delegation::Off => Self::Off,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    pub(crate) what: LoadWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadWhat {
    /// memcached's text protocol over TCP
    Kv(LoadKvArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LoadKvArgs {
    /// Where the server listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) target: String,
    /// Requests per second with Poisson arrivals, such as 50k; or max for a closed loop
    #[arg(long, value_name = "RPS|max", default_value = "max")]
    pub(crate) rate: Rate,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "B", default_value = "1KiB", value_parser = parse_bytes)]
    pub(crate) value_size: u64,
    /// Popularity of keys: uniform or zipf:THETA
    #[arg(long, value_name = "DIST", default_value = "uniform")]
    pub(crate) dist: Distribution,
    /// Shares of requests in percent
    #[arg(long, value_name = "MIX", default_value = "get=95,set=5")]
    pub(crate) mix: Mix,
    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Connections over all threads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Loading threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) threads: usize,
    /// Requests that a connection may have outstanding
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub(crate) depth: usize,
    /// Load keys that are there already instead of setting them all first
    #[arg(long)]
    pub(crate) no_fill: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// Random reads of an array larger than local memory, requests made in the dispatcher
    Array(ArrayArgs),
    /// One switch between user-level threads, against ucontext and a library
    Switch(SwitchArgs),
    /// Latency of a page fault by kind and by stage
    Fault(FaultArgs),
    /// Pages reclaimed per second, and the CPU each costs
    Reclaim(ReclaimArgs),
    /// Losslessness under load, changing limits and injected failures
    Soak(SoakArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ArrayArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Look at the page table before the touch, so that a missing page costs no trap
    #[arg(long)]
    pub(crate) probe: bool,
    /// Requests per second, such as 200k, or several separated by commas; or max for a closed loop
    #[arg(long, value_name = "RPS|max", default_value = "max", value_delimiter = ',')]
    pub(crate) rate: Vec<Rate>,
    /// Measured time of each run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each run on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Switches in each of nine rounds
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) switches: u64,
    /// One JSON object for each mechanism on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// Memory node
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Far memory to use
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub(crate) local: LocalSize,
    /// Touches
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) touches: u64,
    /// One JSON object for each kind on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReclaimArgs {
    /// Memory node
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Far memory to use
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub(crate) local: LocalSize,
    /// Time for each kind of page
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each kind on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// Memory node; failures are injected if it is emulated
    #[arg(long, value_name = "URL", default_value = "emu://?latency=5us&gbps=100&size=256MiB")]
    pub(crate) far: String,
    /// Far memory to use
    #[arg(long, value_name = "SIZE", default_value = "48MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Smallest limit of local memory; it changes between this and three times as much
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_bytes)]
    pub(crate) local: u64,
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = positive_count)]
    pub(crate) workers: usize,
    /// How long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Time from the touch of a page to its paging error
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub(crate) deadline: Duration,
    /// Seed of load and failures
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Metrics address of the server
    #[arg(long, value_name = "ADDR", default_value = yonder_metrics::DEFAULT_ADDRESS)]
    pub(crate) attach: String,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Print one snapshot and end
    #[arg(long)]
    pub(crate) once: bool,
}
