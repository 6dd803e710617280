//! The flags of `yonder bench seq`, and of prefetching anywhere.

use clap::{Args, ValueEnum};
use yonder::Prefetch;
use yonder::units::{LocalSize, parse_bytes};
use yonder_bench::seq::{Operation, Pattern, Settings};

use super::{BENCHMARK, positive_count};

/// What is fetched before it is touched.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PrefetchMode {
    /// Nothing
    None,
    /// The pages behind neighbours that were touched
    Readahead,
    /// The pages at the distance that most of the last touches had
    Trend,
}

impl From<PrefetchMode> for Prefetch {
    fn from(mode: PrefetchMode) -> Self {
        match mode {
            PrefetchMode::None => Self::None,
            PrefetchMode::Readahead => Self::Readahead,
            PrefetchMode::Trend => Self::Trend,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SeqOperation {
    /// Read whole pages, and check them
    Read,
    /// Write whole pages
    Write,
}

#[derive(Debug, Args)]
pub(crate) struct SeqArgs {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in this process with this latency and
    /// bandwidth; each prefetcher uses --memory of it
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Far memory to use for each prefetcher
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "12.5%")]
    pub(crate) local: LocalSize,
    /// Prefetchers that take turns, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "none,readahead,trend", value_delimiter = ',')]
    pub(crate) prefetch: Vec<PrefetchMode>,
    /// What is done, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "read,write", value_delimiter = ',')]
    pub(crate) op: Vec<SeqOperation>,
    /// In which order: sequential, random, or every so many pages, such as stride:7
    #[arg(long, help_heading = BENCHMARK, value_name = "ORDER", default_value = "sequential", value_parser = pattern)]
    pub(crate) pattern: Pattern,
    /// Passes over the memory with each prefetcher; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 5, value_parser = positive_count)]
    pub(crate) rounds: usize,
    /// One JSON object for each prefetcher and operation on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let stride = text.strip_prefix("stride:").and_then(|pages| pages.parse().ok()).filter(|pages| *pages > 1);
    match (text, stride) {
        ("sequential", _) => Ok(Pattern::Sequential),
        ("random", _) => Ok(Pattern::Random),
        (_, Some(pages)) => Ok(Pattern::Strided(pages)),
        _ => Err(format!("'{text}' is no order: type sequential, random, or stride:7")),
    }
}

impl From<&SeqArgs> for Settings {
    fn from(args: &SeqArgs) -> Self {
        let operation = |operation: &SeqOperation| match operation {
            SeqOperation::Read => Operation::Read,
            SeqOperation::Write => Operation::Write,
        };
        Self {
            far: args.far.clone(),
            memory: args.memory,
            local: args.local,
            prefetch: args.prefetch.iter().map(|mode| (*mode).into()).collect(),
            operations: args.op.iter().map(operation).collect(),
            pattern: args.pattern,
            rounds: args.rounds,
        }
    }
}
