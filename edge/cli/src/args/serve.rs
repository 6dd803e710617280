//! The flags of `yonder serve`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::{OpenArgs, PagingArgs, SERVER, UserArgs, positive_count};

/// What `yonder serve rocksdb --help` ends with.
const ROCKSDB_AFTER_HELP: &str = "\
Keys of 50 bytes and values of 1024 bytes, as many as --memory takes. Ask from another terminal:
  yonder load rocksdb --rate 10k
Tables take about --memory among the temporary files, in TMPDIR, while it runs.";

/// What `yonder serve tpcc --help` ends with.
const TPCC_AFTER_HELP: &str = "\
As many warehouses as --memory takes, 90 MiB each; --local is of what they take. At the end the tables are
checked. Ask with:
  yonder load tpcc --rate 5k";

/// What `yonder serve vector --help` ends with.
const VECTOR_AFTER_HELP: &str = "\
As many vectors of 128 numbers as --memory takes. Ask from another terminal, which makes the same index to
know right answers:
  yonder load vector --rate 500";

#[derive(Debug, Args)]
pub(crate) struct ServeTpccArgs {
    #[command(flatten)]
    pub(crate) server: AppServerArgs,
    /// Have so many times fewer items and customers than the specification says, to try things out
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) shrink: u32,
    /// Room for orders that are entered while it serves
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) orders: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ServeVectorArgs {
    #[command(flatten)]
    pub(crate) server: AppServerArgs,
    /// Inverted lists of the index
    #[arg(long, help_heading = SERVER, value_name = "N", default_value_t = 256, value_parser = positive_count)]
    pub(crate) lists: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ServeAppArgs {
    #[command(subcommand)]
    pub(crate) what: ServedApp,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServedApp {
    /// RocksDB with its tables in far memory: GETs and SCANs
    #[command(after_help = ROCKSDB_AFTER_HELP)]
    Rocksdb(AppServerArgs),
    /// TPC-C on tables in far memory, after Silo
    #[command(after_help = TPCC_AFTER_HELP)]
    Tpcc(ServeTpccArgs),
    /// Searches of a Faiss index with its inverted lists in far memory
    #[command(after_help = VECTOR_AFTER_HELP)]
    Vector(ServeVectorArgs),
}

/// A server that is asked by datagrams.
#[derive(Clone, Debug, Args)]
pub(crate) struct AppServerArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Where UDP requests arrive; port 0 takes a free one
    #[arg(long, help_heading = SERVER, value_name = "ADDR", default_value = "127.0.0.1:11311")]
    pub(crate) listen: SocketAddr,
    /// Serve Prometheus metrics here, such as 127.0.0.1:9185, where yonder top looks; not served if not given. With
    /// --identity or --key over TLS, to operators and those who have the same
    #[arg(long, help_heading = SERVER, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    #[command(flatten)]
    pub(crate) user: UserArgs,
    /// Keep idle threads spinning: lower latency, but one CPU for each thread at all times
    #[arg(long, help_heading = SERVER)]
    pub(crate) busy_poll: bool,
}
