//! One plot as an SVG fragment: a frame with axes, and a line with markers for each curve.
//!
//! Colours are those of the light theme; the page's style sheet restyles them by attribute for the dark one, so the
//! colours here and in `page.css` must be the same. Each curve has a colour and a shape of its own (Okabe and Ito's
//! palette, which colour-blind readers can tell apart, and a brown).
//!
//! Neighbours: `axis` has the axes; `picture` and `faults` make plots.

use std::f64::consts::TAU;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::ReportError;
use crate::axis::{Axis, Places};

/// Size of a plot in its own units, of which the page shows about two to a pixel: coordinates are whole units.
pub(crate) const SIZE: (u32, u32) = (1120, 720);
pub(crate) const LEGEND_SIZE: (u32, u32) = (72, 32);
pub(crate) const FONT_SIZE: i32 = 35;
const LINE_WIDTH: u32 = 4;
/// Radius of a marker.
const MARKER_RADIUS: f64 = 11.0;
/// Points of a curve above which it is a line without markers, which would hide it.
const MARKED_POINTS_MAX: usize = 40;
/// How much of what is behind a shaded time is hidden.
const SHADE: f64 = 0.35;

/// The colour of cells.
const CELLS: usize = 0;

pub(crate) const INK: RGBColor = RGBColor(0x5b, 0x61, 0x6a);
const AXIS: RGBColor = RGBColor(0xb9, 0xb6, 0xae);
const GRID: RGBColor = RGBColor(0xe2, 0xdf, 0xd7);
pub(crate) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Colours of the curves, as `page.css` names them.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// A measured point in the units of the axes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// The marks of one curve; curves keep their place, and with it their colour, over all plots.
pub(crate) type Marks = Vec<Mark>;

/// What is drawn behind the curves.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Behind {
    /// The grid alone.
    Nothing,
    /// Shades between two values of the horizontal axis each.
    Shades(Vec<(f64, f64)>),
    /// Parts of the plane.
    Cells(Vec<Cell>),
}

/// A part of a plot, and how dark it is, from 0 to 1.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cell {
    pub(crate) x: Range<f64>,
    pub(crate) y: Range<f64>,
    pub(crate) darkness: f64,
}

/// What a plot shows besides its marks.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    pub(crate) horizontal: Axis,
    pub(crate) vertical: Axis,
    pub(crate) behind: Behind,
}

/// Draws a piece of line with its marker that begins at `from`.
pub(crate) fn draw_marker(area: &Area<'_>, from: (i32, i32), width: i32, curve: usize) -> Result<(), String> {
    let line = PathElement::new(vec![from, (from.0 + width, from.1)], colour(curve).stroke_width(LINE_WIDTH));
    area.draw(&line).map_err(text)?;
    area.draw(&shape((from.0 + width / 2, from.1), MARKER_RADIUS, curve, colour(curve))).map_err(text)
}

/// Draws a piece of a shade around `from`.
pub(crate) fn draw_shade(area: &Area<'_>, from: (i32, i32), size: (i32, i32)) -> Result<(), String> {
    let (top, bottom) = (from.1 - size.1 / 2, from.1 + size.1 / 2);
    let shade = Rectangle::new([(from.0, top), (from.0 + size.0, bottom)], AXIS.mix(SHADE).filled());
    area.draw(&shade).map_err(text)
}

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Places, Places>>;

pub(crate) fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Result<String, ReportError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(text)).map_err(ReportError::Plot)?;
    }
    Ok(svg)
}

/// Draws a plot into a part of a picture. Every mark has a place on both axes.
pub(crate) fn draw_chart(area: &Area<'_>, axes: &Axes, curves: &[Marks]) -> Result<(), String> {
    let Axes { horizontal, vertical, behind } = axes;
    let mut builder = ChartBuilder::on(area);
    builder.margin(20).margin_right(30).x_label_area_size(98).y_label_area_size(140);
    let mut chart = builder.build_cartesian_2d(horizontal.coordinate(), vertical.coordinate()).map_err(text)?;
    let label = ("sans-serif", FONT_SIZE).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(AXIS.stroke_width(2))
        .label_style(label.clone())
        .axis_desc_style(label)
        .x_label_formatter(&|place| horizontal.label(*place))
        .y_label_formatter(&|place| vertical.label(*place))
        .x_desc(horizontal.name.as_str())
        .draw()
        .map_err(text)?;
    match behind {
        Behind::Nothing => {}
        Behind::Shades(shades) => {
            let [bottom, top] = [vertical.range.start, vertical.range.end].map(|value| vertical.place(value));
            let shade = |(from, to): &(f64, f64)| {
                let corners = [(horizontal.place(*from), bottom), (horizontal.place(*to), top)];
                Rectangle::new(corners, AXIS.mix(SHADE).filled())
            };
            chart.draw_series(shades.iter().map(shade)).map_err(text)?;
        }
        Behind::Cells(cells) => {
            let cell = |Cell { x, y, darkness }: &Cell| {
                let corner = |x, y| (horizontal.place(x), vertical.place(y));
                Rectangle::new([corner(x.start, y.end), corner(x.end, y.start)], colour(CELLS).mix(*darkness).filled())
            };
            chart.draw_series(cells.iter().map(cell)).map_err(text)?;
        }
    }
    curves.iter().enumerate().try_for_each(|(index, marks)| draw_curve(&mut chart, axes, index, marks))
}

