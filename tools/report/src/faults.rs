//! When and where a program had faults, as one picture: over time, by address, and by call site.
//!
//! A [`FaultReport`] is plain data that the caller fills in. The picture has four panels on white paper, two of which
//! are [`Picture`]s; the others are drawn here with the same words, axes and colours.
//!
//! Neighbours: `picture` and `plot` draw; `faults_page` is the page with tables; `yonder run` in `edge/cli` fills
//! reports in.

use plotters::prelude::*;

use crate::ReportError;
use crate::axis::Axis;
use crate::bars::{BAR_HEIGHT, BAR_TOP, ROW_HEIGHT, draw_names};
use crate::model::FarMemory;
use crate::numbers::{latency_tick, trimmed};
use crate::picture::{LEGEND_TOP, Line, MARGIN, Picture, Quantity, cut, draw_picture, draw_title, draw_words};
use crate::plot::{Area, Axes, Behind, Cell, FONT_SIZE, PAPER, SIZE, colour, draw_chart, svg, text};

/// Size of the picture: two panels beside, two panels below one another, and what it is about above them.
const HEAD_HEIGHT: u32 = 180;
const PANEL_HEIGHT: u32 = SIZE.1 + 176;
const PICTURE_SIZE: (u32, u32) = (2 * SIZE.0, HEAD_HEIGHT + 2 * PANEL_HEIGHT);
const HEAD_FONT_SIZE: i32 = 56;
const HEAD_TOP: i32 = 30;
const TOTALS_TOP: i32 = 112;
const TOTALS_FONT_SIZE: i32 = 29;
/// Call sites that have a bar.
const BARS_MAX: usize = 8;
const BARS_TOP: i32 = LEGEND_TOP + 16;
/// Steps of darkness, so that neighbours can be drawn as one.
const DARKNESS_STEPS: f64 = 8.0;

/// The faults of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultReport {
    /// What was run.
    pub title: String,
    /// Where its memory was.
    pub far_memory: FarMemory,
    /// Everything together, in one line.
    pub totals: String,
    /// How long each part of [`FaultReport::over_time`] is.
    pub part_seconds: f64,
    /// The faults of each part of the run, from its beginning on.
    pub over_time: Vec<FaultsOfTime>,
    /// Major faults over time and address.
    pub map: FaultMap,
    /// Call sites, those that waited longest first.
    pub sites: Vec<FaultSite>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

/// The faults of a part of the run.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct FaultsOfTime {
    /// Faults that needed a fetch.
    pub major_faults: u64,
    /// Faults that needed none.
    pub minor_faults: u64,
    /// How long all threads waited in them.
    pub waited_seconds: f64,
}

/// Major faults over time and address.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct FaultMap {
    /// How to read it.
    pub caption: String,
    /// How long each time is.
    pub part_seconds: f64,
    /// How many bytes each part of the far memory has.
    pub part_bytes: u64,
    /// Faults of each part of the far memory, for each time.
    pub faults: Vec<Vec<u64>>,
}

/// An instruction that had faults.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultSite {
    /// What the instruction is of, such as `merge+0x3f (sort)`.
    pub name: String,
    /// Its line in the source; nothing if that is not known.
    pub line: String,
    /// The process that had the faults.
    pub process: String,
    /// Its faults.
    pub faults: FaultsOfTime,
}

/// The report as one SVG.
pub fn fault_svg(report: &FaultReport) -> Result<String, ReportError> {
    svg(PICTURE_SIZE, |area| {
        area.fill(&PAPER).map_err(text)?;
        let (head, panels) = area.split_vertically(HEAD_HEIGHT);
        let width = 2 * SIZE.0 as i32 - 2 * MARGIN;
        let in_head = |words: &str, top: i32, size: i32, style: FontStyle| {
            draw_words(&head, &cut(words, width * FONT_SIZE / size), (MARGIN, top), size, style)
        };
        in_head(&report.title, HEAD_TOP, HEAD_FONT_SIZE, FontStyle::Bold)?;
        in_head(&report.totals, TOTALS_TOP, TOTALS_FONT_SIZE, FontStyle::Normal)?;
        let panels = panels.split_evenly((2, 2));
        draw_picture(&panels[0], &faults_over_time(report))?;
        draw_picture(&panels[1], &waiting_over_time(report))?;
        draw_map(&panels[2], &report.map, report.over_time.len() as f64 * report.part_seconds)?;
        draw_bars(&panels[3], report)
    })
}

