//! What both parts of the demo do: both systems take turns at rising loads, and the medians of the turns count.
//!
//! The loads follow from a rule that was written before anything was measured: [`SHARES`] of what each system serves in
//! a closed loop, so that the knee of either curve lies between two of them. A turn has every load once, and as many
//! turns are made as the part has time for, so that a machine with other work makes the demo coarser, not longer.

use std::time::{Duration, Instant};

use yonder_bench::comparison::{Ended, Series, take_turns};
use yonder_load::Rate;
use yonder_report::{Aim, Cell, Comparison, Origin, Picture, Point, Section, Table};

use super::Part;
use super::cpu::{CpuMeter, CpuShare};
use crate::commands::points::{self, median_point};
use crate::output::Bar;

/// Local memory as a share of the data set.
pub(super) const LOCAL_PERCENT: f64 = 20.0;
/// What is compared, in the order of the curves.
pub(super) const SYSTEMS: [&str; 2] = ["busy-wait", "yield"];
/// Loads that both systems are offered, as shares of what either serves in a closed loop.
const SHARES: [f64; 4] = [0.5, 0.8, 0.95, 1.1];
/// The load at which tails are compared that both systems can serve, as a share of what busy-waiting serves.
const SERVED_SHARE: f64 = 0.8;
/// Loads that differ by less than this share are one: what is offered is near what was asked for.
const SAME_LOAD: f64 = 0.04;
/// Turns in a closed loop, and at most at rising loads.
const PEAK_TURNS: usize = 3;
const TURNS_MAX: usize = 7;
/// How many times as long as at the lowest load a P99.9 is, at least, beyond a knee that is seen.
const KNEE: f64 = 5.0;

/// The paper's ratio of peak throughputs.
const PAPER_THROUGHPUT: f64 = 1.58;
/// The paper's best ratio of tail latencies.
const PAPER_TAIL: f64 = 10.89;

/// What was measured of both systems.
pub(super) struct Measured {
    /// In a closed loop.
    peaks_per_s: [f64; 2],
    /// Medians at the loads, in rising order.
    points: [Vec<Point>; 2],
    turns: usize,
    /// Who had the CPUs, if the kernel says.
    cpu: Option<CpuShare>,
}

/// Measures by `run`, which takes the number of a system and a rate, until `deadline`. `processes` work for the demo
/// beside this one.
pub(super) fn measure(
    title: &str,
    deadline: Instant,
    processes: &[u32],
    mut run: impl FnMut(usize, Rate) -> anyhow::Result<Point>,
) -> anyhow::Result<Measured> {
    let (bar, begun, cpu) = (Bar::new(title), Instant::now(), CpuMeter::start(processes));
    let mut progress = |what: &str, _| {
        let time = deadline.saturating_duration_since(begun).as_secs_f64();
        bar.show(what, begun.elapsed().as_secs_f64() / time.max(f64::EPSILON));
    };
    let mut closed = [0, 1].map(Series::new);
    let label = |system: &usize| format!("{}, as fast as it can", SYSTEMS[*system]);
    take_turns(&mut closed, PEAK_TURNS, &mut progress, label, |system, _| run(*system, Rate::Max).map(Ended::Well))?;
    let peaks_per_s = closed.map(|series| median_point(&series.trials).achieved_per_s);
    let loads = loads(peaks_per_s);
    let mut all: Vec<_> = loads.iter().flat_map(|load| [0, 1].map(|system| Series::new((system, *load)))).collect();
    let label = |(system, load): &(usize, f64)| format!("{}, {:.1} K requests/s", SYSTEMS[*system], load / 1e3);
    let (mut turns, mut longest) = (0, Duration::ZERO);
    while turns == 0 || turns < TURNS_MAX && Instant::now() + longest < deadline {
        let turn = Instant::now();
        take_turns(&mut all, 1, &mut progress, label, |(system, load), _| {
            run(*system, Rate::PerSecond(*load)).map(Ended::Well)
        })?;
        (turns, longest) = (turns + 1, longest.max(turn.elapsed()));
    }
    let of = |system| all.iter().filter(move |series| series.variant.0 == system);
    let points = [0, 1].map(|system| of(system).map(|series| median_point(&series.trials)).collect());
    Ok(Measured { peaks_per_s, points, turns, cpu: cpu.share() })
}

