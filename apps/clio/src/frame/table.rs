//! [`Table`]: columns at the client, from a CSV file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::AppError;
use yonder_offload::frame::ColumnKind;

/// Columns of the same length.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: u64,
}

/// A column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Whole numbers.
    I64(Vec<i64>),
    /// Numbers; what is missing is not a number.
    F64(Vec<f64>),
    /// Anything else: positions in a list of the different texts.
    Text {
        /// The position of each row's text.
        codes: Vec<u32>,
        /// The texts.
        names: Vec<String>,
    },
}

impl Values {
    /// How they lie in far memory.
    #[must_use]
    pub const fn kind(&self) -> ColumnKind {
        match self {
            Self::I64(_) => ColumnKind::I64,
            Self::F64(_) => ColumnKind::F64,
            Self::Text { .. } => ColumnKind::U32,
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::I64(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::Text { codes, .. } => codes.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The different texts of a column of texts; none of numbers.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Text { names, .. } => names,
            Self::I64(_) | Self::F64(_) => &[],
        }
    }

    /// The values as they lie in far memory.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::Text { codes, .. } => codes.iter().flat_map(|code| code.to_le_bytes()).collect(),
        }
    }

    /// The values that lie in far memory so.
    #[must_use]
    pub fn from_bytes(kind: ColumnKind, bytes: &[u8], names: &[String]) -> Self {
        let words = || bytes.as_chunks::<8>().0.iter();
        match kind {
            ColumnKind::I64 => Self::I64(words().map(|word| i64::from_le_bytes(*word)).collect()),
            ColumnKind::F64 => Self::F64(words().map(|word| f64::from_le_bytes(*word)).collect()),
            ColumnKind::U32 => {
                let codes = bytes.as_chunks::<4>().0.iter().map(|code| u32::from_le_bytes(*code)).collect();
                Self::Text { codes, names: names.to_vec() }
            }
        }
    }

    /// Those of some rows, in that order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        match self {
            Self::I64(values) => Self::I64(rows.iter().map(|row| values[*row]).collect()),
            Self::F64(values) => Self::F64(rows.iter().map(|row| values[*row]).collect()),
            Self::Text { codes, names } => {
                Self::Text { codes: rows.iter().map(|row| codes[*row]).collect(), names: names.clone() }
            }
        }
    }

    /// The narrowest kind that all cells of a column fit: whole numbers, numbers, or texts. Empty cells are missing
    /// numbers.
    fn of_cells(cells: &[String]) -> Self {
        if let Ok(values) = cells.iter().map(|cell| cell.parse()).collect() {
            return Self::I64(values);
        }
        let number = |cell: &String| if cell.is_empty() { Ok(f64::NAN) } else { cell.parse() };
        if let Ok(values) = cells.iter().map(number).collect() {
            return Self::F64(values);
        }
        let mut positions = BTreeMap::new();
        let mut names = Vec::new();
        let code = |cell: &String| {
            *positions.entry(cell.clone()).or_insert_with(|| {
                names.push(cell.clone());
                (names.len() - 1) as u32
            })
        };
        let codes = cells.iter().map(code).collect();
        Self::Text { codes, names }
    }
}

impl Table {
    /// A table of these columns.
    ///
    /// # Panics
    /// If they have different lengths, or if there are none.
    #[must_use]
    pub fn new(columns: Vec<Column>) -> Self {
        let rows = columns.first().expect("a table has a column").values.len();
        assert!(columns.iter().all(|column| column.values.len() == rows), "all columns have the same length");
        Self { columns, rows: rows as u64 }
    }

    /// The table in a CSV file, whose first line has the names of the columns.
    pub fn open(path: &Path) -> Result<Self, AppError> {
        let name = path.display().to_string();
        let cause = |error| format!("{error}; name a CSV file that can be read");
        let file = File::open(path).map_err(|error| AppError::File { path: name.clone(), cause: cause(error) })?;
        Self::read(file, &name)
    }

    /// The table in CSV text, from a file with this name.
    pub fn read(text: impl Read, name: &str) -> Result<Self, AppError> {
        let failed = |cause: String| AppError::File { path: name.to_owned(), cause };
        let wrong = |error: csv::Error| failed(format!("{error}; mend the line"));
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
        let header: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
        if let Some(twice) = (1..header.len()).find(|column| header[..*column].contains(&header[*column])) {
            return Err(failed(format!("there are two columns '{}': give each a name of its own", header[twice])));
        }
        let mut cells = vec![Vec::new(); header.len()];
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            cells.iter_mut().zip(&record).for_each(|(column, cell)| column.push(cell.to_owned()));
        }
        if cells.first().is_none_or(Vec::is_empty) {
            return Err(failed("there are no rows: give a line with names, and lines with values".to_owned()));
        }
        let columns = header.into_iter().zip(&cells);
        Ok(Self::new(columns.map(|(name, cells)| Column { name, values: Values::of_cells(cells) }).collect()))
    }

    /// Its columns.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// How many rows it has.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "zone, riders,fare\nnorth,2,3.5\n\"south, old\",-1,\nnorth,9223372036854775807,4\n";

    #[test]
    fn columns_get_the_kind_that_their_cells_fit() {
        let table = Table::read(TEXT.as_bytes(), "trips.csv").unwrap();
        assert_eq!(table.rows(), 3);
        let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["zone", "riders", "fare"]);
        let [zone, riders, fare] = [0, 1, 2].map(|column| &table.columns()[column].values);
        assert_eq!(*zone, Values::Text { codes: vec![0, 1, 0], names: vec!["north".into(), "south, old".into()] });
        assert_eq!(*riders, Values::I64(vec![2, -1, i64::MAX]));
        let Values::F64(fares) = fare else { panic!("{fare:?}") };
        assert!(fares[0] == 3.5 && fares[1].is_nan() && fares[2] == 4.0);
        for values in [zone, riders] {
            assert_eq!(Values::from_bytes(values.kind(), &values.to_bytes(), values.names()), *values);
        }
        assert_eq!(riders.pick(&[2, 0]), Values::I64(vec![i64::MAX, 2]));
    }

    #[test]
    fn bad_files_are_refused_in_one_line() {
        for (text, hint) in [
            ("", "no rows"),
            ("a,b\n", "no rows"),
            ("a,b\n1,2\n3\n", "mend the line"),
            ("a,a\n1,2\n", "name of its own"),
        ] {
            let refused = Table::read(text.as_bytes(), "bad.csv").unwrap_err().to_string();
            assert!(refused.starts_with("bad.csv: ") && refused.contains(hint), "{refused}");
            assert!(!refused.contains('\n'));
        }
        let refused = Table::open(Path::new("/nowhere.csv")).unwrap_err().to_string();
        assert!(refused.contains("name a CSV file that can be read"), "{refused}");
    }
}
