//! The flags of `yonder bench ycsb`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::sched::DispatchPolicy;
use yonder::units::{LocalSize, parse_bytes};
use yonder_bench::ycsb::{SwapPlace, Way};
use yonder_load::{Rate, Workload};

use super::{BENCHMARK, Dispatch, each_once, positive_count, positive_duration};

/// What `yonder bench ycsb --help` ends with.
const AFTER_HELP: &str = "\
A data set of 1 GiB, a quarter of it local, on the disk at /mnt/ssd, with 128 requests under way:
  yonder bench ycsb --far file:///mnt/ssd/far?size=4GiB --memory 1GiB --local 25% --workers 2
What requests gain that do not fault, when those that will fault queue apart:
  yonder bench ycsb --far tcp://127.0.0.1:7070 --workloads b,c --swap none --rate 30k --dispatch pf-aware,predicted

The ways are yonder kv with faults that yield (and with faults that wait, --faults yield,busy), and the same
server with all of its memory local, in a control group that leaves it the same bytes, so that the kernel
swaps. That takes root, to make the group and to swap to a file or to zram; both are undone at the end. A scan
is a get of 1 to 100 consecutive keys at once.";

/// What a server whose memory is far does about a page fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum YcsbFaults {
    /// Park the request and run others
    Yield,
    /// Spin until the page is there
    Busy,
}

/// Which server the kernel swaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SwappedServer {
    /// yonder kv with all of its memory local
    Kv,
    /// Stock memcached
    Memcached,
}

/// The kernel's swap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SwapFlag {
    /// No comparison with it.
    None,
    /// Where it is.
    On(SwapPlace),
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct YcsbArgs {
    /// Far memory: file:///path?size=SIZE on the disk to measure, or another store [default: a temporary file]
    #[arg(long, value_name = "URL")]
    pub(crate) far: Option<String>,
    /// Values that are stored at the start; the server has room for as much again
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory of each way: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "25%")]
    pub(crate) local: LocalSize,
    /// What is asked for, with commas between: a to f are YCSB's; readmost, readwrite and writemost LightSwap's
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "a,b,c", value_delimiter = ',', value_parser = workload)]
    pub(crate) workloads: Vec<Workload>,
    /// Size of every value
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "1KiB", value_parser = parse_bytes)]
    pub(crate) value_size: u64,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Runs of each way; medians count, and ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// What servers whose memory is far do about page faults, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "MODES", default_value = "yield", value_delimiter = ',')]
    pub(crate) faults: Vec<YcsbFaults>,
    /// Which request is next, of servers whose memory is far: policies with commas between, each of which is run
    #[arg(long, help_heading = BENCHMARK, value_name = "POLICIES", default_value = "pf-aware", value_delimiter = ',')]
    pub(crate) dispatch: Vec<Dispatch>,
    /// Requests per second with Poisson arrivals, such as 30k; or max for a closed loop
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|max", default_value = "max")]
    pub(crate) rate: Rate,
    /// The kernel's swap: zram, file:PATH of a new file, or none [default: a file beside that of --far]
    #[arg(long, help_heading = BENCHMARK, value_name = "WHERE", value_parser = swap)]
    pub(crate) swap: Option<SwapFlag>,
    /// Which servers the kernel swaps, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "kv", value_delimiter = ',')]
    pub(crate) swap_servers: Vec<SwappedServer>,
    /// Worker threads of servers whose memory is far
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) workers: usize,
    /// Worker threads of servers that the kernel swaps: each of them waits for one page at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub(crate) swap_workers: usize,
    /// Connections; a server works at one request of each at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 128, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Requests that one connection may have outstanding
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) depth: usize,
    /// Threads that load the server
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) threads: usize,
    /// One JSON object for each workload, way and policy on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

