//! The report for a terminal: a table for each chart and one of the ratios, in aligned columns and without colours.

use std::fmt::Write;

use crate::model::{Chart, FarMemory, Ratio, Report};
use crate::numbers::{microseconds, rate, ratio};
use crate::table::Table;

/// Width that the table of ratios keeps to, as far as its words can be broken.
const WIDTH_MAX: usize = 110;
/// Least width that a ratio's name is broken to, so that the paper's source has room beside it.
const NAME_WIDTH_MIN: usize = 28;

/// How a column is aligned.
#[derive(Clone, Copy)]
enum Align {
    Left,
    Right,
}

/// All tables of the report, the charts' and the ratios', as lines of text that end with a newline.
#[must_use]
pub fn text_tables(report: &Report) -> String {
    let mut out = format!("{}\n{}\n", report.title, far_memory(&report.far_memory, report.far_memory.how()));
    for chart in &report.charts {
        write!(out, "\n{}\n", chart.title).expect("a string takes every write");
        if !chart.far_memory.is_empty() {
            writeln!(out, "{}", far_memory(&report.far_memory, &chart.far_memory)).expect("a string takes every write");
        }
        out.push('\n');
        out.push_str(&measurements(chart));
    }
    if report.charts.is_empty() {
        out.push_str("\nnothing was measured\n");
    }
    let mut points = report.charts.iter().flat_map(|chart| &chart.curves).flat_map(|curve| &curve.points);
    if points.any(|point| point.is_saturated()) {
        out.push_str("\n* saturated: the server did not keep up, and latency shows the length of the queue\n");
    }
    if !report.ratios.is_empty() {
        out.push('\n');
        out.push_str(&ratios(&report.ratios));
    }
    out
}

/// A table as lines of text that end with a newline: its columns, aligned, and its rows.
#[must_use]
pub fn text_table(numbers: &Table) -> String {
    let align = |column| if numbers.is_numeric(column) { Align::Right } else { Align::Left };
    let columns: Vec<_> =
        numbers.columns.iter().enumerate().map(|(index, column)| (column.name, align(index))).collect();
    table(&columns, &numbers.texts().collect::<Vec<_>>())
}

/// Far memory as `how` describes it; `kind` says whether it was emulated.
fn far_memory(kind: &FarMemory, how: &str) -> String {
    match kind {
        FarMemory::Emulated(_) => format!("far memory: EMULATED ({how})"),
        FarMemory::Remote(_) => format!("far memory: {how}"),
    }
}

fn measurements(chart: &Chart) -> String {
    if !chart.is_measured() {
        return "nothing was measured\n".to_owned();
    }
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
    for curve in &chart.curves {
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
    table(&columns, &rows)
}

fn ratios(ratios: &[Ratio]) -> String {
    use Align::{Left, Right};
    let mut columns =
        vec![("ratio", Left), ("here", Right), ("paper", Right), ("measured", Left), ("paper's source", Left)];
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), ratio);
    let row = |entry: &Ratio| {
        vec![
            entry.what.clone(),
            ratio(entry.ours),
            or_dash(entry.paper),
            entry.condition.clone(),
            entry.paper_source.clone(),
        ]
    };
    let mut rows: Vec<_> = ratios.iter().map(row).collect();
    let has_source = ratios.iter().any(|entry| !entry.paper_source.is_empty());
    match room_for_names(&columns, &rows).filter(|_| has_source) {
        Some(room) => rows = rows.into_iter().flat_map(|row| broken(row, room)).collect(),
        None => {
            columns.pop();
            rows.iter_mut().for_each(|row| row.truncate(columns.len()));
        }
    }
    let mut out = table(&columns, &rows);
    if ratios.iter().any(|entry| !entry.note.is_empty()) {
        out.push('\n');
    }
    for entry in ratios.iter().filter(|entry| !entry.note.is_empty()) {
        writeln!(out, "{}: {}", entry.what, entry.note).expect("a string takes every write");
    }
    out
}

/// How wide the first column may be for the table to keep to its width; none if that is too narrow to be read.
fn room_for_names(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Option<usize> {
    let others = width(columns, rows) - column_width(columns, rows, 0);
    WIDTH_MAX.checked_sub(others).filter(|room| *room >= NAME_WIDTH_MIN)
}

/// A row with its first cell broken between words to at most `room` characters: as many rows as that takes, of which
/// the first has the other cells.
fn broken(mut row: Vec<String>, room: usize) -> Vec<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in row[0].split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            // Later lines are indented, so that they are not taken for rows.
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    row[0] = lines.next().unwrap_or_default();
    let blank = vec![String::new(); row.len() - 1];
    let rest = lines.map(|line| [vec![line], blank.clone()].concat());
    [row].into_iter().chain(rest).collect()
}

/// Width of a column: of its widest cell or its name.
fn column_width(columns: &[(&str, Align)], rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().map(|row| row[column].chars().count());
    cells.fold(columns[column].0.chars().count(), usize::max)
}

