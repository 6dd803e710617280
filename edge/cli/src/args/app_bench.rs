//! The flags of `yonder bench kv`, `rocksdb`, `tpcc` and `vector`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder_load::Rate;
use yonder_rocksdb::SCAN_ROWS_MAX;

use super::{BENCHMARK, PagingArgs, ThreadArgs, positive_count, positive_duration};

/// Who waits for pages, and who gets a request: systems that are compared.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum System {
    /// Faults yield, and workers that wait for pages get fewer requests
    Yield,
    /// The same, and workers map their own pages: the dispatcher's CPU maps none
    YieldAlone,
    /// Faults yield, and workers get requests in turn
    RoundRobin,
    /// Faults busy-wait
    Busy,
    /// Faults busy-wait, and the dispatcher maps pages meanwhile, as it does for yield
    BusyDelegated,
    /// Faults busy-wait, and requests give way after 5 us
    Preempt,
}

/// An application, and the systems that it is run under.
#[derive(Debug, Args)]
pub(crate) struct AppBenchArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Systems that take turns, with commas between, in the place of --faults, --preempt and --dispatch
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) systems: Vec<System>,
    /// Numbers of worker threads to compare, with commas between, in the place of --workers
    #[arg(long, help_heading = BENCHMARK, value_name = "NS", value_delimiter = ',', value_parser = positive_count)]
    pub(crate) worker_counts: Vec<usize>,
    /// Numbers of requests under way to compare, in the place of --max-inflight
    #[arg(long, help_heading = BENCHMARK, value_name = "NS", value_delimiter = ',', value_parser = positive_count)]
    pub(crate) depths: Vec<usize>,
    /// Turns of each system at each load
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
    /// Requests per second with Poisson arrivals, such as 50k, or several with commas between; or max for a closed loop
    #[arg(long, help_heading = BENCHMARK, value_name = "RPS|max", default_value = "max", value_delimiter = ',')]
    pub(crate) rate: Vec<Rate>,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The systems of Adios' Figure 10, in turn on the same items:
  yonder bench kv --memory 512MiB --systems busy,preempt,yield-alone")]
pub(crate) struct KvBenchArgs {
    #[command(flatten)]
    pub(crate) app: AppBenchArgs,
    /// Bytes of a value; keys have 50
    #[arg(long, help_heading = BENCHMARK, value_name = "BYTES", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) value_size: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The systems of Adios' Figure 11 at three loads, in turn on the same tables:
  yonder bench rocksdb --systems busy,preempt,round-robin,yield --rate max,30k,60k
Tables take about --memory among the temporary files, in TMPDIR, while it runs.")]
pub(crate) struct RocksdbArgs {
    #[command(flatten)]
    pub(crate) app: AppBenchArgs,
    /// Share of the requests that are SCANs, in percent; the others are GETs
    #[arg(long, help_heading = BENCHMARK, value_name = "PCT", default_value = "1%", value_parser = percent)]
    pub(crate) scans: f64,
    /// Rows that a SCAN reads
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=i64::from(SCAN_ROWS_MAX)))]
    pub(crate) scan_rows: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The systems of Adios' Figure 12, in turn on the same tables:
  yonder bench tpcc --memory 512MiB --systems busy,preempt,yield-alone
There are as many warehouses as --memory takes, 90 MiB each; --local is of what they take. Runs enter orders
beyond that.")]
pub(crate) struct TpccArgs {
    #[command(flatten)]
    pub(crate) app: AppBenchArgs,
    /// Have so many times fewer items and customers than the specification says, to try things out
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shrink: u32,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The systems of Adios' section 5.2, in turn on the same index:
  yonder bench vector --memory 512MiB --systems busy,preempt,yield-alone")]
pub(crate) struct VectorArgs {
    #[command(flatten)]
    pub(crate) app: AppBenchArgs,
    /// Inverted lists of the index
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 256, value_parser = positive_count)]
    pub(crate) lists: usize,
    /// Lists that a search looks at
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 8, value_parser = positive_count)]
    pub(crate) probes: usize,
    /// Neighbours that are wanted of each query
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10, value_parser = positive_count)]
    pub(crate) neighbours: usize,
}

impl AppBenchArgs {
    /// Far memory and threads at each depth with each number of workers that is compared; at least one.
    pub(crate) fn points(&self) -> Vec<PagingArgs> {
        let of = |all: &[usize], one| if all.is_empty() { vec![one] } else { all.to_vec() };
        let threads = &self.paging.threads;
        let (counts, depths) = (of(&self.worker_counts, threads.workers), of(&self.depths, threads.max_inflight));
        let point = |workers, max_inflight| PagingArgs {
            threads: ThreadArgs { workers, max_inflight, ..threads.clone() },
            ..self.paging.clone()
        };
        counts.iter().flat_map(|workers| depths.iter().map(move |depth| point(*workers, *depth))).collect()
    }
}

/// A percentage, as a share of one.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let share = number.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("'{text}' is no percentage: give one between 0 and 100, such as 1%"))
}
