//! Plots that are files of their own: an SVG with its title, its legend and its plot.
//!
//! A [`Picture`] is plain data that the caller fills in; what has no place on its axes is left out. They look as the
//! plots of the page do, on white paper, so that a document can show them.
//!
//! Neighbours: `plot` draws the plot, `axis` has its axes; `yonder bench` in `edge/cli` fills pictures in.

use std::path::{Path, PathBuf};

use plotters::prelude::*;
use serde::Serialize;

use crate::axis::{Axis, round_down, round_up};
use crate::numbers::{bytes_tick, latency_tick, rate, trimmed};
use crate::plot::{Area, Axes, Behind, FONT_SIZE, INK, LEGEND_SIZE, Mark, Marks, PAPER, SIZE};
use crate::plot::{draw_chart, draw_marker, draw_shade, svg, text};
use crate::{ReportError, write_file};

/// Where the title, the caption and the first line of the legend are, and how high such a line is.
const TITLE_TOP: i32 = 22;
const CAPTION_TOP: i32 = 78;
pub(crate) const LEGEND_TOP: i32 = 130;
const LEGEND_LINE_HEIGHT: i32 = 46;
const TITLE_FONT_SIZE: i32 = 42;
/// Where texts begin and end.
pub(crate) const MARGIN: i32 = 30;
/// Space between a marker and its name, and between a name and the next marker.
const NAME_GAP: i32 = 14;
const ENTRY_GAP: i32 = 44;
/// About how wide a character is, as a share of the font's size, of which an SVG shows four fifths.
const CHARACTER_WIDTH: f64 = 0.46;
const MEBIBYTE: f64 = 1048576.0;

/// One plot and its words.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Picture {
    /// Name of its file, without an ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How to read it, one line.
    pub caption: String,
    /// The horizontal axis.
    pub horizontal: Quantity,
    /// The vertical axis.
    pub vertical: Quantity,
    /// The curves.
    pub lines: Vec<Line>,
    /// Parts of the horizontal axis that are shaded.
    pub shades: Vec<(f64, f64)>,
    /// What the shades are; nothing is said without any.
    pub shade_name: String,
}

impl Picture {
    /// A picture of `lines` without shades: its file, what it shows and how to read it, its axes.
    #[must_use]
    pub fn new(
        name: &str,
        [title, caption]: [&str; 2],
        [horizontal, vertical]: [Quantity; 2],
        lines: Vec<Line>,
    ) -> Self {
        let [name, title, caption] = [name, title, caption].map(str::to_owned);
        Self { name, title, caption, horizontal, vertical, lines, shades: Vec::new(), shade_name: String::new() }
    }
}

/// One curve.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Its points, in the order in which lines connect them.
    pub points: Vec<(f64, f64)>,
}

