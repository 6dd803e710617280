//! The flags of the applications on a memory node (`bench image`, `tree`, `objects`, `frame`), and of `bench migrate`.

use std::path::PathBuf;

use clap::Args;
use yonder_bench::NodeChoice;
use yonder_bench::flags::{List, counts};

use super::{BENCHMARK, positive_count};

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(flatten)]
    pub(crate) target: NodeChoice,
    /// Numbers of clients, each with an address space of its own, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "COUNTS", default_value = "1,2,4", value_parser = counts)]
    pub(crate) clients: List<usize>,
    /// Photos of each client
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 50)]
    pub(crate) photos: u64,
    /// Width and height of photos that are painted
    #[arg(long, help_heading = BENCHMARK, value_name = "PIXELS", default_value_t = 256)]
    pub(crate) side: u32,
    /// PNG, PPM or PGM files to use instead of painted photos
    #[arg(value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// One JSON object for each run on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) target: NodeChoice,
    /// File with a word in each line [default: the system's dictionary, or generated words]
    #[arg(long, help_heading = BENCHMARK, value_name = "FILE")]
    pub(crate) words: Option<PathBuf>,
    /// Words in the tree
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 20_000, value_parser = positive_count)]
    pub(crate) keys: usize,
    /// Threads that search
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) clients: usize,
    /// Searches of each thread in each way
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 2000)]
    pub(crate) searches: u64,
    /// One JSON object for each way on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ObjectsArgs {
    #[command(flatten)]
    pub(crate) target: NodeChoice,
    /// Threads
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 2, value_parser = positive_count)]
    pub(crate) clients: usize,
    /// Operations of each thread in each mix
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5000)]
    pub(crate) operations: u64,
    /// One JSON object for each store and mix on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FrameArgs {
    #[command(flatten)]
    pub(crate) target: NodeChoice,
    /// CSV file with a header [default: generated taxi rides]
    #[arg(long, help_heading = BENCHMARK, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Rows that are generated
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 200_000)]
    pub(crate) rows: u64,
    /// Times that each query is asked
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10)]
    pub(crate) rounds: u64,
    /// One JSON object for each query and place on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}
