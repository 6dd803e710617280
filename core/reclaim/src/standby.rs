//! [`StandbyQueue`]: standby pages in the order in which they were swept.

use std::collections::VecDeque;

use yonder_units::{FrameIndex, PageIndex};

/// A page that was put on standby. It may have been rescued since: whoever takes it checks the page's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standby {
    /// Which region, as the reclaimer counts them.
    pub region: u32,
    /// The page.
    pub page: PageIndex,
    /// The frame that held its content when it was queued.
    pub frame: FrameIndex,
}

/// Oldest first. Entries of rescued pages stay until they are taken or until they outnumber the living.
#[derive(Debug, Default)]
pub struct StandbyQueue {
    entries: VecDeque<Standby>,
}

impl StandbyQueue {
    /// Appends a page that was just swept.
    pub fn push(&mut self, standby: Standby) {
        self.entries.push_back(standby);
    }

    /// Takes the oldest page.
    pub fn pop(&mut self) -> Option<Standby> {
        self.entries.pop_front()
    }

    /// Drops entries for which `alive` no longer holds, if more than half can be such: `living` is the number of pages on
    /// standby now. Keeps the queue within twice that number and a block.
    pub fn compact(&mut self, living: usize, alive: impl FnMut(&Standby) -> bool) {
        if self.entries.len() > 2 * living + yonder_units::BLOCK_PAGES {
            self.entries.retain(alive);
        }
    }

    /// Forgets every page of `region`.
    pub fn remove_region(&mut self, region: u32) {
        self.entries.retain(|entry| entry.region != region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_first_and_compact_keeps_the_living() {
        let mut queue = StandbyQueue::default();
        let entry = |number| Standby { region: number % 2, page: PageIndex(number), frame: FrameIndex(number) };
        (0..2000).for_each(|number| queue.push(entry(number)));
        assert_eq!(queue.pop(), Some(entry(0)));
        queue.compact(100, |standby| standby.page.0 >= 1900);
        assert_eq!(queue.pop(), Some(entry(1900)));
        queue.remove_region(1);
        assert_eq!(queue.pop(), Some(entry(1902)));
    }
}
