//! `yonder bench poster`: its table, its pictures or its JSON.

use std::path::Path;

use yonder::units::format_bytes;
use yonder_bench::poster::{self, PosterResult, Set, Settings};
use yonder_report::{Bar as PictureBar, Bars};

use super::predictions;
use crate::commands::drawn;
use crate::output::with_bar;
use crate::table::{Column, Printer, number, with_spread};

const COLUMNS: &[Column<PosterResult>] = &[
    Column("paging", 9, |result| result.paging.name().to_owned()),
    Column("faults %", 8, |result| number(result.fault_percent, 1)),
    Column("ops/s", 22, |result| with_spread(result.summary.ops_per_s, result.summary.ops_per_s_spread, 0, "")),
    Column("x", 5, |result| number(result.ops_ratio_to_no_fault, 2)),
    Column("paper x", 7, |result| number(paper(result, |(ops, _)| ops), 2)),
    Column("mean us", 7, |result| number(result.mean_us, 0)),
    Column("min us", 6, |result| number(result.min_us, 0)),
    Column("p50 us", 6, |result| number(result.summary.p50_us, 0)),
    Column("p95 us", 6, |result| number(result.p95_us, 0)),
    Column("p99 us", 18, |result| with_spread(result.summary.p99_us, result.summary.p99_us_spread, 0, "")),
    Column("x", 5, |result| number(result.p99_ratio_to_no_fault, 2)),
    Column("paper x", 7, |result| number(paper(result, |(_, p99)| p99), 2)),
    Column("max us", 7, |result| number(result.max_us, 0)),
    Column("hit p99 us", 10, |result| number(result.hit_p99_us, 0)),
];

pub(super) fn run((settings, json, out): (&Settings, bool, Option<&Path>)) -> anyhow::Result<()> {
    let results = with_bar("bench poster", |progress| poster::run(settings, progress))?;
    let mut printer = Printer::new(json, COLUMNS);
    for of_set in results.chunk_by(|one, next| one.set == next.set) {
        printer.say(&head(&of_set[0]))?;
        printer.new_head();
        for result in of_set {
            printer.print(result)?;
            predictions::words(&result.predicted).map_or(Ok(()), |words| printer.say(&format!("{:>9} {words}", "")))?;
        }
    }
    printer.say(
        "x: to no-fault, in the same turn; the paper is the poster, Table 1, with Redis on 1024 keys of 128 bytes",
    )?;
    drawn::write_bars(&bars(&results), out)
}

/// A figure of the poster's as a multiple of that without faults.
fn paper(result: &PosterResult, figure: fn((f64, f64)) -> f64) -> Option<f64> {
    let none = poster::Paging::NoFault.poster()?;
    let ratio = result.paging.poster().map(|own| figure(own) / figure(none));
    ratio.filter(|_| result.paging != poster::Paging::NoFault)
}

fn head(first: &PosterResult) -> String {
    let faults = match (first.set, first.emulated_us) {
        (Set::Emulated, Some([busy, fetch])) => format!("emulated faults of {busy} us and {fetch} us"),
        _ => format!("far memory {}", first.far.as_deref().unwrap_or("none")),
    };
    format!(
        "{}: {} keys of {}, {faults}; {} connections, {} workers; medians of {} runs (least to most)",
        first.set.name(),
        first.keys,
        format_bytes(first.value_size as u64),
        first.connections,
        first.workers,
        first.summary.runs
    )
}

/// Throughput and P99 of every set.
fn bars(results: &[PosterResult]) -> Vec<Bars> {
    let mut all = Vec::new();
    for of_set in results.chunk_by(|one, next| one.set == next.set) {
        let set = of_set[0].set.name();
        let bars = |about: &str, title: &str, figure: fn(&PosterResult) -> f64, unit: &str| Bars {
            name: format!("poster-{set}-{about}"),
            title: format!("poster, {set} faults: {title}"),
            caption: format!("GETs of {} keys by {} connections; medians.", of_set[0].keys, of_set[0].connections),
            parts: Vec::new(),
            bars: of_set.iter().map(|result| bar(result, figure(result), unit)).collect(),
        };
        all.push(bars(
            "throughput",
            "requests per second",
            |result| result.summary.ops_per_s.unwrap_or(0.0) / 1e3,
            "K/s",
        ));
        all.push(bars("p99", "P99 latency", |result| result.summary.p99_us.unwrap_or(0.0), "us"));
    }
    all
}

