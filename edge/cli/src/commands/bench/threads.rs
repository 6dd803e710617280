//! `yonder bench threads`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::threads::{self, Settings, ThreadsResult};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<ThreadsResult>] = &[
    Column("by", 8, |result| result.way.name().to_owned()),
    Column("workers", 7, |result| number(result.workers.map(|workers| workers as f64), 0)),
    Column("K reads/s", 24, |result| {
        with_spread(result.ops_per_s / 1e3, result.ops_per_s_spread.map(|rate| rate / 1e3), 1, "")
    }),
    Column("x light", 7, |result| number(result.ratio_to_light, 2)),
    Column("p50 us", 8, |result| number(result.p50_us, 2)),
    Column("p99 us", 8, |result| number(result.p99_us, 2)),
    Column("p99.9 us", 8, |result| number(result.p999_us, 2)),
    Column("major", 8, |result| result.counts.major_faults.to_string()),
];

pub(crate) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench threads", |progress| threads::run(&args.bench, progress))?;
    let mut printer = Printer::new(args.json, COLUMNS);
    if let Some(first) = results.first() {
        printer.say(&format!(
            "{} local of {}, {}, {} reads by {}; medians of {} (least to most)",
            format_bytes(first.local_bytes),
            format_bytes(first.memory_bytes),
            first.far,
            first.reads,
            first.threads,
            first.rounds
        ))?;
    }
    printer.all(&results)
}
