//! The flags of `yonder run`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use yonder::Prefetch;
use yonder::units::{LocalSize, ParseError, parse_bytes};
use yonder_bench::policies::choice;
use yonder_preload_protocol::{Faults, Transfer};

use super::CredentialArgs;
use super::size::slowdown;

/// What `yonder run --help` ends with.
const AFTER_HELP: &str = "\
Memory that the program's code allocates becomes far memory; the program itself is not changed. It must be linked
dynamically, and must not be set-uid. Try it with any program, and with a node that keeps the pages:
  yonder run --local 64MiB -- sort --buffer-size=1G words.txt
  yonder run --local 64MiB --report faults.html -- sort --buffer-size=1G words.txt
  yonder run --local auto --slowdown 5% -- sort --buffer-size=1G words.txt
  yonder node --listen tcp://127.0.0.1:7000 --memory 4GiB
  yonder run --far tcp://127.0.0.1:7000 --memory 2GiB --local 25% -- redis-server --save ''
Where strangers are, nodes ask who connects; the program shows what is typed, or what YONDER_IDENTITY or YONDER_KEY
names:
  yonder run --far udp://HOST:7000 --key cluster.key --memory 2GiB --local 25% -- redis-server --save ''";

/// Who handles the faults of a program.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RunFaults {
    /// The thread that has the fault
    Inline,
    /// Threads that watch for faults: slower, and right for system calls that reach far memory in unusual ways
    Monitor,
}

impl From<RunFaults> for Faults {
    fn from(mode: RunFaults) -> Self {
        match mode {
            RunFaults::Inline => Self::Inline,
            RunFaults::Monitor => Self::Monitor,
        }
    }
}

/// What of a page is transferred.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RunTransfer {
    /// What the program has allocated and not freed
    Live,
    /// All of it
    Pages,
}

impl From<RunTransfer> for Transfer {
    fn from(what: RunTransfer) -> Self {
        match what {
            RunTransfer::Live => Self::Live,
            RunTransfer::Pages => Self::Pages,
        }
    }
}

/// How much of a program's memory may be local.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum RunLocal {
    /// At most so much.
    Size(LocalSize),
    /// What it needs.
    Auto,
}

/// As it is typed.
fn run_local(text: &str) -> Result<RunLocal, String> {
    if text == "auto" {
        return Ok(RunLocal::Auto);
    }
    text.parse().map(RunLocal::Size).map_err(|error: ParseError| format!("{error}, or auto"))
}

/// What a program may be slowed down by, if it finds out by itself how much local memory it needs and nothing is said.
const SLOWDOWN: f64 = 0.05;

impl RunArgs {
    /// Most bytes that may be local.
    pub(crate) fn local_bytes(&self) -> anyhow::Result<u64> {
        match self.local {
            RunLocal::Size(size) => {
                ensure!(self.slowdown.is_none(), "--slowdown says how much --local auto may take: type --local auto");
                Ok(size.resolve(self.memory))
            }
            RunLocal::Auto => Ok(self.memory),
        }
    }

    /// What the program may be slowed down by, in millionths, if that decides how much is local.
    pub(crate) fn slowdown(&self) -> Option<u32> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is positive, and `as` has limits"
        )]
        let millionths = |share: f64| (share * 1e6).max(1.0) as u32;
        (self.local == RunLocal::Auto).then(|| millionths(self.slowdown.unwrap_or(SLOWDOWN)))
    }
}

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// Memory node: tcp://host:port, shm:///path.sock, or emu://, emulated in the program's process; or a local SSD:
    /// file:///folder?size=SIZE, where each process has a file of its own. lz4+ before it compresses pages,
    /// seal+ encrypts them
    #[arg(long, value_name = "URL", default_value = "emu://?latency=2.5us&gbps=100")]
    pub(crate) far: String,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
    /// Local memory that far pages may use at a time, in each process: a size, a percentage of --memory, or auto, as
    /// much as the program needs to be slowed down by no more than --slowdown
    #[arg(long, value_name = "SIZE|PCT|auto", default_value = "25%", value_parser = run_local)]
    pub(crate) local: RunLocal,
    /// How much longer the program may take than with all of its memory local, with --local auto: 5% if nothing is
    /// said
    #[arg(long, value_name = "PCT", value_parser = slowdown)]
    pub(crate) slowdown: Option<f64>,
    /// Far memory that each process may use; more is refused to it
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// Who handles the program's faults
    #[arg(long, value_name = "MODE", default_value = "inline")]
    pub(crate) faults: RunFaults,
    /// What is fetched before it is touched
    #[arg(long, value_name = "HOW", default_value = "readahead", value_parser = choice::<Prefetch>())]
    pub(crate) prefetch: Prefetch,
    /// A guide that knows the program and says what to fetch: the name of one that is installed, such as linked-list,
    /// or the path of a library
    #[arg(long, value_name = "NAME|PATH")]
    pub(crate) guide: Option<String>,
    /// What of a page goes to the node and comes back
    #[arg(long, value_name = "WHAT", default_value = "live")]
    pub(crate) transfer: RunTransfer,
    /// End the program if it has more memory than this in use that --local does not cover, such as memory that it
    /// shares; without a size, 64 MiB
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, default_missing_value = "64MiB",
          value_parser = parse_bytes)]
    pub(crate) strict: Option<u64>,
    /// Write the summary to this file, as a JSON object
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,
    /// Write a picture of the faults to this file: over time, by address and by call site. FILE ends with .svg or .html
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write which pages are touched, in their order, to files called FILE-1, FILE-2 and so on, one for each process.
    /// Touches of pages that are not mapped are seen: with little local memory most. For yonder bench victims
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Keep the figures in this new file, for a benchmark that reads them while the program runs
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) board: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
}
