//! `yonder bench errors`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::errors::{ErrorsResult, Failing, Settings, run as measure};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number};

const COLUMNS: &[Column<ErrorsResult>] = &[
    Column("failing", 8, |result| if result.failing == Failing::SwapIn { "swap-ins" } else { "memory" }.to_owned()),
    Column("injected", 9, |result| result.injected.to_string()),
    Column("fatal", 6, |result| result.fatal.to_string()),
    Column("lost items", 11, |result| result.lost_items.to_string()),
    Column("retired slots", 14, |result| result.retired_slots.to_string()),
    Column("errors", 7, |result| result.counts.errors.to_string()),
    Column("survived", 9, |result| format!("{:.2}%", result.survived_percent)),
    Column("wrong", 6, |result| result.wrong_values.to_string()),
    Column("hits", 6, |result| format!("{:.1}%", result.hit_percent)),
    Column("before/s", 9, |result| number(result.ops_per_s_before, 0)),
    Column("under/s", 9, |result| number(result.ops_per_s, 0)),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench errors", |progress| measure(&args.bench, progress))?;
    let Settings { keys, value_bytes, memory, local, .. } = args.bench;
    let (mut printer, far, local) = (Printer::new(args.json, COLUMNS), format_bytes(memory), format_bytes(local));
    printer
        .say(&format!("yonder kv under Readmost, {keys} keys of {value_bytes} B, {far} far of which {local} local"))?;
    printer.all(&results)?;
    let wrong = results.iter().map(|result| result.wrong_values).sum();
    if wrong > 0 { Err(yonder_bench::BenchError::WrongValues(wrong).into()) } else { Ok(()) }
}
