//! The flags of `yonder bench switch`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Switches in each of nine rounds
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) switches: u64,
}
