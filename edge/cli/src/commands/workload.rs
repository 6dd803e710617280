//! `yonder workload`: one workload in this process and its ordinary memory, which `yonder run` may make far.

use std::process::ExitCode;

use anyhow::Context as _;
use yonder::units::format_bytes;
use yonder_workloads::Settings;

use crate::args::workload::WorkloadArgs;
use crate::output::{json_line, line};

pub(crate) fn run(args: &WorkloadArgs) -> anyhow::Result<ExitCode> {
    let result = yonder_workloads::run(args.workload, &Settings { size: args.size, seed: args.seed })?;
    if let Some(path) = &args.seconds_to {
        std::fs::write(path, result.outcome.seconds.to_string())
            .with_context(|| format!("the seconds cannot be written to {}", path.display()))?;
    }
    if args.check {
        line(&result.outcome.check.to_string())?;
    } else if args.json {
        json_line(&result)?;
    } else {
        let outcome = &result.outcome;
        line(&format!(
            "{} of {}, seed {}: {:.3} s after {:.3} s of setup, check {}",
            result.workload,
            format_bytes(outcome.bytes),
            result.seed,
            outcome.seconds,
            outcome.setup_seconds,
            outcome.check
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
