//! The flags of `yonder bench programs`.

use clap::{Args, ValueEnum};
use yonder::units::LocalSize;
use yonder_bench::programs::{Leg, Scale, names};

use super::{BENCHMARK, positive_count};

/// What `yonder bench programs --help` ends with.
const AFTER_HELP: &str = "\
How much slower a program gets with less and less local memory, beside the kernel's swap:
  yonder bench programs --programs redis-server,sort --local 100%,50%,25%,12.5%

The leg with zram needs root, to make a control group and to swap to a zram device; both are undone at the end.";

/// How much work programs are given.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProgramScale {
    /// Some tenths of a second each, to see that everything works
    Small,
    /// Some hundred MB and some seconds each
    Full,
}

/// One way to run a program.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ProgramLeg {
    /// Alone
    Native,
    /// Under yonder run
    Yonder,
    /// Limited to the same bytes by a control group, with swap on zram
    Zram,
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ProgramsArgs {
    /// Far memory of Yonder's leg: tcp://host:port, shm:///path.sock, or emu://, emulated in the program's process
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us")]
    pub(crate) far: String,
    /// Local memory, with commas between: sizes, or percentages of what the program takes when it runs alone
    #[arg(long, value_name = "SIZE|PCT", default_value = "25%", value_delimiter = ',')]
    pub(crate) local: Vec<LocalSize>,
    /// Which programs, with commas between; all that are packages if not given, and none of yonder's own workloads
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", value_delimiter = ',', value_parser = known_program)]
    pub(crate) programs: Option<Vec<String>>,
    /// Which ways to run them are shown, with commas between; each program runs alone first in any case
    #[arg(long, help_heading = BENCHMARK, value_name = "NAMES", default_value = "native,yonder,zram", value_delimiter = ',')]
    pub(crate) legs: Vec<ProgramLeg>,
    /// How much work they are given
    #[arg(long, help_heading = BENCHMARK, value_name = "SCALE", default_value = "full")]
    pub(crate) scale: ProgramScale,
    /// Runs of each program in each way; medians count
    #[arg(long, help_heading = BENCHMARK, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// One JSON object for each program and way on standard output
    #[arg(long, help_heading = BENCHMARK)]
    pub(crate) json: bool,
}

fn known_program(text: &str) -> Result<String, String> {
    if names().contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("'{text}' is no program of this benchmark: type {}", names().join(", ")))
}

impl From<ProgramScale> for Scale {
    fn from(scale: ProgramScale) -> Self {
        match scale {
            ProgramScale::Small => Self::Small,
            ProgramScale::Full => Self::Full,
        }
    }
}

impl From<ProgramLeg> for Leg {
    fn from(leg: ProgramLeg) -> Self {
        match leg {
            ProgramLeg::Native => Self::Native,
            ProgramLeg::Yonder => Self::Yonder,
            ProgramLeg::Zram => Self::Zram,
        }
    }
}