/// The loads for systems that serve so much in a closed loop, in rising order.
fn loads(peaks_per_s: [f64; 2]) -> Vec<f64> {
    let mut loads: Vec<f64> = peaks_per_s.iter().flat_map(|peak| SHARES.map(|share| peak * share)).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup_by(|next, kept| *next < *kept * (1.0 + SAME_LOAD));
    loads
}

impl Measured {
    /// The part of the report: its section, its curves, and in words what is to be known of how they were measured.
    pub(super) fn part(&self, name: &str, title: &str, explanation: &str, far_memory: &str) -> Part {
        let cpu = self.cpu.map(|share| share.sentence());
        let words: Vec<String> = cpu.into_iter().chain(self.hidden_knees()).collect();
        let medians = match self.turns {
            1 => "There was time for one turn".to_owned(),
            turns => format!("Medians of {turns} turns"),
        };
        let curves: Vec<_> = SYSTEMS.into_iter().zip(self.points.iter().cloned()).collect();
        let section = Section {
            name: name.to_owned(),
            source: "Adios, microbenchmark and best application".to_owned(),
            title: title.to_owned(),
            origin: Origin::Emulated(far_memory.to_owned()),
            words: vec![format!("{explanation} {medians}. {}", words.join(" "))],
            tables: vec![table(&curves)],
            pictures: self.pictures(name, &curves),
            bars: Vec::new(),
            comparisons: self.ratios(name),
            notes: Vec::new(),
        };
        let sentences = words.iter().map(|sentence| format!("{name}: {sentence}")).collect();
        Part { section, curves, sentences }
    }

    /// Latencies and throughput by load, with the loads shaded that are too much for one of both.
    fn pictures(&self, name: &str, curves: &[(&str, Vec<Point>)]) -> Vec<Picture> {
        let saturated = self.points.iter().flatten().filter(|point| point.is_saturated());
        let least = saturated.map(|point| point.offered_per_s / 1e3).reduce(f64::min);
        let shades: Vec<_> = least.map(|least| (least, f64::INFINITY)).into_iter().collect();
        let shaded = |picture| Picture {
            shades: shades.clone(),
            shade_name: "saturated: one of them did not keep up".to_owned(),
            ..picture
        };
        points::pictures(name, curves).into_iter().map(shaded).collect()
    }

    /// Which curves have no knee here, and how late they are at the lowest load; nothing if all have one.
    fn hidden_knees(&self) -> Option<String> {
        let hidden = (0..SYSTEMS.len()).filter_map(|system| {
            let (points, peak) = (&self.points[system], self.peaks_per_s[system]);
            let lowest = points.first()?.p999_us;
            let beyond = points.iter().filter(|point| point.offered_per_s > peak);
            let is_seen = beyond.map(|point| point.p999_us).fold(0.0, f64::max) >= KNEE * lowest;
            (!is_seen).then(|| format!("{} ({:.1} ms)", SYSTEMS[system], lowest / 1e3))
        });
        let hidden: Vec<_> = hidden.collect();
        let names = hidden.join(" and ");
        (!hidden.is_empty()).then(|| {
            format!("This machine hides the knee of {names}: the P99.9 is that late at the lowest load already.")
        })
    }

