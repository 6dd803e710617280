//! Ranges of bits in arrays of words, the lowest bit of a word first.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// The first bit of `range` that is set, or the end of the range.
#[inline]
pub(crate) fn next_one(words: &[u64], range: Range<u32>) -> u32 {
    next(words, range, 0)
}

/// The first bit of `range` that is not set, or the end of the range.
#[inline]
pub(crate) fn next_zero(words: &[u64], range: Range<u32>) -> u32 {
    next(words, range, !0)
}

/// The words of an array that hold bits of a range.
pub(crate) struct Words {
    /// Those that hold other bits too, each with a mask of its bits of the range.
    pub(crate) partial: [Option<(usize, u64)>; 2],
    /// Those between them.
    pub(crate) whole: Range<usize>,
}

/// The words that hold bits of `range`, which is not empty.
pub(crate) fn words_of(range: Range<u32>) -> Words {
    let Range { start, end } = range;
    debug_assert!(start < end, "no words have the bits of an empty range");
    let whole = start.div_ceil(WORD) as usize..(end / WORD) as usize;
    let [from_start, to_end] = [!0 << (start % WORD), !(!0 << (end % WORD))];
    let [first, last] = [start, end].map(|bit| (bit / WORD) as usize);
    let is_partial = |bit: u32| !bit.is_multiple_of(WORD);
    let partial = if first == last {
        [Some((first, from_start & to_end)), None]
    } else {
        [is_partial(start).then_some((first, from_start)), is_partial(end).then_some((last, to_end))]
    };
    Words { partial, whole: if whole.is_empty() { 0..0 } else { whole } }
}

/// The first bit of `range` that is set in the words with `flip` applied.
#[inline]
fn next(words: &[u64], range: Range<u32>, flip: u64) -> u32 {
    if range.is_empty() {
        return range.end;
    }
    let mut word = range.start / WORD;
    let mut found = (words[word as usize] ^ flip) & (!0 << (range.start % WORD));
    while found == 0 {
        word += 1;
        if word * WORD >= range.end {
            return range.end;
        }
        found = words[word as usize] ^ flip;
    }
    (word * WORD + found.trailing_zeros()).min(range.end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_agree_with_looking_at_each_bit(
            words in prop::collection::vec(prop_oneof![Just(0), Just(!0), any::<u64>()], 1..6),
            ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let bits = words.len() * 64;
            let is_set = |bit: u32| words[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
            let (a, b) = (ends.0.index(bits + 1) as u32, ends.1.index(bits + 1) as u32);
            let range = a.min(b)..a.max(b);
            let first = |wanted| range.clone().find(|bit| is_set(*bit) == wanted).unwrap_or(range.end);
            prop_assert_eq!(next_one(&words, range.clone()), first(true));
            prop_assert_eq!(next_zero(&words, range.clone()), first(false));
            let mut masked = vec![0u64; words.len()];
            if !range.is_empty() {
                let Words { partial, whole } = words_of(range.clone());
                masked[whole].fill(!0);
                partial.into_iter().flatten().for_each(|(word, mask)| masked[word] ^= mask);
            }
            for bit in 0..bits as u32 {
                prop_assert_eq!(masked[(bit / 64) as usize] >> (bit % 64) & 1 == 1, range.contains(&bit));
            }
        }
    }
}
