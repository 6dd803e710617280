//! Which pages are watched, and what is written down of them.

use yonder_units::{BLOCK_PAGES_U32, Narrow, PageIndex};

use crate::trace::{Touch, Trace};

/// Neighbouring pages that are watched together.
pub const CHUNK_PAGES: u32 = 32;
/// Chunks of a block, one of which is watched.
const CHUNKS: u32 = BLOCK_PAGES_U32 / CHUNK_PAGES;
/// The coarsest sample has a chunk in each 128 MiB.
pub const COARSENESS_MAX: Coarseness = Coarseness(6);

/// How coarse a sample is: two to its power of blocks have one chunk that is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Coarseness(pub u8);

impl Coarseness {
    /// Of how many pages one is watched.
    #[must_use]
    pub fn pages_for_each(self) -> u64 {
        u64::from(CHUNKS) << self.0
    }
}

/// Whether a page is in the sample. What is in a coarser one is in all finer ones.
#[inline]
#[must_use]
pub fn is_sampled(page: PageIndex, coarseness: Coarseness) -> bool {
    let block = page.0 / BLOCK_PAGES_U32;
    if page.0 % BLOCK_PAGES_U32 / CHUNK_PAGES != hash(u64::from(block)) % CHUNKS {
        return false;
    }
    // Of two groups the next coarser sample has one.
    (1..=coarseness.0).all(|level| {
        let group = block >> (level - 1);
        group & 1 == hash(u64::from(group >> 1) | u64::from(level) << 32) & 1
    })
}

/// Where the chunk of a page begins.
#[must_use]
pub fn chunk_of(page: PageIndex) -> PageIndex {
    PageIndex(page.0 - page.0 % CHUNK_PAGES)
}

/// A number that nobody's addresses are in step with (the finalizer of SplitMix64).
fn hash(key: u64) -> u32 {
    let mut hash = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash >> 40).narrow_u32()
}

/// What was seen of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// A page of the sample was touched, which was unmapped.
    Touch(Touch),
    /// From here on the sample is this coarse.
    Coarser(Coarseness),
    /// What was seen since the last one of these stands for more, that was not.
    Counts(Weight),
}

/// How many touches each one stands for, as a multiple of 1/256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Weight(pub u32);

impl Weight {
    /// Each touch stands for itself.
    pub const ONE: Self = Self(1 << 8);

