//! The flags of `yonder top`.

use std::time::Duration;

use clap::Args;

use super::{CredentialArgs, OpenArgs, positive_duration};

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Where the server's metrics are: what it was given as --metrics
    #[arg(long, value_name = "ADDR", default_value = yonder_metrics::DEFAULT_ADDRESS)]
    pub(crate) attach: String,
    /// Show all processes with far memory instead: kv servers and programs under run. Root sees those of all users
    #[arg(long, conflicts_with = "attach")]
    pub(crate) processes: bool,
    /// Serve the same as a page for browsers at this address, with all processes of this user, and their settings to
    /// change. It prints what to open
    #[arg(long, value_name = "ADDR", conflicts_with = "once")]
    pub(crate) web: Option<String>,
    /// Time between two looks, over which rates are shown
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) interval: Duration,
    /// Print one look as text and end, as is done when standard output is no terminal
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) credential: CredentialArgs,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}