/// Width of a table.
fn width(columns: &[(&str, Align)], rows: &[Vec<String>]) -> usize {
    (0..columns.len()).map(|column| column_width(columns, rows, column)).sum::<usize>() + 2 * (columns.len() - 1)
}

/// Columns as wide as their widest cell, two spaces apart, with a rule under the head.
fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..columns.len()).map(|column| column_width(columns, rows, column)).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(columns).zip(&widths).map(|((cell, (_, align)), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut out = line(columns.iter().map(|(name, _)| *name).collect());
    out.push_str(&format!("{}\n", "-".repeat(width(columns, rows))));
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

Random reads of an array (no network)
far memory: EMULATED (2.5 us, 100 Gbit/s)

mode       offered/s  achieved/s     P50 us  P99 us  P99.9 us  dropped
----------------------------------------------------------------------
busy-wait       50 K      49.9 K       8.21    31.4      77.0        0
               120 K       120 K       14.0    96.2       410        0
               200 K       138 K  *    7312    9120     10004   123456
yield           50 K        50 K       7.93    19.2      33.1        0
               1.2 M       1.2 M       12.5    40.8      88.0        0

A memcached server over loopback
far memory: EMULATED (25 us, 100 Gbit/s)

mode       offered/s  achieved/s     P50 us  P99 us  P99.9 us  dropped
----------------------------------------------------------------------
busy-wait       10 K        10 K       61.0     180       350        0
                20 K      18.1 K  *     900    2100      2900        0
yield           10 K        10 K       55.0     120       210        0
                20 K        20 K       58.0     150       260        0

* saturated: the server did not keep up, and latency shows the length of the queue

";
        let text = text_tables(&report());
        let (measured, ratios) = text.split_at(text.find("ratio ").unwrap());
        assert_eq!(measured, expected, "\n{measured}");
        let expected = "\
ratio                                here  paper  measured             paper's source
--------------------------------------------------------------------------------------------------------
peak throughput, yield / busy-wait  1.71x  1.58x  with 97 % of 2 CPUs  Adios, figure 7(d)
P99.9, busy-wait / yield, where     8.20x  10.9x  with 52 % of 2 CPUs  Adios, Memcached, 128-byte values
  busy-wait saturates
major faults per request            0.80x      -

P99.9, busy-wait / yield, where busy-wait saturates: the load generator shares the CPUs
";
        assert_eq!(ratios, expected, "\n{ratios}");
    }

    #[test]
    fn numbers_stand_at_the_right_and_words_at_the_left() {
        let mut numbers = Table::new("a", "", &[("system", 0), ("p99_us", 1), ("drops", 0)]);
        assert_eq!(text_table(&numbers), "system  p99_us  drops\n---------------------\n");
        numbers.push(vec!["Adios".into(), 12.34.into(), 0.0.into()]);
        numbers.push(vec!["DiLOS".into(), f64::NAN.into(), 1234.0.into()]);
        let rows = "Adios     12.3      0\nDiLOS        -   1234\n";
        assert_eq!(text_table(&numbers), format!("system  p99_us  drops\n---------------------\n{rows}"));
    }

    #[test]
    fn an_empty_report_says_so() {
        assert!(text_tables(&empty()).ends_with("\n\nnothing was measured\n"));
        let mut report = report();
        report.charts[1].curves.clear();
        let text = text_tables(&report);
        assert!(
            text.contains("server over loopback\nfar memory: EMULATED (25 us, 100 Gbit/s)\n\nnothing was measured\n")
        );
    }

    #[test]
    fn the_papers_source_is_shown_where_there_is_room() {
        let mut entry = report().ratios.swap_remove(0);
        let lines =
            |entry: &Ratio| -> Vec<String> { ratios(std::slice::from_ref(entry)).lines().map(str::to_owned).collect() };
        // The figures and the gaps take 37 columns of the 110 and the source 18, which leaves 55 for the name.
        entry.what = ["seven77"; 7].join(" ");
        let fitting = lines(&entry);
        assert_eq!(fitting.len(), 3, "{fitting:?}");
        assert_eq!((fitting[1].len(), fitting[2].len()), (110, 110), "{fitting:?}");
        entry.what.push('!');
        let broken = lines(&entry);
        assert_eq!(broken.len(), 4, "{broken:?}");
        assert!(broken[2].ends_with("Adios, figure 7(d)") && broken[3] == "  seven77!", "{broken:?}");
        entry.paper_source = "s".repeat(45);
        let narrow = lines(&entry);
        assert!(narrow.iter().all(|line| line.len() <= 110) && narrow[2].ends_with('s'), "{narrow:?}");
        entry.paper_source.push('s');
        let without = lines(&entry);
        assert_eq!(without.len(), 3, "{without:?}");
        assert!(without[2].ends_with("1.58x  with 97 % of 2 CPUs") && !without[0].contains("source"), "{without:?}");
        entry.paper_source.clear();
        assert_eq!(lines(&entry), without);
    }
}
