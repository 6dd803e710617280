//! `yonder doctor`: what this machine can do, what is missing, and the command that mends it.

use std::process::ExitCode;

use crate::args::DoctorArgs;
use crate::output::line;

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let report = yonder_doctor::examine_this_machine(&args.store);
    let text = if args.json { report.to_json_lines() } else { report.to_text() };
    line(text.trim_end_matches('\n'))?;
    Ok(if report.is_ready() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
