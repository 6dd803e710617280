//! The flags of `yonder bench errors`.

use clap::Args;
use yonder::units::parse_bytes;

use super::{BENCHMARK, positive_count};

#[derive(Debug, Args)]
pub(crate) struct ErrorsArgs {
    /// Local memory of the server
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub(crate) local: u64,
    /// Far memory of the server, which is emulated
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Keys at the start
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 200_000, value_parser = positive_count)]
    pub(crate) keys: usize,
    /// Bytes of a value
    #[arg(long, help_heading = BENCHMARK, value_name = "B", default_value = "1024", value_parser = positive_count)]
    pub(crate) value_size: usize,
    /// Swap-ins that fail: the node has lost the page
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10_000)]
    pub(crate) swap_in_errors: u64,
    /// Pages of local memory that are damaged; errors in frames and metadata would end the server, and are counted
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 15_000)]
    pub(crate) memory_errors: u64,
    /// Connections of the load
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 32, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Seed of the load and of the damage
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// One JSON object for each kind of errors on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}
