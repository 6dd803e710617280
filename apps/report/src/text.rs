//! The report for a terminal: aligned columns, no colours, at most about a hundred characters wide.

use std::fmt::Write;

use crate::model::{FarMemory, Ratio, Report};
use crate::numbers::{microseconds, rate, ratio};

/// How a column is aligned.
#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
}

/// Both tables of the report, measurements and ratios, as lines of text that end with a newline.
#[must_use]
pub fn text_tables(report: &Report) -> String {
    let mut out = format!("{}\n", report.title);
    match &report.far_memory {
        FarMemory::Emulated(how) => writeln!(out, "far memory: EMULATED ({how})"),
        FarMemory::Remote(how) => writeln!(out, "far memory: {how}"),
    }
    .expect("a string takes every write");
    out.push('\n');
    out.push_str(&measurements(report));
    if !report.ratios.is_empty() {
        out.push('\n');
        out.push_str(&ratios(&report.ratios));
    }
    out
}

fn measurements(report: &Report) -> String {
    use Align::{Left, Right};
    let columns = [
        ("mode", Left),
        ("offered/s", Right),
        ("achieved/s", Right),
        ("", Left),
        ("P50 us", Right),
        ("P99 us", Right),
        ("P99.9 us", Right),
        ("dropped", Right),
    ];
    let mut rows = Vec::new();
    for curve in &report.curves {
        for (index, point) in curve.points.iter().enumerate() {
            rows.push(vec![
                if index == 0 { curve.name.clone() } else { String::new() },
                rate(point.offered_per_s),
                rate(point.achieved_per_s),
                if point.is_saturated() { "*".to_owned() } else { String::new() },
                microseconds(point.p50_us),
                microseconds(point.p99_us),
                microseconds(point.p999_us),
                point.dropped.to_string(),
            ]);
        }
    }
    if rows.is_empty() {
        return "nothing was measured\n".to_owned();
    }
    let mut out = table(&columns, &rows);
    if report.curves.iter().flat_map(|curve| &curve.points).any(|point| point.is_saturated()) {
        out.push_str("* saturated: the server did not keep up, and latency shows the length of the queue\n");
    }
    out
}

fn ratios(ratios: &[Ratio]) -> String {
    use Align::{Left, Right};
    let columns = [("ratio", Left), ("here", Right), ("paper", Right), ("bar", Right), ("", Left)];
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), ratio);
    let row = |entry: &Ratio| {
        vec![
            entry.what.clone(),
            ratio(entry.ours),
            or_dash(entry.paper),
            or_dash(entry.bar),
            entry.meets_bar().map_or("", |met| if met { "met" } else { "missed" }).to_owned(),
        ]
    };
    let mut out = table(&columns, &ratios.iter().map(row).collect::<Vec<_>>());
    for entry in ratios.iter().filter(|entry| !entry.note.is_empty()) {
        writeln!(out, "{}: {}", entry.what, entry.note).expect("a string takes every write");
    }
    out
}

/// Columns as wide as their widest cell, two spaces apart, with a rule under the head.
fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(columns).zip(&widths).map(|((cell, (_, align)), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut out = line(columns.iter().map(|(name, _)| *name).collect());
    out.push_str(&format!("{}\n", "-".repeat(widths.iter().sum::<usize>() + 2 * (columns.len() - 1))));
    rows.iter().for_each(|row| out.push_str(&line(row.iter().map(String::as_str).collect())));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::{empty, report};

    #[test]
    fn the_tables_line_up() {
        let expected = "\
A fault that yields
far memory: EMULATED (2.5 us, 100 Gbit/s)

mode       offered/s  achieved/s     P50 us  P99 us  P99.9 us  dropped
----------------------------------------------------------------------
busy-wait       50 K      49.9 K       8.21    31.4      77.0        0
               120 K       120 K       14.0    96.2       410        0
               200 K       138 K  *    7312    9120     10004   123456
yield           50 K        50 K       7.93    19.2      33.1        0
               1.2 M       1.2 M       12.5    40.8      88.0        0
* saturated: the server did not keep up, and latency shows the length of the queue

";
        let text = text_tables(&report());
        let (measured, ratios) = text.split_at(text.find("ratio ").unwrap());
        assert_eq!(measured, expected, "\n{measured}");
        let expected = "\
ratio                                                 here  paper    bar
--------------------------------------------------------------------------------
peak throughput, yield / busy-wait                   1.71x  1.58x  1.58x  met
P99.9, busy-wait / yield, where busy-wait saturates  8.20x  10.9x  10.9x  missed
major faults per request                             0.80x      -      -
P99.9, busy-wait / yield, where busy-wait saturates: the load generator shares the CPUs
";
        assert_eq!(ratios, expected, "\n{ratios}");
    }

    #[test]
    fn an_empty_report_says_so() {
        assert!(text_tables(&empty()).ends_with("\n\nnothing was measured\n"));
    }
}