    /// Throughput and tail of yielding faults against those of busy-waiting ones.
    fn ratios(&self, what: &str) -> Vec<Comparison> {
        let ([busy, yielding], [slow, fast]) = (self.peaks_per_s, &self.points);
        // The lowest load that busy-waiting does not keep up with, or else the first that is more than it can serve.
        let is_late = |point: &Point| point.is_saturated() || point.offered_per_s > busy;
        let late = slow.iter().zip(fast).find(|(slow, _)| is_late(slow));
        let served =
            slow.iter().zip(fast).rfind(|(slow, _)| slow.offered_per_s <= SERVED_SHARE * busy * (1.0 + SAME_LOAD));
        let tails = |points: Option<(&Point, &Point)>| {
            points.map_or([f64::NAN; 2], |(slow, fast)| [slow.p999_us, fast.p999_us])
        };
        let ([slow, fast], [served_slow, served_fast]) = (tails(late), tails(served));
        let cpu = self.cpu.map_or_else(String::new, |share| format!(", {share}"));
        let ratio = |words: &str, ours, paper, source: &str, note: String| Comparison {
            what: format!("{what}: {words}"),
            paper,
            ours,
            aim: Aim::None,
            why: format!("{note}{cpu}; the paper's: {source}"),
        };
        vec![
            ratio(
                "peak throughput, yield / busy-wait",
                yielding / busy,
                PAPER_THROUGHPUT,
                "Adios, section 5.1, microbenchmark",
                format!("{:.0} K/s against {:.0} K/s", yielding / 1e3, busy / 1e3),
            ),
            ratio(
                "P99.9 latency at a load that both serve, busy-wait / yield",
                served_slow / served_fast,
                PAPER_TAIL,
                "Adios, abstract, best application",
                format!("{served_slow:.0} us against {served_fast:.0} us"),
            ),
            ratio(
                "P99.9 latency where busy-wait saturates, busy-wait / yield",
                slow / fast,
                PAPER_TAIL,
                "Adios, abstract, best application",
                format!("{slow:.0} us against {fast:.0} us; the queue, and so the ratio, grows with the run"),
            ),
        ]
    }
}

/// A row for each system at each load.
fn table(curves: &[(&str, Vec<Point>)]) -> Table {
    let columns = [&[("faults", 0)], &points::COLUMNS[..], &[("saturated", 0)]].concat();
    let mut table = Table::new("loads", "Latency and throughput by load", &columns);
    for (system, point) in curves.iter().flat_map(|(system, points)| points.iter().map(move |point| (*system, point))) {
        let saturated = if point.is_saturated() { "yes" } else { "" };
        table.push([&[Cell::from(system)], &points::cells(point)[..], &[saturated.into()]].concat());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(offered_per_s: f64, achieved_per_s: f64, p999_us: f64) -> Point {
        Point { offered_per_s, achieved_per_s, p50_us: 5.0, p99_us: 10.0, p999_us, dropped: 0 }
    }

    /// Serves 100 and 150 requests a second, as late as `tail` says of a share of that.
    fn measured(tail: impl Fn(f64) -> f64) -> Measured {
        let mut asked = Vec::new();
        let measured = measure("test", Instant::now(), &[], |system, rate| {
            let peak = [100.0, 150.0][system];
            let Rate::PerSecond(rate) = rate else { return Ok(point(peak, peak, 1e6)) };
            asked.push((system, rate.round()));
            Ok(point(rate, rate.min(peak), tail(rate / peak)))
        });
        let loads = [50.0, 75.0, 80.0, 95.0, 110.0, 120.0, 143.0, 165.0];
        assert_eq!(asked, loads.map(|load| [(0, load), (1, load)]).concat(), "without time there is one turn");
        measured.unwrap()
    }

    #[test]
    fn loads_pass_both_knees_and_those_that_are_the_same_are_offered_once() {
        let measured = measured(|share| if share > 1.0 { 9000.0 } else { 1000.0 });
        assert_eq!((measured.turns, measured.hidden_knees()), (1, None));
        let ratios = measured.ratios("array");
        assert_eq!(
            ratios.iter().map(|ratio| ratio.ours).collect::<Vec<_>>(),
            [1.5, 1.0, 9.0],
            "at 80 and at 110 requests/s"
        );
        assert_eq!(loads([100.0, 101.0]).len(), SHARES.len());
    }

    #[test]
    fn a_curve_without_a_knee_is_told() {
        let part = measured(|share| if share > 1.4 { 90_000.0 } else { 4000.0 }).part("a", "", "Read.", "");
        let text = &part.section.words[0];
        assert!(text.starts_with("Read. There was time for one turn. "), "{text}");
        assert!(text.contains("hides the knee of yield (4.0 ms): "), "{text}");
        // Busy-waiting serves 100 requests a second, and does not keep up from 110 on.
        assert!((part.section.pictures[0].shades[0].0 - 0.11).abs() < 1e-9);
        let saturated = part.section.tables[0].rows.iter().filter(|row| row[7] == "yes".into());
        assert_eq!((saturated.count(), part.section.tables[0].rows.len()), (5, 16));
    }
}
