//! `yonder bench seq`: its table or its JSON.

use yonder_bench::seq::{self, Operation, SeqResult, Settings};

use crate::args::SeqArgs;
use crate::output::{Bar, json_line, line};

pub(crate) fn run(args: &SeqArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench seq");
    let results = seq::run(&Settings::from(args), &mut |what, share| bar.show(what, share))?;
    drop(bar);
    for (number, result) in results.iter().enumerate() {
        if args.json {
            json_line(result)?;
        } else {
            print(result, number == 0)?;
        }
    }
    Ok(())
}

fn print(result: &SeqResult, first: bool) -> anyhow::Result<()> {
    let format_bytes = yonder::units::format_bytes;
    if first {
        line(&format!(
            "{} local of {}, {}, {} pages in {} order; medians of {} (least to most)",
            format_bytes(result.local_bytes),
            format_bytes(result.memory_bytes),
            result.far,
            result.pages,
            result.stride.map_or_else(|| result.pattern.to_owned(), |stride| format!("strided ({stride})")),
            result.rounds
        ))?;
        line(&format!(
            "{:>5} {:>9} {:>26} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "op", "prefetch", "K pages/s", "x none", "p50 us", "p99 us", "major", "minor", "ahead", "hits"
        ))?;
    }
    let operation = match result.op {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let thousands = |rate: f64| format!("{:.1}", rate / 1e3);
    let [least, most] = result.ops_per_s_spread.map(thousands);
    line(&format!(
        "{:>5} {:>9} {:>26} {:>6} {:>8.2} {:>8.2} {:>8} {:>8} {:>8} {:>8}",
        operation,
        result.prefetch,
        format!("{} ({least}-{most})", thousands(result.ops_per_s)),
        result.ratio_to_none.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        result.p50_us,
        result.p99_us,
        result.major_faults,
        result.minor_faults,
        result.prefetched_pages,
        result.prefetch_hits
    ))
}
