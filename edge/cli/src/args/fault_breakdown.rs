//! The flags of `yonder bench fault-breakdown`.

use clap::Args;
use yonder::units::{LocalSize, parse_bytes};
use yonder_bench::fault_breakdown::{RUNS_MAX, Settings};

use super::{BENCHMARK, FaultMode, count_to, each_once, positive_count};

/// What `yonder bench fault-breakdown --help` ends with.
const AFTER_HELP: &str = "\
Over an emulated network, a memory node and a disk, with a picture:
  yonder bench fault-breakdown --far emu://?latency=2.5us --far file:///var/tmp/far?size=1GiB --out pictures

Steps: exception (from the touch to the handler), post (page table, and asking for the page), away (with
yield: to other requests), fetch (until the page is there), install (mapping it), back (with yield: from other
requests) and return (to the code). Yonder's own are post, away and back; exception, install and return are
the kernel's, fetch is the fabric's.";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct FaultBreakdownArgs {
    /// Memory node: tcp://host:port, shm:///path.sock, file:///path?size=SIZE, or emu://, emulated in this process; may
    /// be repeated
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: Vec<String>,
    /// Far memory to use of each
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Local memory that may be in use at a time: a size, or a percentage of --memory
    #[arg(long, value_name = "SIZE|PCT", default_value = "20%")]
    pub(crate) local: LocalSize,
    /// What a worker does while a page is on its way: modes with commas between, which take turns
    #[arg(long, help_heading = BENCHMARK, value_name = "MODES", default_value = "yield,busy", value_delimiter = ',')]
    pub(crate) faults: Vec<FaultMode>,
    /// Faults of a run; a warm-up of an eighth of them comes before
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 20_000, value_parser = positive_count)]
    pub(crate) touches: usize,
    /// Runs of each mode over each memory node, whose faults count together
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value = "3", value_parser = runs)]
    pub(crate) runs: usize,
    /// One JSON object for each memory node and mode on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

fn runs(text: &str) -> Result<usize, String> {
    count_to(text, RUNS_MAX)
}

impl From<&FaultBreakdownArgs> for Settings {
    fn from(args: &FaultBreakdownArgs) -> Self {
        Self {
            fars: args.far.clone(),
            memory: args.memory,
            local: args.local,
            policies: each_once(&args.faults),
            faults: args.touches as u64,
            runs: args.runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use yonder::FaultPolicy;

    use super::*;
    use crate::args::{BenchArgs, BenchWhat, Cli, Command};

    fn settings(flags: &str) -> Settings {
        let words = ["yonder", "bench", "fault-breakdown"].into_iter().chain(flags.split_whitespace());
        let Command::Bench(BenchArgs { what: BenchWhat::FaultBreakdown(args) }) =
            Cli::try_parse_from(words).unwrap().command
        else {
            panic!("another command")
        };
        Settings::from(args.parts().0)
    }

    #[test]
    fn nodes_and_modes_are_lists() {
        assert_eq!(settings("").policies, [FaultPolicy::Yield, FaultPolicy::Busy]);
        let settings =
            settings("--far emu://?latency=1us,5 --far tcp://h:1 --faults busy,yield,busy --touches 9 --runs 2");
        assert_eq!(settings.fars, ["emu://?latency=1us,5", "tcp://h:1"]);
        assert_eq!(settings.policies, [FaultPolicy::Busy, FaultPolicy::Yield]);
        assert_eq!((settings.faults, settings.runs), (9, 2));
        assert!(runs("51").unwrap_err().contains("from 1 to 50") && runs("0").is_err());
    }
}