/// What an axis shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Microseconds, logarithmic.
    Latency,
    /// Microseconds from zero.
    CpuTime,
    /// Sizes, logarithmic, with a tick at each; the name is the axis'.
    Sizes(&'static str),
    /// Counts, logarithmic, with a tick at each; the name is the axis'.
    Counts(&'static str),
    /// Bytes from zero.
    Memory,
    /// Operations per second, from zero.
    Rate,
    /// A plain number from zero; the name is the axis'.
    Number(&'static str),
}

/// Writes pictures into `directory`, which is created if need be, and returns their files' paths.
pub fn write_pictures(pictures: &[Picture], directory: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let write = |picture: &Picture| write_file(directory, &format!("{}.svg", picture.name), &picture_svg(picture)?);
    pictures.iter().map(write).collect()
}

/// A picture as SVG.
pub fn picture_svg(picture: &Picture) -> Result<String, ReportError> {
    svg((SIZE.0, SIZE.1 + head_height(&legend_of(picture)) as u32), |area| {
        area.fill(&PAPER).map_err(text)?;
        draw_picture(area, picture)
    })
}

/// Draws a picture into an area that is as wide as a plot.
pub(crate) fn draw_picture(area: &Area<'_>, picture: &Picture) -> Result<(), String> {
    let legend = legend_of(picture);
    let (head, plot) = area.split_vertically(head_height(&legend));
    draw_head(&head, picture, &legend)?;
    let (axes, curves) = plan(picture);
    draw_chart(&plot, &axes, &curves)
}

/// How high the title, the caption and a legend are.
pub(crate) fn head_height(legend: &[Entry<'_>]) -> i32 {
    legend.last().map_or(LEGEND_TOP, |entry| entry.top + LEGEND_LINE_HEIGHT)
}

/// The axes and the marks of a picture: those that have a place.
fn plan(picture: &Picture) -> (Axes, Vec<Marks>) {
    let axis = |quantity: Quantity, value: fn(&(f64, f64)) -> f64| {
        let points = picture.lines.iter().flat_map(|line| &line.points);
        let values: Vec<f64> = points.map(value).filter(|value| value.is_finite()).collect();
        quantity.axis(&values)
    };
    let (horizontal, vertical) = (axis(picture.horizontal, |point| point.0), axis(picture.vertical, |point| point.1));
    let marks = |line: &Line| {
        let fitting = line.points.iter().filter(|(x, y)| horizontal.takes(*x) && vertical.takes(*y));
        fitting.map(|(x, y)| Mark { x: *x, y: *y }).collect()
    };
    let curves = picture.lines.iter().map(marks).collect();
    let shades = picture.shades.iter().map(|(from, to)| (*from, to.min(horizontal.range.end)));
    let behind = if picture.shades.is_empty() { Behind::Nothing } else { Behind::Shades(shades.collect()) };
    (Axes { horizontal, vertical, behind }, curves)
}

impl Quantity {
    /// An axis for `values`, which are finite.
    pub(crate) fn axis(self, values: &[f64]) -> Axis {
        let most = values.iter().copied().fold(0.0, f64::max);
        let positive: Vec<f64> = values.iter().copied().filter(|value| *value > 0.0).collect();
        match self {
            Self::Latency => {
                let least = positive.iter().copied().reduce(f64::min).unwrap_or(1.0);
                let range = round_down(least * 0.9)..round_up(most.max(least) * 1.1);
                Axis::decades("", range, latency_tick)
            }
            Self::CpuTime => Axis::linear("", most, latency_tick),
            Self::Sizes(name) => Axis::measured(name, &positive, bytes_tick),
            Self::Counts(name) => Axis::measured(name, &positive, count_tick),
            Self::Memory => Axis::linear_in("", most, if most < MEBIBYTE { 1024.0 } else { MEBIBYTE }, bytes_tick),
            Self::Rate => Axis::linear("", most, rate),
            Self::Number(name) => Axis::linear(name, most, |value| trimmed(value, 2)),
        }
    }
}

/// A count as it is written on an axis.
fn count_tick(count: f64) -> String {
    const WHOLE_MAX: f64 = 10_000.0;
    if count < WHOLE_MAX { trimmed(count, 0) } else { rate(count) }
}

/// One entry of the legend, and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry<'a> {
    name: &'a str,
    /// The curve; none for the shades.
    curve: Option<usize>,
    left: i32,
    top: i32,
}

/// The entries of a picture's legend.
fn legend_of(picture: &Picture) -> Vec<Entry<'_>> {
    let curves = picture.lines.iter().enumerate().map(|(curve, line)| (line.name.as_str(), Some(curve)));
    let shades = (!picture.shades.is_empty()).then_some((picture.shade_name.as_str(), None));
    legend(curves.chain(shades))
}

/// The entries of a legend, of names and their colours, in as many lines as they need.
pub(crate) fn legend<'a>(names: impl Iterator<Item = (&'a str, Option<usize>)>) -> Vec<Entry<'a>> {
    let (mut left, mut top) = (MARGIN, LEGEND_TOP);
    let mut entries = Vec::new();
    for (name, curve) in names {
        let width = LEGEND_SIZE.0 as i32 + NAME_GAP + text_width(name);
        if left > MARGIN && left + width > SIZE.0 as i32 - MARGIN {
            (left, top) = (MARGIN, top + LEGEND_LINE_HEIGHT);
        }
        entries.push(Entry { name, curve, left, top });
        left += width + ENTRY_GAP;
    }
    entries
}

/// About how wide a text is.
pub(crate) fn text_width(text: &str) -> i32 {
    (text.chars().count() as f64 * CHARACTER_WIDTH * f64::from(FONT_SIZE)).ceil() as i32
}

/// As much of a text as there is room for.
pub(crate) fn cut(words: &str, width: i32) -> String {
    if text_width(words) <= width {
        return words.to_owned();
    }
    let mut shown = String::new();
    for character in words.chars() {
        shown.push(character);
        if text_width(&format!("{shown}...")) > width {
            shown.pop();
            break;
        }
    }
    shown + "..."
}

fn draw_head(area: &Area<'_>, picture: &Picture, legend: &[Entry<'_>]) -> Result<(), String> {
    draw_title(area, &picture.title, &picture.caption)?;
    draw_entries(area, legend)
}

/// Draws the entries of a legend.
pub(crate) fn draw_entries(area: &Area<'_>, legend: &[Entry<'_>]) -> Result<(), String> {
    for entry in legend {
        let middle = (entry.left, entry.top + LEGEND_LINE_HEIGHT / 2);
        match entry.curve {
            Some(curve) => draw_marker(area, middle, LEGEND_SIZE.0 as i32, curve)?,
            None => draw_shade(area, middle, (LEGEND_SIZE.0 as i32, LEGEND_SIZE.1 as i32))?,
        }
        let name_at = (entry.left + LEGEND_SIZE.0 as i32 + NAME_GAP, middle.1 - FONT_SIZE / 2);
        draw_words(area, entry.name, name_at, FONT_SIZE, FontStyle::Normal)?;
    }
    Ok(())
}