impl YcsbArgs {
    /// The ways that are compared, each once, in the order of a turn.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let far = [(YcsbFaults::Yield, Way::Yield), (YcsbFaults::Busy, Way::Busy)];
        let swapped = [(SwappedServer::Kv, Way::Swap), (SwappedServer::Memcached, Way::SwapMemcached)];
        let far = far.into_iter().filter(|(mode, _)| self.faults.contains(mode)).map(|(_, way)| way);
        let is_compared = self.swap != Some(SwapFlag::None);
        let is_swapped = |(server, _): &(SwappedServer, Way)| is_compared && self.swap_servers.contains(server);
        far.chain(swapped.into_iter().filter(is_swapped).map(|(_, way)| way)).collect()
    }

    /// The policies that are run, each once, in the order in which they were typed.
    pub(crate) fn policies(&self) -> Vec<DispatchPolicy> {
        each_once(&self.dispatch)
    }

    /// Where the kernel swaps to, if it does.
    pub(crate) fn swap_place(&self) -> SwapPlace {
        match &self.swap {
            Some(SwapFlag::On(place)) => place.clone(),
            Some(SwapFlag::None) | None => SwapPlace::Beside,
        }
    }
}

/// A workload; YCSB's by their letters too.
fn workload(text: &str) -> Result<Workload, String> {
    let letter = ["a", "b", "c", "d", "e", "f"].contains(&text);
    let name = if letter { format!("ycsb-{text}") } else { text.to_owned() };
    name.parse().map_err(|_| {
        format!("'{text}' is not a workload: type a, b, c, d, e or f of YCSB, or readmost, readwrite or writemost")
    })
}

fn swap(text: &str) -> Result<SwapFlag, String> {
    match text.split_once(':') {
        None if text == "none" => Ok(SwapFlag::None),
        None if text == "zram" => Ok(SwapFlag::On(SwapPlace::Zram)),
        Some(("file", path)) if path.starts_with('/') => Ok(SwapFlag::On(SwapPlace::File(PathBuf::from(path)))),
        _ => Err(format!("'{text}' is not a place for swap: type zram, none, or file:PATH such as file:/mnt/ssd/swap")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    fn parsed(flags: &str) -> YcsbArgs {
        let words = ["yonder", "bench", "ycsb"].into_iter().chain(flags.split_whitespace());
        let Command::Bench(BenchArgs { what: BenchWhat::Ycsb(args) }) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        args
    }

    #[test]
    fn ways_are_those_that_were_asked_for() {
        assert_eq!(parsed("").ways(), [Way::Yield, Way::Swap]);
        assert_eq!(parsed("--faults busy,yield,busy --swap none").ways(), [Way::Yield, Way::Busy]);
        assert_eq!(parsed("--swap-servers memcached,kv").ways(), [Way::Yield, Way::Swap, Way::SwapMemcached]);
        assert_eq!(parsed("").swap_place(), SwapPlace::Beside);
        assert_eq!(parsed("--swap file:/a/b").swap_place(), SwapPlace::File("/a/b".into()));
        assert_eq!(parsed("--swap zram").swap_place(), SwapPlace::Zram);
    }

    #[test]
    fn policies_are_run_once_each() {
        assert_eq!((parsed("").policies(), parsed("").rate), (vec![DispatchPolicy::PageFaultAware], Rate::Max));
        let args = parsed("--dispatch predicted,pf-aware,predicted --rate 30k");
        assert_eq!(args.policies(), [DispatchPolicy::Predicted, DispatchPolicy::PageFaultAware]);
        assert_eq!(args.rate, Rate::PerSecond(30_000.0));
    }

    #[test]
    fn workloads_are_letters_or_names() {
        let args = parsed("--workloads a,ycsb-f,writemost");
        assert_eq!(args.workloads, [Workload::YcsbA, Workload::YcsbF, Workload::Writemost]);
        assert!(workload("g").unwrap_err().contains("type a, b, c"));
        for bad in ["", "disk", "file:", "file:relative", "zram:1"] {
            assert!(swap(bad).unwrap_err().contains("type zram, none, or file:PATH"), "{bad}");
        }
    }
}
