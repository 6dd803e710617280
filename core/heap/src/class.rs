//! [`Class`]: the sizes of small objects.
//!
//! Sizes go in steps of 16 bytes to 128. Above that, a class is the largest multiple of 16 of which a certain number
//! fits into its slab: other sizes would only leave more of the slab unused. A slab is a page up to a quarter of one.
//! Larger objects lie across the borders of pages in slabs of several; there a class is a multiple of 64 where that
//! costs little, for alignments. Every power of two is among the sizes, for the same reason.

use yonder_units::{Narrow, PAGE_BYTES};

/// Largest small object, in bytes. What is larger gets whole pages.
pub const OBJECT_BYTES_MAX: usize = 8192;
/// All offsets that are given out are multiples of this.
pub const GRANULE_BYTES: usize = 16;
/// Number of classes.
pub const CLASSES: usize = SIZES.len();

const SIZES: [u16; 52] = [
    16, 32, 48, 64, 80, 96, 112, 128, // steps of a granule
    160, 192, 224, 256, // 25, 21, 18 and 16 in a page
    288, 336, 400, 448, 512, // 14, 12, 10, 9 and 8
    576, 672, 816, 1024, // 7, 6, 5 and 4
    1040, 1088, 1152, 1216, 1280, 1344, 1456,
    1536, // 63, 60, 56, 53, 51, 48, 45 and 42 in a slab of several pages
    1664, 1792, 1920, 2048, 2176, 2304, 2496, 2688, // 39, 36, 34, 32, 30, 28, 26 and 24
    2944, 3120, 3264, 3392, 3584, 3840, 4096, // 22 to 16
    4368, 4672, 4992, 5440, 5952, 6528, 7232, 8192, // 15 to 8
];
/// Largest object of a slab that is one page.
const PAGE_OBJECT_BYTES_MAX: usize = 1024;
/// Smallest object of a larger slab.
pub(crate) const LARGE_BYTES_MIN: usize = 1040;
/// Pages of the slabs of larger ones. Such a slab begins at a multiple of them.
pub(crate) const LARGE_SLAB_PAGES: u32 = 16;
/// Granules of the largest slab.
const SLAB_GRANULES_MAX: usize = LARGE_SLAB_PAGES as usize * PAGE_BYTES / GRANULE_BYTES;

/// The class of an object of up to as many granules.
#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 classes")]
const BY_GRANULES: [u8; OBJECT_BYTES_MAX / GRANULE_BYTES + 1] = {
    let mut table = [0; OBJECT_BYTES_MAX / GRANULE_BYTES + 1];
    let (mut granules, mut class) = (0, 0);
    while granules < table.len() {
        if granules * GRANULE_BYTES > SIZES[class] as usize {
            class += 1;
        }
        table[granules] = class as u8;
        granules += 1;
    }
    table
};

/// 2^32 divided by the granules of a class, rounded up: multiplying divides exactly, as a slab has few granules.
const RECIPROCALS: [u64; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = (1u64 << 32).div_ceil(SIZES[class] as u64 / GRANULE_BYTES as u64);
        class += 1;
    }
    table
};
const _: () = assert!(SLAB_GRANULES_MAX * (OBJECT_BYTES_MAX / GRANULE_BYTES) <= 1 << 32, "reciprocals divide exactly");

/// One size of small objects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Class(u8);

impl Class {
    /// The smallest class for `bytes` bytes at a multiple of `align`, a power of two. `None` if whole pages are needed.
    #[must_use]
    #[inline]
    pub fn fitting(bytes: u64, align: u64) -> Option<Self> {
        if bytes > OBJECT_BYTES_MAX as u64 || align > OBJECT_BYTES_MAX as u64 {
            return None;
        }
        let class = BY_GRANULES[bytes.narrow_usize().div_ceil(GRANULE_BYTES)];
        if align <= GRANULE_BYTES as u64 {
            return Some(Self(class));
        }
        // Slots follow one another from the first byte of a page. The last class is a multiple of every such alignment.
        let aligned = SIZES[class as usize..].iter().position(|size| u64::from(*size) % align == 0)?;
        Some(Self(class + aligned.narrow_u8()))
    }

