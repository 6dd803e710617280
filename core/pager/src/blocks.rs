//! [`Blocks`]: what is counted of each block of a region.
//!
//! Installs add to one word a block, which holds the mapped pages, whether anything was ever mapped, and a running
//! number of installs.
//!
//! Who writes what: installs add to the words; whoever holds the reclaimer takes away from them and has the ages to
//! itself; who recalls a lent block, of which nothing is installed meanwhile, says that nothing of it was touched.
//! Anyone reads.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reclaim::Age;
use crossbeam_utils::CachePadded;
use yonder_units::BlockIndex;

/// Local memory that is counted of a block, in bytes: word, age.
pub(crate) const BLOCK_COUNTS_BYTES: u64 = 8 + 8;

const INSTALL: u64 = 1 << 32;
const TOUCHED: u64 = 1 << 31;
const MAPPED_MASK: u64 = TOUCHED - 1;

pub(crate) struct Blocks {
    words: Box<[AtomicU64]>,
    ages: Box<[AtomicU64]>,
    /// Alone in its cache lines, because every install writes it.
    resident: CachePadded<Resident>,
}

#[derive(Default)]
struct Resident {
    /// Mapped pages of the region.
    pages: AtomicU64,
    /// With how many it is said that there are more.
    more_from: AtomicU64,
}

impl Blocks {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            words: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            ages: (0..blocks).map(|_| AtomicU64::new(0)).collect(),
            resident: CachePadded::default(),
        }
    }

    /// Adds to the word of a block, and `pages` mapped pages. Whether somebody should look at how much is touched: it
    /// is the first of the block, or many more are mapped than when that was looked at.
    #[inline]
    fn add(&self, block: BlockIndex, to_word: u64, pages: u64) -> bool {
        let word = &self.words[block.index()];
        let is_first = word.fetch_add(to_word, Ordering::AcqRel) & TOUCHED == 0
            && word.fetch_or(TOUCHED, Ordering::AcqRel) & TOUCHED == 0;
        let before = self.resident.pages.fetch_add(pages, Ordering::AcqRel);
        let more_from = self.resident.more_from.load(Ordering::Relaxed);
        is_first || before < more_from && more_from <= before + pages
    }

    /// Somebody looks at how much is touched: next when so many pages more are mapped, or another block.
    pub(crate) fn tell_when_more(&self, pages: u64) {
        let from = self.resident() + pages;
        // Not with each step: every install reads it.
        if from.abs_diff(self.resident.more_from.load(Ordering::Relaxed)) > pages / 4 {
            self.resident.more_from.store(from, Ordering::Relaxed);
        }
    }

    /// A page of the block has been mapped. Whether somebody should look at how much is touched.
    #[inline]
    pub(crate) fn count(&self, block: BlockIndex) -> bool {
        self.add(block, INSTALL + 1, 1)
    }

    /// `pages` pages of the block are lent: they count as mapped, whether they are or not. Likewise.
    pub(crate) fn count_lent(&self, block: BlockIndex, pages: u32) -> bool {
        self.add(block, INSTALL + u64::from(pages), u64::from(pages))
    }

    /// `pages` mapped pages of the block are no longer.
    #[inline]
    pub(crate) fn uncount(&self, block: BlockIndex, pages: u32) {
        let before = self.words[block.index()].fetch_sub(u64::from(pages), Ordering::AcqRel) & MAPPED_MASK;
        assert!(before >= u64::from(pages), "{pages} pages leave a block with {before}");
        self.resident.pages.fetch_sub(u64::from(pages), Ordering::AcqRel);
    }

    /// The block was lent, and nothing of it was touched: it was never.
    pub(crate) fn forget(&self, block: BlockIndex) {
        let before = self.words[block.index()].fetch_and(!TOUCHED, Ordering::AcqRel);
        assert!(before & (TOUCHED | MAPPED_MASK) == TOUCHED, "a block is forgotten that has {before:#x}");
    }

    /// Mapped pages of the block.
    #[inline]
    pub(crate) fn resident_in(&self, block: BlockIndex) -> u32 {
        (self.words[block.index()].load(Ordering::Acquire) & MAPPED_MASK) as u32
    }

    /// Mapped pages of the region.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        self.resident.pages.load(Ordering::Acquire)
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
        assert_eq!(first.len(), 1);
        assert_eq!((blocks.resident_in(BLOCK), blocks.resident_in(BlockIndex(0)), blocks.resident()), (100, 0, 100));
        blocks.uncount(BLOCK, 100);
        assert_eq!((blocks.resident_in(BLOCK), blocks.resident()), (0, 0));
        assert!(!blocks.count(BLOCK), "the first page is the first for good");
    }

    #[test]
    fn what_is_lent_again_is_young() {
        let blocks = Blocks::new(2);
        blocks.count_lent(BLOCK, 512);
        blocks.look_at_ages(5);
        blocks.look_at_ages(99);
        blocks.uncount(BLOCK, 512);
        blocks.forget(BLOCK);
        blocks.count_lent(BLOCK, 512);
        blocks.look_at_ages(100);
        assert_eq!(blocks.ages(100).collect::<Vec<_>>(), [(512, 0)]);
    }

    #[test]
    fn many_more_pages_are_told_of_once() {
        let blocks = Blocks::new(2);
        assert!(blocks.count(BLOCK));
        blocks.tell_when_more(64);
        let told: Vec<u32> = (2..=200).filter(|_| blocks.count(BLOCK)).collect();
        assert_eq!(told, [65]);
        blocks.tell_when_more(64);
        assert!(blocks.count_lent(BLOCK, 100));
    }

    #[test]
    fn what_was_lent_for_nothing_is_as_it_was() {
        let blocks = Blocks::new(2);
        assert!(blocks.count_lent(BLOCK, 512));
        blocks.uncount(BLOCK, 512);
        blocks.forget(BLOCK);
        assert_eq!(blocks.resident(), 0);
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
