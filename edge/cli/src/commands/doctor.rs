//! `yonder doctor`: what this machine can do, what is missing, and the command that mends it.

use std::process::ExitCode;

use crate::args::DoctorArgs;

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let report = yonder_doctor::examine_this_machine();
    if args.json {
        print!("{}", report.to_json_lines());
    } else {
        print!("{}", report.to_text());
    }
    Ok(if report.is_ready() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