    /// All classes, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..CLASSES.narrow_u8()).map(Self)
    }

    /// The class as an index into an array of [`CLASSES`].
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Bytes of an object.
    #[must_use]
    #[inline]
    pub const fn bytes(self) -> usize {
        SIZES[self.0 as usize] as usize
    }

    /// Objects in a page.
    #[must_use]
    #[inline]
    pub const fn slots(self) -> usize {
        self.slab_pages() as usize * PAGE_BYTES / self.bytes()
    }

    /// Pages of its slabs, which begin at a multiple of them.
    #[must_use]
    #[inline]
    pub(crate) const fn slab_pages(self) -> u32 {
        if self.bytes() > PAGE_OBJECT_BYTES_MAX { LARGE_SLAB_PAGES } else { 1 }
    }

    /// The first page of the slab that a page belongs to.
    #[must_use]
    #[inline]
    pub(crate) const fn slab_of(self, page: u32) -> u32 {
        page & !(self.slab_pages() - 1)
    }

    /// The class at `index`, which is less than [`CLASSES`].
    #[inline]
    pub(crate) const fn at(index: u8) -> Self {
        assert!((index as usize) < CLASSES);
        Self(index)
    }

    /// The bits of word `index` of a slab's bitmap that stand for slots.
    #[inline]
    pub(crate) fn slot_mask(self, index: usize) -> u64 {
        let slots = self.slots().saturating_sub(index * u64::BITS as usize);
        if slots >= u64::BITS as usize { !0 } else { (1 << slots) - 1 }
    }

    /// The slot that begins at byte `within` of its slab, if one does.
    #[inline]
    pub(crate) fn slot_at(self, within: usize) -> Option<usize> {
        let slot = (((within / GRANULE_BYTES) as u64 * RECIPROCALS[self.index()]) >> 32).narrow_usize();
        (slot * self.bytes() == within && slot < self.slots()).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 0..=OBJECT_BYTES_MAX as u64 {
            let smallest = Class::all().find(|class| class.bytes() as u64 >= bytes);
            assert_eq!(Class::fitting(bytes, 1), smallest, "{bytes} bytes");
        }
        assert_eq!(Class::fitting(OBJECT_BYTES_MAX as u64 + 1, 1), None);
        assert_eq!(Class::fitting(1, 2 * OBJECT_BYTES_MAX as u64), None);
    }

    #[test]
    fn little_of_a_page_is_wasted() {
        // With the end of the page that holds no slot, in thousandths of what a full page could hold.
        let wasted = |bytes: usize| {
            let class = Class::fitting(bytes as u64, 1).unwrap();
            1000 - 1000 * bytes * class.slots() / (class.slab_pages() as usize * PAGE_BYTES)
        };
        let worst = |sizes: std::ops::RangeInclusive<usize>| sizes.map(wasted).max().unwrap();
        assert_eq!(worst(113..=128), 118);
        assert_eq!(worst(129..=1024), 213, "129 bytes in 160");
        assert_eq!(worst(1025..=2048), 86, "1665 bytes in 1792");
        assert!((1..=128).all(|bytes| Class::fitting(bytes, 1).unwrap().bytes() as u64 - bytes < GRANULE_BYTES as u64));
        assert_eq!(worst(2049..=4096), 98, "2689 bytes in 2944");
        assert_eq!(worst(4097..=8192), 118, "7233 bytes, of which 8 are in a slab");
        // A value of 4 KiB with its header.
        assert_eq!(worst(4198..=4368), 40);
        // What a class itself leaves of a slab of one page.
        let of_a_page = Class::all().filter(|class| class.slab_pages() == 1);
        assert!(of_a_page.into_iter().all(|class| PAGE_BYTES - class.slots() * class.bytes() <= 112));
    }

    #[test]
    fn alignments_take_the_smallest_class_that_is_a_multiple() {
        for align in (0..=13).map(|power| 1u64 << power) {
            let fits =
                |class: &Class, bytes| class.bytes() as u64 >= bytes && (class.bytes() as u64).is_multiple_of(align);
            for bytes in 0..=OBJECT_BYTES_MAX as u64 {
                let smallest = Class::all().find(|class| fits(class, bytes));
                assert!(smallest.is_some());
                assert_eq!(Class::fitting(bytes, align), smallest, "{bytes} bytes at {align}");
            }
        }
    }

    #[test]
    fn slots_are_found_by_their_first_byte_only() {
        for class in Class::all() {
            let slab = 0..class.slab_pages() as usize * PAGE_BYTES;
            let starts = slab.filter_map(|within| class.slot_at(within).map(|slot| (slot, within)));
            let expected = (0..class.slots()).map(|slot| (slot, slot * class.bytes()));
            assert!(starts.eq(expected), "{} bytes", class.bytes());
        }
    }
}
