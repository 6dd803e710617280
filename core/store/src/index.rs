//! [`Index`]: where each page is, and its checksum.
//!
//! Who touches what: the writer of a page stores its checksum and shape, then its location; the cleaner replaces a
//! location by compare-and-swap alone. A reader reads a page while nobody writes it, so checksum and shape stand still,
//! and the location moves at most.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;
use yonder_units::PageIndex;
use zerocopy::FromZeros as _;

use crate::PAGE_GRAINS;

/// Bits of a location that say how long it is.
const LENGTH_BITS: u32 = 4;

const _: () = assert!(PAGE_GRAINS < 1 << LENGTH_BITS);

/// A place on the disk that has a page: some grains in a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location(u64);

/// Which bytes of a page a content has, as its owner says it: the store keeps the word and gives it back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shape(pub u64);

impl Location {
    /// `grains` of them from the one at `start`.
    ///
    /// # Panics
    /// If it has none, or more than a page has.
    #[must_use]
    pub fn new(start: u64, grains: usize) -> Self {
        assert!((1..=PAGE_GRAINS).contains(&grains), "{grains} grains for a page");
        Self(start << LENGTH_BITS | grains as u64)
    }

    /// The first grain.
    #[must_use]
    pub fn start(self) -> u64 {
        self.0 >> LENGTH_BITS
    }

    /// How many grains.
    #[must_use]
    pub fn grains(self) -> usize {
        (self.0 & ((1 << LENGTH_BITS) - 1)) as usize
    }

    /// The grain behind the last.
    #[must_use]
    pub fn end(self) -> u64 {
        self.start() + self.grains() as u64
    }

    /// A word of it, which is never 0.
    fn to_word(self) -> u64 {
        self.0
    }

    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }
}

/// Where each page is. Shared by all who use the store.
pub struct Index {
    locations: Box<[AtomicU64]>,
    checksums: Box<[AtomicU64]>,
    /// Made with the first content that has a shape.
    shapes: OnceLock<Box<[AtomicU64]>>,
    /// Makes what an earlier store has left on the disk no content of this one.
    seed: u64,
}

impl Index {
    /// Of `pages` pages that were never written. Its memory is backed where it is used.
    #[must_use]
    pub fn new(pages: usize, seed: u64) -> Self {
        assert!(u32::try_from(pages).is_ok(), "an index cannot name each of {pages} pages");
        Self { locations: words(pages), checksums: words(pages), shapes: OnceLock::new(), seed }
    }

    /// Pages that it has room for.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.locations.len()
    }

    /// Where a page is; `None` if it reads as zeros.
    #[must_use]
    #[inline]
    pub fn location(&self, page: PageIndex) -> Option<Location> {
        Location::from_word(self.locations[page.index()].load(Ordering::Acquire))
    }

    /// Which bytes of a page there are.
    #[must_use]
    pub fn shape(&self, page: PageIndex) -> Shape {
        Shape(self.shapes.get().map_or(0, |shapes| shapes[page.index()].load(Ordering::Acquire)))
    }

    /// Whether `content` is what was written of a page last.
    #[must_use]
    pub fn is_content(&self, page: PageIndex, content: &[u8]) -> bool {
        self.checksum(page, content) == self.checksums[page.index()].load(Ordering::Acquire)
    }

    /// The checksum of a content of a page, which is that of no other page.
    pub(crate) fn checksum(&self, page: PageIndex, content: &[u8]) -> u64 {
        xxh3_64_with_seed(content, self.seed.wrapping_add(page.index() as u64))
    }

    /// A page has been written to `location`. Returns where it was before, which is dead now.
    pub(crate) fn set(&self, page: PageIndex, shape: Shape, checksum: u64, location: Location) -> Option<Location> {
        if shape != Shape::default() || self.shapes.get().is_some() {
            self.shapes.get_or_init(|| words(self.pages()))[page.index()].store(shape.0, Ordering::Release);
        }
        self.checksums[page.index()].store(checksum, Ordering::Release);
        Location::from_word(self.locations[page.index()].swap(location.to_word(), Ordering::AcqRel))
    }

    /// A page has been moved. Whether it has: not if it was written or forgotten meanwhile, and then the place it was
    /// moved to is dead.
    pub(crate) fn relocate(&self, page: PageIndex, from: Location, to: Location) -> bool {
        let words = (from.to_word(), to.to_word());
        self.locations[page.index()].compare_exchange(words.0, words.1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// A page reads as zeros from now on. Returns where it was, which is dead now.
    pub fn forget(&self, page: PageIndex) -> Option<Location> {
        // Most pages of a range that is given back have never been written: their words are not to be backed for that.
        self.location(page)?;
        Location::from_word(self.locations[page.index()].swap(0, Ordering::AcqRel))
    }
}

fn words(count: usize) -> Box<[AtomicU64]> {
    <[AtomicU64]>::new_box_zeroed_with_elems(count).expect("the kernel gives addresses for the index")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_what_it_was_made_of() {
        for (start, grains) in [(0, 1), (0, 8), (7, 3), ((1 << 59) - 8, 8)] {
            let location = Location::new(start, grains);
            assert_eq!((location.start(), location.grains(), location.end()), (start, grains, start + grains as u64));
            assert_eq!(Location::from_word(location.to_word()), Some(location));
        }
        assert_eq!(Location::from_word(0), None);
    }

    #[test]
    fn a_page_is_where_it_was_put_last() {
        let (index, page) = (Index::new(4, 1), PageIndex(2));
        let [first, second, third] = [Location::new(0, 8), Location::new(8, 1), Location::new(16, 8)];
        assert_eq!((index.location(page), index.forget(page)), (None, None));
        assert_eq!(index.set(page, Shape(0), index.checksum(page, b"one"), first), None);
        assert!(index.is_content(page, b"one") && !index.is_content(page, b"two"));
        assert!(!index.is_content(PageIndex(1), b"one"), "of another page");
        assert_eq!(index.set(page, Shape(9), index.checksum(page, b"two"), second), Some(first));
        assert_eq!((index.shape(page), index.shape(PageIndex(0))), (Shape(9), Shape(0)));
        assert!(!index.relocate(page, first, third), "written meanwhile");
        assert!(index.relocate(page, second, third) && index.is_content(page, b"two"));
        assert_eq!((index.forget(page), index.location(page)), (Some(third), None));
        assert!(!index.relocate(page, third, first), "forgotten meanwhile");
    }
}
