//! [`PageHasher`]: the keyed hash by which a page is known to be what the node has.
//!
//! NH, the universal hash of UMAC and VMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO 1999), with words of 64
//! bits and a key as long as a page: the sum, modulo 2^128, of (m0 + k0) * (m1 + k1) over the granules of a content,
//! where m0 and m1 are the two words of a granule, k0 and k1 the words of the key at the same place, and the sums in
//! the brackets are modulo 2^64. What zeros would sum to is taken away, so that zeros have [`PageHash::ZEROS`], and the
//! hash of a part of a page is that of the page with zeros everywhere else.
//!
//! The bound: two contents that differ, and that were chosen without knowledge of the key, have the same hash with a
//! probability of at most 2^-64, whichever they are. In a granule in which they differ, say in m0, the keys but k1
//! being what they may, at most one of the 2^64 values of k1 makes the two sums equal (ADR 0018 has the proof). All 128
//! bits have to be kept for that.
//!
//! It is no message authentication code: hashes must not be shown to whoever chooses contents.
//!
//! Neighbours: `core/pager` keeps the hash of each page; `runtime/paging` draws the keys.

use std::ops::Range;

use yonder_units::PAGE_BYTES;

/// Bytes of a key: full entropy is expected of each.
pub const HASH_KEY_BYTES: usize = PAGE_BYTES;
/// Bytes whose hashes add up to those of a page: parts that are hashed begin and end at multiples of this.
pub const HASH_GRANULE_BYTES: usize = 16;
const GRANULES: usize = PAGE_BYTES / HASH_GRANULE_BYTES;
const _: () = assert!(PAGE_BYTES.is_multiple_of(HASH_GRANULE_BYTES));

/// A hash of a page, or of a part of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageHash(u128);

impl PageHash {
    /// Hash of zeros, under every key and of every part of a page.
    pub const ZEROS: Self = Self(0);

    /// The hash that [`PageHash::to_words`] made words of.
    #[must_use]
    #[inline]
    pub fn from_words([low, high]: [u64; 2]) -> Self {
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// The hash in two words.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is a word")]
    pub fn to_words(self) -> [u64; 2] {
        [self.0 as u64, (self.0 >> 64) as u64]
    }

    /// The hash of two parts of one page that have no byte in common, of which this is one.
    #[must_use]
    #[inline]
    pub fn with(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// A key, ready for use.
pub struct PageHasher {
    key: Box<[[u64; 2]; GRANULES]>,
    /// What a page of zeros sums to.
    zeros: u128,
}

impl PageHasher {
    /// With a key that was drawn for this hasher alone.
    #[must_use]
    pub fn new(key: &[u8; HASH_KEY_BYTES]) -> Self {
        let (granules, _) = key.as_chunks::<HASH_GRANULE_BYTES>();
        let mut words = Box::new([[0; 2]; GRANULES]);
        words.iter_mut().zip(granules).for_each(|(words, granule)| *words = words_of(granule));
        let zeros = sum(&*words, [[0; HASH_GRANULE_BYTES]; GRANULES].iter());
        Self { key: words, zeros }
    }

    /// The hash of a page.
    #[must_use]
    #[inline]
    pub fn page(&self, content: &[u8; PAGE_BYTES]) -> PageHash {
        PageHash(sum(&*self.key, content.as_chunks().0.iter()).wrapping_sub(self.zeros))
    }

    /// The hash of the bytes of a page in `range`.
    ///
    /// # Panics
    /// If `range` is not of whole granules, or not of a page.
    #[must_use]
    pub fn part(&self, range: Range<usize>, content: &[u8; PAGE_BYTES]) -> PageHash {
        let is_whole = |at: usize| at.is_multiple_of(HASH_GRANULE_BYTES);
        assert!(is_whole(range.start) && is_whole(range.end), "bytes {range:?} are not whole granules");
        let range = range.start / HASH_GRANULE_BYTES..range.end / HASH_GRANULE_BYTES;
        let (key, granules) = (&self.key[range.clone()], &content.as_chunks().0[range]);
        let zeros = sum(key, [[0; HASH_GRANULE_BYTES]; GRANULES][..key.len()].iter());
        PageHash(sum(key, granules.iter()).wrapping_sub(zeros))
    }
}

/// NH of granules under the part of the key that is theirs.
#[inline]
fn sum<'a>(key: &[[u64; 2]], granules: impl Iterator<Item = &'a [u8; HASH_GRANULE_BYTES]>) -> u128 {
    key.iter().zip(granules).fold(0, |sum, (key, granule)| {
        let [first, second] = words_of(granule);
        let product = u128::from(first.wrapping_add(key[0])) * u128::from(second.wrapping_add(key[1]));
        sum.wrapping_add(product)
    })
}

#[inline]
fn words_of(granule: &[u8; HASH_GRANULE_BYTES]) -> [u64; 2] {
    let both = u128::from_le_bytes(*granule);
    PageHash(both).to_words()
}

#[cfg(test)]
mod tests;
