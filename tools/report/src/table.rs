//! [`Table`]: numbers and words in rows, for a terminal, a page and scripts alike.
//!
//! The columns are a contract with scripts: a row is an object with a key for each. What people read is rounded to the
//! digits of the column, what scripts read is not.
//!
//! Neighbours: `research/figures` fills tables with simulations, `yonder report` in `edge/cli` with measurements;
//! `text`, `results_page` and `results_words` lay them out.

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// A table; its columns are a contract with scripts.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// Which part of the experiment: `a`, `throughput`.
    pub part: &'static str,
    /// What it shows.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its key in JSON, with the unit last: `p99_us`.
    pub name: &'static str,
    /// Digits behind the point, where people read it.
    pub digits: usize,
}

/// One entry of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A word.
    Text(String),
    /// A number, finite.
    Number(f64),
    /// There is none: what it would say did not happen.
    Missing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Missing }
    }
}

impl Cell {
    /// As people read it, with so many digits behind the point.
    pub(crate) fn text(&self, digits: usize) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => format!("{number:.digits$}"),
            Self::Missing => "-".to_owned(),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_str()),
            Self::Number(number) => Value::from(*number),
            Self::Missing => Value::Null,
        }
    }
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(part: &'static str, title: &str, columns: &[(&'static str, usize)]) -> Self {
        let columns = columns.iter().map(|(name, digits)| Column { name, digits: *digits }).collect();
        Self { part, title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not a cell for each column.
    pub fn push(&mut self, row: Vec<Cell>) {
        assert_eq!(row.len(), self.columns.len(), "a row of {} in a table of {}", row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// The rows as JSON objects of experiment `sim`, a key for each column; numbers as they are, not rounded to digits.
    pub fn objects(&self, sim: &str) -> impl Iterator<Item = Value> {
        self.rows.iter().map(move |row| {
            let mut object = self.object(row);
            object.extend([("sim".to_owned(), sim.into()), ("part".to_owned(), self.part.into())]);
            Value::Object(object)
        })
    }

    fn object(&self, row: &[Cell]) -> Map<String, Value> {
        self.columns.iter().zip(row).map(|(column, cell)| (column.name.to_owned(), cell.value())).collect()
    }

    /// Whether a column's cells are numbers, which stand below one another at the right.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row[column], Cell::Number(_)))
    }

    /// The cells of every row as people read them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows
            .iter()
            .map(|row| self.columns.iter().zip(row).map(|(column, cell)| cell.text(column.digits)).collect())
    }
}

impl Serialize for Table {
    /// The part, the title, the names of the columns in their order, and the rows as objects.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut table = serializer.serialize_struct("Table", 4)?;
        table.serialize_field("part", self.part)?;
        table.serialize_field("title", &self.title)?;
        table.serialize_field("columns", &self.columns.iter().map(|column| column.name).collect::<Vec<_>>())?;
        table.serialize_field("rows", &self.rows.iter().map(|row| self.object(row)).collect::<Vec<_>>())?;
        table.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new("a", "A table", &[("system", 0), ("p99_us", 1), ("drops", 0)]);
        table.push(vec!["adios".into(), 1.25.into(), f64::NAN.into()]);
        table
    }

    #[test]
    fn rows_become_objects_with_a_key_for_each_column() {
        let objects: Vec<Value> = table().objects("a-fig1").collect();
        assert_eq!(objects, [json!({"sim": "a-fig1", "part": "a", "system": "adios", "p99_us": 1.25, "drops": null})]);
        let whole = json!({
            "part": "a", "title": "A table", "columns": ["system", "p99_us", "drops"],
            "rows": [{"system": "adios", "p99_us": 1.25, "drops": null}],
        });
        assert_eq!(serde_json::to_value(table()).unwrap(), whole);
    }

    #[test]
    fn people_read_as_many_digits_as_the_column_has() {
        let mut table = table();
        table.rows[0][1] = 1.06.into();
        assert_eq!(table.texts().collect::<Vec<_>>(), [["adios", "1.1", "-"]]);
        assert_eq!([0, 1, 2].map(|column| table.is_numeric(column)), [false, true, false]);
    }

    #[test]
    #[should_panic(expected = "a row of 1 in a table of 2")]
    fn a_row_that_is_too_short_is_refused() {
        Table::new("a", "A table", &[("one", 0), ("two", 0)]).push(vec![1.0.into()]);
    }
}
