//! [`Checksum`] of a result, in the order in which it is told, and [`multiset`], for which order does not matter.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// A checksum of numbers and bytes.
pub(crate) struct Checksum(Xxh3);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(Xxh3::new())
    }

    /// The checksum of numbers with a fraction.
    pub(crate) fn of_floats<'a>(values: impl IntoIterator<Item = &'a f64>) -> Self {
        Self::of(values.into_iter().map(|value| value.to_bits()))
    }

    pub(crate) fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut checksum = Self::new();
        for number in numbers {
            checksum.add(number);
        }
        checksum
    }

    pub(crate) fn add(&mut self, number: u64) {
        self.0.update(&number.to_le_bytes());
    }

    /// Adds bytes, and how many they are.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        self.0.update(bytes);
    }

    /// As text, because not every reader of JSON keeps 64 bits of a number.
    pub(crate) fn text(&self) -> String {
        format!("{:016x}", self.0.digest())
    }
}

/// A number that is the same for the same numbers in any order.
pub(crate) fn multiset(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, |sum: u64, number| sum.wrapping_add(xxh3_64(&number.to_le_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_sees_order_and_a_multiset_does_not() {
        assert_eq!(Checksum::of([1, 2, 3]).text(), Checksum::of([1, 2, 3]).text());
        assert_ne!(Checksum::of([1, 2, 3]).text(), Checksum::of([1, 3, 2]).text());
        assert_eq!(multiset([1, 2, 2, 3]), multiset([2, 3, 1, 2]));
        assert_ne!(multiset([1, 2, 2, 3]), multiset([1, 2, 3, 3]));
        assert_ne!(multiset([1, 4]), multiset([2, 3]));
    }

    #[test]
    fn where_bytes_end_counts() {
        let of = |parts: [&[u8]; 2]| {
            let mut checksum = Checksum::new();
            parts.iter().for_each(|part| checksum.add_bytes(part));
            checksum.text()
        };
        assert_ne!(of([b"ab", b"c"]), of([b"a", b"bc"]));
    }
}
