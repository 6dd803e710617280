//! `yonder bench seq`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::seq::{self, SeqResult, Settings};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<SeqResult>] = &[
    Column("op", 5, |result| format!("{:?}", result.op).to_lowercase()),
    Column("prefetch", 9, |result| result.prefetch.to_owned()),
    Column("K pages/s", 26, |result| {
        with_spread(result.ops_per_s / 1e3, result.ops_per_s_spread.map(|rate| rate / 1e3), 1, "")
    }),
    Column("x none", 6, |result| number(result.ratio_to_none, 2)),
    Column("p50 us", 8, |result| number(result.p50_us, 2)),
    Column("p99 us", 8, |result| number(result.p99_us, 2)),
    Column("major", 8, |result| result.counts.major_faults.to_string()),
    Column("minor", 8, |result| result.counts.minor_faults.to_string()),
    Column("ahead", 8, |result| result.prefetched_pages.to_string()),
    Column("hits", 8, |result| result.prefetch_hits.to_string()),
];

pub(crate) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench seq", |progress| seq::run(&args.bench, progress))?;
    let mut printer = Printer::new(args.json, COLUMNS);
    if let Some(first) = results.first() {
        printer.say(&format!(
            "{} local of {}, {}, {} pages in {} order; medians of {} (least to most)",
            format_bytes(first.local_bytes),
            format_bytes(first.memory_bytes),
            first.far,
            first.pages,
            first.stride.map_or_else(|| first.pattern.to_owned(), |stride| format!("strided ({stride})")),
            first.rounds
        ))?;
    }
    printer.all(&results)
}
