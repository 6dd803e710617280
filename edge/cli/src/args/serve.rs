//! The flags of `yonder serve`.

use std::net::SocketAddr;

use clap::{Args, Subcommand};

use super::{PagingArgs, SERVER};

/// What `yonder serve rocksdb --help` ends with.
const ROCKSDB_AFTER_HELP: &str = "\
Keys of 50 bytes and values of 1024 bytes, as many as --memory takes. Ask from another terminal:
  yonder load rocksdb --rate 10k
Tables take about --memory among the temporary files, in TMPDIR, while it runs.";

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
}

/// A server that is asked by datagrams.
#[derive(Debug, Args)]
pub(crate) struct AppServerArgs {
    #[command(flatten)]
    pub(crate) paging: PagingArgs,
    /// Where UDP requests arrive; port 0 takes a free one
    #[arg(long, help_heading = SERVER, value_name = "ADDR", default_value = "127.0.0.1:11311")]
    pub(crate) listen: SocketAddr,
    /// Serve Prometheus metrics here, such as 127.0.0.1:9185, where yonder top looks; not served if not given
    #[arg(long, help_heading = SERVER, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Keep idle threads spinning: lower latency, but one CPU for each thread at all times
    #[arg(long, help_heading = SERVER)]
    pub(crate) busy_poll: bool,
}
