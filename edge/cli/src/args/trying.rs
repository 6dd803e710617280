//! The flags of `yonder try`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use yonder::units::LocalSize;
use yonder_bench::flags::positive_count;

/// What `yonder try --help` ends with.
const AFTER_HELP: &str = "\
The program runs alone, then with less and less local memory: under yonder run, and as root with the kernel's swap on
zram too. It is run several times, so it should be one that may be, and that ends by itself:
  yonder try -- sort --buffer-size=1G words.txt
  yonder try --local 50%,10% --far tcp://127.0.0.1:7000 -- python3 fit.py
For a server, see how much local memory it needs with
  yonder size -- redis-server --save ''";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TryArgs {
    /// Far memory: as of yonder run
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    /// Local memory, with commas between: sizes, or percentages of what the program takes when it runs alone
    #[arg(long, value_name = "SIZE|PCT", default_value = "50%,25%,12.5%", value_delimiter = ',')]
    pub(crate) local: Vec<LocalSize>,
    /// Runs of each; medians count
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = positive_count)]
    pub(crate) runs: usize,
    /// Draw how much longer the program takes into this file, an SVG
    #[arg(long, value_name = "FILE", default_value = "yonder-try.svg")]
    pub(crate) picture: PathBuf,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments. What it writes to standard output is compared, and not shown; each run reads
    /// the same standard input
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
