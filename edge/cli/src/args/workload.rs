//! The flags of `yonder workload`, a program for `yonder run` and for comparisons, which the help does not show.

use std::path::PathBuf;

use clap::Args;
use yonder::units::parse_bytes;
use yonder_workloads::Workload;

/// Do the work of one of the papers' programs in ordinary memory, alone or under yonder run
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct WorkloadArgs {
    /// quicksort, k-means, snappy-compress, snappy-decompress, pagerank, bc, frame, linked-list or phases
    #[arg(value_name = "NAME")]
    pub(crate) workload: Workload,
    /// Memory to work on, about
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Seed of the input: equal numbers make up equal input
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print only the checksum of the result: the same wherever its memory is
    #[arg(long)]
    pub(crate) check: bool,
    /// Write the seconds of the work itself, without those to make up its input, into this file too
    #[arg(long, value_name = "PATH")]
    pub(crate) seconds_to: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
