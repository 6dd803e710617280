//! [`Live`]: the bytes of a page that have to be kept, as a few segments.
//!
//! Guided paging (DiLOS) writes back and fetches only what is live of a page. A transfer of more than a few segments
//! costs more than the bytes it saves, so segments are joined over the smallest gaps until there are at most
//! [`SEGMENTS_MAX`]. The answer may say more than is live, never less.

use std::ops::Range;

use yonder_units::PAGE_BYTES;

use crate::bits;
use crate::class::Class;
use crate::page_map::PAGE_WORDS;

/// Most segments of a page. Longer vectors were slower on DiLOS' network (section 6.3).
pub const SEGMENTS_MAX: usize = 3;
/// A page is whole if its segments would save fewer bytes than this: a sixteenth. What a segment more costs is less on every
/// fabric, and pages of the smallest objects have gaps of this size.
pub const SAVING_BYTES_MIN: usize = PAGE_BYTES / 16;
/// The most slots a page can have.
const SLOTS: Range<u32> = 0..PAGE_WORDS as u32 * u64::BITS;

/// Bytes of a page that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segment {
    /// The first byte, counted from the start of the page.
    pub start: u16,
    /// How many bytes.
    pub bytes: u16,
}

/// The bytes of a page that have to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Live {
    /// None: the page need not be written, and may read as anything afterwards.
    Nothing,
    /// These.
    Segments(Segments),
    /// All, or so many that segments would save less than [`SAVING_BYTES_MIN`].
    Whole,
}

/// At least one and at most [`SEGMENTS_MAX`] segments, ordered and apart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Segments {
    list: [Segment; SEGMENTS_MAX],
    count: usize,
}

impl Segments {
    /// These segments, if there are so few.
    ///
    /// # Panics
    /// If there are none, or they are not ordered and apart.
    #[must_use]
    pub fn new(segments: &[Segment]) -> Option<Self> {
        assert!(!segments.is_empty(), "a page of which nothing is live has no segments");
        let are_apart = segments.windows(2).all(|pair| pair[0].start + pair[0].bytes < pair[1].start);
        assert!(are_apart, "segments touch, or are not in order: {segments:?}");
        let mut list = [Segment::default(); SEGMENTS_MAX];
        list.get_mut(..segments.len())?.copy_from_slice(segments);
        Some(Self { list, count: segments.len() })
    }
}

impl std::ops::Deref for Segments {
    type Target = [Segment];

    fn deref(&self) -> &[Segment] {
        &self.list[..self.count]
    }
}

impl Live {
    /// How many bytes have to be kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Segments(segments) => segments.iter().map(|segment| usize::from(segment.bytes)).sum(),
            Self::Whole => PAGE_BYTES,
        }
    }
}

/// Slots that are not live, between live ones.
#[derive(Clone, Copy, Default)]
struct Gap {
    first: u32,
    slots: u32,
}

/// Live bytes of a page of objects, given a bit for each slot.
pub(crate) fn of_slots(class: Class, mut words: [u64; PAGE_WORDS]) -> Live {
    // Words that are being changed can say anything; a page has no slots beyond its last.
    for (index, word) in words.iter_mut().enumerate() {
        *word &= class.slot_mask(index);
    }
    let live: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    if live == 0 {
        return Live::Nothing;
    }
    if PAGE_BYTES - live * class.bytes() < SAVING_BYTES_MIN {
        return Live::Whole;
    }
    let mut segments = Segments::default();
    let mut start = bits::next_one(&words, SLOTS);
    let (gaps, end) = widest_gaps(&words, start);
    for gap in gaps.into_iter().filter(|gap| gap.slots > 0) {
        segments.push(class, start..gap.first);
        start = gap.first + gap.slots;
    }
    segments.push(class, start..end);
    whole_if_little_is_saved(segments)
}

/// Live bytes of a page in a run, whose last page has `tail` live bytes, or 0 for all.
pub(crate) fn of_run_page(tail: u64) -> Live {
    if tail == 0 || tail >= PAGE_BYTES as u64 {
        return Live::Whole;
    }
    let mut segments = Segments { count: 1, ..Segments::default() };
    segments.list[0].bytes = tail as u16;
    whole_if_little_is_saved(segments)
}

