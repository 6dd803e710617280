//! `yonder bench programs`: its table or its JSON, and Ctrl-C, which undoes what was set up.

use anyhow::Context as _;
use yonder_bench::programs::{Bench, Figures, ProgramResult, Settings, Variant};

use super::launch::{Launcher, stop_on_ctrl_c};
use super::verdict::{Verdict, judge};
use crate::args::Json;
use crate::output::{Bar, json_line, line};
use crate::table::{bytes, number};

pub(super) fn run(args: &Json<Settings>) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let settings = Settings { prefix: run_prefix(&launcher)?, stop: stop_on_ctrl_c()?, ..args.bench.clone() };
    let bench = Bench::prepare(&settings, &launcher)?;
    let (bar, mut all) = (Bar::new("bench programs"), Vec::new());
    if !args.json {
        print_head(&settings)?;
    }
    for number in 0..bench.count() {
        let share = number as f64 / bench.count() as f64;
        let results = bench.run(number, &mut |what| bar.show(what, share))?;
        results.iter().for_each(|result| bar.beside(|| result.tell()));
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

/// What comes before a program that runs with far memory, as [`Settings::prefix`] spells it.
pub(in crate::commands) fn run_prefix(launcher: &Launcher) -> anyhow::Result<Vec<String>> {
    let program = launcher.program().to_str().context("this program's path is not text")?;
    let words = [program, "run", "--far", "{far}", "--local", "{local}", "--memory", "{memory}", "--"];
    Ok(words.map(str::to_owned).into())
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
    let native = find(results, Variant::Native, None);
    limits.iter().filter_map(|limit| limit_row(results, native, *limit)).collect()
}

fn limit_row(results: &[ProgramResult], native: Option<&Figures>, limit: Option<u64>) -> Option<String> {
    let seconds = |figures: Option<&Figures>| number(figures.and_then(|figures| figures.seconds), 2);
    let [yonder, zram] = [Variant::Yonder, Variant::Zram].map(|leg| find(results, leg, limit));
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

fn find(results: &[ProgramResult], leg: Variant, limit: Option<u64>) -> Option<&Figures> {
    let mut all = results.iter().map(|result| &result.figures);
    all.find(|figures| figures.leg == leg && figures.local_bytes == limit)
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
        Some(format!("{} {what}", figures.leg.name()))
    };
    let wrong: Vec<String> = legs.filter_map(wrong).collect();
    if wrong.is_empty() { "right".to_owned() } else { wrong.join(", ") }
}

impl Verdict for ProgramResult {
    fn subject(&self) -> String {
        format!("{}, {}", self.program, self.figures.leg.name())
    }

    fn skipped(&self) -> Option<&str> {
        self.figures.skipped.as_deref()
    }

    fn failed(&self) -> Option<&str> {
        self.figures.failed.as_deref()
    }

    fn wrong(&self) -> u64 {
        self.figures.errors
    }

    /// What the kernel's swap cannot hold is a result.
    fn may_fail(&self) -> bool {
        self.figures.leg == Variant::Zram
    }
}

#[cfg(test)]
mod tests {
    use yonder_bench::programs::Scale;

    use super::*;

    fn result(leg: Variant, local_bytes: Option<u64>, seconds: Option<f64>) -> ProgramResult {
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
            ratio_to_zram: None,
            ratio_to_zram_spread: None,
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
            result(Variant::Native, None, Some(2.0)),
            result(Variant::Yonder, some, Some(3.0)),
            result(Variant::Zram, some, Some(5.0)),
            result(Variant::Yonder, less, Some(4.0)),
            result(Variant::Zram, less, None),
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
        let mut results = vec![result(Variant::Native, None, Some(2.0)), result(Variant::Yonder, Some(9), None)];
        results[1].figures.is_right = None;
        results[1].figures.skipped = Some("type this".to_owned());
        assert!(rows(&results)[0].ends_with("yonder skipped"), "{:?}", rows(&results));
        judge(&results).unwrap();
        results[1].figures.failed = Some("exit status: 1".to_owned());
        assert!(judge(&results).unwrap_err().to_string().contains("(sort, yonder)"));
        results[1] = result(Variant::Zram, Some(9), Some(1.0));
        (results[1].figures.is_right, results[1].figures.errors) = (Some(false), 3);
        assert!(rows(&results)[0].ends_with("zram WRONG"), "{:?}", rows(&results));
        assert!(judge(&results).unwrap_err().to_string().contains("wrong, of (sort, zram)"));
    }
}
