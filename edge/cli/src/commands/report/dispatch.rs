//! Tail latency by dispatch policy: Adios' Figure 10(e), measured here with the array.

use yonder_load::Rate;
use yonder_report::{Aim, Cell, Comparison, Origin, Point, Section, Table};

use super::scale::Scale;
use super::trial::{LINK, LOCAL_PERCENT, Steps, Trial, Way, compare};
use crate::commands::points;

/// One worker leaves no choice.
const WORKERS: usize = 2;
/// Loads, as shares of what page-fault-aware dispatch can serve at most.
const LOADS: [f64; 4] = [0.5, 0.7, 0.8, 0.9];
/// How much lower the P99.9 is at best with memcached and values of 128 bytes, in percent (section 5.2).
const PAPER_PERCENT: f64 = 7.5;

pub(super) fn run(scale: &Scale) -> anyhow::Result<Section> {
    let mut steps = Steps::new("report dispatch", LOADS.len() + 1, Way::DISPATCH.len(), scale);
    let mut trial = Trial::prepare(scale, (LOCAL_PERCENT, WORKERS), Way::DISPATCH, &mut steps)?;
    let peaks = trial.in_turn(Rate::Max)?;
    let peak = peaks[0].achieved_per_s;
    let loads = LOADS.into_iter().map(|share| trial.in_turn(Rate::PerSecond(peak * share)));
    let loads = loads.collect::<anyhow::Result<Vec<_>>>()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(section(scale, &loads, peak, cpus))
}

fn section(scale: &Scale, loads: &[[Point; 2]], peak: f64, cpus: usize) -> Section {
    let curve = |(index, way): (usize, &Way)| (way.name, loads.iter().map(|both| both[index]).collect());
    let curves: Vec<_> = Way::DISPATCH.iter().enumerate().map(curve).collect();
    let threads = WORKERS + 1;
    let shared = (cpus < threads).then(|| {
        format!("{WORKERS} workers and the dispatcher share {cpus} CPUs here, so that the tail is mostly the scheduler's of the kernel.")
    });
    Section {
        name: "dispatch".to_owned(),
        source: "Adios, Figure 10(e)".to_owned(),
        title: "Random reads of an array: tail latency by dispatch policy".to_owned(),
        origin: Origin::Emulated(LINK.to_owned()),
        words: vec![
            format!(
                "Which worker gets a request: the one with the fewest fetches under way (pf-aware), or each in turn (round-robin). \
                 With one worker they are the same, so there are {WORKERS}."
            ),
            scale.words(),
        ],
        tables: vec![table(loads, peak)],
        pictures: points::pictures("dispatch", &curves).into_iter().take(1).collect(),
        bars: Vec::new(),
        comparisons: loads.iter().map(|points| comparison(points, peak)).collect(),
        notes: shared.into_iter().collect(),
    }
}

/// At one load: all of them count, not the best.
fn comparison(points: &[Point; 2], peak: f64) -> Comparison {
    let percent = points[0].offered_per_s / peak * 100.0;
    compare(
        format!("P99.9 with pf-aware, lower than with round-robin at {percent:.0} % of the peak, percent"),
        PAPER_PERCENT,
        lower_percent(points),
        Aim::AtLeast,
        "The paper's is the most of all loads, of memcached on eight workers.",
    )
}

/// How much lower the first P99.9 is than the second, in percent of the second.
fn lower_percent([first, second]: &[Point; 2]) -> f64 {
    (1.0 - first.p999_us / second.p999_us) * 100.0
}

fn table(loads: &[[Point; 2]], peak: f64) -> Table {
    let mut table = Table::new(
        "dispatch",
        "Latency by dispatch policy",
        &[&[("load_percent", 0), ("dispatch", 0)], &points::COLUMNS[..]].concat(),
    );
    for both in loads {
        for (way, point) in Way::DISPATCH.iter().zip(both) {
            let head: [Cell; 2] = [(point.offered_per_s / peak * 100.0).into(), way.name.into()];
            table.push([&head[..], &points::cells(point)].concat());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_loads_count_and_shared_cpus_are_told() {
        let point = |rate: f64, p999_us| Point {
            offered_per_s: rate,
            achieved_per_s: rate,
            p50_us: 5.0,
            p99_us: 10.0,
            p999_us,
            dropped: 0,
        };
        let loads = [[point(50e3, 11.0), point(50e3, 10.0)], [point(80e3, 75.0), point(80e3, 100.0)]];
        let crowded = section(Scale::of(true), &loads, 100e3, 2);
        let ours: Vec<f64> = crowded.comparisons.iter().map(|comparison| comparison.ours.round()).collect();
        assert_eq!((ours, crowded.met()), (vec![-10.0, 25.0], (1, 2)));
        assert_eq!((crowded.notes.len(), crowded.tables[0].rows.len()), (1, 4));
        assert_eq!(crowded.tables[0].rows[2][0], 80.0.into());
        assert!(section(Scale::of(true), &loads, 100e3, 3).notes.is_empty());
    }
}
