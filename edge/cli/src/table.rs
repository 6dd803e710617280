//! Results below each other: [`Column`]s say what a table shows of each, [`Printer`] prints them as they come, as rows
//! or as JSON. What is known all at once is [`aligned`] by what is in it.

use serde::Serialize;
use yonder::units::format_bytes;

use crate::output::{json_line, line};

/// What a table shows of each result: a heading, a width, and a cell.
pub(crate) struct Column<R>(pub(crate) &'static str, pub(crate) usize, pub(crate) fn(&R) -> String);

impl<R> Clone for Column<R> {
    fn clone(&self) -> Self {
        Self(self.0, self.1, self.2)
    }
}

/// Prints results as they come, with the headings before the first one.
pub(crate) struct Printer<R> {
    json: bool,
    columns: Vec<Column<R>>,
    has_head: bool,
}

impl<R: Serialize> Printer<R> {
    /// Prints rows of `columns`, or JSON.
    pub(crate) fn new(json: bool, columns: impl Into<Vec<Column<R>>>) -> Self {
        Self { json, columns: columns.into(), has_head: false }
    }

    /// Prints `text` unless results are JSON.
    pub(crate) fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.json { Ok(()) } else { line(text) }
    }

    /// Prints `text` and the headings, before there are results.
    pub(crate) fn begin(&mut self, text: &str) -> anyhow::Result<()> {
        self.say(text)?;
        self.has_head = true;
        self.say(&head(&self.columns))
    }

    /// Prints one result.
    pub(crate) fn print(&mut self, result: &R) -> anyhow::Result<()> {
        if self.json {
            return json_line(result);
        }
        if !std::mem::replace(&mut self.has_head, true) {
            line(&head(&self.columns))?;
        }
        line(&row(&self.columns, result))
    }

    /// Prints results.
    pub(crate) fn all(&mut self, results: &[R]) -> anyhow::Result<()> {
        results.iter().try_for_each(|result| self.print(result))
    }

    /// The next row has headings before it, as the first one had.
    pub(crate) fn new_head(&mut self) {
        self.has_head = false;
    }
}

fn head<R>(columns: &[Column<R>]) -> String {
    let cells = columns.iter().map(|Column(name, width, _)| format!("{name:>width$}"));
    cells.collect::<Vec<_>>().join(" ")
}

/// The cells of one result.
pub(crate) fn row<R>(columns: &[Column<R>], result: &R) -> String {
    let cells = columns.iter().map(|Column(_, width, cell)| format!("{:>width$}", cell(result)));
    cells.collect::<Vec<_>>().join(" ")
}

/// A number, or a dash if there is none.
pub(crate) fn number(value: impl Into<Option<f64>>, digits: usize) -> String {
    value.into().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

/// A median with the least and the greatest beside it, each with `unit`.
pub(crate) fn with_spread(
    median: impl Into<Option<f64>>,
    spread: impl Into<Option<[f64; 2]>>,
    digits: usize,
    unit: &str,
) -> String {
    match (median.into(), spread.into()) {
        (Some(median), Some([least, most])) => format!("{median:.digits$}{unit} ({least:.digits$}-{most:.digits$})"),
        _ => "-".to_owned(),
    }
}

/// Bytes, or a dash.
pub(crate) fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), format_bytes)
}

/// A rate that was asked for; a closed loop asks for none.
pub(crate) fn offered(rate: Option<f64>) -> String {
    rate.map_or_else(|| "max".to_owned(), |rate| format!("{rate:.0}"))
}

/// Lines of cells, the first one of titles.
pub(crate) fn titled(titles: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    std::iter::once(titles).chain(rows).collect()
}

/// Prints lines whose cells stand below one another.
pub(crate) fn print(table: &[Vec<String>]) -> anyhow::Result<()> {
    aligned(table).iter().try_for_each(|text| line(text))
}

/// Lines of cells, in columns as wide as their widest cell.
pub(crate) fn aligned(table: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| table.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let cell = |(column, cell): (usize, &String)| format!("{cell:<width$}", width = width(column).unwrap_or(0));
    let text = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
    table.iter().map(|row| text(row).trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_their_headings() {
        const COLUMNS: &[Column<(f64, Option<f64>)>] =
            &[Column("ops/s", 7, |one| number(one.0, 1)), Column("of us", 5, |one| number(one.1, 0))];
        assert_eq!(head(COLUMNS), "  ops/s of us");
        assert_eq!(row(COLUMNS, &(1.25, None)), "    1.2     -");
        assert_eq!(with_spread(2.0, [1.0, 3.0], 1, "x"), "2.0x (1.0-3.0)");
        assert_eq!(
            (with_spread(None, None, 1, ""), offered(None), bytes(Some(2048))),
            ("-".into(), "max".into(), "2 KiB".into())
        );
    }
}
