//! The flags of `yonder bench redis`.

use clap::{Args, ValueEnum};
use yonder::units::{LocalSize, parse_bytes};
use yonder_bench::redis::{Ahead, Query};

use super::{BENCHMARK, positive_count};

/// What `yonder bench redis --help` ends with.
const AFTER_HELP: &str = "\
What a guide that knows Redis gains for lists, with little local memory, over three runs:
  yonder bench redis --queries lrange --local 12.5% --ahead readahead,guide --runs 3

It needs redis-server and redis-benchmark; --ahead guide needs the guide 'redis' beside what yonder run preloads.";

/// What is asked.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RedisQuery {
    /// Values of 4 KiB, at random
    #[value(name = "get-4k")]
    Get4k,
    /// Values of 64 KiB
    #[value(name = "get-64k")]
    Get64k,
    /// Values of 4, 8, 16, 32, 64 and 128 KiB, equally
    GetMixed,
    /// The first 100 elements of a list of about 200
    Lrange,
}

/// How memory is fetched before it is touched.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RedisAhead {
    /// Not at all
    None,
    /// The pages behind neighbours that were touched
    Readahead,
    /// The pages at the distance that most of the last touches had
    Trend,
    /// What the guide for Redis says, and readahead
    Guide,
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RedisArgs {
    /// Far memory: tcp://host:port, shm:///path.sock, or emu://, emulated in the server's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Local memory, with commas between: sizes, or percentages of what the data takes, as Redis tells
    #[arg(long, value_name = "SIZE|PCT", default_value = "100%,50%,25%,12.5%", value_delimiter = ',')]
    pub(crate) local: Vec<LocalSize>,
    /// Far memory of the server
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// What is asked, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "get-4k,get-64k,get-mixed,lrange", value_delimiter = ',')]
    pub(crate) queries: Vec<RedisQuery>,
    /// How memory is fetched ahead, with commas between; the ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "none,readahead,trend,guide", value_delimiter = ',')]
    pub(crate) ahead: Vec<RedisAhead>,
    /// Values that the server is filled with
    #[arg(long, help_heading = BENCHMARK, value_name = "SIZE", default_value = "96MiB", value_parser = parse_bytes)]
    pub(crate) data: u64,
    /// Requests that are measured in each run; a quarter as many come before, to warm up
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 10_000, value_parser = positive_count)]
    pub(crate) requests: usize,
    /// Connections, with a request under way on each
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 4, value_parser = positive_count)]
    pub(crate) clients: usize,
    /// Runs of each query in each way; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each query, local memory and way on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

impl From<RedisQuery> for Query {
    fn from(query: RedisQuery) -> Self {
        match query {
            RedisQuery::Get4k => Self::Get4k,
            RedisQuery::Get64k => Self::Get64k,
            RedisQuery::GetMixed => Self::GetMixed,
            RedisQuery::Lrange => Self::Lrange,
        }
    }
}

impl From<RedisAhead> for Ahead {
    fn from(ahead: RedisAhead) -> Self {
        match ahead {
            RedisAhead::None => Self::None,
            RedisAhead::Readahead => Self::Readahead,
            RedisAhead::Trend => Self::Trend,
            RedisAhead::Guide => Self::Guide,
        }
    }
}