fn draw_curve(chart: &mut Chart<'_, '_>, axes: &Axes, curve: usize, marks: &[Mark]) -> Result<(), String> {
    let colour = colour(curve);
    let place = |mark: &Mark| (axes.horizontal.place(mark.x), axes.vertical.place(mark.y));
    chart.draw_series(LineSeries::new(marks.iter().map(place), colour.stroke_width(LINE_WIDTH))).map_err(text)?;
    let marked = if marks.len() > MARKED_POINTS_MAX { &[] } else { marks };
    let markers = marked.iter().map(|mark| EmptyElement::at(place(mark)) + shape((0, 0), MARKER_RADIUS, curve, colour));
    chart.draw_series(markers).map_err(text).map(|_| ())
}

/// A curve's marker around `centre`: a disc, a square, a triangle or a diamond.
fn shape(centre: (i32, i32), radius: f64, curve: usize, colour: RGBColor) -> Polygon<(i32, i32)> {
    // Corners, where the first one lies as a share of the turn from the top, and how far out they lie, so that all
    // shapes have about the same weight.
    let (corners, turn, reach) = [(20, 0.0, 1.0), (4, 0.125, 1.25), (3, 0.0, 1.45), (4, 0.0, 1.3)][curve % 4];
    let corner = |index: u32| {
        let angle = TAU * (f64::from(index) / f64::from(corners) + turn);
        let out = |direction: f64| (radius * reach * direction).round() as i32;
        (centre.0 + out(angle.sin()), centre.1 - out(angle.cos()))
    };
    Polygon::new((0..corners).map(corner).collect::<Vec<_>>(), colour.filled())
}

pub(crate) fn colour(curve: usize) -> RGBColor {
    PALETTE[curve % PALETTE.len()]
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{latency_tick, trimmed};

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    fn draw(axes: &Axes, curves: &[Marks]) -> String {
        svg(SIZE, |area| draw_chart(area, axes, curves)).unwrap()
    }

    fn axes(vertical: Axis, behind: Behind) -> Axes {
        Axes { horizontal: Axis::linear("K requests/s", 20.0, |value| trimmed(value, 1)), vertical, behind }
    }

    fn thousands(most: f64) -> Axis {
        Axis::linear("", most, |value| trimmed(value, 1))
    }

    #[test]
    fn every_mark_is_drawn() {
        let curves = [vec![Mark { x: 10.0, y: 5.0 }, Mark { x: 20.0, y: 50.0 }], vec![Mark { x: 10.0, y: 4.0 }]];
        for axis in [Axis::decades("", 1.0..100.0, latency_tick), thousands(50.0)] {
            let svg = draw(&axes(axis, Behind::Nothing), &curves);
            assert_eq!(count(&svg, "<polygon"), 3);
            assert!(svg.contains("K requests/s"));
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        }
    }

    #[test]
    fn a_plot_without_marks_has_its_axes() {
        let svg = draw(&axes(thousands(0.0), Behind::Nothing), &[vec![]]);
        assert_eq!(count(&svg, "<polygon"), 0);
        assert!(count(&svg, "<text") > 2);
    }

    #[test]
    fn a_curve_of_many_points_is_a_line_and_shades_are_behind_it() {
        let many = |points: usize| (0..points).map(|x| Mark { x: x as f64 / 10.0, y: 1.0 }).collect::<Vec<_>>();
        let shaded = axes(thousands(2.0), Behind::Shades(vec![(1.0, 2.0), (3.0, 4.0)]));
        let svg = draw(&shaded, &[many(MARKED_POINTS_MAX + 1)]);
        assert_eq!((count(&svg, "<polygon"), count(&svg, "<rect")), (0, 2));
        assert!(svg.find("<rect") < svg.find(r##"stroke="#D55E00""##), "{svg}");
        let svg = draw(&axes(thousands(2.0), Behind::Nothing), &[many(MARKED_POINTS_MAX)]);
        assert_eq!((count(&svg, "<polygon"), count(&svg, "<rect")), (MARKED_POINTS_MAX, 0));
    }
}
