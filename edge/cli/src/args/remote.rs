//! The flags of `bench rread`, and of processes that benchmarks of the memory node start.

use std::ffi::OsString;

use clap::Args;
use yonder::clib::Ticket;
use yonder_bench::flags::positive_count;
use yonder_bench::rread;

#[derive(Debug, Args)]
pub(crate) struct RreadArgs {
    #[command(flatten)]
    pub(crate) access: rread::Settings,
    /// Compare with GETs of Redis and memcached instead, which are started if they are installed
    #[arg(long, help_heading = "Comparison")]
    pub(crate) peers: bool,
    /// Rounds of a comparison, in which the systems take turns; medians count
    #[arg(long, help_heading = "Comparison", value_name = "N", default_value_t = 5, value_parser = positive_count, requires = "peers")]
    pub(crate) rounds: usize,
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