/// Draws what a picture shows and how to read it.
pub(crate) fn draw_title(area: &Area<'_>, title: &str, caption: &str) -> Result<(), String> {
    draw_words(area, title, (MARGIN, TITLE_TOP), TITLE_FONT_SIZE, FontStyle::Bold)?;
    draw_words(area, caption, (MARGIN, CAPTION_TOP), FONT_SIZE, FontStyle::Normal)
}

pub(crate) fn draw_words(
    area: &Area<'_>,
    words: &str,
    at: (i32, i32),
    size: i32,
    style: FontStyle,
) -> Result<(), String> {
    let font = FontDesc::new(FontFamily::SansSerif, f64::from(size), style);
    area.draw(&Text::new(words.to_owned(), at, font.color(&INK))).map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture() -> Picture {
        let line = |name: &str, points: &[(f64, f64)]| Line { name: name.to_owned(), points: points.to_vec() };
        Picture {
            name: "rread-latency".to_owned(),
            title: "Reads & their latency".to_owned(),
            caption: "One thread.".to_owned(),
            horizontal: Quantity::Sizes("bytes of a read"),
            vertical: Quantity::Latency,
            lines: vec![
                line("P50", &[(4.0, 11.0), (4096.0, 14.0), (65536.0, 40.0)]),
                line("P99", &[(4.0, 20.0), (4096.0, 0.0), (65536.0, f64::NAN)]),
            ],
            shades: Vec::new(),
            shade_name: "pauses".to_owned(),
        }
    }

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    #[test]
    fn a_picture_has_its_words_its_ticks_and_the_points_that_have_a_place() {
        let svg = picture_svg(&picture()).unwrap();
        // Four marks, and a marker for each curve in the legend.
        assert_eq!(count(&svg, "<polygon"), 4 + 2);
        let words =
            ["Reads &amp; their latency", "One thread.", "P50", "P99", "bytes of a read", "64 KiB", "20 \u{b5}s"];
        for word in words {
            assert!(svg.contains(word), "{word} is missing");
        }
        assert!(!svg.contains("pauses") && !svg.contains("http://www.w3.org/1999"), "it needs nothing else");
    }

    #[test]
    fn shades_are_drawn_and_named_in_the_legend() {
        let plain = picture_svg(&picture()).unwrap();
        let shaded = Picture { shades: vec![(4.0, 100.0), (5.0, 1e9)], ..picture() };
        let svg = picture_svg(&shaded).unwrap();
        assert_eq!(count(&svg, "<rect") - count(&plain, "<rect"), 3);
        assert!(svg.contains("pauses"));
        let (axes, _) = plan(&shaded);
        let Behind::Shades(shades) = axes.behind else { panic!("no shades") };
        assert!(shades[1].1 <= axes.horizontal.range.end, "a shade ends with the axis");
    }

    #[test]
    fn names_in_the_legend_neither_overlap_nor_leave_the_picture() {
        let name = |length: usize| Line { name: "n".repeat(length), points: Vec::new() };
        let many = Picture { lines: [3, 12, 20, 14, 8, 30].map(name).to_vec(), ..picture() };
        let entries = legend_of(&many);
        let end = |entry: &Entry<'_>| entry.left + LEGEND_SIZE.0 as i32 + NAME_GAP + text_width(entry.name);
        assert!(entries.iter().all(|entry| end(entry) <= SIZE.0 as i32), "{entries:?}");
        for pair in entries.windows(2) {
            assert!(pair[1].top > pair[0].top || pair[1].left >= end(&pair[0]) + ENTRY_GAP, "{pair:?}");
        }
        assert!(entries[5].top > entries[0].top);
    }

    #[test]
    fn every_quantity_has_an_axis_with_or_without_values() {
        for quantity in [
            Quantity::Latency,
            Quantity::CpuTime,
            Quantity::Sizes("size"),
            Quantity::Counts("count"),
            Quantity::Memory,
            Quantity::Rate,
            Quantity::Number("number"),
        ] {
            for points in [vec![], vec![(1.0, 1.0)], vec![(1.0, 0.0)], vec![(0.0, 0.0), (2e6, 2e6)]] {
                let lines = vec![Line { name: "line".to_owned(), points }];
                let one = Picture { horizontal: Quantity::Counts("count"), vertical: quantity, lines, ..picture() };
                let svg = picture_svg(&one).unwrap();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{quantity:?}: {svg}");
            }
        }
        assert_eq!([1.0, 1000.0, 65_536.0, 1_048_576.0].map(count_tick), ["1", "1000", "65.5 K", "1.05 M"]);
    }

    #[test]
    fn files_are_written_or_the_error_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let paths = write_pictures(&[picture()], &directory.path().join("new")).unwrap();
        assert_eq!(paths, [directory.path().join("new/rread-latency.svg")]);
        assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), picture_svg(&picture()).unwrap());
        let message = write_pictures(&[picture()], &paths[0]).unwrap_err().to_string();
        assert!(message.starts_with("cannot write ") && message.ends_with("with --out DIR"), "{message}");
    }
}
