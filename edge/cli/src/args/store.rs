//! The flags of `yonder bench store`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::units::parse_bytes;
use yonder_bench::store::{Operation, Settings};

use super::{BENCHMARK, positive_count, positive_duration};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StoreOperation {
    /// Read pages, and check them
    Read,
    /// Write pages
    Write,
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// A store: emu://, shm:///path.sock, tcp://host:port, udp://host:port or file:///path?size=SIZE; may be repeated
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: Vec<String>,
    /// Bytes in each store
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Operations under way at a time, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NUMBERS", default_value = "1,32", value_delimiter = ',', value_parser = positive_count)]
    pub(crate) depths: Vec<usize>,
    /// What is done, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "read,write", value_delimiter = ',')]
    pub(crate) op: Vec<StoreOperation>,
    /// Time of a run
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Runs of each, of which the median is told; all take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// Have fio read the files too
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) fio: bool,
    /// One JSON object for each store, operation and depth on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

impl From<&StoreArgs> for Settings {
    fn from(args: &StoreArgs) -> Self {
        let operation = |operation: &StoreOperation| match operation {
            StoreOperation::Read => Operation::Read,
            StoreOperation::Write => Operation::Write,
        };
        Self {
            fars: args.far.clone(),
            memory: args.memory,
            depths: args.depths.clone(),
            operations: args.op.iter().map(operation).collect(),
            duration: args.duration,
            runs: args.runs,
            fio: args.fio,
        }
    }
}
