//! `yonder bench victims`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::victims::{self, Settings, VictimsResult};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number};

const COLUMNS: &[Column<VictimsResult>] = &[
    Column("trace", 24, |result| result.trace.clone()),
    Column("pages", 8, |result| result.pages.to_string()),
    Column("local", 9, |result| format_bytes(result.local_bytes)),
    Column("policy", 8, |result| result.policy.to_owned()),
    Column("misses", 9, |result| result.misses.to_string()),
    Column("x lru", 6, |result| number(result.ratio_to_lru, 2)),
    Column("rescues", 8, |result| result.rescues.to_string()),
];

pub(crate) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench victims", |progress| victims::run(&args.bench, progress))?;
    Printer::new(args.json, COLUMNS).all(&results)
}
