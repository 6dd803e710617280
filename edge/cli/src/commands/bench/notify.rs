//! `yonder bench notify`: its table or its JSON.

use yonder_bench::notify::{self, NotifyResult, Settings};

use crate::args::Json;
use crate::output::with_bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<NotifyResult>] = &[
    Column("threads", 7, |result| result.threads.to_string()),
    Column("mechanism", 9, |result| result.mechanism.name().to_owned()),
    Column("p50 us", 22, |result| with_spread(result.p50_us, result.p50_us_spread, 2, "")),
    Column("mean us", 22, |result| with_spread(result.mean_us, result.mean_us_spread, 2, "")),
    Column("p99 us", 9, |result| number(result.p99_us, 2)),
    Column("p99.9 us", 9, |result| number(result.p999_us, 1)),
    Column("x 1 thread", 10, |result| number(result.p50_ratio_to_one_thread, 3)),
    Column("of means", 8, |result| number(result.mean_ratio_to_one_thread, 3)),
    Column("x monitor", 9, |result| number(result.p50_ratio_to_monitor, 3)),
    Column("of means", 8, |result| number(result.mean_ratio_to_monitor, 3)),
    Column("paper's mean", 12, |result| number(result.mechanism.lightswap_mean_us(result.threads), 1)),
];

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let results = with_bar("bench notify", |progress| notify::run(&args.bench, progress))?;
    let mut printer = Printer::new(args.json, COLUMNS);
    if let Some(NotifyResult { faults_per_thread, cpus, runs, .. }) = results.first() {
        printer.say(&format!(
            "{faults_per_thread} pages touched by each thread, {cpus} CPUs; medians of {runs} runs (least to most)"
        ))?;
    }
    printer.all(&results)?;
    let errors: u64 = results.iter().map(|result| result.counts.errors).sum();
    if errors > 0 {
        printer.say(&format!("{errors} touches failed or were not noticed"))?;
    }
    printer.say(
        "x: medians over that with one thread and over the monitor's, and means; the paper is LightSwap, Table 1, on 160 CPUs,\n\
         where a changed kernel enters the handler that stands beside sigbus here",
    )
}
