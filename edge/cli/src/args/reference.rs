//! The flags of `yonder reference`, for those who change flags or make packages, which the help does not show.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Write what is made of the definitions of commands and flags
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ReferenceArgs {
    /// Folder for it, such as docs/guide/src
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value_t)]
    pub(crate) form: ReferenceForm,
}

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub(crate) enum ReferenceForm {
    /// The guide's chapters
    #[default]
    Chapters,
    /// A manual page for each command
    Man,
    /// Completions for bash, zsh and fish
    Completions,
}
