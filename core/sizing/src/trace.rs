//! [`Trace`]: what a program touches, with its blocks one behind the other.

use std::collections::HashMap;

use yonder_units::{BLOCK_PAGES, BLOCK_PAGES_U32, Narrow, PageIndex};

/// A touch of a page that was not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The page.
    pub page: PageIndex,
    /// Whether it had no content before, or none any more.
    pub is_first: bool,
}

/// The touches of a program, with its blocks one behind the other.
#[derive(Clone, Default, Debug)]
pub struct Trace {
    touches: Vec<Touch>,
    blocks: usize,
    pages: usize,
}

impl Trace {
    /// Numbers blocks by when they were first touched. Pages of a block stay beside one another.
    #[must_use]
    pub fn new(touches: impl IntoIterator<Item = Touch>) -> Self {
        let (mut blocks, mut seen) = (HashMap::new(), Vec::<bool>::new());
        let touches: Vec<Touch> = touches
            .into_iter()
            .map(|Touch { page, is_first }| {
                let next = blocks.len().narrow_u32();
                let block = *blocks.entry(page.0 / BLOCK_PAGES_U32).or_insert(next);
                if block == next && seen.len() < blocks.len() * BLOCK_PAGES {
                    seen.resize(blocks.len() * BLOCK_PAGES, false);
                }
                let page = PageIndex(block * BLOCK_PAGES_U32 + page.0 % BLOCK_PAGES_U32);
                seen[page.index()] = true;
                Touch { page, is_first }
            })
            .collect();
        Self { touches, blocks: blocks.len(), pages: seen.into_iter().filter(|is_seen| *is_seen).count() }
    }

    /// Its touches, in their order.
    pub fn touches(&self) -> impl DoubleEndedIterator<Item = Touch> + ExactSizeIterator + '_ {
        self.touches.iter().copied()
    }

    /// How many touches it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.touches.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.touches.is_empty()
    }

    /// Pages that are touched.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Blocks that have pages.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Pages that its blocks have room for.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.blocks * BLOCK_PAGES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_numbered_by_their_first_touch() {
        let touch = |page| Touch { page: PageIndex(page), is_first: false };
        let trace = Trace::new([5_000_000, 7, 5_000_001, 7].map(touch));
        let (offset, second) = (5_000_000 % BLOCK_PAGES_U32, BLOCK_PAGES_U32 + 7);
        assert_eq!(trace.touches().map(|touch| touch.page.0).collect::<Vec<_>>(), [offset, second, offset + 1, second]);
        assert_eq!((trace.blocks(), trace.pages(), trace.len()), (2, 3, 4));
    }
}
