//! [`Recent`]: the last pages that were missed, to recognise neighbours.

use yonder_units::PageIndex;

/// Misses that are remembered: so many requests may be between two neighbours.
const RECENT_MAX: usize = 32;
/// No page: no region has this number.
const NOTHING: u64 = u64::MAX;

/// The last misses, in a ring.
#[derive(Debug)]
pub(crate) struct Recent {
    pages: [u64; RECENT_MAX],
    next: usize,
}

impl Recent {
    pub(crate) fn new() -> Self {
        Self { pages: [NOTHING; RECENT_MAX], next: 0 }
    }

    /// A miss that belongs to no stream: the stride of the new one that it begins, if it does.
    #[inline]
    pub(crate) fn missed(&mut self, region: u32, page: PageIndex) -> Option<i32> {
        let key = key(region, page);
        let before = page.0.checked_sub(1).map(|_| key - 1);
        let begins = before.is_some_and(|before| self.pages.contains(&before));
        self.pages[self.next] = key;
        self.next = (self.next + 1) % RECENT_MAX;
        begins.then_some(1)
    }

    pub(crate) fn forget(&mut self, region: u32) {
        self.pages.iter_mut().filter(|key| **key >> 32 == u64::from(region)).for_each(|key| *key = NOTHING);
    }
}

fn key(region: u32, page: PageIndex) -> u64 {
    u64::from(region) << 32 | u64::from(page.0)
}
