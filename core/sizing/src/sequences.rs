//! [`Sequences`]: which misses would be fetched ahead.

use yonder_units::PageIndex;

use crate::sample::CHUNK_PAGES;

/// The last place in a chunk.
const LAST: i32 = CHUNK_PAGES.cast_signed() - 1;

/// A miss continues a sequence if it is so few pages from the last one of its chunk, in the same direction.
const GAP_MAX: i32 = 4;
/// And if so few touches came between.
const TOUCHES_MAX: u32 = 1024;
/// So many misses are a sequence.
const ENOUGH: u32 = 4;
/// So many of them are missed before it is known as one, if it begins here.
const UNKNOWN: u32 = 2;

/// The last misses in a chunk.
#[derive(Clone, Copy, Default)]
struct Run {
    last: i32,
    /// 0 where there is but one.
    direction: i32,
    misses: u32,
    touched: u32,
    /// Whether it may have come from the chunk beside it.
    from_edge: bool,
}

/// Misses, by chunks.
pub(crate) struct Sequences {
    runs: Vec<Run>,
    in_sequences: u64,
}

impl Sequences {
    pub(crate) fn new(pages: usize) -> Self {
        Self { runs: vec![Run::default(); pages.div_ceil(CHUNK_PAGES as usize)], in_sequences: 0 }
    }

    /// How many misses were in sequences, since this was last asked.
    pub(crate) fn take(&mut self) -> u64 {
        std::mem::take(&mut self.in_sequences)
    }

    /// A page is missed at touch number `touch`.
    pub(crate) fn miss(&mut self, page: PageIndex, touch: u32) {
        let run = &mut self.runs[(page.0 / CHUNK_PAGES) as usize];
        let place = (page.0 % CHUNK_PAGES).cast_signed();
        let step = place - run.last;
        let continues = run.misses > 0
            && (1..=GAP_MAX).contains(&step.abs())
            && (run.direction == 0 || run.direction == step.signum())
            && touch.wrapping_sub(run.touched) <= TOUCHES_MAX;
        if !continues {
            let from_edge = !(GAP_MAX..=LAST - GAP_MAX).contains(&place);
            *run = Run { last: place, direction: 0, misses: 1, touched: touch, from_edge };
            return;
        }
        (run.last, run.direction, run.touched) = (place, step.signum(), touch);
        run.misses += 1;
        if run.misses == ENOUGH {
            // What came from beside was known there.
            let is_known = run.from_edge && (run.direction > 0) == (place < LAST / 2 + 1);
            self.in_sequences += u64::from(if is_known { ENOUGH } else { ENOUGH - UNKNOWN });
        } else if run.misses > ENOUGH {
            self.in_sequences += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_sequences(pages: impl IntoIterator<Item = (u32, u32)>) -> u64 {
        let mut sequences = Sequences::new(512);
        pages.into_iter().for_each(|(page, touch)| sequences.miss(PageIndex(page), touch));
        sequences.take()
    }

    #[test]
    fn neighbours_in_one_direction_are_a_sequence() {
        assert_eq!(in_sequences((0..32).map(|page| (page, page))), 32);
        assert_eq!(in_sequences((0..32).rev().map(|page| (page, 40 - page))), 32);
        assert_eq!(in_sequences((0..32).step_by(3).map(|page| (page, page))), 11);
        // It begins in the middle of a chunk.
        assert_eq!(in_sequences((10..30).map(|page| (page, page))), 18);
    }

    #[test]
    fn what_jumps_or_turns_or_comes_late_is_none() {
        assert_eq!(in_sequences((0..4).flat_map(|page| [(page, page), (31 - page, page)])), 0);
        assert_eq!(in_sequences([(0, 0), (1, 1), (2, 2)]), 0);
        assert_eq!(in_sequences([5, 6, 5, 6, 5, 6].map(|page| (page, page))), 0);
        assert_eq!(in_sequences((0..32).map(|page| (page, 2000 * page))), 0);
        assert_eq!(in_sequences((0..4).map(|page| (7 * page, page))), 0);
    }
}
