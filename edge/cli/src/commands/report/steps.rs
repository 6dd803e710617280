//! The steps of a major fault: LightSwap's Figure 11, measured here.

use yonder::FaultPolicy;
use yonder::units::LocalSize;
use yonder_bench::fault_breakdown::{self, BreakdownResult, Settings};
use yonder_report::{Aim, Comparison, Origin, Section, Table};

use super::scale::Scale;
use super::trial::{FAR, LINK, LOCAL_PERCENT};
use crate::commands::bench::{breakdown_bars, by_name};
use crate::output::with_bar;

/// Far memory that is touched.
const MEMORY: u64 = 64 << 20;
/// Software's share of a fault over the network (section 5.2 of LightSwap), in percent.
const PAPER_SOFTWARE_PERCENT: f64 = 39.76;

pub(super) fn run(scale: &Scale) -> anyhow::Result<Section> {
    let settings = Settings {
        fars: vec![FAR.to_owned()],
        memory: MEMORY,
        local: LocalSize::Percent(LOCAL_PERCENT),
        policies: vec![FaultPolicy::Yield, FaultPolicy::Busy],
        faults: scale.faults,
        runs: scale.fault_runs,
    };
    Ok(section(&with_bar("report breakdown", |progress| fault_breakdown::run(&settings, progress))?))
}

fn section(results: &[BreakdownResult]) -> Section {
    let comparison = |result: &BreakdownResult| Comparison {
        what: format!("all but the fetch of a fault, {}, percent", result.faults),
        paper: PAPER_SOFTWARE_PERCENT,
        ours: 100.0 - result.fabric_percent,
        aim: Aim::None,
        why: "The paper's fetch takes 5 us, and no signal of the kernel's.".to_owned(),
    };
    Section {
        name: "breakdown".to_owned(),
        source: "LightSwap, Figure 11".to_owned(),
        title: "Where the time of a major fault goes".to_owned(),
        origin: Origin::Emulated(LINK.to_owned()),
        words: vec![
            "One request on one worker touches one far page at a time, so nothing queues. The steps of Yonder's own are post, away \
             and back; exception, install and return are the kernel's, fetch is the fabric's."
                .to_owned(),
        ],
        tables: vec![table(results)],
        pictures: Vec::new(),
        bars: vec![breakdown_bars(results)],
        comparisons: results.iter().map(comparison).collect(),
        notes: results.iter().filter(|result| result.left_out > 0).map(left_out).collect(),
    }
}

fn left_out(result: &BreakdownResult) -> String {
    format!("{}: {} faults that were not one plain fetch are left out.", result.faults, result.left_out)
}

fn table(results: &[BreakdownResult]) -> Table {
    let columns = [("faults", 0), ("step", 0), ("by", 0), ("p50_us", 2), ("p99_us", 2), ("share_percent", 1)];
    let mut table = Table::new("steps", "The steps of a fault", &columns);
    for result in results {
        for step in &result.steps {
            table.push(vec![
                result.faults.into(),
                step.step.name().into(),
                by_name(step.by).into(),
                step.p50_us.into(),
                step.p99_us.into(),
                step.percent.into(),
            ]);
        }
        let all = [result.p50_us, result.p99_us, f64::NAN].map(Into::into);
        table.push([vec![result.faults.into(), "all".into(), "".into()], all.to_vec()].concat());
    }
    table
}
