//! The data of the workload.

use std::path::Path;

use yonder_rocksdb_sys::{Db, RocksError, Shape};

/// Length of a key and of a value in bytes (Adios, section 5.2).
const KEY_BYTES: usize = 50;
const VALUE_BYTES: usize = 1024;
/// What a table has for a row: the key, the value, and what comes before them.
const ROW_BYTES: u64 = (KEY_BYTES + VALUE_BYTES + 12) as u64;

/// A page has less than four rows: what lies between two keys of the index is read at once.
pub(crate) const SHAPE: Shape = Shape { key_bytes: KEY_BYTES as u32, index_every: 4 };

/// Rows of which the keys are numbers in their order, and the values follow from them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows {
    /// How many there are.
    pub count: u64,
}

impl Rows {
    /// As many as tables of `bytes` bytes have.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        Self { count: (bytes / ROW_BYTES).max(1) }
    }

    /// About so many bytes of tables.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.count * ROW_BYTES
    }

    /// The key of a row.
    #[must_use]
    pub fn key(self, number: u64) -> Box<[u8]> {
        format!("row-{number:0width$}", width = KEY_BYTES - 4).into_bytes().into_boxed_slice()
    }

    /// The value of a row.
    #[must_use]
    pub fn value(self, number: u64) -> Vec<u8> {
        let word = |at: u64| (number ^ (at << 40) ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
        (0..(VALUE_BYTES / 8) as u64).flat_map(word).collect()
    }

    /// Whether these are the rows from `first` on, at most `count`, and none is missing.
    #[must_use]
    pub fn are(self, first: u64, count: u64, found: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let expected = first..self.count.min(first.saturating_add(count));
        expected.clone().count() == found.len()
            && expected
                .zip(found)
                .all(|(number, (key, value))| **key == *self.key(number) && *value == self.value(number))
    }

    /// Fills the database in `folder` with all rows. `progress` is told the share that is done.
    ///
    /// # Errors
    /// If the library is missing, or the folder cannot be written.
    pub fn store(self, folder: &Path, progress: &mut dyn FnMut(f64)) -> Result<(), RocksError> {
        let db = Db::open(folder, SHAPE, None)?;
        for number in 0..self.count {
            db.put(&self.key(number), &self.value(number))?;
            if number.is_multiple_of(4096) {
                progress(number as f64 / self.count as f64);
            }
        }
        db.settle()
    }
}
