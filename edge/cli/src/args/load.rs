//! The flags of `yonder load`.

use std::time::Duration;

use clap::{Args, Subcommand};
use yonder::units::parse_bytes;
use yonder_load::{Distribution, Mix, Rate, Workload};
use yonder_rocksdb::SCAN_ROWS_MAX;

use super::app_bench::percent;
use super::{positive_count, positive_duration};

/// What `yonder load kv --help` ends with.
const AFTER_HELP: &str = "\
Workloads: ycsb-a (50 % reads, 50 % updates), ycsb-b (95/5), ycsb-c (reads), ycsb-d (95 % reads of the latest
keys, 5 % inserts), ycsb-e (95 % scans, 5 % inserts), ycsb-f (50 % reads, 50 % read-modify-writes), and
LightSwap's readmost (90 % reads, 5 % inserts, 5 % updates), readwrite (50/25/25) and writemost (10/45/45).
Keys are scrambled zipfian (0.99), as in YCSB. A scan is a get of 1 to 100 consecutive keys at once. A
read-modify-write is a get and then a set, and counts once.
  yonder load kv --workload ycsb-a --connections 128 --depth 1";

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    pub(crate) what: LoadWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LoadWhat {
    /// A memcached-compatible server, over TCP: sets every key, then measures gets and sets and checks every value
    Kv(LoadKvArgs),
    /// RocksDB behind `yonder serve rocksdb`, over UDP: measures GETs and SCANs and checks every row
    Rocksdb(LoadRocksdbArgs),
    /// TPC-C behind `yonder serve tpcc`, over UDP: measures its five transactions
    Tpcc(LoadAppArgs),
    /// Vector search behind `yonder serve vector`, over UDP: compares every answer with that of an index of its own
    Vector(LoadVectorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LoadVectorArgs {
    #[command(flatten)]
    pub(crate) load: LoadAppArgs,
    /// Lists that a search looks at
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = positive_count)]
    pub(crate) probes: usize,
    /// Neighbours that are wanted of each query
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = positive_count)]
    pub(crate) neighbours: usize,
}

#[derive(Debug, Args)]
pub(crate) struct LoadRocksdbArgs {
    #[command(flatten)]
    pub(crate) load: LoadAppArgs,
    /// Share of the requests that are SCANs, in percent; the others are GETs
    #[arg(long, value_name = "PCT", default_value = "1%", value_parser = percent)]
    pub(crate) scans: f64,
    /// Rows that a SCAN reads
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(SCAN_ROWS_MAX)))]
    pub(crate) scan_rows: u32,
}

/// A load on a server that is asked by datagrams.
#[derive(Debug, Args)]
pub(crate) struct LoadAppArgs {
    /// Where the server listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11311")]
    pub(crate) target: String,
    /// Requests per second with Poisson arrivals, such as 50k; or max for a closed loop
    #[arg(long, value_name = "RPS|max", default_value = "max")]
    pub(crate) rate: Rate,
    /// Measured time; a warm-up of a quarter of it comes before
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Threads that ask, each with a socket of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) threads: usize,
    /// Requests on their way at a time [default: 64 in a closed loop, else 4096]
    #[arg(long, value_name = "N", value_parser = positive_count)]
    pub(crate) window: Option<usize>,
    /// How long an answer is waited for before it counts as lost
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) patience: Duration,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LoadKvArgs {
    /// Where the server listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:11211")]
    pub(crate) target: String,
    /// Requests per second with Poisson arrivals, such as 50k; or max for a closed loop
    #[arg(long, value_name = "RPS|max", default_value = "max")]
    pub(crate) rate: Rate,
    /// Number of different keys
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) keys: u64,
    /// Size of every value
    #[arg(long, value_name = "SIZE", default_value = "1KiB", value_parser = parse_bytes)]
    pub(crate) value_size: u64,
    /// How popular keys are: uniform, or zipf:THETA such as zipf:0.99
    #[arg(long, value_name = "DIST", default_value = "uniform")]
    pub(crate) dist: Distribution,
    /// Shares of gets and sets, in percent
    #[arg(long, value_name = "MIX", default_value = "get=95,set=5")]
    pub(crate) mix: Mix,
    /// A workload of YCSB (ycsb-a to ycsb-f) or of LightSwap (readmost, readwrite, writemost) in place of --dist and
    /// --mix
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dist", "mix"])]
    pub(crate) workload: Option<Workload>,
    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Connections, over all threads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Threads that load the server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) threads: usize,
    /// Requests that one connection may have outstanding
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = positive_count)]
    pub(crate) depth: usize,
    /// Do not set every key first: an earlier run with the same --keys and --value-size has
    #[arg(long)]
    pub(crate) no_fill: bool,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
