//! The data of the workload.

use std::path::Path;

use crate::library::{Db, RocksError, Shape};

/// Length of a key and of a value in bytes (Adios, section 5.2).
pub(crate) const KEY_BYTES: usize = 50;
const VALUE_BYTES: usize = 1024;
/// What a table has for a row: the key, the value, and what comes before them.
const ROW_BYTES: u64 = (KEY_BYTES + VALUE_BYTES + 12) as u64;

/// What keys begin with.
const PREFIX: &[u8] = b"row-";
const WORD_BYTES: usize = size_of::<u64>();

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
        let mut key = Box::new([b'0'; KEY_BYTES]);
        key[..PREFIX.len()].copy_from_slice(PREFIX);
        let (mut rest, mut at) = (number, KEY_BYTES);
        while rest > 0 {
            at -= 1;
            key[at] += (rest % 10) as u8;
            rest /= 10;
        }
        key
    }

    /// The row of a key, if it is one.
    #[must_use]
    pub fn number(self, key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(PREFIX).filter(|_| key.len() == KEY_BYTES)?;
        let number = digits.iter().try_fold(0_u64, |number, digit| {
            let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        })?;
        (number < self.count).then_some(number)
    }

    /// The value of a row.
    #[must_use]
    pub fn value(self, number: u64) -> Vec<u8> {
        (0..VALUE_BYTES / WORD_BYTES).flat_map(|at| word_of(number, at)).collect()
    }

    /// Whether these are the rows from `first` on, at most `count`, and none is missing.
    #[must_use]
    pub fn are(self, first: u64, count: u64, found: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let end = self.count.min(first.saturating_add(count));
        let is_row = |number, (key, value): &(Vec<u8>, Vec<u8>)| {
            let mut words = value.chunks_exact(WORD_BYTES).enumerate();
            self.number(key) == Some(number)
                && value.len() == VALUE_BYTES
                && words.all(|(at, word)| *word == word_of(number, at))
        };
        (first..end).count() == found.len() && (first..end).zip(found).all(|(number, row)| is_row(number, row))
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

/// The word at a place of a row's value.
fn word_of(number: u64, at: usize) -> [u8; WORD_BYTES] {
    (number ^ ((at as u64) << 40) ^ 0x5EED).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_numbers_and_say_them() {
        let rows = Rows { count: 1_000_000 };
        let numbers = [0, 1, 9, 10, 99, 4095, 999_999];
        assert!(numbers.windows(2).all(|pair| rows.key(pair[0]) < rows.key(pair[1])));
        assert!(numbers.iter().all(|number| rows.number(&rows.key(*number)) == Some(*number)));
        let mut other = rows.key(5);
        other[KEY_BYTES - 1] = b'x';
        for not_a_row in [&rows.key(1_000_000)[..], &rows.key(5)[1..], &other, b""] {
            assert_eq!(rows.number(not_a_row), None);
        }
    }

    #[test]
    fn rows_that_are_missing_strange_or_changed_are_seen() {
        let rows = Rows { count: 100 };
        let row = |number| (rows.key(number).to_vec(), rows.value(number));
        let found: Vec<_> = (95..100).map(row).collect();
        assert!(rows.are(95, 5, &found) && rows.are(95, 100, &found) && rows.are(100, 5, &[]));
        assert!(!rows.are(95, 4, &found) && !rows.are(94, 5, &found) && !rows.are(95, 5, &found[..4]));
        let changed = |change: fn(&mut (Vec<u8>, Vec<u8>))| {
            let mut found = found.clone();
            change(&mut found[3]);
            rows.are(95, 5, &found)
        };
        assert!(!changed(|(_, value)| value[1023] ^= 1));
        assert!(!changed(|(_, value)| value.truncate(1016)));
        assert!(!changed(|(key, _)| key[49] ^= 1));
    }
}
