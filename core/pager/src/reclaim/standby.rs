//! [`StandbyQueue`]: standby pages in the order in which they were swept.
//!
//! Two go through it: the cleaner, which takes the oldest page, and the flusher, which looks at each page once, the
//! oldest first, and leaves it where it is.

use std::collections::VecDeque;

use yonder_units::{FrameIndex, Nanos, PageIndex};

/// A page that was put on standby. It may have been rescued since: whoever takes it checks the page's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standby {
    /// Which region, as the reclaimer counts them.
    pub region: u32,
    /// The page.
    pub page: PageIndex,
    /// The frame that held its content when it was queued.
    pub frame: FrameIndex,
    /// When it was swept.
    pub since: Nanos,
    /// Whether its content was not the node's then.
    pub is_dirty: bool,
}

/// Oldest first. Entries of rescued pages stay until they are taken or until they outnumber the living.
#[derive(Debug, Default)]
pub struct StandbyQueue {
    entries: VecDeque<Standby>,
    /// How many of the oldest the flusher has looked at.
    looked_at: usize,
    /// Dirty ones among the others.
    dirty: usize,
}

impl StandbyQueue {
    /// Appends a page that was just swept.
    pub fn push(&mut self, standby: Standby) {
        self.dirty += usize::from(standby.is_dirty);
        self.entries.push_back(standby);
        self.check();
    }

    /// Takes the oldest page.
    pub fn pop(&mut self) -> Option<Standby> {
        let standby = self.entries.pop_front()?;
        if self.looked_at > 0 {
            self.looked_at -= 1;
        } else {
            self.dirty -= usize::from(standby.is_dirty);
        }
        self.check();
        Some(standby)
    }

    /// Puts a page back that was just taken, as the oldest again.
    pub fn put_back(&mut self, standby: Standby) {
        self.entries.push_front(standby);
        if self.looked_at > 0 {
            self.looked_at += 1;
        } else {
            self.dirty += usize::from(standby.is_dirty);
        }
        self.check();
    }

    /// All of it, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Standby> {
        self.entries.iter()
    }

    /// Entries, of pages that stand or did.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The oldest page that the flusher has not looked at.
    #[must_use]
    pub fn to_look_at(&self) -> Option<&Standby> {
        self.entries.get(self.looked_at)
    }

    /// The flusher has looked at [`StandbyQueue::to_look_at`].
    pub fn look_on(&mut self) {
        if let Some(standby) = self.entries.get(self.looked_at) {
            self.dirty -= usize::from(standby.is_dirty);
            self.looked_at += 1;
        }
        self.check();
    }

    /// Pages that the flusher has not looked at.
    #[must_use]
    pub fn not_looked_at(&self) -> usize {
        self.entries.len() - self.looked_at
    }

    /// Pages that the flusher has not looked at and that were dirty when they were swept. Some may have been rescued.
    #[must_use]
    pub fn dirty(&self) -> usize {
        self.dirty
    }

    /// Drops entries for which `alive` no longer holds, if more than half can be such: `living` is the number of pages
    /// on standby now. Keeps the queue within twice that number and a block.
    pub fn compact(&mut self, living: usize, alive: impl FnMut(&Standby) -> bool) {
        if self.entries.len() > 2 * living + yonder_units::BLOCK_PAGES {
            self.retain(alive);
        }
    }

    /// Forgets every page of `region`.
    pub fn remove_region(&mut self, region: u32) {
        self.retain(|entry| entry.region != region);
    }

    fn retain(&mut self, mut keep: impl FnMut(&Standby) -> bool) {
        let (mut at, mut looked_at, mut dirty) = (0, 0, 0);
        self.entries.retain(|entry| {
            let was_looked_at = at < self.looked_at;
            at += 1;
            let kept = keep(entry);
            looked_at += usize::from(kept && was_looked_at);
            dirty += usize::from(kept && !was_looked_at && entry.is_dirty);
            kept
        });
        (self.looked_at, self.dirty) = (looked_at, dirty);
        self.check();
    }

    /// What is counted is there.
    fn check(&self) {
        debug_assert!(self.looked_at <= self.entries.len(), "{} of {}", self.looked_at, self.entries.len());
        debug_assert!(self.dirty <= self.not_looked_at(), "{} of {} are dirty", self.dirty, self.not_looked_at());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(number: u32) -> Standby {
        Standby {
            region: number % 2,
            page: PageIndex(number),
            frame: FrameIndex(number),
            since: u64::from(number),
            is_dirty: number.is_multiple_of(3),
        }
    }

    #[test]
    fn oldest_first_and_compact_keeps_the_living() {
        let mut queue = StandbyQueue::default();
        (0..2000).for_each(|number| queue.push(entry(number)));
        assert_eq!(queue.pop(), Some(entry(0)));
        queue.compact(100, |standby| standby.page.0 >= 1900);
        assert_eq!(queue.pop(), Some(entry(1900)));
        queue.remove_region(1);
        assert_eq!(queue.pop(), Some(entry(1902)));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push,
        Pop,
        PopAndPutBack,
        Look,
        Remove(u32),
    }

    proptest! {
        /// Against a list of entries that remember whether they were looked at.
        #[test]
        fn the_flusher_sees_each_page_once_whatever_the_second_hand_does(
            steps in prop::collection::vec(prop_oneof![
                4 => Just(Step::Push), 1 => Just(Step::Pop), 1 => Just(Step::PopAndPutBack), 2 => Just(Step::Look),
                1 => (0u32..2).prop_map(Step::Remove),
            ], 1..200)
        ) {
            let (mut queue, mut model, mut made) = (StandbyQueue::default(), VecDeque::<(Standby, bool)>::new(), 0);
            for step in steps {
                match step {
                    Step::Push => {
                        queue.push(entry(made));
                        model.push_back((entry(made), false));
                        made += 1;
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), model.pop_front().map(|(standby, _)| standby)),
                    Step::PopAndPutBack => if let Some(standby) = queue.pop() {
                        queue.put_back(standby);
                        // The last one that was looked at may be looked at again.
                        if model.iter().filter(|(_, looked_at)| *looked_at).count() == 1 {
                            model[0].1 = false;
                        }
                    },
                    Step::Look => {
                        let next = model.iter_mut().find(|(_, looked_at)| !looked_at);
                        prop_assert_eq!(queue.to_look_at(), next.as_ref().map(|(standby, _)| standby));
                        queue.look_on();
                        next.into_iter().for_each(|(_, looked_at)| *looked_at = true);
                    }
                    Step::Remove(region) => {
                        queue.remove_region(region);
                        model.retain(|(standby, _)| standby.region != region);
                    }
                }
                let left = model.iter().filter(|(_, looked_at)| !looked_at);
                prop_assert_eq!(queue.not_looked_at(), left.clone().count());
                prop_assert_eq!(queue.dirty(), left.filter(|(standby, _)| standby.is_dirty).count());
            }
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "2 of 1 are dirty")]
    fn more_dirty_pages_than_pages_are_our_bug() {
        StandbyQueue { dirty: 2, ..StandbyQueue::default() }.push(Standby { is_dirty: false, ..entry(0) });
    }
}
