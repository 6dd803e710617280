//! demo
use std::process::ExitCode;

use crate::args::DemoArgs;

pub(crate) fn run(_args: &DemoArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
