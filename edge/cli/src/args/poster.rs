//! The flags of `yonder bench poster`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use yonder::units::{parse_bytes, parse_duration};
use yonder_bench::poster::{Set, Settings};

use super::{BENCHMARK, each_once, positive_count, positive_duration};

/// What `yonder bench poster --help` ends with.
const AFTER_HELP: &str = "\
The same with a fetch that takes as long as it does over a plain network, where sockets take longer than a
fetch by RDMA:
  yonder bench poster --fetch-time 25us --far emu://?latency=25us

Ways: no-fault, sync (a fault keeps its worker), async (its worker runs other requests), predicted (async, and
requests that will probably fault wait for those that will not). Emulated faults have no history, so nothing
predicts them.";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FaultSet {
    /// Requests wait as if for a page, as in the poster
    Emulated,
    /// Items are in far memory
    Paged,
}

impl From<FaultSet> for Set {
    fn from(set: FaultSet) -> Self {
        match set {
            FaultSet::Emulated => Self::Emulated,
            FaultSet::Paged => Self::Paged,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct PosterArgs {
    /// Far memory of the paged set: tcp://host:port, shm:///path.sock, file:///path?size=SIZE, or emu://
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Values of the paged set; the emulated one has 1024 of them
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Where the faults come from, with commas between
    #[arg(long, help_heading = BENCHMARK, value_name = "SETS", default_value = "emulated,paged", value_delimiter = ',')]
    pub(crate) sets: Vec<FaultSet>,
    /// Share of the GETs that have a fault
    #[arg(long, help_heading = BENCHMARK, value_name = "PCT", default_value = "30%", value_parser = percent)]
    pub(crate) fault_share: f64,
    /// Time of an emulated fault that keeps its worker in any case: the exception, and asking for the page
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "800ns", value_parser = duration)]
    pub(crate) busy_time: Duration,
    /// Time of an emulated fault until its page is there
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "2.5us", value_parser = duration)]
    pub(crate) fetch_time: Duration,
    /// Bytes of a value
    #[arg(long, help_heading = BENCHMARK, value_name = "B", default_value_t = 128, value_parser = positive_count)]
    pub(crate) value_size: usize,
    /// Worker threads of the server
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) workers: usize,
    /// Connections, each with one request at a time
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 50, value_parser = positive_count)]
    pub(crate) connections: usize,
    /// Measured time of each run; a warm-up of a quarter of it comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "TIME", default_value = "3s", value_parser = positive_duration)]
    pub(crate) duration: Duration,
    /// Runs of each way; medians count, and ways take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 3, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each set and way on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// A share that is neither nothing nor everything.
fn percent(text: &str) -> Result<f64, String> {
    match text.strip_suffix('%').unwrap_or(text).parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err(format!("'{text}' is not a share: type more than 0% and less than 100%, such as 30%")),
    }
}

impl From<&PosterArgs> for Settings {
    fn from(args: &PosterArgs) -> Self {
        Self {
            sets: each_once(&args.sets),
            fault_percent: args.fault_share,
            busy: args.busy_time,
            fetch: args.fetch_time,
            value_bytes: args.value_size,
            far: args.far.clone(),
            memory: args.memory,
            workers: args.workers,
            connections: args.connections,
            duration: args.duration,
            runs: args.runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    #[test]
    fn sets_shares_and_times_are_read() {
        let words =
            ["yonder", "bench", "poster", "--sets", "paged,paged", "--fault-share", "12.5%", "--fetch-time", "0us"];
        let Command::Bench(BenchArgs { what: BenchWhat::Poster(args) }) = Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        let settings = Settings::from(args.parts().0);
        assert_eq!((settings.sets.as_slice(), settings.fault_percent), (&[Set::Paged][..], 12.5));
        assert_eq!((settings.busy, settings.fetch), (Duration::from_nanos(800), Duration::ZERO));
        for wrong in ["0%", "100%", "-1", "some"] {
            assert!(percent(wrong).unwrap_err().contains("such as 30%"), "{wrong}");
        }
    }
}
