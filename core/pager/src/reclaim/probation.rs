//! [`Probation`]: which pages have shown that they are wanted, and which may go first.
//!
//! Most pages that come are not wanted again soon, so what comes is on probation, and is swept early. A page that is
//! wanted back from standby, or from the node soon after it has left, is *proven* from then on, and goes with the
//! others only when its turn comes in the order of addresses. That is S3-FIFO's division (Yang et al., SOSP '23: a
//! small queue, a main queue and a ghost queue), without the accessed bits that user space cannot see: what becomes of
//! a page that was swept is what is known of it.
//!
//! What is known of a page is of when it came back from the node, and of when the reclaimer last looked at it: so it is
//! right again at the next look.
//!
//! Who writes what: whoever installs a page that it has fetched, that page's word, before the page is mapped; whoever
//! holds the reclaimer the words of all others, and the rest. Anyone reads. A word that two write at once, since its
//! owner has made a page readable again, is one of both: it says which page goes first, and nothing else.

use std::sync::atomic::{AtomicU32, Ordering};

use yonder_units::{BlockIndex, Narrow, PageIndex};
use zerocopy::FromZeros as _;

/// What is known of a page, in the highest bits of its word: nothing, or one of these.
const PROVEN: u32 = 1 << 30;
/// It was put on standby. The lowest bit says whether it was proven.
const STOOD: u32 = 2 << 30;
/// It has left local memory without being proven. The other bits say when.
const LEFT: u32 = 3 << 30;
const KIND_MASK: u32 = 3 << 30;
const TIME_MASK: u32 = !KIND_MASK;

/// Of what is mapped, the part that may be on probation before that goes first (S3-FIFO: a tenth).
const SHARE: u64 = 10;

/// Fewest pages on probation of a block that are worth a sweep of their own: its flushes and calls are the same for one
/// as for many.
const HARVEST_MIN: u32 = 24;
/// Of so many blocks with fewer, one is swept nevertheless.
const PASSES_EACH: u32 = 8;
/// However much is on probation, a whole block is swept after this part of local memory was swept for that.
const ALL_EACH: u64 = 4;

/// Pages that have left local memory on probation, which is the time that this is measured in. Counted by whoever holds
/// the reclaimer.
#[derive(Default, Debug)]
pub struct Departures {
    count: AtomicU32,
}

impl Departures {
    /// Counts one: when that is.
    fn count(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & TIME_MASK
    }

    /// Whether so few pages have left since `then` that who comes back has come back soon: as many as `limit`, all of
    /// local memory.
    #[inline]
    fn is_soon(&self, then: u32, limit: u64) -> bool {
        u64::from(self.count.load(Ordering::Relaxed).wrapping_sub(then) & TIME_MASK) < limit
    }
}

/// See the head of this file. Of a region: a word a page, and a number a block.
pub struct Probation {
    words: Box<[AtomicU32]>,
    /// Proven pages of each block that are mapped, as of the last look.
    proven_in: Box<[AtomicU32]>,
    proven: AtomicU32,
}

impl Probation {
    /// Of a region of so many pages, of which nothing is known. Its memory is backed only where it is used.
    #[must_use]
    pub fn new(pages: usize, blocks: usize) -> Self {
        let zeros = |len| <[AtomicU32]>::new_box_zeroed_with_elems(len).expect("a word is 1/1024 of its page");
        Self { words: zeros(pages), proven_in: zeros(blocks), proven: AtomicU32::new(0) }
    }

