//! `yonder bench errors`: its table or its JSON.

use yonder::units::format_bytes;
use yonder_bench::errors::{ErrorsResult, Failing, Settings, run as measure};

use crate::args::ErrorsArgs;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &ErrorsArgs) -> anyhow::Result<()> {
    let settings = Settings {
        memory: args.memory,
        local: args.local,
        keys: args.keys as u64,
        value_bytes: args.value_size,
        swap_in_errors: args.swap_in_errors,
        memory_errors: args.memory_errors,
        connections: args.connections,
        seed: args.seed,
    };
    let bar = Bar::new("bench errors");
    let results = measure(&settings, |what, share| bar.show(what, share))?;
    drop(bar);
    if args.json {
        results.iter().try_for_each(json_line)?;
    } else {
        line(&format!(
            "yonder kv under Readmost, {} keys of {} B, {} far of which {} local",
            args.keys,
            args.value_size,
            format_bytes(args.memory),
            format_bytes(args.local)
        ))?;
        line(&format!(
            "{:>8} {:>9} {:>6} {:>11} {:>14} {:>7} {:>9} {:>6} {:>6} {:>9} {:>9}",
            "failing",
            "injected",
            "fatal",
            "lost items",
            "retired slots",
            "errors",
            "survived",
            "wrong",
            "hits",
            "before/s",
            "under/s"
        ))?;
        results.iter().try_for_each(|result| line(&row(result)))?;
    }
    let wrong = results.iter().map(|result| result.wrong_values).sum();
    if wrong > 0 { Err(yonder_bench::BenchError::WrongValues(wrong).into()) } else { Ok(()) }
}

fn row(result: &ErrorsResult) -> String {
    let name = match result.failing {
        Failing::SwapIn => "swap-ins",
        Failing::Memory => "memory",
    };
    format!(
        "{name:>8} {:>9} {:>6} {:>11} {:>14} {:>7} {:>8.2}% {:>6} {:>5.1}% {:>9.0} {:>9.0}",
        result.injected,
        result.fatal,
        result.lost_items,
        result.retired_slots,
        result.errors,
        result.survived_percent,
        result.wrong_values,
        result.hit_percent,
        result.ops_per_s_before,
        result.ops_per_s
    )
}
