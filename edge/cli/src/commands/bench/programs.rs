//! `yonder bench programs`: its table or its JSON, and Ctrl-C, which undoes what was set up.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, bail};
use yonder::units::format_bytes;
use yonder_bench::programs::{Bench, Figures, Leg, ProgramResult, Settings, packaged};

use super::launch::{Launcher, stop_on_ctrl_c};
use crate::args::ProgramsArgs;
use crate::output::{Bar, json_line, line};

pub(super) fn run(args: &ProgramsArgs) -> anyhow::Result<()> {
    let settings = settings(args, stop_on_ctrl_c()?)?;
    let launcher = Launcher::new()?;
    let bench = Bench::prepare(&settings, &launcher)?;
    let (bar, mut all) = (Bar::new("bench programs"), Vec::new());
    if !args.json {
        print_head(&settings)?;
    }
    for number in 0..bench.count() {
        let share = number as f64 / bench.count() as f64;
        let results = bench.run(number, &mut |what| bar.show(what, share))?;
        for result in &results {
            bar.beside(|| tell(result));
        }
        if args.json {
            results.iter().try_for_each(json_line)?;
        } else {
            rows(&results).iter().try_for_each(|row| line(row))?;
        }
        all.extend(results);
    }
    drop((bar, bench));
    judge(&all)
}

fn settings(args: &ProgramsArgs, stop: Arc<AtomicBool>) -> anyhow::Result<Settings> {
    let program = std::env::current_exe().context("cannot find this program's file, to start it again")?;
    let program = program.into_os_string().into_string().ok().context("this program's path is not text")?;
    let words = ["run", "--far", "{far}", "--local", "{local}", "--memory", "{memory}", "--"];
    Ok(Settings {
        programs: args.programs.clone().unwrap_or_else(|| packaged().into_iter().map(str::to_owned).collect()),
        legs: args.legs.iter().map(|leg| (*leg).into()).collect(),
        local: args.local.clone(),
        far: args.far.clone(),
        scale: args.scale.into(),
        runs: args.runs,
        prefix: std::iter::once(program).chain(words.map(str::to_owned)).collect(),
        stop,
    })
}

fn print_head(settings: &Settings) -> anyhow::Result<()> {
    line(&format!(
        "far memory {}; medians of {} runs, and their ratios to the program alone",
        settings.far, settings.runs
    ))?;
    line(&row(["program", "peak", "local", "native s", "yonder s", "zram s", "yonder p99.9", "zram p99.9", "verdict"]))
}

fn row([program, peak, local, native, yonder, zram, yonder_tail, zram_tail, verdict]: [&str; 9]) -> String {
    format!(
        "{program:>12} {peak:>10} {local:>10} {native:>9} {yonder:>16} {zram:>16} {yonder_tail:>12} {zram_tail:>12}  {verdict}"
    )
}

/// One row for each local memory, with its legs beside each other.
fn rows(results: &[ProgramResult]) -> Vec<String> {
    let mut limits: Vec<Option<u64>> = results.iter().map(|result| result.figures.local_bytes).collect();
    limits.dedup();
    if limits.len() > 1 {
        limits.retain(Option::is_some);
    }
    let native = find(results, Leg::Native, None);
    limits.iter().filter_map(|limit| limit_row(results, native, *limit)).collect()
}

fn limit_row(results: &[ProgramResult], native: Option<&Figures>, limit: Option<u64>) -> Option<String> {
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_bytes);
    let seconds = |figures: Option<&Figures>| number(figures.and_then(|figures| figures.seconds), 2);
    let [yonder, zram] = [Leg::Yonder, Leg::Zram].map(|leg| find(results, leg, limit));
    let first = results.first()?;
    let with_ratio = |figures: Option<&Figures>| match figures.and_then(|figures| figures.ratio) {
        Some(ratio) => format!("{} ({ratio:.2}x)", seconds(figures)),
        None => seconds(figures),
    };
    let tail = |figures: Option<&Figures>| number(figures.and_then(|figures| figures.p999_us), 0);
    Some(row([
        first.program,
        &bytes(first.figures.native_peak_bytes),
        &bytes(limit),
        &seconds(native),
        &with_ratio(yonder),
        &with_ratio(zram),
        &tail(yonder),
        &tail(zram),
        &verdict([native, yonder, zram].into_iter().flatten()),
    ]))
}