/// The widest gaps behind the live slot `first`, one less than there may be segments, in order; and the end of the last
/// live slot. Goes from gap to gap, not from slot to slot.
fn widest_gaps(words: &[u64; PAGE_WORDS], first: u32) -> ([Gap; SEGMENTS_MAX - 1], u32) {
    let mut gaps = [Gap::default(); SEGMENTS_MAX - 1];
    let mut live = first;
    loop {
        let end = bits::next_zero(words, live..SLOTS.end);
        live = bits::next_one(words, end..SLOTS.end);
        if live == SLOTS.end {
            return (gaps, end);
        }
        let narrowest = usize::from(gaps[1].slots <= gaps[0].slots);
        if live - end > gaps[narrowest].slots {
            // The one that stays comes before the new one.
            gaps = [gaps[1 - narrowest], Gap { first: end, slots: live - end }];
        }
    }
}

fn whole_if_little_is_saved(segments: Segments) -> Live {
    let live = Live::Segments(segments);
    if PAGE_BYTES - live.bytes() < SAVING_BYTES_MIN { Live::Whole } else { live }
}

impl Segments {
    fn push(&mut self, class: Class, slots: Range<u32>) {
        let [start, end] = [slots.start, slots.end].map(|slot| slot as usize * class.bytes());
        debug_assert!(start < end && end <= PAGE_BYTES, "slots {slots:?} are not of a page");
        debug_assert!(self.last().is_none_or(|last| usize::from(last.start + last.bytes) < start), "segments touch");
        self.list[self.count] = Segment { start: start as u16, bytes: (end - start) as u16 };
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two widest gaps by sorting them all, and what is then kept, as a mask of slots.
    fn kept(class: Class, words: &[u64; PAGE_WORDS]) -> Vec<bool> {
        let mut kept: Vec<bool> = (0..class.slots()).map(|slot| words[slot / 64] >> (slot % 64) & 1 == 1).collect();
        let live: Vec<usize> = (0..kept.len()).filter(|slot| kept[*slot]).collect();
        let mut gaps: Vec<_> =
            live.windows(2).filter(|pair| pair[1] > pair[0] + 1).map(|pair| pair[0] + 1..pair[1]).collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.len()));
        gaps.into_iter().skip(SEGMENTS_MAX - 1).for_each(|gap| kept[gap].fill(true));
        kept
    }

    proptest! {
        #[test]
        fn what_is_live_is_kept_and_little_else(
            class in 0..crate::CLASSES as u8,
            words in prop::array::uniform4(
                prop_oneof![3 => Just(0), 1 => Just(!0), 2 => any::<u64>(), 2 => (0u32..64).prop_map(|bit| 1 << bit)]
            ),
        ) {
            let class = Class::at(class);
            let expected = kept(class, &words);
            let bytes = class.bytes() * expected.iter().filter(|kept| **kept).count();
            match of_slots(class, words) {
                Live::Nothing => prop_assert_eq!(bytes, 0),
                Live::Whole => prop_assert!(bytes > PAGE_BYTES - SAVING_BYTES_MIN),
                Live::Segments(segments) => {
                    prop_assert!(bytes > 0 && bytes <= PAGE_BYTES - SAVING_BYTES_MIN && !segments.is_empty());
                    let mut covered = vec![false; PAGE_BYTES];
                    for segment in segments.iter() {
                        covered[usize::from(segment.start)..][..usize::from(segment.bytes)].fill(true);
                    }
                    prop_assert!(segments.windows(2).all(|pair| pair[0].start + pair[0].bytes < pair[1].start));
                    prop_assert_eq!(covered.iter().filter(|covered| **covered).count(), bytes, "{:?}", segments);
                    let is_live = |slot: usize| words[slot / 64] >> (slot % 64) & 1 == 1;
                    for slot in (0..class.slots()).filter(|slot| is_live(*slot)) {
                        let bytes = &covered[slot * class.bytes()..][..class.bytes()];
                        prop_assert!(!bytes.contains(&false), "slot {}", slot);
                    }
                }
            }
        }
    }

    #[test]
    fn the_tail_of_a_run_is_dead() {
        assert_eq!(of_run_page(0), Live::Whole);
        assert_eq!(of_run_page((PAGE_BYTES - SAVING_BYTES_MIN + 1) as u64), Live::Whole);
        let Live::Segments(segments) = of_run_page(16) else { panic!("16 bytes are a segment") };
        assert_eq!(*segments, [Segment { start: 0, bytes: 16 }]);
    }
}
