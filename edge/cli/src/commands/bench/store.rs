//! `yonder bench store`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::store::{self, Operation, Settings, StoreResult};

use crate::args::StoreArgs;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &StoreArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench store");
    let results = store::run(&Settings::from(args), &mut |what, share| bar.show(what, share))?;
    drop(bar);
    if args.json {
        return results.iter().try_for_each(json_line);
    }
    line(&format!("random pages of {}; medians of {} runs (least to most)", format_bytes(args.memory), args.runs))?;
    line(&format!(
        "{:>5} {:>5} {:>28} {:>9} {:>24} {:>9}  {:>6}  store",
        "op", "depth", "K pages/s", "p50 us", "p99 us", "p99.9 us", "by"
    ))?;
    results.iter().try_for_each(|result| line(&row(result)))
}

fn row(result: &StoreResult) -> String {
    let operation = match result.op {
        Operation::Read => "read",
        Operation::Write => "write",
    };
    let thousands = |rate: f64| rate / 1e3;
    let ([slowest, fastest], [best, worst]) = (result.ops_per_s_spread.map(thousands), result.p99_us_spread);
    format!(
        "{operation:>5} {:>5} {:>28} {:>9.1} {:>24} {:>9.1}  {:>6}  {}",
        result.depth,
        format!("{:.1} ({slowest:.1}-{fastest:.1})", thousands(result.ops_per_s)),
        result.p50_us,
        format!("{:.1} ({best:.1}-{worst:.1})", result.p99_us),
        result.p999_us,
        result.by,
        result.far
    )
}
