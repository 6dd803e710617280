//! The flags of `yonder cluster roll`.

use std::time::Duration;

use clap::Args;

use super::{AtArgs, positive_duration};

/// What `yonder cluster roll --help` ends with.
const AFTER_HELP: &str = "\
All nodes over ssh, then the controllers, of which the one that leads is last:
  yonder cluster roll --at c1:7400,c2:7400,c3:7400 \\
      --restart 'ssh {host} systemctl restart yonder-node' \\
      --restart-controller 'ssh {host} systemctl restart yonder-controller'
Without --restart it says which node is to be restarted now, and goes on when that is back:
  yonder cluster roll --at c1:7400";

#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RollArgs {
    #[command(flatten)]
    pub(crate) controller: AtArgs,
    /// Shell command that restarts a node, with {host}, {port}, {url} and {name} for those of the node; unless given,
    /// the node to be restarted is named, and waited for
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart: Option<String>,
    /// Shell command that restarts a controller and returns when it has ended, with {host}, {port} and {url} for those
    /// in --at; unless given, controllers are not restarted
    #[arg(long, value_name = "COMMAND")]
    pub(crate) restart_controller: Option<String>,
    /// Restart these alone: numbers, names or URLs of nodes, and addresses of controllers as in --at, with commas
    /// between [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// How long a command may take, and anything else without getting on: a drain, a node that starts, the cluster
    /// until it is well
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = positive_duration)]
    pub(crate) timeout: Duration,
    /// One JSON object for each step on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
