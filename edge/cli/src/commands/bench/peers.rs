//! `yonder bench peers`: its table, its bars and its pictures, or its JSON; and Ctrl-C, which undoes what was set up.

use std::path::Path;

use yonder::units::format_bytes;
use yonder_bench::flags::each_once;
use yonder_bench::peers::{Bar as Aim, Bench, Measure, PeersResult, Settings};
use yonder_report::{Bar as PictureBar, Bars};

use super::launch::{Launcher, stop_on_ctrl_c};
use super::major_faults_per_operation;
use super::verdict::{Verdict, judge};
use crate::commands::drawn;
use crate::commands::run::find_library;
use crate::output::Bar;
use crate::table::{Column, Printer, number, offered, with_spread};

const COLUMNS: &[Column<PeersResult>] = &[
    Column("workload", 9, |result| result.workload.to_owned()),
    Column("peer", 9, |result| result.peer.to_owned()),
    Column("threads", 7, |result| result.threads.map_or_else(|| "-".to_owned(), |threads| threads.to_string())),
    Column("offered/s", 9, |result| offered(result.offered_per_s)),
    Column("ops/s", 24, |result| with_spread(result.summary.ops_per_s, result.summary.ops_per_s_spread, 0, "")),
    Column("x yonder", 8, |result| number(result.ratio_to_yonder, 3)),
    Column("p50 us", 8, |result| number(result.summary.p50_us, 1)),
    Column("p99 us", 9, |result| number(result.summary.p99_us, 1)),
    Column("p99.9 us", 10, |result| number(result.summary.p999_us, 1)),
    Column("x yonder", 8, |result| number(result.p999_ratio_to_yonder, 1)),
    Column("major/op", 8, |result| number(major_faults_per_operation(&result.summary, result.duration_s), 2)),
    Column("dropped", 8, |result| result.summary.dropped.to_string()),
    Column("errors", 7, Verdict::errors),
];

pub(super) fn run((settings, json, out): (&Settings, bool, Option<&Path>)) -> anyhow::Result<()> {
    let launcher = Launcher::new()?;
    let mut settings = Settings {
        yonder: launcher.program().into(),
        run_is_missing: find_library().err().map(|error| format!("{error:#}")),
        stop: stop_on_ctrl_c()?,
        ..settings.clone()
    };
    each_once(&mut settings.works);
    each_once(&mut settings.peers);
    each_once(&mut settings.threads);
    let bench = Bench::prepare(&settings, &launcher)?;
    let (bar, mut all, mut printer) = (Bar::new("bench peers"), Vec::new(), Printer::new(json, COLUMNS));
    printer.begin(&format!(
        "{} of data, {} local, far memory {}; {} connections to servers; medians of {} runs (least to most)",
        format_bytes(settings.memory),
        format_bytes(settings.local.resolve(settings.memory)),
        settings.far,
        settings.connections,
        settings.runs
    ))?;
    for (number, work) in settings.works.iter().enumerate() {
        let works = settings.works.len() as f64;
        let results = bench.run(*work, &mut |what, share| bar.show(what, (number as f64 + share) / works))?;
        results.iter().for_each(|result| bar.beside(|| result.tell()));
        printer.all(&results)?;
        results.iter().flat_map(aims).try_for_each(|aim| printer.say(&aim))?;
        all.extend(results);
    }
    drop((bar, bench));
    drawn::write_bars(&bars(&all), out)?;
    judge(&all)
}

impl Verdict for PeersResult {
    fn subject(&self) -> String {
        format!("{}, {}", self.workload, self.label)
    }

    fn skipped(&self) -> Option<&str> {
        self.summary.skipped.as_deref()
    }

    fn failed(&self) -> Option<&str> {
        self.summary.failed.as_deref()
    }

    fn wrong(&self) -> u64 {
        if self.may_fail() { 0 } else { self.summary.errors }
    }

    fn error_count(&self) -> u64 {
        self.summary.errors
    }

    /// What the kernel's swap cannot hold is a result, and so is an aim that is not met.
    fn may_fail(&self) -> bool {
        self.far.is_none()
    }
}

/// What Yonder should reach, and whether it has.
fn aims(result: &PeersResult) -> Vec<String> {
    let tell = |aim: &Aim| {
        let Aim { measure, against, ratio, at_least, is_met } = aim;
        let what = match measure {
            Measure::Throughput => format!("{ratio:.2}x the throughput of {against}"),
            Measure::P999 => format!("the P99.9 of {against} at the common rate is {ratio:.1}x as long"),
        };
        let verdict = if *is_met { "met" } else { "NOT met" };
        format!("{}, {}: {what} (at least {at_least}x: {verdict})", result.workload, result.peer)
    };
    result.bars.iter().map(tell).collect()
}

