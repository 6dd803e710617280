//! `yonder bench store`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::store::{self, Settings, StoreResult};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<StoreResult>] = &[
    Column("op", 5, |result| format!("{:?}", result.op).to_lowercase()),
    Column("depth", 5, |result| result.depth.to_string()),
    Column("K pages/s", 28, |result| {
        with_spread(result.ops_per_s / 1e3, result.ops_per_s_spread.map(|rate| rate / 1e3), 1, "")
    }),
    Column("p50 us", 9, |result| number(result.p50_us, 1)),
    Column("p99 us", 24, |result| with_spread(result.p99_us, result.p99_us_spread, 1, "")),
    Column("p99.9 us", 9, |result| number(result.p999_us, 1)),
    Column("by", 6, |result| result.by.to_owned()),
    Column("store", 5, |result| result.far.clone()),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench store", |progress| store::run(&args.bench, progress))?;
    let mut printer = Printer::new(args.json, COLUMNS);
    let Settings { memory, runs, .. } = args.bench;
    printer.say(&format!("random pages of {}; medians of {runs} runs (least to most)", format_bytes(memory)))?;
    printer.all(&results)
}
