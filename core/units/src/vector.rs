//! [`Vector`]: which bytes of a page an operation moves.
//!
//! A page of which little is live need not be moved as a whole (guided paging, DiLOS, section 4.4): an operation on a
//! page names at most [`SEGMENTS_MAX`] segments of it, and is one operation all the same. A vector is as small as a
//! word, so that whoever keeps one for each page can ([`Vector::to_word`]).
//!
//! Neighbours: queue pairs take vectors; the pager makes them of what its regions' owners say is live; `runtime/fabric`
//! moves the bytes.

use std::iter::once;
use std::ops::Range;

use crate::{Narrow, PAGE_BYTES};

/// Most segments of a vector. Longer ones were slower on DiLOS' network (section 6.3).
pub const SEGMENTS_MAX: usize = 3;
/// Segments begin and end at multiples of this.
pub const GRANULE_BYTES: usize = 16;
const _: () = assert!(PAGE_BYTES / GRANULE_BYTES == 1 << u8::BITS);

/// One to [`SEGMENTS_MAX`] segments of a page, in order and apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Vector {
    segments: [Segment; SEGMENTS_MAX],
}

/// The granules from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Segment {
    first: u8,
    last: u8,
}

impl Segment {
    const NONE: Self = Self { first: u8::MAX, last: 0 };

    #[inline]
    fn bytes(self) -> Option<Range<usize>> {
        let [start, end] = [usize::from(self.first), usize::from(self.last) + 1].map(|granule| granule * GRANULE_BYTES);
        (self.first <= self.last).then_some(start..end)
    }
}

impl Vector {
    /// All bytes of a page.
    pub const WHOLE: Self = Self { segments: [Segment { first: 0, last: u8::MAX }, Segment::NONE, Segment::NONE] };

    /// The granules that have a byte in one of `ranges`, which are in order and do not overlap.
    ///
    /// # Panics
    /// If there are no ranges or more than [`SEGMENTS_MAX`], or if one is empty, before another or beyond the page.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut segments = [Segment::NONE; SEGMENTS_MAX];
        let (mut count, mut end) = (0, 0);
        for Range { start, end: next_end } in ranges {
            assert!(end <= start && start < next_end && next_end <= PAGE_BYTES, "bytes {start}..{next_end} of a page");
            end = next_end;
            let [first, last] = [start, end - 1].map(|byte| (byte / GRANULE_BYTES).narrow_u8());
            match segments[..count].last_mut() {
                Some(before) if u16::from(first) <= u16::from(before.last) + 1 => before.last = last,
                _ => {
                    assert!(count < SEGMENTS_MAX, "more than {SEGMENTS_MAX} segments");
                    segments[count] = Segment { first, last };
                    count += 1;
                }
            }
        }
        assert!(count > 0, "a vector without segments");
        Self { segments }
    }

    /// The bytes of each segment.
    #[inline]
    pub fn segments(self) -> impl Iterator<Item = Range<usize>> + Clone {
        self.segments.into_iter().filter_map(Segment::bytes)
    }

    /// The bytes between and beside the segments.
    #[inline]
    pub fn gaps(self) -> impl Iterator<Item = Range<usize>> {
        let starts = once(0).chain(self.segments().map(|segment| segment.end));
        let ends = self.segments().map(|segment| segment.start).chain(once(PAGE_BYTES));
        starts.zip(ends).map(|(start, end)| start..end).filter(|gap| !gap.is_empty())
    }

    /// How many bytes it has.
    #[must_use]
    #[inline]
    pub fn bytes(self) -> usize {
        self.segments().map(|segment| segment.len()).sum()
    }

    /// Whether every byte of `other` is one of this.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        let is_covered =
            |part: Range<usize>| self.segments().any(|whole| whole.start <= part.start && part.end <= whole.end);
        other.segments().all(is_covered)
    }

    /// The vector in 48 bits, where 0 is [`Vector::WHOLE`].
    #[must_use]
    #[inline]
    pub fn to_word(self) -> u64 {
        Self::pack(self) ^ Self::pack(Self::WHOLE)
    }

    /// The vector that [`Vector::to_word`] made a word of.
    #[must_use]
    #[inline]
    pub fn from_word(word: u64) -> Self {
        let bytes = (word ^ Self::pack(Self::WHOLE)).to_le_bytes();
        let segment = |at: usize| Segment { first: bytes[2 * at], last: bytes[2 * at + 1] };
        Self { segments: std::array::from_fn(segment) }
    }

    #[inline]
    const fn pack(self) -> u64 {
        let [a, b, c] = self.segments;
        u64::from_le_bytes([a.first, a.last, b.first, b.last, c.first, c.last, 0, 0])
    }
}

