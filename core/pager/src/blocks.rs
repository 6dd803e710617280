//! [`Blocks`]: what is counted of each block of a region.
//!
//! Installs add to one word a block, which holds the mapped pages and a running number of installs.
//!
//! Who writes what: installs add to the words; whoever holds the reclaimer takes away from them and has the ages to
//! itself; who recalls a lent block, of which nothing is installed meanwhile, makes its word zero if nothing of it was
//! touched. Anyone reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reclaim::Age;
use crossbeam_utils::CachePadded;
use yonder_units::{BLOCK_PAGES, BlockIndex};

/// Local memory that is counted of a block, in bytes: word, age.
pub(crate) const BLOCK_COUNTS_BYTES: u64 = 8 + 8;

const INSTALL: u64 = 1 << 32;
const MAPPED_MASK: u64 = INSTALL - 1;

pub(crate) struct Blocks {
    words: Box<[AtomicU64]>,
    ages: Box<[AtomicU64]>,
    /// Blocks of which anything was ever mapped.
    touched: AtomicU64,
    /// Mapped pages of the region. Alone in its cache lines, because every install writes it.
    resident: CachePadded<AtomicU64>,
}

impl Blocks {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            words: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
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
        // A word that was counted in is not zero again: installs are only added, but see `forget`.
        let is_first = self.words[block.index()].fetch_add(to_word, Ordering::AcqRel) == 0;
        if is_first {
            self.touched.fetch_add(1, Ordering::Relaxed);
        }
        self.resident.fetch_add(pages, Ordering::AcqRel);
        is_first
    }

    /// A page of the block has been mapped. Whether it is the first that ever was.
    #[inline]
    pub(crate) fn count(&self, block: BlockIndex) -> bool {
        self.add(block, INSTALL + 1, 1)
    }

    /// `pages` pages of the block are lent: they count as mapped, whether they are or not. Whether they are the first.
    pub(crate) fn count_lent(&self, block: BlockIndex, pages: u32) -> bool {
        self.add(block, INSTALL + u64::from(pages), u64::from(pages))
    }

    /// `pages` mapped pages of the block are no longer.
    #[inline]
    pub(crate) fn uncount(&self, block: BlockIndex, pages: u32) {
        let before = self.words[block.index()].fetch_sub(u64::from(pages), Ordering::AcqRel) & MAPPED_MASK;
        assert!(before >= u64::from(pages), "{pages} pages leave a block with {before}");
        self.resident.fetch_sub(u64::from(pages), Ordering::AcqRel);
    }

    /// The block was lent, and nothing of it was touched: it is as it was before. Until the next look it may be taken
    /// for older than it is.
    pub(crate) fn forget(&self, block: BlockIndex) {
        let before = self.words[block.index()].swap(0, Ordering::AcqRel);
        assert!(before != 0 && before & MAPPED_MASK == 0, "a block is forgotten that has {before:#x}");
        self.touched.fetch_sub(1, Ordering::Relaxed);
    }

    /// Mapped pages of the block.
    #[inline]
    pub(crate) fn resident_in(&self, block: BlockIndex) -> u32 {
        (self.words[block.index()].load(Ordering::Acquire) & MAPPED_MASK) as u32
    }

    /// Mapped pages of the region.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident.load(Ordering::Acquire)
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
            let resident = (word & MAPPED_MASK) as u32;
            (resident > 0).then(|| (resident, age.looks_since((word / INSTALL) as u32, tick)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockIndex = BlockIndex(1);

    #[test]
    fn one_word_counts_what_is_mapped() {
        let blocks = Blocks::new(2);
        let first: Vec<_> = (0..100).map(|_| blocks.count(BLOCK)).filter(|is_first| *is_first).collect();
        assert_eq!((first.len(), blocks.touched_pages()), (1, BLOCK_PAGES as u64));
        assert_eq!((blocks.resident_in(BLOCK), blocks.resident_in(BlockIndex(0)), blocks.resident()), (100, 0, 100));
        blocks.uncount(BLOCK, 100);
        assert_eq!((blocks.resident_in(BLOCK), blocks.resident()), (0, 0));
        assert!(!blocks.count(BLOCK), "the first page is the first for good");
    }

    #[test]
    fn what_was_lent_for_nothing_is_as_it_was() {
        let blocks = Blocks::new(2);
        assert!(blocks.count_lent(BLOCK, 512));
        blocks.uncount(BLOCK, 512);
        assert_eq!(blocks.touched_pages(), BLOCK_PAGES as u64);
        blocks.forget(BLOCK);
        assert_eq!((blocks.touched_pages(), blocks.resident()), (0, 0));
        assert!(blocks.count(BLOCK), "it is the first again");
    }

    #[test]
    #[should_panic(expected = "is forgotten that has")]
    fn what_is_mapped_is_not_forgotten() {
        let blocks = Blocks::new(2);
        blocks.count(BLOCK);
        blocks.forget(BLOCK);
    }

    #[test]
    #[should_panic(expected = "leave a block with 1")]
    fn no_more_pages_leave_than_are_there() {
        let blocks = Blocks::new(2);
        blocks.count(BLOCK);
        blocks.uncount(BLOCK, 2);
    }

    #[test]
    fn ages_count_from_the_last_install() {
        let blocks = Blocks::new(2);
        blocks.count(BLOCK);
        assert_eq!(blocks.ages(5).collect::<Vec<_>>(), [(1, 0)], "installed since the last look");
        blocks.look_at_ages(5);
        assert_eq!(blocks.ages(9).collect::<Vec<_>>(), [(1, 4)]);
        blocks.look_at_ages(9);
        blocks.count(BLOCK);
        assert_eq!(blocks.ages(10).collect::<Vec<_>>(), [(2, 0)]);
    }
}
