//! [`Frame`]: a table in far memory, and the queries that it answers.

use crate::{AppError, Meter};
use serde::Serialize;
use yonder_offload::frame::{Column as FarColumn, ColumnKind, Filter, ROWS_MAX, Summary};

use crate::frame::{Condition, Table, Values, local, node};

/// Bytes of the widest value.
const VALUE_BYTES_MAX: u64 = 8;

/// Where a query is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// At the memory node, beside the data.
    Node,
    /// At the client, which fetches the columns.
    Client,
}

/// A table in far memory.
#[derive(Debug)]
pub struct Frame {
    columns: Vec<Stored>,
    rows: u64,
    /// A bitmap with a bit for each row, for queries with several conditions.
    marks: u64,
    /// Room for the values that one call selects.
    list: u64,
}

/// A column in far memory.
#[derive(Debug)]
pub(crate) struct Stored {
    name: String,
    pub(crate) far: FarColumn,
    /// The different texts of a column of texts.
    names: Vec<String>,
}

/// A query that was checked against the columns: tests that a row must pass, and the column that is asked for.
pub(crate) struct Query<'f> {
    pub(crate) filters: Vec<Filter>,
    pub(crate) column: &'f Stored,
    pub(crate) rows: u64,
    pub(crate) marks: u64,
    pub(crate) list: u64,
}

impl Frame {
    /// Stores a table.
    pub fn store(table: &Table, meter: &mut Meter) -> Result<Self, AppError> {
        let mut columns = Vec::with_capacity(table.columns().len());
        for column in table.columns() {
            let (kind, bytes) = (column.values.kind(), column.values.to_bytes());
            let address = meter.allocate(bytes.len().max(1) as u64)?;
            meter.write(address, &bytes)?;
            let (name, names) = (column.name.clone(), column.values.names().to_vec());
            columns.push(Stored { name, far: FarColumn { address, kind }, names });
        }
        let marks = meter.allocate(table.rows().div_ceil(8).max(1))?;
        let list = meter.allocate(table.rows().clamp(1, ROWS_MAX) * VALUE_BYTES_MAX)?;
        Ok(Self { columns, rows: table.rows(), marks, list })
    }

    /// Frees its memory.
    pub fn free(self, meter: &mut Meter) -> Result<(), AppError> {
        for column in &self.columns {
            meter.free(column.far.address)?;
        }
        meter.free(self.marks)?;
        meter.free(self.list)
    }

    /// How many rows it has.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Names of its columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Fetches a whole column.
    pub fn fetch(&self, column: &str, meter: &mut Meter) -> Result<Values, AppError> {
        self.column(column)?.fetch(self.rows, meter)
    }

    /// Count, sum, least and greatest of a column of numbers, in the rows that fulfil all conditions.
    pub fn summary(
        &self,
        column: &str,
        wanted: &[Condition],
        place: Place,
        meter: &mut Meter,
    ) -> Result<Summary, AppError> {
        let query = self.query(column, wanted)?;
        if query.column.far.kind == ColumnKind::U32 {
            return Err(AppError::Settings(format!("column '{column}' has texts: summarise a column of numbers")));
        }
        match place {
            Place::Node => node::summary(&query, meter),
            Place::Client => {
                let mask = local::mask(&query, meter)?;
                local::summary(&query.column.fetch(self.rows, meter)?, &mask)
            }
        }
    }

    /// The values of a column, in the rows that fulfil all conditions.
    pub fn select(
        &self,
        column: &str,
        wanted: &[Condition],
        place: Place,
        meter: &mut Meter,
    ) -> Result<Values, AppError> {
        let query = self.query(column, wanted)?;
        match place {
            Place::Node => node::select(&query, meter),
            Place::Client => {
                let mask = local::mask(&query, meter)?;
                let rows: Vec<usize> = (0..mask.len()).filter(|row| mask[*row]).collect();
                Ok(query.column.fetch(self.rows, meter)?.pick(&rows))
            }
        }
    }

    fn query(&self, column: &str, wanted: &[Condition]) -> Result<Query<'_>, AppError> {
        let filter = |condition: &Condition| {
            let column = self.column(&condition.column)?;
            let test = condition.test(column.far.kind, &column.names)?;
            Ok(Filter::Where { address: column.far.address, test })
        };
        let filters = wanted.iter().map(filter).collect::<Result<_, AppError>>()?;
        Ok(Query { filters, column: self.column(column)?, rows: self.rows, marks: self.marks, list: self.list })
    }

    fn column(&self, name: &str) -> Result<&Stored, AppError> {
        self.columns.iter().find(|column| column.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            AppError::Settings(format!("there is no column '{name}': name one of {}", names.join(", ")))
        })
    }
}

impl Stored {
    fn fetch(&self, rows: u64, meter: &mut Meter) -> Result<Values, AppError> {
        let mut bytes = vec![0; (rows * self.far.kind.width()) as usize];
        meter.read(self.far.address, &mut bytes)?;
        Ok(self.values(&bytes))
    }

    /// Values of this column that came as bytes.
    pub(crate) fn values(&self, bytes: &[u8]) -> Values {
        Values::from_bytes(self.far.kind, bytes, &self.names)
    }
}
