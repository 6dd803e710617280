//! The flags of `yonder bench del-get`.

use clap::Args;
use yonder::units::parse_bytes;

use super::{BENCHMARK, positive_count};

#[derive(Debug, Args)]
pub(crate) struct DelGetArgs {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the server's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us")]
    pub(crate) far: String,
    /// Local memory of the server
    #[arg(long, value_name = "SIZE", default_value = "12MiB", value_parser = parse_bytes)]
    pub(crate) local: u64,
    /// Far memory of the server
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Keys
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 500_000, value_parser = positive_count)]
    pub(crate) keys: usize,
    /// Bytes of a value
    #[arg(long, help_heading = BENCHMARK, value_name = "B", default_value = "128", value_parser = positive_count)]
    pub(crate) value_size: usize,
    /// Share of the keys that is deleted, in percent
    #[arg(long, help_heading = BENCHMARK, value_name = "PCT", default_value_t = 70, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) deleted: u8,
    /// Runs of each way, of which the median is told; the ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each way on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}