    /// Local memory that it takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        4 * (self.words.len() + self.proven_in.len()) as u64
    }

    /// Proven pages that are mapped, as far as is known.
    #[must_use]
    pub fn proven(&self) -> u64 {
        u64::from(self.proven.load(Ordering::Relaxed))
    }

    /// As [`Probation::proven`], of a block.
    #[must_use]
    pub fn proven_in(&self, block: BlockIndex) -> u32 {
        self.proven_in[block.index()].load(Ordering::Relaxed)
    }

    /// A page has come back from the node.
    #[inline]
    pub fn returns(&self, page: PageIndex, departures: &Departures, limit: u64) {
        let word = &self.words[page.index()];
        let seen = word.load(Ordering::Relaxed);
        if seen & KIND_MASK == LEFT {
            let is_proven = departures.is_soon(seen & TIME_MASK, limit);
            word.store(if is_proven { PROVEN } else { 0 }, Ordering::Relaxed);
        }
    }

    /// The reclaimer comes to a page that is mapped: whether it is proven.
    pub fn look(&self, page: PageIndex) -> bool {
        let word = &self.words[page.index()];
        // What stood is mapped again: it was wanted back.
        let is_proven = matches!(word.load(Ordering::Relaxed) & KIND_MASK, PROVEN | STOOD);
        if is_proven {
            word.store(PROVEN, Ordering::Relaxed);
        }
        is_proven
    }

    /// A page is as good as proven: it cannot be taken.
    pub fn prove(&self, page: PageIndex) {
        self.words[page.index()].store(PROVEN, Ordering::Relaxed);
    }

    /// A page is put on standby, which was looked at a moment ago.
    pub fn stands(&self, page: PageIndex, is_proven: bool) {
        self.words[page.index()].store(STOOD | u32::from(is_proven), Ordering::Relaxed);
    }

    /// A page has left local memory: its turn begins anew, unless it comes back soon and was not proven.
    pub fn leaves(&self, page: PageIndex, departures: &Departures) {
        let word = &self.words[page.index()];
        let seen = word.load(Ordering::Relaxed);
        let was_proven = seen & KIND_MASK == PROVEN || seen == STOOD | 1;
        word.store(if was_proven { 0 } else { LEFT | departures.count() }, Ordering::Relaxed);
    }

    /// What was known of a page is over: it has new content.
    pub fn forget(&self, page: PageIndex) {
        let word = &self.words[page.index()];
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Counts the proven pages of a block that was looked at, among `mapped`, its pages that are mapped.
    pub fn count(&self, block: BlockIndex, mapped: impl Iterator<Item = PageIndex>) {
        let is_proven = |page: &PageIndex| self.words[page.index()].load(Ordering::Relaxed) & KIND_MASK == PROVEN;
        let proven = mapped.filter(is_proven).count().narrow_u32();
        let before = self.proven_in[block.index()].swap(proven, Ordering::Relaxed);
        self.proven.fetch_add(proven.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// Whose turn it is. What is proven, and what is strewn over blocks of few pages, leaves late, but leaves.
#[derive(Clone, Copy, Default, Debug)]
pub struct Turns {
    /// Pages that were swept because they were on probation, since a whole block was.
    swept: u64,
    passed_over: u32,
}

impl Turns {
    /// Whether the next sweep takes only what is on probation: of so many pages that are mapped, of which so many are
    /// proven, under this limit of local memory.
    #[must_use]
    pub fn are_of_probation(&self, mapped: u64, proven: u64, limit: u64) -> bool {
        mapped.saturating_sub(proven) * SHARE > mapped && self.swept < limit / ALL_EACH
    }

    /// So many pages were swept because they were on probation.
    pub fn sweep_on_probation(&mut self, pages: u64) {
        self.swept += pages;
    }

    /// A whole block was swept.
    pub fn sweep_all(&mut self) {
        self.swept = 0;
    }

    /// Whether a block of which so many pages are on probation is swept for them.
    pub fn is_worth_a_sweep(&mut self, on_probation: u32) -> bool {
        if on_probation == 0 || on_probation >= HARVEST_MIN {
            return on_probation > 0;
        }
        self.passed_over = self.passed_over.wrapping_add(1);
        self.passed_over.is_multiple_of(PASSES_EACH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: PageIndex = PageIndex(7);
    const BLOCK: BlockIndex = BlockIndex(0);

    #[test]
    fn who_is_wanted_back_from_standby_is_proven_until_it_has_left() {
        let (probation, departures) = (Probation::new(512, 1), Departures::default());
        assert!(!probation.look(PAGE), "a page that is new is proven");
        probation.stands(PAGE, false);
        assert!(probation.look(PAGE) && probation.look(PAGE));
        probation.count(BLOCK, [PAGE, PageIndex(8)].into_iter());
        assert_eq!((probation.proven_in(BLOCK), probation.proven()), (1, 1));
        probation.stands(PAGE, true);
        probation.leaves(PAGE, &departures);
        probation.count(BLOCK, std::iter::empty());
        assert_eq!((probation.proven_in(BLOCK), probation.proven()), (0, 0));
        probation.returns(PAGE, &departures, 100);
        assert!(!probation.look(PAGE), "its turn begins anew");
    }

    #[test]
    fn who_comes_back_soon_is_proven_and_who_comes_late_is_not() {
        for (others, is_proven) in [(0, true), (99, true), (100, false)] {
            let departures = Departures { count: AtomicU32::new(TIME_MASK - 3) };
            let probation = Probation::new(512, 1);
            probation.stands(PAGE, false);
            probation.leaves(PAGE, &departures);
            for other in 0..others {
                probation.leaves(PageIndex(10 + other), &departures);
            }
            probation.returns(PAGE, &departures, 100);
            // What leaves later says nothing of it.
            (0..200).for_each(|other| probation.leaves(PageIndex(10 + other), &departures));
            assert_eq!(probation.look(PAGE), is_proven, "after {others} others");
        }
    }

    #[test]
    fn what_is_freed_is_new() {
        let probation = Probation::new(512, 1);
        probation.prove(PAGE);
        assert!(probation.look(PAGE));
        probation.forget(PAGE);
        assert!(!probation.look(PAGE));
    }

    #[test]
    fn a_tenth_may_be_on_probation_and_everybody_has_a_turn() {
        let mut turns = Turns::default();
        let first = |mapped, proven| turns.are_of_probation(mapped, proven, 1_000);
        assert!(!first(0, 0) && !first(100, 90) && first(100, 89) && !first(10, 20));
        turns.sweep_on_probation(249);
        assert!(turns.are_of_probation(100, 0, 1_000));
        turns.sweep_on_probation(1);
        assert!(!turns.are_of_probation(100, 0, 1_000));
        turns.sweep_all();
        assert!(turns.are_of_probation(100, 0, 1_000));
        let mut swept = |on_probation| (0..80).filter(|_| turns.is_worth_a_sweep(on_probation)).count();
        assert_eq!([0, 1, HARVEST_MIN - 1, HARVEST_MIN].map(&mut swept), [0, 10, 10, 80]);
    }
}
