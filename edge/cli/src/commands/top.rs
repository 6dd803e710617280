//! `yonder top`: a live view of a server that was started with `--metrics`.

use std::process::ExitCode;

use crate::args::TopArgs;

pub(crate) fn run(_args: &TopArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