fn bar(result: &PosterResult, figure: f64, unit: &str) -> PictureBar {
    PictureBar {
        name: result.paging.name().to_owned(),
        numbers: format!("{figure:.0} {unit}, {:.0} % faults", result.fault_percent),
        parts: vec![figure],
    }
}

#[cfg(test)]
mod tests {
    use yonder_bench::poster::Paging;
    use yonder_load::Predicted;

    use yonder_bench::Summary;

    use super::*;
    use crate::table::row;

    fn result(set: Set, paging: Paging) -> PosterResult {
        let is_base = paging == Paging::NoFault;
        PosterResult {
            bench: "poster",
            set,
            paging,
            dispatch: "pf-aware",
            far: (set == Set::Paged).then(|| "emu://".to_owned()),
            emulated_us: (set == Set::Emulated).then_some([0.8, 2.5]),
            keys: 1024,
            value_size: 128,
            local_bytes: 1 << 20,
            workers: 1,
            connections: 50,
            duration_s: 1.0,
            fault_percent_wanted: 30.0,
            summary: Summary {
                runs: 3,
                ops_per_s: Some(100_000.0),
                ops_per_s_spread: Some([90_000.0, 110_000.0]),
                p50_us: Some(190.0),
                p99_us: Some(300.0),
                p99_us_spread: Some([280.0, 320.0]),
                ..Summary::default()
            },
            fault_percent: if is_base { 0.0 } else { 30.1 },
            ops_ratio_to_no_fault: (!is_base).then_some(0.8),
            mean_us: 200.0,
            min_us: 20.0,
            p95_us: 250.0,
            p99_ratio_to_no_fault: (!is_base).then_some(1.5),
            max_us: 900.0,
            hit_p99_us: (set == Set::Paged).then_some(60.0),
            predicted: Predicted::default(),
            predicted_right_percent: None,
            misses: 0,
        }
    }

    #[test]
    fn rows_have_the_posters_ratios_beside() {
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(row(COLUMNS, &result(Set::Emulated, Paging::Sync))),
            "sync 30.1 100000 (90000-110000) 0.80 0.85 200 20 190 250 300 (280-320) 1.50 2.39 900 -"
        );
        assert_eq!(
            words(row(COLUMNS, &result(Set::Paged, Paging::NoFault))),
            "no-fault 0.0 100000 (90000-110000) - - 200 20 190 250 300 (280-320) - - 900 60"
        );
        assert!(
            words(row(COLUMNS, &result(Set::Paged, Paging::Predicted))).contains(" 0.80 - 200 "),
            "the poster has no figure"
        );
        assert!(head(&result(Set::Emulated, Paging::NoFault)).contains("emulated faults of 0.8 us and 2.5 us"));
        assert!(head(&result(Set::Paged, Paging::NoFault)).contains("far memory emu://"));
    }

    #[test]
    fn every_set_has_bars_of_throughput_and_of_latency() {
        let results = [(Set::Emulated, Paging::NoFault), (Set::Emulated, Paging::Sync), (Set::Paged, Paging::NoFault)];
        let all = bars(&results.map(|(set, paging)| result(set, paging)));
        let names: Vec<_> = all.iter().map(|bars| (bars.name.as_str(), bars.bars.len())).collect();
        assert_eq!(
            names,
            [
                ("poster-emulated-throughput", 2),
                ("poster-emulated-p99", 2),
                ("poster-paged-throughput", 1),
                ("poster-paged-p99", 1)
            ]
        );
        assert_eq!((all[0].bars[1].numbers.as_str(), all[1].bars[1].parts[0]), ("100 K/s, 30 % faults", 300.0));
    }
}
