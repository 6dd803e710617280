//! One plot as an SVG fragment: a frame with axes, and a line with markers for each curve.
//!
//! Colours are those of the light theme; the page's style sheet restyles them by attribute for the dark one, so the
//! colours here and in `page.css` must be the same. Each curve has a colour and a shape of its own (Okabe and Ito's
//! palette, which colour-blind readers can tell apart). Saturated points are hollow.

use std::f64::consts::TAU;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::ReportError;
use crate::numbers::{latency_tick, trimmed};

/// Size of a plot in its own units, of which the page shows about two to a pixel: coordinates are whole units.
const SIZE: (u32, u32) = (1120, 720);
const LEGEND_SIZE: (u32, u32) = (72, 32);
const FONT_SIZE: i32 = 35;
const LINE_WIDTH: u32 = 4;
/// Radius of a marker, and of the hole in the marker of a saturated point.
const MARKER_RADIUS: f64 = 11.0;
const HOLE_RADIUS: f64 = 6.0;
/// Decades above which a logarithmic axis has a tick a decade; below, it has three.
const DENSE_DECADES_MAX: f64 = 2.2;

const INK: RGBColor = RGBColor(0x5b, 0x61, 0x6a);
const AXIS: RGBColor = RGBColor(0xb9, 0xb6, 0xae);
const GRID: RGBColor = RGBColor(0xe2, 0xdf, 0xd7);
const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Colours of the curves, as `page.css` names them.
const PALETTE: [RGBColor; 6] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// A measured point in the units of the axes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) saturated: bool,
}

/// The marks of one curve; curves keep their place, and with it their colour, over all plots.
pub(crate) type Marks = Vec<Mark>;

/// What the vertical axis shows.
#[derive(Clone, Debug)]
pub(crate) enum Vertical {
    /// Microseconds, logarithmic, over this range.
    Latency(Range<f64>),
    /// Thousands of requests per second, with a dashed line where they equal the horizontal axis.
    Throughput,
}

/// What a plot shows besides its marks.
#[derive(Clone, Debug)]
pub(crate) struct Axes {
    /// Name of the horizontal axis, which shows thousands of requests per second from zero to the largest mark.
    pub(crate) horizontal: &'static str,
    pub(crate) vertical: Vertical,
}

/// Draws a plot. Every coordinate is finite and, on a logarithmic axis, positive.
pub(crate) fn draw(axes: &Axes, curves: &[Marks]) -> Result<String, ReportError> {
    let reach = |coordinate: fn(&Mark) -> f64| curves.iter().flatten().map(coordinate).fold(1.0, f64::max) * 1.06;
    let x = 0.0..reach(|mark| mark.x);
    svg(SIZE, |area| match &axes.vertical {
        Vertical::Latency(range) => {
            let y = range.clone().log_scale().with_key_points(latency_ticks(range));
            draw_chart(area, axes, x, y, curves)
        }
        Vertical::Throughput => draw_chart(area, axes, x, 0.0..reach(|mark| mark.y), curves),
    })
}

/// A piece of line with its marker, for the legend.
pub(crate) fn marker(curve: usize) -> Result<String, ReportError> {
    let (width, middle) = (LEGEND_SIZE.0 as i32, LEGEND_SIZE.1 as i32 / 2);
    svg(LEGEND_SIZE, |area| {
        let line = PathElement::new(vec![(0, middle), (width, middle)], colour(curve).stroke_width(LINE_WIDTH));
        area.draw(&line).map_err(text)?;
        area.draw(&shape((width / 2, middle), MARKER_RADIUS, curve, colour(curve))).map_err(text)
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

fn svg(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), String>) -> Result<String, ReportError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(text)).map_err(ReportError::Plot)?;
    }
    Ok(svg)
}

