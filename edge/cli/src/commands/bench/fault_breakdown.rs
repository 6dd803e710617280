//! `yonder bench fault-breakdown`: its table, its picture or its JSON.

use std::path::Path;

use yonder::units::format_bytes;
use yonder_bench::fault_breakdown::{self, BreakdownResult, By, Settings, Step, StepResult};
use yonder_bench::flags::each_once;
use yonder_report::{Bar as PictureBar, Bars};

use crate::commands::drawn;
use crate::output::{json_line, line, with_bar};
use crate::table::{Column, Printer, number};

const STEPS: &[Column<StepResult>] = &[
    Column("step", 11, |step| step.step.name().to_owned()),
    Column("by", 8, |step| by_name(step.by).to_owned()),
    Column("p50 us", 9, |step| number(step.p50_us, 2)),
    Column("p99 us", 9, |step| number(step.p99_us, 2)),
    Column("share %", 8, |step| number(step.percent, 1)),
];

pub(super) fn run((settings, json, out): (&Settings, bool, Option<&Path>)) -> anyhow::Result<()> {
    let mut settings = settings.clone();
    each_once(&mut settings.policies);
    let results = with_bar("bench fault-breakdown", |progress| fault_breakdown::run(&settings, progress))?;
    if json {
        results.iter().try_for_each(json_line)?;
    } else {
        print(&results)?;
    }
    drawn::write_bars(&[picture(&results)], out)
}

fn print(results: &[BreakdownResult]) -> anyhow::Result<()> {
    for result in results {
        line(&format!(
            "{}: {} faults of {} runs, one at a time; {} of {} local; P50 {:.2} us ({:.2}-{:.2}), P99 {:.2} us",
            label(result),
            result.counts.major_faults,
            result.runs,
            format_bytes(result.local_bytes),
            format_bytes(result.memory_bytes),
            result.p50_us,
            result.p50_us_spread[0],
            result.p50_us_spread[1],
            result.p99_us
        ))?;
        Printer::new(false, STEPS).all(&result.steps)?;
        line(&format!(
            "{:>11} runtime {:.1} %, kernel {:.1} %, fabric {:.1} % of the medians' sum; a stamp costs {:.3} us",
            "", result.runtime_percent, result.kernel_percent, result.fabric_percent, result.stamp_us
        ))?;
        if result.left_out > 0 {
            line(&format!("{:>11} {} faults that were not one plain fetch are left out", "", result.left_out))?;
        }
    }
    Ok(())
}

fn label(result: &BreakdownResult) -> String {
    format!("{}, {}", result.faults, result.far)
}

/// Whose time a step is.
pub(in crate::commands) fn by_name(by: By) -> &'static str {
    match by {
        By::Kernel => "kernel",
        By::Runtime => "runtime",
        By::Fabric => "fabric",
    }
}

/// A bar for each result, of its steps.
pub(in crate::commands) fn picture(results: &[BreakdownResult]) -> Bars {
    let bar = |result: &BreakdownResult| PictureBar {
        name: label(result),
        numbers: format!("{:.1} us, {:.0} % Yonder's", result.p50_us, result.runtime_percent),
        parts: result.steps.iter().map(|step| step.p50_us).collect(),
    };
    Bars {
        name: "fault-breakdown".to_owned(),
        title: "fault-breakdown: where the time of a major fault goes".to_owned(),
        caption: "Medians of the steps, one behind the other; post, away and back are Yonder's.".to_owned(),
        parts: Step::ALL.iter().map(|step| step.name().to_owned()).collect(),
        bars: results.iter().map(bar).collect(),
    }
}

#[cfg(test)]
mod tests {
    use yonder_bench::Counts;

    use super::*;

    #[test]
    fn a_bar_has_the_medians_of_all_steps() {
        let steps =
            Step::ALL.map(|step| StepResult { step, by: step.by(), p50_us: 2.0, p99_us: 3.0, percent: 100.0 / 7.0 });
        let result = BreakdownResult {
            bench: "fault-breakdown",
            far: "emu://".to_owned(),
            faults: "yield",
            memory_bytes: 1 << 20,
            local_bytes: 1 << 18,
            runs: 1,
            ops_per_s: 1.0,
            p50_us: 14.0,
            p50_us_spread: [13.0, 15.0],
            p99_us: 21.0,
            p999_us: 30.0,
            steps: steps.to_vec(),
            runtime_percent: 42.857,
            kernel_percent: 42.857,
            fabric_percent: 14.286,
            stamp_us: 0.02,
            left_out: 0,
            counts: Counts::default(),
        };
        let picture = picture(&[result]);
        assert_eq!((picture.parts.len(), picture.bars[0].parts.as_slice()), (7, &[2.0; 7][..]));
        assert_eq!(
            (picture.bars[0].name.as_str(), picture.bars[0].numbers.as_str()),
            ("yield, emu://", "14.0 us, 43 % Yonder's")
        );
    }
}