fn find(results: &[ProgramResult], leg: Leg, limit: Option<u64>) -> Option<&Figures> {
    let mut all = results.iter().map(|result| &result.figures);
    all.find(|figures| figures.leg == leg && figures.local_bytes == limit)
}

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// `right` if all is; else each leg that is not, and why.
fn verdict<'a>(legs: impl Iterator<Item = &'a Figures>) -> String {
    let wrong = |figures: &Figures| {
        let what = match (figures.is_right, &figures.failed) {
            (Some(true), _) => return None,
            (_, Some(_)) => "FAILED",
            (Some(false), None) => "WRONG",
            (None, None) => "skipped",
        };
        Some(format!("{} {what}", leg_name(figures.leg)))
    };
    let wrong: Vec<String> = legs.filter_map(wrong).collect();
    if wrong.is_empty() { "right".to_owned() } else { wrong.join(", ") }
}

fn leg_name(leg: Leg) -> &'static str {
    match leg {
        Leg::Native => "native",
        Leg::Yonder => "yonder",
        Leg::Zram => "zram",
    }
}

/// Says on standard error why a leg was skipped or failed.
fn tell(result: &ProgramResult) {
    let (program, leg) = (result.program, leg_name(result.figures.leg));
    if let Some(reason) = &result.figures.skipped {
        eprintln!("SKIP: {program}, {leg}: {reason}");
    }
    if let Some(reason) = &result.figures.failed {
        eprintln!("{program}, {leg}: {reason}");
    }
}

/// A wrong output is a failure of the command, and so is a program that does not run under Yonder. What the kernel's swap
/// cannot hold is a result.
fn judge(results: &[ProgramResult]) -> anyhow::Result<()> {
    let named = |is_bad: fn(&Figures) -> bool| {
        let bad = results.iter().filter(|result| is_bad(&result.figures));
        let names: Vec<_> =
            bad.map(|result| format!("{} ({})", result.program, leg_name(result.figures.leg))).collect();
        names.join(", ")
    };
    let wrong = named(|figures| figures.errors > 0);
    if !wrong.is_empty() {
        bail!("wrong output of {wrong}; please report this with the command that was run");
    }
    let failed = named(|figures| figures.failed.is_some() && figures.leg != Leg::Zram);
    if !failed.is_empty() {
        bail!("these ended badly, for the reasons above: {failed}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use yonder_bench::programs::Scale;

    use super::*;

    fn result(leg: Leg, local_bytes: Option<u64>, seconds: Option<f64>) -> ProgramResult {
        let figures = Figures {
            leg,
            local_bytes,
            native_peak_bytes: Some(64 << 20),
            peak_bytes: None,
            runs: 1,
            seconds,
            wall_seconds: seconds,
            seconds_spread: None,
            ratio: seconds.map(|seconds| seconds / 2.0),
            ops_per_s: None,
            p50_us: None,
            p99_us: None,
            p999_us: None,
            errors: 0,
            is_right: Some(seconds.is_some()),
            out_of_memory_kills: 0,
            failed: None,
            skipped: None,
        };
        ProgramResult { bench: "programs", program: "sort", scale: Scale::Small, far: None, swap: None, figures }
    }

    #[test]
    fn legs_stand_beside_each_other_for_each_local_memory() {
        let (some, less) = (Some(32 << 20), Some(16 << 20));
        let mut results = vec![
            result(Leg::Native, None, Some(2.0)),
            result(Leg::Yonder, some, Some(3.0)),
            result(Leg::Zram, some, Some(5.0)),
            result(Leg::Yonder, less, Some(4.0)),
            result(Leg::Zram, less, None),
        ];
        results[4].figures.failed = Some("killed".to_owned());
        let rows = rows(&results);
        let words: Vec<Vec<&str>> = rows.iter().map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(words.len(), 2);
        assert_eq!(words[0].join(" "), "sort 64 MiB 32 MiB 2.00 3.00 (1.50x) 5.00 (2.50x) - - right");
        assert_eq!(words[1].join(" "), "sort 64 MiB 16 MiB 2.00 4.00 (2.00x) - - - zram FAILED");
        judge(&results).unwrap();
        // Alone, a program has a row too.
        assert_eq!(super::rows(&results[..1]).len(), 1);
    }

    #[test]
    fn wrong_outputs_and_failures_under_yonder_fail_the_command() {
        let mut results = vec![result(Leg::Native, None, Some(2.0)), result(Leg::Yonder, Some(9), None)];
        results[1].figures.is_right = None;
        results[1].figures.skipped = Some("type this".to_owned());
        assert!(rows(&results)[0].ends_with("yonder skipped"), "{:?}", rows(&results));
        judge(&results).unwrap();
        results[1].figures.failed = Some("exit status: 1".to_owned());
        assert!(judge(&results).unwrap_err().to_string().contains("sort (yonder)"));
        results[1] = result(Leg::Zram, Some(9), Some(1.0));
        (results[1].figures.is_right, results[1].figures.errors) = (Some(false), 3);
        assert!(rows(&results)[0].ends_with("zram WRONG"), "{:?}", rows(&results));
        assert!(judge(&results).unwrap_err().to_string().starts_with("wrong output of sort (zram)"));
    }
}