fn draw_chart<Y>(
    area: &Area<'_>,
    axes: &Axes,
    x: Range<f64>,
    y: impl AsRangedCoord<CoordDescType = Y, Value = f64>,
    curves: &[Marks],
) -> Result<(), String>
where
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut builder = ChartBuilder::on(area);
    builder.margin(20).margin_right(30).x_label_area_size(98).y_label_area_size(140);
    let mut chart = builder.build_cartesian_2d(x.clone(), y).map_err(text)?;
    let tick: fn(f64) -> String = match axes.vertical {
        Vertical::Latency(_) => latency_tick,
        Vertical::Throughput => |thousands| trimmed(thousands, 1),
    };
    let label = ("sans-serif", FONT_SIZE).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(2))
        .axis_style(AXIS.stroke_width(2))
        .label_style(label.clone())
        .axis_desc_style(label)
        .x_labels(11)
        .y_labels(8)
        .x_label_formatter(&|thousands| trimmed(*thousands, 1))
        .y_label_formatter(&|value| tick(*value))
        .x_desc(axes.horizontal)
        .draw()
        .map_err(text)?;
    if let Vertical::Throughput = axes.vertical {
        let most = curves.iter().flatten().map(|mark| mark.y).fold(0.0, f64::max).min(x.end);
        let line = DashedLineSeries::new([(0.0, 0.0), (most, most)], 10, 10, AXIS.stroke_width(3));
        chart.draw_series(line).map_err(text)?;
    }
    curves.iter().enumerate().try_for_each(|(index, marks)| draw_curve(&mut chart, index, marks))
}

fn draw_curve<Y>(chart: &mut Chart<'_, '_, Y>, curve: usize, marks: &[Mark]) -> Result<(), String>
where
    Y: Ranged<ValueType = f64>,
{
    let colour = colour(curve);
    let line = LineSeries::new(marks.iter().map(|mark| (mark.x, mark.y)), colour.stroke_width(LINE_WIDTH));
    chart.draw_series(line).map_err(text)?;
    let markers = marks.iter().map(|mark| {
        // The hole is filled with the page's colour, so that no line shows through.
        let inside = if mark.saturated { PAPER } else { colour };
        let at = EmptyElement::at((mark.x, mark.y));
        at + shape((0, 0), MARKER_RADIUS, curve, colour) + shape((0, 0), HOLE_RADIUS, curve, inside)
    });
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

/// The ticks within `range`: 1, 10, 100 ..., with 2 and 5 between them if there is room.
fn latency_ticks(range: &Range<f64>) -> Vec<f64> {
    let dense = (range.end / range.start).log10() <= DENSE_DECADES_MAX;
    let steps: &[f64] = if dense { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let decades = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    ticks.filter(|tick| (range.start..=range.end).contains(tick)).collect()
}

fn colour(curve: usize) -> RGBColor {
    PALETTE[curve % PALETTE.len()]
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(x: f64, y: f64, saturated: bool) -> Mark {
        Mark { x, y, saturated }
    }

    fn count(svg: &str, what: &str) -> usize {
        svg.matches(what).count()
    }

    #[test]
    fn every_mark_is_drawn_and_saturated_ones_are_hollow() {
        let curves = [vec![mark(10.0, 5.0, false), mark(20.0, 50.0, true)], vec![mark(10.0, 4.0, false)]];
        for vertical in [Vertical::Latency(1.0..100.0), Vertical::Throughput] {
            let svg = draw(&Axes { horizontal: "K requests/s", vertical }, &curves).unwrap();
            assert_eq!(count(&svg, "<polygon"), 6, "an outside and an inside for each mark");
            assert_eq!(count(&svg, r##"fill="#FFFFFF""##), 1, "one hole");
            assert!(svg.contains("K requests/s"));
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        }
    }

    #[test]
    fn ticks_are_round_and_neither_crowded_nor_missing() {
        assert_eq!(latency_ticks(&(1.0..100.0)), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(latency_ticks(&(5.0..20_000.0)), [10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn a_plot_without_marks_has_its_axes() {
        let svg = draw(&Axes { horizontal: "K requests/s", vertical: Vertical::Throughput }, &[vec![]]).unwrap();
        assert_eq!(count(&svg, "<polygon"), 0);
        assert!(count(&svg, "<text") > 2);
    }
}
