//! `yonder bench notify`: its table or its JSON.

use yonder_bench::notify::{self, NotifyResult, Settings};

use crate::args::NotifyArgs;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &NotifyArgs) -> anyhow::Result<()> {
    let bar = Bar::new("bench notify");
    let results = notify::run(&Settings::from(args), &mut |what, share| bar.show(what, share))?;
    drop(bar);
    if args.json {
        return results.iter().try_for_each(json_line);
    }
    print(&results)
}

fn print(results: &[NotifyResult]) -> anyhow::Result<()> {
    let Some(first) = results.first() else { return Ok(()) };
    line(&format!(
        "{} pages touched by each thread, {} CPUs; medians of {} runs (least to most)",
        first.faults_per_thread, first.cpus, first.runs
    ))?;
    line(&format!(
        "{:>7} {:>9} {:>22} {:>22} {:>9} {:>9} {:>15} {:>13} {:>12}",
        "threads", "mechanism", "p50 us", "mean us", "p99 us", "p99.9 us", "x 1 thread", "x monitor", "paper's mean"
    ))?;
    for result in results {
        let ratios = |p50: Option<f64>, mean: Option<f64>| match p50.zip(mean) {
            Some((p50, mean)) => format!("{p50:.3}, {mean:.3}"),
            None => "-".to_owned(),
        };
        let paper = result.mechanism.lightswap_mean_us(result.threads);
        line(&format!(
            "{:>7} {:>9} {:>22} {:>22} {:>9.2} {:>9.1} {:>15} {:>13} {:>12}",
            result.threads,
            result.mechanism.name(),
            with_spread(result.p50_us, result.p50_us_spread),
            with_spread(result.mean_us, result.mean_us_spread),
            result.p99_us,
            result.p999_us,
            ratios(result.p50_ratio_to_one_thread, result.mean_ratio_to_one_thread),
            ratios(result.p50_ratio_to_monitor, result.mean_ratio_to_monitor),
            paper.map_or_else(|| "-".to_owned(), |mean| mean.to_string()),
        ))?;
    }
    let errors: u64 = results.iter().map(|result| result.errors).sum();
    if errors > 0 {
        line(&format!("{errors} touches failed or were not noticed"))?;
    }
    line("x: medians and means over those with one thread and over the monitor's; the paper is LightSwap, Table 1,")?;
    line("on 160 CPUs, where a changed kernel enters the handler that stands beside sigbus here")
}

fn with_spread(figure: f64, [least, most]: [f64; 2]) -> String {
    format!("{figure:.2} ({least:.2}-{most:.2})")
}
