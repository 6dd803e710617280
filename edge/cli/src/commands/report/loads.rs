//! Latency and throughput by load: Adios' Figure 7, measured here.

use yonder_load::Rate;
use yonder_report::{Aim, Cell, Comparison, Origin, Picture, Point, Section, Table};

use super::scale::Scale;
use super::trial::{LINK, LOCAL_PERCENT, Steps, Trial, Way, compare};
use crate::commands::points;

/// Loads, as shares of what yielding faults can serve at most.
const LOADS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
/// The load at which the paper compares tails, as a share of what busy-waiting can serve at most: 1.3 of 1.38 M
/// requests/s.
const TAIL_LOAD: f64 = 0.94;
/// Peak throughput of Adios / of DiLOS (section 5.1).
const PAPER_PEAK: f64 = 1.58;
/// P99.9 of DiLOS / of Adios where that of DiLOS begins to rise steeply.
const PAPER_TAIL: f64 = 2.83;
/// P99.9 of Adios / of DiLOS at 0.2 M requests/s (section 6).
const PAPER_LOW: f64 = 1.06;

/// Both ways at one load.
struct Load {
    /// Of what yielding faults can serve at most.
    percent: f64,
    points: [Point; 2],
}

/// What was measured.
struct Measured {
    /// In a closed loop.
    peaks: [Point; 2],
    /// At rising loads.
    loads: Vec<Load>,
    /// At [`TAIL_LOAD`].
    tail: [Point; 2],
}

pub(super) fn run(scale: &Scale) -> anyhow::Result<Section> {
    let mut steps = Steps::new("report array", LOADS.len() + 2, Way::FAULTS.len(), scale);
    let mut trial = Trial::prepare(scale, (LOCAL_PERCENT, 1), Way::FAULTS, &mut steps)?;
    let peaks = trial.in_turn(Rate::Max)?;
    let [yielding, busy] = peaks.map(|peak| peak.achieved_per_s);
    let loads = LOADS.into_iter().map(|share| {
        let points = trial.in_turn(Rate::PerSecond(yielding * share))?;
        Ok(Load { percent: share * 100.0, points })
    });
    let loads = loads.collect::<anyhow::Result<Vec<_>>>()?;
    let tail = trial.in_turn(Rate::PerSecond(busy * TAIL_LOAD))?;
    Ok(section(scale, &Measured { peaks, loads, tail }))
}

fn section(scale: &Scale, measured: &Measured) -> Section {
    Section {
        name: "array".to_owned(),
        source: "Adios, Figure 7".to_owned(),
        title: "Random reads of an array: latency and throughput by load".to_owned(),
        origin: Origin::Emulated(LINK.to_owned()),
        words: vec![
            "Every request reads eight bytes at a random place; four of five find their page far away. Requests are made in the \
             process, at Poisson arrivals, and latency counts from the intended start. One worker, which maps its pages \
             itself, with faults that yield and with faults that busy-wait."
                .to_owned(),
            scale.words(),
        ],
        tables: vec![table(measured)],
        pictures: pictures(&measured.loads),
        bars: Vec::new(),
        comparisons: comparisons(measured),
        notes: vec![
            "Peaks are those of a closed loop with as many requests as the queues take; their latency is mostly the queue's.".to_owned(),
        ],
    }
}

fn table(measured: &Measured) -> Table {
    let mut table = Table::new(
        "loads",
        "Latency and throughput by load",
        &[&[("faults", 0), ("load", 0), ("load_percent", 1)], &points::COLUMNS[..]].concat(),
    );
    let yielding_peak = measured.peaks[0].achieved_per_s;
    let mut rows = |load: &str, percent: f64, both: &[Point; 2]| {
        for (way, point) in Way::FAULTS.iter().zip(both) {
            let head: [Cell; 3] = [way.name.into(), load.into(), percent.into()];
            table.push([&head[..], &points::cells(point)].concat());
        }
    };
    rows("closed loop", f64::NAN, &measured.peaks);
    measured.loads.iter().for_each(|load| rows("share of yield's peak", load.percent, &load.points));
    let tail_percent = measured.tail[0].offered_per_s / yielding_peak * 100.0;
    rows("94 % of busy's peak", tail_percent, &measured.tail);
    table
}

fn pictures(loads: &[Load]) -> Vec<Picture> {
    let curve = |(index, way): (usize, &Way)| (way.name, loads.iter().map(|load| load.points[index]).collect());
    points::pictures("array", &Way::FAULTS.iter().enumerate().map(curve).collect::<Vec<_>>())
}

fn comparisons(measured: &Measured) -> Vec<Comparison> {
    let [yielding, busy] = &measured.peaks;
    let [tail_yielding, tail_busy] = &measured.tail;
    let lowest = measured.loads.first().map(|load| &load.points);
    let low = lowest.map_or(f64::NAN, |[yielding, busy]| yielding.p999_us / busy.p999_us);
    vec![
        compare(
            "peak throughput, yield / busy-wait",
            PAPER_PEAK,
            yielding.achieved_per_s / busy.achieved_per_s,
            Aim::AtLeast,
            format!("{:.0} K/s against {:.0} K/s", yielding.achieved_per_s / 1e3, busy.achieved_per_s / 1e3),
        ),
        compare(
            "P99.9, busy-wait / yield, at 94 % of busy-wait's peak",
            PAPER_TAIL,
            tail_busy.p999_us / tail_yielding.p999_us,
            Aim::AtLeast,
            format!("{:.0} us against {:.0} us", tail_busy.p999_us, tail_yielding.p999_us),
        ),
        compare(
            "P99.9, yield / busy-wait, at a tenth of yield's peak",
            PAPER_LOW,
            low,
            Aim::AtMost,
            "The paper's is at 0.2 of 2.5 M requests/s.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rate: f64, p999_us: f64) -> Point {
        Point { offered_per_s: rate, achieved_per_s: rate, p50_us: 5.0, p99_us: 10.0, p999_us, dropped: 3 }
    }

    #[test]
    fn checks_are_of_the_peaks_of_the_tail_and_of_the_lowest_load() {
        let measured = Measured {
            peaks: [point(400e3, 900.0), point(200e3, 900.0)],
            loads: vec![
                Load { percent: 10.0, points: [point(40e3, 22.0), point(40e3, 20.0)] },
                Load { percent: 100.0, points: [point(400e3, 90.0), point(400e3, 9000.0)] },
            ],
            tail: [point(188e3, 50.0), point(188e3, 500.0)],
        };
        let section = section(Scale::of(true), &measured);
        let ours: Vec<f64> = section.comparisons.iter().map(|comparison| comparison.ours).collect();
        assert_eq!(ours, [2.0, 10.0, 1.1]);
        assert_eq!(section.met(), (2, 3), "1.1 is more than 1.06");
        // Two rows for the peaks, for each load, and for the tail.
        let table = &section.tables[0];
        assert_eq!(table.rows.len(), 2 + 4 + 2);
        assert_eq!(table.rows[6][2], 47.0.into());
        assert!(section.pictures.iter().all(|picture| picture.lines.iter().all(|line| line.points.len() == 2)));
        assert_eq!(section.pictures[3].lines[1].points[1], (400.0, 400.0));
    }
}
