//! The flags of `yonder reference`, for those who change flags, which the help does not show.

use std::path::PathBuf;

use clap::Args;

/// Write the guide's chapters on commands and flags
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ReferenceArgs {
    /// Folder of the guide's chapters, such as docs/guide/src
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}
