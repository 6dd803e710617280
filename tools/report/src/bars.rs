//! [`Bars`]: a picture of bars below one another, each of one part or of several, one behind the other.
//!
//! Every bar has its name and its numbers above it, so that there is no axis to look along. Lengths are to one scale.
//!
//! Neighbours: `picture` has curves, and the words of both; `plot` the colours.

use std::path::{Path, PathBuf};

use plotters::prelude::*;
use serde::Serialize;

use crate::picture::{Entry, LEGEND_TOP, MARGIN};
use crate::picture::{cut, draw_entries, draw_title, draw_words, head_height, legend, text_width};
use crate::plot::{FONT_SIZE, PAPER, SIZE, colour, svg, text};
use crate::{ReportError, write_file};

/// A bar's name and its numbers, the bar below them, and what is between it and the next.
pub(crate) const BAR_HEIGHT: i32 = 24;
pub(crate) const BAR_TOP: i32 = 46;
pub(crate) const ROW_HEIGHT: i32 = 88;
/// What is left free below the last bar.
const BOTTOM: i32 = 20;

/// Bars and their words.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bars {
    /// Name of the file, without an ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How to read it, one line.
    pub caption: String,
    /// What the parts of every bar are; nothing is said where a bar is one part.
    pub parts: Vec<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Bar {
    /// What it is of.
    pub name: String,
    /// Its numbers, as they are written beside the name.
    pub numbers: String,
    /// How long its parts are, all bars in one unit. What is not finite, or below zero, has no length.
    pub parts: Vec<f64>,
}

/// Writes bars into `directory`, which is created if need be, and returns their files' paths.
pub fn write_bars(pictures: &[Bars], directory: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let write = |bars: &Bars| write_file(directory, &format!("{}.svg", bars.name), &bars_svg(bars)?);
    pictures.iter().map(write).collect()
}

/// Bars as SVG.
pub fn bars_svg(bars: &Bars) -> Result<String, ReportError> {
    let names = bars.parts.iter().enumerate().map(|(part, name)| (name.as_str(), Some(part)));
    let legend: Vec<Entry<'_>> = if bars.parts.len() > 1 { legend(names) } else { Vec::new() };
    let head = head_height(&legend);
    let rows = bars.bars.len() as i32 * ROW_HEIGHT;
    svg((SIZE.0, (head + rows + BOTTOM) as u32), |area| {
        area.fill(&PAPER).map_err(text)?;
        draw_title(area, &bars.title, &bars.caption)?;
        draw_entries(area, &legend)?;
        let most = bars.bars.iter().map(length).fold(f64::MIN_POSITIVE, f64::max);
        let first = head.max(LEGEND_TOP);
        let tops = (0..).map(|row| first + row * ROW_HEIGHT);
        bars.bars.iter().zip(tops).try_for_each(|(bar, top)| {
            draw_names(area, &bar.name, &bar.numbers, top)?;
            spans(bar, most).into_iter().enumerate().try_for_each(|(part, (from, to))| {
                let corners = [(from, top + BAR_TOP), (to, top + BAR_TOP + BAR_HEIGHT)];
                area.draw(&Rectangle::new(corners, colour(part).filled())).map_err(text)
            })
        })
    })
}

/// Draws what is above a bar whose row begins at `top`: its name at the left, as much of it as there is room for, and
/// its numbers at the right.
pub(crate) fn draw_names(area: &crate::plot::Area<'_>, name: &str, numbers: &str, top: i32) -> Result<(), String> {
    let numbers_left = SIZE.0 as i32 - MARGIN - text_width(numbers);
    draw_words(area, numbers, (numbers_left, top), FONT_SIZE, FontStyle::Normal)?;
    draw_words(area, &cut(name, numbers_left - 2 * MARGIN), (MARGIN, top), FONT_SIZE, FontStyle::Normal)
}

fn length(bar: &Bar) -> f64 {
    bar.parts.iter().filter(|part| is_length(**part)).sum()
}

fn is_length(part: f64) -> bool {
    part.is_finite() && part > 0.0
}

/// Where the parts of a bar begin and end, if a bar of `most` is as wide as the picture.
fn spans(bar: &Bar, most: f64) -> Vec<(i32, i32)> {
    let place = |value: f64| MARGIN + (f64::from(SIZE.0 as i32 - 2 * MARGIN) * value / most).round() as i32;
    let mut before = 0.0;
    let span = |part: &f64| {
        let from = before;
        before += if is_length(*part) { *part } else { 0.0 };
        (place(from), place(before))
    };
    bar.parts.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, parts: &[f64]) -> Bar {
        Bar { name: name.to_owned(), numbers: format!("{} us", parts.len()), parts: parts.to_vec() }
    }

    fn bars(parts: &[&str], bars: Vec<Bar>) -> Bars {
        Bars {
            name: "fault-breakdown".to_owned(),
            title: "Where the time goes".to_owned(),
            caption: "Medians & no more.".to_owned(),
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            bars,
        }
    }

    #[test]
    fn parts_stand_one_behind_the_other_and_to_one_scale() {
        let (short, long) = (bar("busy", &[1.0, 2.0]), bar("yield", &[2.0, 0.0, f64::NAN, 4.0]));
        let width = SIZE.0 as i32 - 2 * MARGIN;
        let place = |share: f64| MARGIN + (f64::from(width) * share).round() as i32;
        assert_eq!((length(&short), length(&long)), (3.0, 6.0));
        assert_eq!(spans(&short, 6.0), [(MARGIN, place(1.0 / 6.0)), (place(1.0 / 6.0), place(0.5))]);
        let third = place(2.0 / 6.0);
        assert_eq!(spans(&long, 6.0), [(MARGIN, third), (third, third), (third, third), (third, MARGIN + width)]);
    }

    #[test]
    fn every_bar_has_its_words_and_parts_their_names() {
        let svg =
            bars_svg(&bars(&["post", "fetch"], vec![bar("busy", &[1.0, 2.0]), bar("yield", &[2.0, 3.0])])).unwrap();
        for word in ["Where the time goes", "Medians &amp; no more.", "busy", "yield", "2 us", "post", "fetch"] {
            assert!(svg.contains(word), "{word} is missing");
        }
        // The parts, a piece of each colour in the legend, and the paper.
        assert_eq!(svg.matches("<rect").count(), 4 + 1);
        assert_eq!(svg.matches("<polygon").count(), 2, "a marker for each part in the legend");
        let plain = bars_svg(&bars(&["all"], vec![bar("alone", &[1.0])])).unwrap();
        assert_eq!((plain.matches("<polygon").count(), plain.matches("<rect").count()), (0, 2));
    }

    #[test]
    fn nothing_to_show_is_drawn_too() {
        for empty in [bars(&[], Vec::new()), bars(&["a"], vec![bar("none", &[]), bar("nan", &[f64::NAN])])] {
            let svg = bars_svg(&empty).unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn files_have_the_names_of_the_pictures() {
        let directory = tempfile::tempdir().unwrap();
        let picture = bars(&["a"], vec![bar("one", &[1.0])]);
        let paths = write_bars(std::slice::from_ref(&picture), directory.path()).unwrap();
        assert_eq!(paths, [directory.path().join("fault-breakdown.svg")]);
        assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), bars_svg(&picture).unwrap());
    }
}
