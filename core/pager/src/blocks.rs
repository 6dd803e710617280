//! [`Blocks`]: what is counted of each block of a region.
//!
//! Installs add to one word a block, which holds the mapped pages, the pages that were *wanted back* since the block
//! was last swept (from standby or from the node), and a running number of installs. So learning what is hot costs the
//! fault path nothing: it counts mapped pages anyway.
//!
//! Who writes what: installs add to the words; whoever holds the reclaimer takes away from them and has the heat and
//! the ages to itself. Anyone reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reclaim::{Age, BlockHeat, Warmth};
use crossbeam_utils::CachePadded;
use yonder_units::{BLOCK_PAGES, BlockIndex};

/// Local memory that is counted of a block, in bytes: word, heat, age.
pub(crate) const BLOCK_COUNTS_BYTES: u64 = 8 + 8 + 8;

const BACK: u64 = 1 << 16;
const INSTALL: u64 = 1 << 32;
const FIELD_MASK: u64 = BACK - 1;
const _: () = assert!(4 * (BLOCK_PAGES as u64) < BACK, "a page that is installed while another leaves has room");

pub(crate) struct Blocks {
    words: Box<[AtomicU64]>,
    heat: Box<[AtomicU64]>,
    ages: Box<[AtomicU64]>,
    /// Blocks of which anything was ever mapped.
    touched: AtomicU64,
    /// Mapped pages of the region. Alone in its cache lines, because every install writes it.
    resident: CachePadded<AtomicU64>,
}

/// Why a page is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Install {
    /// For the first time.
    New,
    /// It was here before, and was swept.
    Back,
}

