//! [`ByPage`]: an allocator as the paper describes it (Clio, section 4.2), to compare Yonder's with.
//!
//! Every page has a hash of its own, and a range that has a page without room is given up for the next one. Yonder's
//! pages share a hash in runs, which `core/board` decides (ADR 0006), so this is not in it.

use yonder_board::Pid;

/// Slots of a bucket. The paper has a fixed number and does not say which; this is Yonder's.
const SLOTS_PER_BUCKET: u8 = 8;
/// Slots for each physical page, by default (section 4.2).
const SLOTS_PER_PAGE: u64 = 2;
/// Ranges that are tried for an allocation.
const TRIES_MAX: u32 = 1 << 16;

/// How many slots of each bucket are taken, and where each space's next search begins.
#[derive(Debug)]
pub(super) struct ByPage {
    taken: Vec<u8>,
    next: Vec<(Pid, u64)>,
    seed: u64,
}

impl ByPage {
    /// A table for `pages` physical pages.
    pub(super) fn new(pages: u32, seed: u64) -> Self {
        let buckets = u64::from(pages) * SLOTS_PER_PAGE / u64::from(SLOTS_PER_BUCKET);
        Self { taken: vec![0; buckets as usize], next: Vec::new(), seed }
    }

    /// Allocates `pages` pages that follow one another. Returns how many ranges were tried in vain, or nothing if there
    /// is no room.
    pub(super) fn allocate(&mut self, pid: Pid, pages: u64) -> Option<u32> {
        let space = self.next.iter().position(|(other, _)| *other == pid).unwrap_or_else(|| {
            self.next.push((pid, 1));
            self.next.len() - 1
        });
        let mut first = self.next[space].1;
        for retries in 0..TRIES_MAX {
            match self.take_room(pid, first, pages) {
                Ok(()) => {
                    self.next[space].1 = first + pages;
                    return Some(retries);
                }
                Err(conflict) => first = conflict + 1,
            }
        }
        None
    }

    /// Takes a slot for each page, or none, and says which page had none.
    fn take_room(&mut self, pid: Pid, first: u64, pages: u64) -> Result<(), u64> {
        for page in first..first + pages {
            let bucket = self.bucket(pid, page);
            if self.taken[bucket] == SLOTS_PER_BUCKET {
                for before in first..page {
                    let bucket = self.bucket(pid, before);
                    self.taken[bucket] -= 1;
                }
                return Err(page);
            }
            self.taken[bucket] += 1;
        }
        Ok(())
    }

    /// The bucket of a page, by the finalizer of SplitMix64.
    fn bucket(&self, pid: Pid, page: u64) -> usize {
        let mut hash = ((u64::from(pid.get()) << 32) | page).wrapping_add(self.seed);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        ((u128::from(hash) * self.taken.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_never_overflow_and_an_allocation_takes_all_its_slots_or_none() {
        let mut table = ByPage::new(64, 7);
        let (mut pages, mut retries) = (0, 0);
        while let Some(tried) = table.allocate(Pid::new(1 + pages % 3).unwrap(), 3) {
            (pages, retries) = (pages + 3, retries + tried);
            assert_eq!(table.taken.iter().map(|taken| u32::from(*taken)).sum::<u32>(), pages);
            assert!(table.taken.iter().all(|taken| *taken <= SLOTS_PER_BUCKET));
        }
        assert!(pages > 110 && retries > 0, "{pages} pages of 128 slots, {retries} retries");
    }
}
