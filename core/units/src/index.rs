//! Index newtypes: a page of a region, a block of a region, a frame of the local pool; runs of pages.

use crate::{BLOCK_PAGES_U32, PAGE_BYTES};

/// A page of a region, counted from the region's first byte. 32 bits reach 16 TiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageIndex(pub u32);

/// A block of a region: [`BLOCK_PAGES`](crate::BLOCK_PAGES) consecutive pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockIndex(pub u32);

/// A frame of the local pool: one page of local buffer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameIndex(pub u32);

/// Whether a page can be had without a fetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Residence {
    /// It can.
    Local,
    /// A fetch is on its way already.
    Coming,
    /// It cannot.
    Far,
    /// There is no such page any more.
    Unknown,
}

/// A page of one far memory: which region, by its number there, and which of its pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PageId {
    /// The region's number. It is given to another region when this one is gone.
    pub region: u32,
    /// The page in the region.
    pub page: PageIndex,
}

/// Consecutive pages of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First page, counted from the start of the mapping.
    pub first_page: u32,
    /// Number of pages, at least one.
    pub pages: u32,
}

impl PageIndex {
    /// The page that holds byte `offset` of a region.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "an address space ends below the 2^32nd page")]
    pub const fn containing(offset: u64) -> Self {
        Self((offset / PAGE_BYTES as u64) as u32)
    }

    /// Byte offset of the page in its region.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 as u64 * PAGE_BYTES as u64
    }

    /// The block the page belongs to.
    #[must_use]
    pub const fn block(self) -> BlockIndex {
        BlockIndex(self.0 / BLOCK_PAGES_U32)
    }

    /// The page as an index into a per-page array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl BlockIndex {
    /// The first page of the block.
    #[must_use]
    pub const fn first_page(self) -> PageIndex {
        PageIndex(self.0 * BLOCK_PAGES_U32)
    }

    /// The block as an index into a per-block array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl FrameIndex {
    /// Byte offset of the frame in the frame pool.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 as u64 * PAGE_BYTES as u64
    }

    /// The frame as an index into a per-frame array.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_PAGES;

    #[test]
    fn page_offsets_and_blocks_agree() {
        let page = PageIndex::containing(BLOCK_PAGES as u64 * PAGE_BYTES as u64 + 1);
        assert_eq!(page, PageIndex(BLOCK_PAGES_U32));
        assert_eq!(page.block(), BlockIndex(1));
        assert_eq!(page.block().first_page(), page);
        assert_eq!(page.offset(), BLOCK_PAGES as u64 * PAGE_BYTES as u64);
    }
}