/// A curve of something in each part of the run.
fn line(report: &FaultReport, name: &str, value: impl Fn(&FaultsOfTime) -> f64) -> Line {
    let middle = |part: usize| (part as f64 + 0.5) * report.part_seconds;
    let points = report.over_time.iter().enumerate().map(|(part, faults)| (middle(part), value(faults)));
    Line { name: name.to_owned(), points: points.collect() }
}

fn faults_over_time(report: &FaultReport) -> Picture {
    let rate = |faults: u64| faults as f64 / report.part_seconds;
    let lines = vec![
        line(report, "major: a page was fetched", |faults| rate(faults.major_faults)),
        line(report, "minor: none was", |faults| rate(faults.minor_faults)),
    ];
    let words = ["Faults per second", "Of all processes and threads."];
    Picture::new("", words, [Quantity::Number("seconds"), Quantity::Rate], lines)
}

fn waiting_over_time(report: &FaultReport) -> Picture {
    let lines = vec![line(report, "threads in faults", |faults| faults.waited_seconds / report.part_seconds)];
    let words = ["Threads waiting", "On average; 1 is one thread that does nothing else."];
    Picture::new("", words, [Quantity::Number("seconds"), Quantity::Number("")], lines)
}

fn draw_map(area: &Area<'_>, map: &FaultMap, run_seconds: f64) -> Result<(), String> {
    let (head, plot) = area.split_vertically(LEGEND_TOP);
    draw_title(&head, "Major faults by address", &map.caption)?;
    let rows = map.faults.iter().map(Vec::len).max().unwrap_or(0);
    // As long as the axes above it are.
    let seconds = run_seconds.max(map.faults.len() as f64 * map.part_seconds);
    let axes = Axes {
        horizontal: Axis::linear("seconds", seconds, |value| trimmed(value, 2)),
        vertical: Quantity::Memory.axis(&[rows as f64 * map.part_bytes as f64]),
        behind: Behind::Cells(cells(map)),
    };
    draw_chart(&plot, &axes, &[])
}

/// The parts of the map that have faults, as dark as they have many; equal neighbours are one.
fn cells(map: &FaultMap) -> Vec<Cell> {
    let most = map.faults.iter().flatten().copied().max().unwrap_or(0) as f64;
    let step = |faults: u64| (DARKNESS_STEPS * (1.0 + faults as f64).ln() / (1.0 + most).ln()).ceil();
    let mut cells = Vec::new();
    for (time, faults) in map.faults.iter().enumerate() {
        let x = time as f64 * map.part_seconds..(time + 1) as f64 * map.part_seconds;
        let mut first = 0;
        for same in faults.chunk_by(|one, next| step(*one) == step(*next)) {
            let y = first as f64 * map.part_bytes as f64..(first + same.len()) as f64 * map.part_bytes as f64;
            first += same.len();
            if same[0] > 0 {
                cells.push(Cell { x: x.clone(), y, darkness: step(same[0]) / DARKNESS_STEPS });
            }
        }
    }
    cells
}