/// Throughput in a closed loop and P99.9 at the common rate, of each workload.
fn bars(results: &[PeersResult]) -> Vec<Bars> {
    let bars = |of_work: &[PeersResult]| {
        let work = of_work[0].workload;
        let of = |about: &str, title: &str, figure: fn(&PeersResult) -> Option<f64>, unit: &str| Bars {
            name: format!("peers-{work}-{about}"),
            title: format!("{work}: {title}"),
            caption: format!(
                "{} local of {}; medians.",
                format_bytes(of_work[0].local_bytes),
                format_bytes(of_work[0].memory_bytes)
            ),
            parts: Vec::new(),
            bars: of_work.iter().filter_map(|result| figure(result).map(|value| bar(result, value, unit))).collect(),
        };
        let in_closed_loop = |result: &PeersResult| result.summary.ops_per_s.filter(|_| result.offered_per_s.is_none());
        let at_a_rate = |result: &PeersResult| result.summary.p999_us.filter(|_| result.offered_per_s.is_some());
        [
            of("throughput", "operations per second, as many as each can", in_closed_loop, "/s"),
            of("p999", "P99.9 latency at the same rate", at_a_rate, "us"),
        ]
    };
    let all = results.chunk_by(|one, next| one.workload == next.workload).flat_map(bars);
    all.filter(|bars| !bars.bars.is_empty()).collect()
}

fn bar(result: &PeersResult, figure: f64, unit: &str) -> PictureBar {
    PictureBar { name: result.label.clone(), numbers: format!("{figure:.0} {unit}"), parts: vec![figure] }
}

#[cfg(test)]
mod tests {
    use yonder_bench::Summary;

    use super::*;
    use crate::table::row;

    fn result(peer: &'static str, threads: Option<usize>, rate: Option<f64>, ops_per_s: Option<f64>) -> PeersResult {
        let is_far = matches!(peer, "yield" | "run");
        PeersResult {
            bench: "peers",
            workload: if threads.is_some() { "array" } else { "redis" },
            peer,
            label: format!("{peer}, so many threads"),
            far: is_far.then(|| "emu://".to_owned()),
            swap: None,
            memory_bytes: 1 << 20,
            local_bytes: 1 << 18,
            threads,
            value_size: None,
            connections: None,
            duration_s: 2.0,
            offered_per_s: rate,
            summary: Summary {
                runs: 3,
                ops_per_s,
                ops_per_s_spread: ops_per_s.map(|rate| [rate - 10.0, rate + 10.0]),
                p50_us: ops_per_s.map(|_| 10.0),
                p99_us: ops_per_s.map(|_| 20.0),
                p999_us: ops_per_s.map(|_| 30.0),
                major_faults: ops_per_s,
                skipped: ops_per_s.is_none().then(|| "run as root".to_owned()),
                ..Summary::default()
            },
            ratio_to_yonder: ops_per_s.map(|rate| rate / 1000.0).filter(|_| !is_far),
            ratio_to_yonder_spread: None,
            p999_ratio_to_yonder: None,
            bars: Vec::new(),
        }
    }

    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn peers_stand_below_each_other() {
        assert_eq!(
            words(&row(COLUMNS, &result("yield", Some(1), None, Some(1000.0)))),
            "array yield 1 max 1000 (990-1010) - 10.0 20.0 30.0 - 0.50 0 0"
        );
        assert_eq!(
            words(&row(COLUMNS, &result("swap-zram", Some(16), Some(500.0), Some(250.0)))),
            "array swap-zram 16 500 250 (240-260) 0.250 10.0 20.0 30.0 - 0.50 0 0"
        );
        assert!(row(COLUMNS, &result("swap-file", None, None, None)).ends_with("SKIP"));
    }

    #[test]
    fn aims_say_whether_they_are_met() {
        let aim = |measure, ratio, at_least| Aim {
            measure,
            against: "swap-zram",
            ratio,
            at_least,
            is_met: ratio >= at_least,
        };
        let mut yonder = result("yield", Some(1), None, Some(1000.0));
        yonder.bars = vec![aim(Measure::Throughput, 2.345, 2.0), aim(Measure::P999, 19.0, 20.0)];
        assert_eq!(
            aims(&yonder),
            [
                "array, yield: 2.35x the throughput of swap-zram (at least 2x: met)",
                "array, yield: the P99.9 of swap-zram at the common rate is 19.0x as long (at least 20x: NOT met)"
            ]
        );
        judge(&[yonder]).unwrap();
    }

    #[test]
    fn every_workload_has_bars_of_what_was_measured() {
        let results = [
            result("yield", Some(1), None, Some(1000.0)),
            result("swap-zram", Some(16), None, Some(300.0)),
            result("swap-file", Some(1), None, None),
            result("yield", Some(1), Some(100.0), Some(100.0)),
            result("run", None, None, Some(9.0)),
        ];
        let all = bars(&results);
        let names: Vec<_> = all.iter().map(|bars| (bars.name.as_str(), bars.bars.len())).collect();
        assert_eq!(names, [("peers-array-throughput", 2), ("peers-array-p999", 1), ("peers-redis-throughput", 1)]);
        let bar = &all[0].bars[1];
        assert_eq!((bar.name.as_str(), bar.numbers.as_str()), ("swap-zram, so many threads", "300 /s"));
    }

    #[test]
    fn only_yonders_own_failures_fail_the_command() {
        let mut results = [result("run", None, None, Some(9.0)), result("swap-zram", None, None, Some(1.0))];
        (results[1].summary.failed, results[1].summary.errors) = (Some("out of memory".to_owned()), 1);
        judge(&results).unwrap();
        assert!(row(COLUMNS, &results[1]).ends_with("FAILED"));
        results[0].summary.failed = Some("no such page".to_owned());
        assert!(judge(&results).unwrap_err().to_string().contains("for the reasons above: (redis, run"));
        results[0].summary.errors = 2;
        assert!(judge(&results).unwrap_err().to_string().contains("wrong, of (redis, run"));
    }
}
