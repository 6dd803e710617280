//! Which bytes of a page have to be kept, as a [`Vector`]; `None` of a page that may read as anything afterwards.
//!
//! Guided paging (DiLOS) writes back and fetches only what is live of a page. A transfer of more than a few segments
//! costs more than the bytes it saves, so segments are joined over the smallest gaps until there are at most
//! [`SEGMENTS_MAX`]. The answer may say more than is live, never less.

use std::iter::once;
use std::ops::Range;

use yonder_units::{Narrow, PAGE_BYTES, SEGMENTS_MAX, Vector};

use crate::bits;
use crate::class::{Class, LARGE_BYTES_MIN};
use crate::page_map::PAGE_WORDS;

/// A page is whole if its segments would save fewer bytes than this: a sixteenth. What a segment more costs is less on
/// every fabric, and pages of the smallest objects have gaps of this size.
pub const SAVING_BYTES_MIN: usize = PAGE_BYTES / 16;
/// The most slots a page can have.
#[expect(clippy::cast_possible_truncation, reason = "a page has 256 slots")]
const SLOTS: Range<u32> = 0..PAGE_WORDS as u32 * u64::BITS;

// Of so many objects every second one is live at worst.
const _: () = assert!((PAGE_BYTES - 2) / LARGE_BYTES_MIN + 2 < 2 * SEGMENTS_MAX, "a page has parts of five objects");

/// Slots that are not live, between live ones.
#[derive(Clone, Copy, Default)]
struct Gap {
    first: u32,
    slots: u32,
}

/// Live bytes of a page of objects, given a bit for each slot.
pub(crate) fn of_slots(class: Class, mut words: [u64; PAGE_WORDS]) -> Option<Vector> {
    // Words that are being changed can say anything; a page has no slots beyond its last.
    for (index, word) in words.iter_mut().enumerate() {
        *word &= class.slot_mask(index);
    }
    let live: usize = words.iter().map(|word| word.count_ones() as usize).sum();
    if live == 0 {
        return None;
    }
    if PAGE_BYTES - live * class.bytes() < SAVING_BYTES_MIN {
        return Some(Vector::WHOLE);
    }
    let first = bits::next_one(&words, SLOTS);
    let (gaps, end) = widest_gaps(&words, first);
    let gaps = gaps.into_iter().filter(|gap| gap.slots > 0);
    let starts = once(first).chain(gaps.clone().map(|gap| gap.first + gap.slots));
    let ends = gaps.map(|gap| gap.first).chain(once(end));
    let bytes = |slot: u32| slot as usize * class.bytes();
    Some(whole_if_little_is_saved(Vector::new(starts.zip(ends).map(|(start, end)| bytes(start)..bytes(end)))))
}

/// Live bytes of page number `page` of a slab of several, given a bit for each slot.
pub(crate) fn of_large_slots(class: Class, slots: u64, page: usize) -> Option<Vector> {
    let (start, end) = (page * PAGE_BYTES, (page + 1) * PAGE_BYTES);
    let overlapping = start / class.bytes()..end.div_ceil(class.bytes()).min(class.slots());
    let live = overlapping.filter(|slot| slots >> slot & 1 == 1);
    let mut segments = live
        .map(|slot| (slot * class.bytes()).max(start) - start..((slot + 1) * class.bytes()).min(end) - start)
        .peekable();
    segments.peek()?;
    Some(whole_if_little_is_saved(Vector::new(segments)))
}

/// Live bytes of a page in a run, of which the first `start` bytes are not, and `tail` is where live bytes end, or 0 if
/// all others are.
pub(crate) fn of_run_page(start: u64, tail: u64) -> Vector {
    let end = if tail == 0 || tail >= PAGE_BYTES as u64 { PAGE_BYTES as u64 } else { tail };
    // What is read while it changes can say anything.
    if start >= end || (start, end) == (0, PAGE_BYTES as u64) {
        return Vector::WHOLE;
    }
    whole_if_little_is_saved(Vector::new(once(start.narrow_usize()..end.narrow_usize())))
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

fn whole_if_little_is_saved(live: Vector) -> Vector {
    if PAGE_BYTES - live.bytes() < SAVING_BYTES_MIN { Vector::WHOLE } else { live }
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
            class in (0..crate::CLASSES as u8).prop_filter("of a page", |class| Class::at(*class).slab_pages() == 1),
            words in prop::array::uniform4(
                prop_oneof![3 => Just(0), 1 => Just(!0), 2 => any::<u64>(), 2 => (0u32..64).prop_map(|bit| 1 << bit)]
            ),
        ) {
            let class = Class::at(class);
            let expected = kept(class, &words);
            let bytes = class.bytes() * expected.iter().filter(|kept| **kept).count();
            match of_slots(class, words) {
                None => prop_assert_eq!(bytes, 0),
                Some(Vector::WHOLE) => prop_assert!(bytes > PAGE_BYTES - SAVING_BYTES_MIN),
                Some(vector) => {
                    prop_assert!(bytes > 0 && bytes <= PAGE_BYTES - SAVING_BYTES_MIN);
                    let mut covered = vec![false; PAGE_BYTES];
                    vector.segments().for_each(|segment| covered[segment].fill(true));
                    prop_assert_eq!(covered.iter().filter(|covered| **covered).count(), bytes, "{:?}", vector);
                    let is_live = |slot: usize| words[slot / 64] >> (slot % 64) & 1 == 1;
                    for slot in (0..class.slots()).filter(|slot| is_live(*slot)) {
                        let bytes = &covered[slot * class.bytes()..][..class.bytes()];
                        prop_assert!(!bytes.contains(&false), "slot {}", slot);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_live_of_a_page_in_a_large_slab_is_kept(
            class in (0..crate::CLASSES as u8).prop_filter("of several", |class| Class::at(*class).slab_pages() > 1),
            slots in any::<u64>(),
            page in 0..crate::class::LARGE_SLAB_PAGES as usize,
        ) {
            let class = Class::at(class);
            let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            let is_live = |slot: usize| slot < class.slots() && slots >> slot & 1 == 1;
            let expected: Vec<bool> = bytes.map(|byte| is_live(byte / class.bytes())).collect();
            let live = expected.iter().filter(|live| **live).count();
            match of_large_slots(class, slots, page) {
                None => prop_assert_eq!(live, 0),
                Some(Vector::WHOLE) => prop_assert!(live > PAGE_BYTES - SAVING_BYTES_MIN),
                Some(vector) => {
                    let mut covered = vec![false; PAGE_BYTES];
                    vector.segments().for_each(|segment| covered[segment].fill(true));
                    prop_assert_eq!(covered, expected);
                }
            }
        }
    }

    #[test]
    fn the_tail_of_a_run_is_dead() {
        assert_eq!(of_run_page(0, 0), Vector::WHOLE);
        assert_eq!(of_run_page(0, (PAGE_BYTES - SAVING_BYTES_MIN + 1) as u64), Vector::WHOLE);
        assert_eq!(of_run_page(0, 16), Vector::new(once(0..16)));
        assert_eq!(of_run_page(SAVING_BYTES_MIN as u64 - 1, 0), Vector::WHOLE);
        assert_eq!(of_run_page(1024, 0), Vector::new(once(1024..PAGE_BYTES)));
        assert_eq!(of_run_page(1024, 2048), Vector::new(once(1024..2048)));
        assert_eq!(of_run_page(2048, 1024), Vector::WHOLE, "it is being changed");
    }
}
