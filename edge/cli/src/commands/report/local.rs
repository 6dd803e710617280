//! Throughput and latency by how much of the array is local: Adios' Figure 8, measured here.

use yonder_load::Rate;
use yonder_report::{Aim, Comparison, Origin, Picture, Point, Quantity, Section, Table};

use super::scale::Scale;
use super::trial::{LINK, Steps, Trial, Way, compare, lines};

/// Shares of the array that are local.
const LOCAL_PERCENT: [f64; 5] = [10.0, 20.0, 50.0, 80.0, 100.0];
/// Where latency is measured, as a share of what busy-waiting can serve at most with as much local memory.
const LOAD: f64 = 0.8;
/// Throughput with 10 % local / with all local: of Adios, which loses 25 %, and of DiLOS, which loses 60 % (section
/// 5.1).
const PAPER_YIELD: f64 = 0.75;
const PAPER_BUSY: f64 = 0.4;
/// Adios with 10 % local / DiLOS with 80 %: similar.
const PAPER_SIMILAR: f64 = 1.0;

/// Both ways with as much local memory.
struct Local {
    percent: f64,
    peaks: [Point; 2],
    /// At [`LOAD`].
    loaded: [Point; 2],
}

pub(super) fn run(scale: &Scale) -> anyhow::Result<Section> {
    let mut steps = Steps::new("report local", 2 * LOCAL_PERCENT.len(), Way::FAULTS.len(), scale);
    let mut all = Vec::new();
    for percent in LOCAL_PERCENT {
        let mut trial = Trial::prepare(scale, (percent, 1), Way::FAULTS, &mut steps)?;
        let peaks = trial.in_turn(Rate::Max)?;
        let loaded = trial.in_turn(Rate::PerSecond(peaks[1].achieved_per_s * LOAD))?;
        all.push(Local { percent, peaks, loaded });
    }
    Ok(section(scale, &all))
}

fn section(scale: &Scale, all: &[Local]) -> Section {
    let by_percent = |value: fn(&Local, usize) -> f64| {
        lines(Way::FAULTS, |way| all.iter().map(|local| (local.percent, value(local, way))).collect())
    };
    let percent = Quantity::Number("percent of the array that is local");
    Section {
        name: "local".to_owned(),
        source: "Adios, Figure 8".to_owned(),
        title: "Random reads of an array: by how much of it is local".to_owned(),
        origin: Origin::Emulated(LINK.to_owned()),
        words: vec![
            "The same requests as by load, and each worker maps its pages itself. Throughput is that of a closed loop; \
             latency is at a load that both can serve, 80 % of busy-waiting's throughput with as much local memory."
                .to_owned(),
            scale.words(),
        ],
        tables: vec![table(all)],
        pictures: vec![
            Picture::new(
                "local-throughput",
                ["Throughput", "Closed loop; requests/s."],
                [percent, Quantity::Rate],
                by_percent(|local, way| local.peaks[way].achieved_per_s),
            ),
            Picture::new(
                "local-p99",
                ["P99 latency", "At 80 % of busy-waiting's throughput."],
                [percent, Quantity::Latency],
                by_percent(|local, way| local.loaded[way].p99_us),
            ),
        ],
        bars: Vec::new(),
        comparisons: comparisons(all),
        notes: Vec::new(),
    }
}

fn table(all: &[Local]) -> Table {
    let mut table = Table::new(
        "local",
        "Throughput and latency by local memory",
        &[
            ("local_percent", 0),
            ("faults", 0),
            ("peak_per_s", 0),
            ("offered_per_s", 0),
            ("p50_us", 1),
            ("p99_us", 1),
            ("p999_us", 1),
            ("dropped", 0),
        ],
    );
    for local in all {
        for ((way, peak), loaded) in Way::FAULTS.iter().zip(&local.peaks).zip(&local.loaded) {
            table.push(vec![
                local.percent.into(),
                way.name.into(),
                peak.achieved_per_s.into(),
                loaded.offered_per_s.into(),
                loaded.p50_us.into(),
                loaded.p99_us.into(),
                loaded.p999_us.into(),
                (loaded.dropped as f64).into(),
            ]);
        }
    }
    table
}

fn comparisons(all: &[Local]) -> Vec<Comparison> {
    let peak = |percent: f64, way: usize| {
        let local = all.iter().find(|local| local.percent == percent);
        local.map_or(f64::NAN, |local| local.peaks[way].achieved_per_s)
    };
    let (yielding, busy) = (0, 1);
    vec![
        compare(
            "throughput with 10 % local / with all, yield",
            PAPER_YIELD,
            peak(10.0, yielding) / peak(100.0, yielding),
            Aim::AtLeast,
            "A fault costs a signal and a system call on stock Linux; Adios' unikernel needs neither. Without faults both are as fast.",
        ),
        compare(
            "throughput with 10 % local / with all, busy-wait",
            PAPER_BUSY,
            peak(10.0, busy) / peak(100.0, busy),
            Aim::None,
            "",
        ),
        compare(
            "throughput, yield with 10 % local / busy-wait with 80 %",
            PAPER_SIMILAR,
            peak(10.0, yielding) / peak(80.0, busy),
            Aim::AtLeast,
            "The paper calls them similar.",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_compare_what_they_say() {
        let point = |rate: f64| Point {
            offered_per_s: rate,
            achieved_per_s: rate,
            p50_us: 5.0,
            p99_us: 10.0,
            p999_us: 20.0,
            dropped: 0,
        };
        let local = |percent, yielding, busy| Local {
            percent,
            peaks: [point(yielding), point(busy)],
            loaded: [point(busy * LOAD), point(busy * LOAD)],
        };
        let all = [local(10.0, 400e3, 160e3), local(80.0, 800e3, 320e3), local(100.0, 1600e3, 1600e3)];
        let section = section(Scale::of(true), &all);
        let ours: Vec<f64> = section.comparisons.iter().map(|comparison| comparison.ours).collect();
        assert_eq!(ours, [0.25, 0.1, 1.25]);
        assert_eq!((section.met(), section.tables[0].rows.len()), ((1, 2), 6));
        assert_eq!(section.pictures[0].lines[1].points[1], (80.0, 320e3));
    }
}
