//! The flags of the benchmarks of the memory node: `bench rread`, `rwrite`, `ralloc`, `scale-clients`, `scale-pages`.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::clib::Ticket;
use yonder::units::{parse_bytes, parse_duration};
use yonder_bench::{NodeChoice, Transport};
use yonder_node::Polling;

use super::{BENCHMARK, positive_count, positive_duration};

/// What `yonder bench rread --help` ends with.
pub(crate) const RREAD_AFTER_HELP: &str = "\
Latency by size alone, then throughput alone, then beside Redis and memcached:
  yonder bench rread --sizes 64,4KiB --clients '' --depths ''
  yonder bench rread --sizes '' --clients 1,2,4 --depths 1,8,64
  yonder bench rread --peers --sizes 64,1KiB,4KiB";

/// The node that is measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory node")]
pub(crate) struct TargetArgs {
    /// Memory node to measure: udp://host:port, tcp://host:port or shm:///path.sock; one is started if not given
    #[arg(long, value_name = "URL")]
    pub(crate) node: Option<String>,
    /// How a node that is started is reached
    #[arg(long, value_name = "KIND", default_value = "udp", conflicts_with = "node")]
    pub(crate) transport: TransportKind,
    /// How long idle threads of a node that is started ask for more before they sleep, at most
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = parse_duration)]
    pub(crate) node_spin: Duration,
    /// Threads of a node that is started never sleep: the shortest latency, for a CPU each
    #[arg(long, conflicts_with_all = ["node", "node_spin"])]
    pub(crate) node_busy_poll: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum TransportKind {
    /// Datagrams over loopback
    Udp,
    /// A connection over loopback
    Tcp,
    /// A socket in the file system
    Shm,
}

impl From<&TargetArgs> for NodeChoice {
    fn from(args: &TargetArgs) -> Self {
        if let Some(url) = &args.node {
            return Self::At(url.clone());
        }
        let transport = match args.transport {
            TransportKind::Udp => Transport::Udp,
            TransportKind::Tcp => Transport::Tcp,
            TransportKind::Shm => Transport::Shm,
        };
        Self::Started(transport, if args.node_busy_poll { Polling::Busy } else { Polling::Adaptive(args.node_spin) })
    }
}

/// A list that may be empty, from one flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

fn parse_list<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<List<T>, String> {
    text.split(',').filter(|word| !word.is_empty()).map(parse).collect::<Result<_, _>>().map(List)
}

pub(super) fn counts(text: &str) -> Result<List<usize>, String> {
    parse_list(text, positive_count)
}

/// Sizes of at least one byte.
fn sizes(text: &str) -> Result<List<usize>, String> {
    parse_list(text, |word| match parse_bytes(word) {
        Ok(0) => Err(format!("'{word}' is no size to read or write: type at least 1")),
        Ok(bytes) => usize::try_from(bytes).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    })
}

/// Sizes of allocations, where `page` is one page of the node.
fn allocations(text: &str) -> Result<List<u64>, String> {
    parse_list(text, |word| match word {
        "page" => Ok(0),
        _ => parse_bytes(word).map_err(|error| error.to_string()),
    })
}

#[derive(Debug, Args)]
#[command(after_help = RREAD_AFTER_HELP)]
pub(crate) struct RreadArgs {
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Compare with GETs of Redis and memcached instead, which are started if they are installed
    #[arg(long, help_heading = "Comparison")]
    pub(crate) peers: bool,
    /// Rounds of a comparison, in which the systems take turns; medians count
    #[arg(long, help_heading = "Comparison", value_name = "N", default_value_t = 5, value_parser = positive_count, requires = "peers")]
    pub(crate) rounds: usize,
}

/// What `rread` and `rwrite` measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Sizes at which the latency of one thread is measured, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZES", default_value = "4,16,64,256,1KiB,4KiB,16KiB,64KiB", value_parser = sizes)]
    pub(crate) sizes: List<usize>,
    /// Numbers of threads that wait for each operation, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,2,4", value_parser = counts)]
    pub(crate) clients: List<usize>,
    /// Numbers of asynchronous operations of one thread, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,2,4,8,16,32,64,128", value_parser = counts)]
    pub(crate) depths: List<usize>,
    /// Size at which throughput is measured, by --clients and by --depths
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Memory that is used, at random places
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// How long a client asks again before it sleeps, at most
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "50us", value_parser = parse_duration)]
    pub(crate) spin: Duration,
    /// Measured time of each run; a warm-up comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RallocArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Sizes of allocations whose latency is measured, with commas between; page is one page of the node
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZES", default_value = "page,64MiB,256MiB,1GiB", value_parser = allocations)]
    pub(crate) sizes: List<u64>,
    /// Pages of 4 KiB of a node that is started and filled to 98 %
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(64..))]
    pub(crate) node_pages: u32,
    /// Pages of a page table that is filled to 98 % without a network
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(64..1 << 28))]
    pub(crate) table_pages: u32,
    /// Most pages of an allocation while something is filled
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) longest: u32,
    /// Measured time of each size
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each result on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleClientsArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Numbers of client processes, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,10,100,1000", value_parser = counts)]
    pub(crate) clients: List<usize>,
    /// Reads per second, of all processes together
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
    /// Size of a read
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "16", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Measured time of each run
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScalePagesArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Numbers of page table entries, rising, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,16,256,4096,65536,1048576", value_parser = counts)]
    pub(crate) entries: List<usize>,
    /// Size of the node's pages
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes)]
    pub(crate) page_size: u64,
    /// Size of a read
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "16", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Measured time of each run; a warm-up comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

/// A client process of `bench scale-clients`, which starts it.
#[derive(Debug, Args)]
pub(crate) struct ScaleClientArgs {
    #[arg(long)]
    pub(crate) node: String,
    /// The address space that all clients share; the client makes one of its own if not given
    #[arg(long, requires = "address")]
    pub(crate) ticket: Option<Ticket>,
    #[arg(long)]
    pub(crate) address: Option<u64>,
    #[arg(long)]
    pub(crate) size: usize,
    /// Times in nanoseconds
    #[arg(long)]
    pub(crate) period: u64,
    #[arg(long)]
    pub(crate) first: u64,
    #[arg(long)]
    pub(crate) duration: u64,
}

/// A program that ends when its parent ends.
#[derive(Debug, Args)]
pub(crate) struct GuardedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_be_empty_and_their_items_are_checked() {
        assert_eq!(sizes("4,1KiB"), Ok(List(vec![4, 1024])));
        assert_eq!(sizes(""), Ok(List(vec![])));
        assert_eq!(allocations("page,2MiB"), Ok(List(vec![0, 2 << 20])));
        assert!(sizes("0").unwrap_err().contains("type at least 1"));
        assert!(counts("1,0").is_err() && counts("1,x").is_err());
    }
}
