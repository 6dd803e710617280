//! The flags of `yonder bench peers`, and of the processes that it starts where the kernel pages.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::units::{LocalSize, parse_bytes};
use yonder_bench::peers::{CommonRate, Peer, ResidentTask, SwapTo, Work};
use yonder_load::Rate;

use super::{BENCHMARK, positive_count, positive_duration};

/// What `yonder bench peers --help` ends with.
const AFTER_HELP: &str = "\
Faults that yield beside the kernel's swap on compressed memory, and nothing else:
  yonder bench peers --workloads array --peers yield,probe,swap --swap zram
Stock servers beside swap on a disk:
  yonder bench peers --workloads memcached,redis --swap file:/mnt/ssd/swap
memcached itself beside yonder kv, at most and at a rate:
  yonder bench peers --workloads memcached --peers run,kv,kv-busy --rate 60k

Every peer has the same local memory. First all of them take turns in a closed loop, as fast as each can; then
at one rate, where latency counts from the intended start. Swap and control groups take root, and are undone
at the end, after Ctrl-C too; what cannot run prints SKIP and what to type. Local memory of a group is beside
what its process takes before it has data.";

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PeersWork {
    /// Random reads of an array, requested within the process
    Array,
    /// GETs of random values of stock memcached
    Memcached,
    /// GETs of random values of stock Redis
    Redis,
}

/// Who does it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PeerName {
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

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PeersArgs {
    /// Yonder's far memory: emu://, emulated in the process, or a memory node at tcp://host:port or shm:///path.sock
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Size of the array, and of all values of a server
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory of each peer: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub(crate) local: LocalSize,
    /// What is done, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "array,memcached,redis", value_delimiter = ',')]
    pub(crate) workloads: Vec<PeersWork>,
    /// Who does it, with commas between, in the order of a turn
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "yield,probe,busy,run,kv,kv-busy,swap,mmap", value_delimiter = ',')]
    pub(crate) peers: Vec<PeerName>,
    /// Where the kernel swaps to, with commas between: zram, file (a temporary one), or file:PATH of a new file; each
    /// is a peer
    #[arg(long, help_heading = BENCHMARK, value_name = "WHERE", default_value = "zram,file", value_delimiter = ',', value_parser = swap)]
    pub(crate) swap: Vec<SwapTo>,
    /// Threads that read the array where the kernel pages it: each waits for one page at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value = "1,16", value_delimiter = ',', value_parser = positive_count)]
    pub(crate) threads: Vec<usize>,
    /// Connections to a server, with one request under way on each
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Bytes of a value
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes)]
    pub(crate) value_size: u64,
    /// The rate at which all are compared, such as 20k; auto is half of what swap on zram does at most, none leaves
    /// those runs out
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|auto|none", default_value = "auto", value_parser = rate)]
    pub(crate) rate: CommonRate,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Runs of each peer; medians count, and peers take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each workload, peer and rate on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

/// What `bench peers` tells a process whose memory the kernel pages.
#[derive(Debug, Args)]
pub(crate) struct ResidentArgs {
    #[arg(long, value_parser = parse_bytes)]
    memory: u64,
    #[arg(long)]
    file: Option<PathBuf>,
    #[arg(long, value_parser = positive_count)]
    threads: usize,
    #[arg(long)]
    rate: Rate,
    #[arg(long, value_parser = positive_duration)]
    duration: Duration,
}

impl From<PeersWork> for Work {
    fn from(work: PeersWork) -> Self {
        match work {
            PeersWork::Array => Self::Array,
            PeersWork::Memcached => Self::Memcached,
            PeersWork::Redis => Self::Redis,
        }
    }
}

impl From<PeerName> for Peer {
    fn from(peer: PeerName) -> Self {
        match peer {
            PeerName::Yield => Self::Yield,
            PeerName::Probe => Self::Probe,
            PeerName::Busy => Self::Busy,
            PeerName::Run => Self::Run,
            PeerName::Kv => Self::Kv,
            PeerName::KvBusy => Self::KvBusy,
            PeerName::Swap => Self::Swap,
            PeerName::Mmap => Self::Mmap,
        }
    }
}

impl From<&ResidentArgs> for ResidentTask {
    fn from(args: &ResidentArgs) -> Self {
        let ResidentArgs { memory, file, threads, rate, duration } = args;
        Self { memory: *memory, file: file.clone(), threads: *threads, rate: *rate, duration: *duration }
    }
}

fn swap(text: &str) -> Result<SwapTo, String> {
    match text.split_once(':') {
        None if text == "zram" => Ok(SwapTo::Zram),
        None if text == "file" => Ok(SwapTo::File(None)),
        Some(("file", path)) if path.starts_with('/') => Ok(SwapTo::File(Some(PathBuf::from(path)))),
        _ => Err(format!("'{text}' is not a place for swap: type zram, file, or file:PATH such as file:/mnt/ssd/swap")),
    }
}

fn rate(text: &str) -> Result<CommonRate, String> {
    match text {
        "auto" => Ok(CommonRate::Auto),
        "none" => Ok(CommonRate::None),
        _ => match text.parse() {
            Ok(Rate::PerSecond(rate)) => Ok(CommonRate::PerSecond(rate)),
            _ => Err(format!("'{text}' is not a rate: type auto, none, or requests per second such as 20000 or 20k")),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    #[test]
    fn swaps_and_rates_are_those_that_were_typed() {
        let words = ["yonder", "bench", "peers", "--swap", "file:/a/b,zram", "--rate", "20k", "--threads", "4"];
        let Command::Bench(BenchArgs { what: BenchWhat::Peers(args) }) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        let (args, out) = args.parts();
        assert_eq!(args.swap, [SwapTo::File(Some("/a/b".into())), SwapTo::Zram]);
        assert_eq!((args.rate, args.threads.as_slice(), out), (CommonRate::PerSecond(20_000.0), &[4][..], None));
        assert_eq!(
            (swap("file"), rate("auto"), rate("none")),
            (Ok(SwapTo::File(None)), Ok(CommonRate::Auto), Ok(CommonRate::None))
        );
        for bad in ["", "disk", "file:", "file:relative", "zram:1", "none"] {
            assert!(swap(bad).unwrap_err().contains("type zram, file, or file:PATH"), "{bad}");
        }
        for bad in ["", "max", "fast", "0"] {
            assert!(rate(bad).unwrap_err().contains("type auto, none, or requests"), "{bad}");
        }
    }

    #[test]
    fn a_process_is_told_its_task() {
        let words = "yonder bench resident --memory 4096 --rate max --duration 5000ns --threads 2 --file /a/b";
        let Command::Bench(BenchArgs { what: BenchWhat::Resident(args) }) =
            Cli::try_parse_from(words.split(' ')).unwrap().command
        else {
            panic!("another command")
        };
        let expected = ResidentTask {
            memory: 4096,
            file: Some("/a/b".into()),
            threads: 2,
            rate: Rate::Max,
            duration: Duration::from_micros(5),
        };
        assert_eq!(ResidentTask::from(&args), expected);
    }
}