impl std::fmt::Debug for Vector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.segments()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which bytes `ranges` have, rounded to granules.
    fn marked(ranges: &[Range<usize>]) -> Vec<bool> {
        let mut bytes = vec![false; PAGE_BYTES];
        for range in ranges {
            let (first, last) = (range.start / GRANULE_BYTES, (range.end - 1) / GRANULE_BYTES);
            bytes[first * GRANULE_BYTES..(last + 1) * GRANULE_BYTES].fill(true);
        }
        bytes
    }

    /// A few hundred lists of ranges, by a generator that gives the same every time.
    fn examples() -> Vec<Vec<Range<usize>>> {
        let mut state = 7u64;
        let mut draw = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let list = |draw: &mut dyn FnMut(usize) -> usize| {
            let mut bounds: Vec<usize> = (0..2 * (1 + draw(SEGMENTS_MAX))).map(|_| draw(PAGE_BYTES + 1)).collect();
            bounds.sort_unstable();
            bounds.chunks(2).map(|pair| pair[0]..pair[1]).filter(|range| !range.is_empty()).collect::<Vec<_>>()
        };
        (0..400).map(|_| list(&mut draw)).filter(|ranges| !ranges.is_empty()).collect()
    }

    #[test]
    fn a_vector_has_the_granules_of_its_ranges() {
        for ranges in examples() {
            let (vector, expected) = (Vector::new(ranges.clone()), marked(&ranges));
            let segments: Vec<_> = vector.segments().collect();
            assert_eq!(marked(&segments), expected, "{ranges:?}");
            assert!(segments.windows(2).all(|pair| pair[0].end < pair[1].start), "{segments:?}");
            assert_eq!(vector.bytes(), expected.iter().filter(|byte| **byte).count());
            let gaps: Vec<_> = vector.gaps().collect();
            assert!(gaps.iter().all(|gap| !expected[gap.clone()].contains(&true)));
            assert_eq!(gaps.iter().map(ExactSizeIterator::len).sum::<usize>() + vector.bytes(), PAGE_BYTES);
        }
    }

    #[test]
    fn a_vector_survives_its_word_and_the_whole_page_is_zero() {
        assert_eq!((Vector::WHOLE.to_word(), Vector::from_word(0)), (0, Vector::WHOLE));
        assert_eq!((Vector::new([0..99, 99..PAGE_BYTES]), Vector::WHOLE.bytes()), (Vector::WHOLE, PAGE_BYTES));
        assert_eq!(Vector::WHOLE.gaps().count(), 0);
        for vector in examples().into_iter().map(Vector::new) {
            assert_eq!(Vector::from_word(vector.to_word()), vector);
            assert!(vector.to_word() < 1 << 48);
        }
    }

    #[test]
    fn a_vector_covers_what_has_no_byte_outside_of_it() {
        let examples = examples();
        let mut covered = 0;
        for (one, two) in examples.iter().zip(&examples[1..]) {
            let (mine, its) = (marked(one), marked(two));
            let expected = mine.iter().zip(&its).all(|(mine, its)| *mine || !its);
            assert_eq!(Vector::new(one.clone()).covers(Vector::new(two.clone())), expected, "{one:?} and {two:?}");
            covered += usize::from(expected);
        }
        assert!(covered > 0 && covered < examples.len() / 2);
    }

    #[test]
    fn segments_that_touch_are_one() {
        assert_eq!(Vector::new([0..16, 17..40, 48..50]), Vector::new(once(0..64)));
        assert_eq!(Vector::new([0..1, 32..33]).segments().collect::<Vec<_>>(), [0..16, 32..48]);
    }

    #[test]
    #[should_panic(expected = "a vector without segments")]
    fn nothing_is_no_vector() {
        _ = Vector::new([]);
    }
}
