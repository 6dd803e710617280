//! The flags of `yonder ctl`.

use clap::{Args, Subcommand};

/// What `yonder ctl --help` ends with.
const AFTER_HELP: &str = "\
Processes of this user are found in $XDG_RUNTIME_DIR/yonder, or else in /tmp/yonder-UID. PID may be left out if there is
only one. Settings:
  standby-age       how long a changed page waits on standby before it is written back without need, such as 500ms
  standby-pages     how many such pages wait before they are written back together, such as 512
  local             how much may be local, at most as much as it was started with
  soft-limit        how much is kept local at most, while more may be for moments
  quota             how much of all far memory together is kept local, such as 64MiB
  region.ID.quota   how much of one region is kept local; ID as yonder ctl regions shows it
Each may be none, which is no limit. For example:
  yonder ctl list
  yonder ctl get
  yonder ctl set 4711 quota=64MiB
  yonder ctl set 4711 quota=none";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CtlArgs {
    #[command(subcommand)]
    pub(crate) what: CtlWhat,
}

/// What is asked of running processes.
#[derive(Debug, Subcommand)]
pub(crate) enum CtlWhat {
    /// Show the processes that have far memory
    List(CtlListArgs),
    /// Show one setting of a process, or all
    #[command(override_usage = "yonder ctl get [PID] [NAME] [--json]")]
    Get(CtlWordsArgs),
    /// Change a setting of a process while it runs
    #[command(override_usage = "yonder ctl set [PID] NAME=VALUE [--json]")]
    Set(CtlWordsArgs),
    /// Show the counters of a process
    Stats(CtlProcessArgs),
    /// Show the regions of a process: how much of each is local
    Regions(CtlProcessArgs),
    /// Show how much of each region has not been touched for how long
    Cold(CtlProcessArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CtlListArgs {
    /// One JSON object for each process on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// A process, and what about it.
#[derive(Debug, Args)]
pub(crate) struct CtlWordsArgs {
    /// The process, by its number, and the setting
    #[arg(value_name = "PID|NAME", num_args = 0..=2)]
    pub(crate) words: Vec<String>,
    /// One JSON object for each setting on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CtlProcessArgs {
    /// The process, by its number
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// JSON objects on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