fn draw_bars(area: &Area<'_>, report: &FaultReport) -> Result<(), String> {
    let caption = match report.sites.len() {
        0..=BARS_MAX => "By the time that threads waited there.".to_owned(),
        sites => format!("The first {BARS_MAX} of {sites}, by the time that threads waited there."),
    };
    draw_title(area, "Call sites", &caption)?;
    let total: f64 = report.over_time.iter().map(|faults| faults.waited_seconds).sum();
    let most = report.sites.iter().map(|site| site.faults.waited_seconds).fold(f64::MIN_POSITIVE, f64::max);
    let width = SIZE.0 as i32 - 2 * MARGIN;
    for (row, site) in report.sites.iter().take(BARS_MAX).enumerate() {
        let top = BARS_TOP + row as i32 * ROW_HEIGHT;
        let waited = site.faults.waited_seconds;
        let share = 100.0 * waited / total.max(f64::MIN_POSITIVE);
        let numbers = format!("{}, {} %", latency_tick(waited * 1e6), trimmed(share, 0));
        let name = if site.line.is_empty() { site.name.clone() } else { format!("{}  {}", site.name, site.line) };
        draw_names(area, &name, &numbers, top)?;
        let bar_width = (f64::from(width) * waited / most).ceil() as i32;
        let corners = [(MARGIN, top + BAR_TOP), (MARGIN + bar_width.max(2), top + BAR_TOP + BAR_HEIGHT)];
        area.draw(&Rectangle::new(corners, colour(0).filled())).map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::picture::text_width;

    pub(crate) fn report() -> FaultReport {
        let part = |major_faults| FaultsOfTime { major_faults, minor_faults: 3, waited_seconds: 0.05 };
        let site = |name: &str, major_faults| FaultSite {
            name: name.to_owned(),
            line: "merge.c:7".to_owned(),
            process: "17 sort".to_owned(),
            faults: FaultsOfTime { major_faults, minor_faults: 1, waited_seconds: major_faults as f64 / 1e3 },
        };
        FaultReport {
            title: "sort <words>".to_owned(),
            far_memory: FarMemory::Emulated("2.5 us".to_owned()),
            totals: "0.3 s; 60 major and 9 minor faults".to_owned(),
            part_seconds: 0.1,
            over_time: [10, 20, 30].map(part).to_vec(),
            map: FaultMap {
                caption: "Darker: more faults.".to_owned(),
                part_seconds: 0.1,
                part_bytes: 1 << 20,
                faults: vec![vec![0, 1, 1, 0], vec![0, 0, 0, 0], vec![1, 100, 1000, 7]],
            },
            sites: vec![site("merge+0x3f (sort)", 50), site("fill+0x4 (sort)", 10)],
            notes: vec!["one & only".to_owned()],
        }
    }

    fn words(svg: &str) -> Vec<&str> {
        let texts = svg.split("<text").skip(1);
        texts.filter_map(|text| Some(text.split_once('>')?.1.split_once('<')?.0.trim())).collect()
    }

    #[test]
    fn a_picture_says_when_and_where_faults_were() {
        let svg = fault_svg(&report()).unwrap();
        let words = words(&svg);
        for word in [
            "sort &lt;words&gt;",
            "0.3 s; 60 major and 9 minor faults",
            "Faults per second",
            "Threads waiting",
            "Major faults by address",
            "Darker: more faults.",
            "merge+0x3f (sort)  merge.c:7",
            "fill+0x4 (sort)  merge.c:7",
            "50 ms, 33 %",
            "4 MiB",
        ] {
            assert!(words.contains(&word), "{word} is missing of {words:?}");
        }
        let place = |word: &str| words.iter().position(|other| other.starts_with(word)).unwrap();
        assert!(place("merge+0x3f") < place("fill+0x4"));
        // The paper, five cells, two bars.
        assert_eq!(svg.matches("<rect").count(), 1 + 5 + 2);
    }

    #[test]
    fn parts_of_the_map_that_are_equally_dark_are_one() {
        let cells = cells(&report().map);
        assert_eq!(cells.len(), 5);
        let most = cells.iter().max_by(|one, other| one.darkness.total_cmp(&other.darkness)).unwrap();
        assert_eq!((most.darkness, most.y.clone()), (1.0, 2_097_152.0..3_145_728.0));
        assert_eq!(cells[0].y, 1_048_576.0..3_145_728.0);
        assert!(cells.iter().all(|cell| cell.darkness > 0.0 && cell.x.end <= 0.3 + 1e-9));
    }

    #[test]
    fn a_report_without_faults_is_drawn() {
        let empty = FaultReport { over_time: Vec::new(), map: FaultMap::default(), sites: Vec::new(), ..report() };
        let svg = fault_svg(&empty).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn long_names_are_cut_and_many_sites_are_counted() {
        let mut long = report();
        long.sites = (0..40).map(|_| FaultSite { name: "n".repeat(400), ..report().sites[0].clone() }).collect();
        long.title = "t".repeat(400);
        let svg = fault_svg(&long).unwrap();
        let words = words(&svg);
        assert!(words.contains(&"The first 8 of 40, by the time that threads waited there."), "{words:?}");
        assert_eq!(words.iter().filter(|word| word.starts_with("nnn") && word.ends_with("...")).count(), BARS_MAX);
        assert!(words.iter().all(|word| text_width(word) < PICTURE_SIZE.0 as i32));
        assert_eq!((cut("short", 1000), cut("abcdefgh", text_width("abcd..."))), ("short".into(), "abcd...".into()));
    }
}
