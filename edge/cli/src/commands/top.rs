//! `yonder top`: a live view of a server that was started with `--metrics`.

use std::process::ExitCode;

use yonder_metrics::top::TopSettings;

use crate::args::TopArgs;

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let settings = TopSettings { address: args.attach.clone(), interval: args.interval, once: args.once };
    yonder_metrics::top::run(&settings)?;
    Ok(ExitCode::SUCCESS)
}