impl Blocks {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            words: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            heat: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            ages: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            touched: AtomicU64::new(0),
            resident: CachePadded::default(),
        }
    }

    /// Pages of the blocks of which anything was ever mapped.
    pub(crate) fn touched_pages(&self) -> u64 {
        self.touched.load(Ordering::Relaxed) * BLOCK_PAGES as u64
    }

    /// Adds to the word of a block, and `pages` mapped pages; whether it is the first of the block.
    #[inline]
    fn add(&self, block: BlockIndex, to_word: u64, pages: u64) -> bool {
        // A word that was counted in is never zero again: installs are only added.
        let is_first = self.words[block.index()].fetch_add(to_word, Ordering::AcqRel) == 0;
        if is_first {
            self.touched.fetch_add(1, Ordering::Relaxed);
        }
        self.resident.fetch_add(pages, Ordering::AcqRel);
        is_first
    }

    /// A page of the block has been mapped. Whether it is the first that ever was.
    #[inline]
    pub(crate) fn count(&self, block: BlockIndex, install: Install) -> bool {
        let back = if install == Install::Back { BACK } else { 0 };
        self.add(block, INSTALL + back + 1, 1)
    }

    /// `pages` pages of the block are lent: they count as mapped, whether they are or not. Whether they are the first.
    pub(crate) fn count_lent(&self, block: BlockIndex, pages: u32) -> bool {
        self.add(block, INSTALL + u64::from(pages), u64::from(pages))
    }

    /// `pages` mapped pages of the block are no longer.
    #[inline]
    pub(crate) fn uncount(&self, block: BlockIndex, pages: u32) {
        let before = self.words[block.index()].fetch_sub(u64::from(pages), Ordering::AcqRel) & FIELD_MASK;
        assert!(before >= u64::from(pages), "{pages} pages leave a block with {before}");
        self.resident.fetch_sub(u64::from(pages), Ordering::AcqRel);
    }

    /// Mapped pages of the block.
    #[inline]
    pub(crate) fn resident_in(&self, block: BlockIndex) -> u32 {
        (self.words[block.index()].load(Ordering::Acquire) & FIELD_MASK) as u32
    }

    /// Mapped pages of the region.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident.load(Ordering::Acquire)
    }

    /// The hand comes to the block: whether it passes over it, because much of what was swept was wanted back.
    pub(crate) fn passes_over(&self, block: BlockIndex, warmth: &mut Warmth) -> bool {
        let back = self.words[block.index()].load(Ordering::Acquire) >> BACK.trailing_zeros() & FIELD_MASK;
        let cell = &self.heat[block.index()];
        let mut heat = BlockHeat::from_bits(cell.load(Ordering::Relaxed));
        let passes = warmth.passes_over(&mut heat, back as u32);
        cell.store(heat.to_bits(), Ordering::Relaxed);
        passes
    }

    /// Whether the hand would pass over the block at its next visit, as far as is known.
    #[inline]
    pub(crate) fn is_hot(&self, block: BlockIndex) -> bool {
        BlockHeat::from_bits(self.heat[block.index()].load(Ordering::Relaxed)).is_hot()
    }

    /// `pages` of the block have been swept: what is wanted back counts from now on.
    pub(crate) fn swept(&self, block: BlockIndex, pages: u32, warmth: &mut Warmth) {
        let word = &self.words[block.index()];
        let back = word.load(Ordering::Acquire) & (FIELD_MASK * BACK);
        word.fetch_sub(back, Ordering::AcqRel);
        let cell = &self.heat[block.index()];
        let mut heat = BlockHeat::from_bits(cell.load(Ordering::Relaxed));
        warmth.sweep(&mut heat, pages);
        cell.store(heat.to_bits(), Ordering::Relaxed);
    }

    /// Notes which blocks have had installs since the last look; `tick` is the number of this one.
    pub(crate) fn look_at_ages(&self, tick: u32) {
        for (word, cell) in self.words.iter().zip(&self.ages) {
            let installs = (word.load(Ordering::Acquire) / INSTALL) as u32;
            let age = Age::from_bits(cell.load(Ordering::Relaxed));
            cell.store(age.seen(installs, tick).to_bits(), Ordering::Relaxed);
        }
    }

    /// Mapped pages of each block that has any, and for how many looks nothing of it was installed; `tick` is the last
    /// look.
    pub(crate) fn ages(&self, tick: u32) -> impl Iterator<Item = (u32, u32)> {
        self.words.iter().zip(&self.ages).filter_map(move |(word, cell)| {
            let word = word.load(Ordering::Acquire);
            let age = Age::from_bits(cell.load(Ordering::Relaxed));
            let resident = (word & FIELD_MASK) as u32;
            (resident > 0).then(|| (resident, age.looks_since((word / INSTALL) as u32, tick)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockIndex = BlockIndex(1);

    #[test]
    fn one_word_counts_what_is_mapped_and_what_was_wanted_back() {
        let (blocks, mut warmth) = (Blocks::new(2), Warmth::default());
        (0..100).for_each(|_| _ = blocks.count(BLOCK, Install::New));
        assert_eq!((blocks.resident_in(BLOCK), blocks.resident_in(BlockIndex(0)), blocks.resident()), (100, 0, 100));
        assert!(!blocks.passes_over(BLOCK, &mut warmth), "a block that was never swept is swept");
        blocks.uncount(BLOCK, 100);
        blocks.swept(BLOCK, 100, &mut warmth);
        (0..100).for_each(|_| _ = blocks.count(BLOCK, Install::Back));
        assert!(blocks.passes_over(BLOCK, &mut warmth) && blocks.is_hot(BLOCK));
    }

    #[test]
    fn new_pages_do_not_make_a_block_hot() {
        let (blocks, mut warmth) = (Blocks::new(2), Warmth::default());
        blocks.swept(BLOCK, 100, &mut warmth);
        (0..100).for_each(|_| _ = blocks.count(BLOCK, Install::New));
        assert!(!blocks.passes_over(BLOCK, &mut warmth));
        // What was wanted back before a sweep says nothing of that sweep.
        blocks.count(BLOCK, Install::Back);
        blocks.swept(BLOCK, 1, &mut warmth);
        assert!(!blocks.passes_over(BLOCK, &mut warmth));
    }

    #[test]
    #[should_panic(expected = "leave a block with 1")]
    fn no_more_pages_leave_than_are_there() {
        let blocks = Blocks::new(2);
        blocks.count(BLOCK, Install::New);
        blocks.uncount(BLOCK, 2);
    }

    #[test]
    fn ages_count_from_the_last_install() {
        let blocks = Blocks::new(2);
        blocks.count(BLOCK, Install::New);
        assert_eq!(blocks.ages(5).collect::<Vec<_>>(), [(1, 0)], "installed since the last look");
        blocks.look_at_ages(5);
        assert_eq!(blocks.ages(9).collect::<Vec<_>>(), [(1, 4)]);
        blocks.look_at_ages(9);
        blocks.count(BLOCK, Install::Back);
        assert_eq!(blocks.ages(10).collect::<Vec<_>>(), [(2, 0)]);
    }
}