    /// Of a number of at least 1.
    #[must_use]
    pub fn of(times: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` has limits")]
        let parts = (times * f64::from(Self::ONE.0)) as u32;
        Self(parts.max(Self::ONE.0))
    }

    /// As a number.
    #[must_use]
    pub fn times(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE.0)
    }
}

const IS_TOUCH: u64 = 1 << 32;
const IS_FIRST: u64 = 1 << 33;
const IS_COARSER: u64 = 1 << 34;
const IS_WEIGHT: u64 = 1 << 35;

impl Seen {
    /// As it is written down. It is not 0.
    #[inline]
    #[must_use]
    pub fn word(self) -> u64 {
        match self {
            Self::Touch(Touch { page, is_first }) => IS_TOUCH | u64::from(page.0) | if is_first { IS_FIRST } else { 0 },
            Self::Coarser(Coarseness(level)) => IS_COARSER | u64::from(level),
            Self::Counts(Weight(parts)) => IS_WEIGHT | u64::from(parts),
        }
    }

    /// What was written down; `None` if the word is nothing of that.
    #[must_use]
    pub fn of_word(word: u64) -> Option<Self> {
        let low = (word & u64::from(u32::MAX)).narrow_u32();
        match word & !u64::from(u32::MAX) {
            IS_TOUCH => Some(Self::Touch(Touch { page: PageIndex(low), is_first: false })),
            kind if kind == IS_TOUCH | IS_FIRST => Some(Self::Touch(Touch { page: PageIndex(low), is_first: true })),
            IS_COARSER if low <= u32::from(COARSENESS_MAX.0) => Some(Self::Coarser(Coarseness(low.narrow_u8()))),
            IS_WEIGHT if low >= Weight::ONE.0 => Some(Self::Counts(Weight(low))),
            _ => None,
        }
    }
}

/// A sample made as large as the program's memory, or a part of that.
#[derive(Clone, Debug)]
pub struct Unfolded {
    /// The touches.
    pub trace: Trace,
    /// How many each of them stands for, up to which of them: one behind the last.
    pub weights: Vec<(usize, Weight)>,
    /// How many pages of the program each page of the trace stands for.
    pub stands_for: u64,
}

/// All that was seen of a process.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Sample {
    seen: Vec<Seen>,
    coarseness: Coarseness,
}

impl Sample {
    /// A sample of what was seen, in its order.
    #[must_use]
    pub fn new(seen: Vec<Seen>) -> Self {
        let coarseness = |seen: &Seen| if let Seen::Coarser(coarseness) = seen { Some(*coarseness) } else { None };
        let coarseness = seen.iter().filter_map(coarseness).max().unwrap_or_default();
        Self { seen, coarseness }
    }

    /// How coarse it has become.
    #[must_use]
    pub fn coarseness(&self) -> Coarseness {
        self.coarseness
    }

    /// Touches that were seen.
    #[must_use]
    pub fn touches(&self) -> u64 {
        self.seen.iter().filter(|seen| matches!(seen, Seen::Touch(_))).count() as u64
    }

    /// Touches of pages that had content and were unmapped to be seen.
    #[must_use]
    pub fn seen_again(&self) -> u64 {
        self.seen.iter().filter(|seen| matches!(seen, Seen::Touch(Touch { is_first: false, .. }))).count() as u64
    }

    /// The touches of all pages, as far as the sample knows: of what was always watched, each page for all at its place
    /// in the chunks of its group. If that were more than `most` touches, they are of every second chunk, or of fewer.
    #[must_use]
    pub fn unfold(&self, most: usize) -> Unfolded {
        let Coarseness(level) = self.coarseness;
        let touches = || {
            self.seen.iter().filter_map(|seen| match seen {
                Seen::Touch(touch) if is_sampled(touch.page, self.coarseness) => Some(*touch),
                _ => None,
            })
        };
        let (chunks, count) = (CHUNKS << level, touches().count());
        let mut stands_for = 1;
        while stands_for < chunks && count * (chunks / stands_for) as usize > most {
            stands_for *= 2;
        }
        let trace = Trace::new(touches().flat_map(|Touch { page, is_first }| {
            let group = ((page.0 / BLOCK_PAGES_U32) >> level) << level;
            let first = group * BLOCK_PAGES_U32 + page.0 % CHUNK_PAGES;
            let chunks = (0..chunks).step_by(stands_for as usize);
            chunks.map(move |chunk| Touch { page: PageIndex(first + chunk * CHUNK_PAGES), is_first })
        }));
        let times = (chunks / stands_for) as usize;
        let weights = self.weights().into_iter().map(|(end, weight)| (end * times, weight)).collect();
        Unfolded { trace, weights, stands_for: u64::from(stands_for) }
    }

    /// What touches of the coarsest sample stand for, up to which of them: none behind the last.
    fn weights(&self) -> Vec<(usize, Weight)> {
        let (mut weights, mut touches) = (Vec::new(), 0);
        for seen in &self.seen {
            match seen {
                Seen::Touch(touch) => touches += usize::from(is_sampled(touch.page, self.coarseness)),
                Seen::Counts(weight) => weights.push((touches, *weight)),
                Seen::Coarser(_) => {}
            }
        }
        weights
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_group_of_blocks_has_one_chunk_and_no_place_in_blocks_is_preferred() {
        let mut places = [0; CHUNKS as usize];
        for level in 0..=COARSENESS_MAX.0 {
            let (coarseness, group_pages) = (Coarseness(level), BLOCK_PAGES_U32 << level);
            for group in 0..200 {
                let pages = group * group_pages..(group + 1) * group_pages;
                let sampled: Vec<u32> = pages.filter(|page| is_sampled(PageIndex(*page), coarseness)).collect();
                assert_eq!(sampled.len(), CHUNK_PAGES as usize, "group {group} at {level}");
                assert!(sampled[0].is_multiple_of(CHUNK_PAGES) && sampled[31] == sampled[0] + 31);
                places[(sampled[0] % BLOCK_PAGES_U32 / CHUNK_PAGES) as usize] += 1;
            }
        }
        assert!(places.iter().all(|count| (40..150).contains(count)), "{places:?}");
    }

    proptest! {
        #[test]
        fn a_coarser_sample_is_of_a_finer_one(page in 0u32..1 << 30, level in 0u8..6) {
            if is_sampled(PageIndex(page), Coarseness(level + 1)) {
                prop_assert!(is_sampled(PageIndex(page), Coarseness(level)));
            }
        }

        #[test]
        fn words_are_read_as_they_were_written(page: u32, is_first: bool, level in 0u8..=6) {
            let weight = Seen::Counts(Weight(page.max(Weight::ONE.0)));
            let touch = Seen::Touch(Touch { page: PageIndex(page), is_first });
            for seen in [touch, Seen::Coarser(Coarseness(level)), weight] {
                prop_assert!(seen.word() != 0);
                prop_assert_eq!(Seen::of_word(seen.word()), Some(seen));
            }
        }

        #[test]
        fn any_word_is_read(word: u64) {
            if let Some(seen) = Seen::of_word(word) {
                prop_assert_eq!(seen.word(), word);
            }
        }
    }

    #[test]
    fn a_sample_of_all_pages_stands_for_all_pages() {
        for level in [0, 2] {
            let coarseness = Coarseness(level);
            let touch = |page| Seen::Touch(Touch { page: PageIndex(page), is_first: true });
            let all = (0..64 * BLOCK_PAGES_U32).filter(|page| is_sampled(PageIndex(*page), Coarseness(0)));
            let sample = Sample::new([Seen::Coarser(coarseness)].into_iter().chain(all.map(touch)).collect());
            assert_eq!((sample.coarseness(), sample.seen_again()), (coarseness, 0));
            let Unfolded { trace, stands_for, .. } = sample.unfold(usize::MAX);
            assert_eq!((trace.pages(), trace.len(), stands_for), (64 * 512, 64 * 512, 1));
            let Unfolded { trace, stands_for, .. } = sample.unfold(10_000);
            assert_eq!((trace.pages(), trace.len(), stands_for), (8 * 1024, 8 * 1024, 4));
        }
    }
}
