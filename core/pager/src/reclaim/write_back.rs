//! [`Flusher`]: when dirty standby pages are written back though nobody needs their frames.
//!
//! LightSwap's swap cache is flushed by size (section 4.2): once as many pages stand as a batch has, all of them are
//! written. Here also by age, so that what stands for long is safe on the node however little there is of it. Either
//! way the page stays on standby, clean: a touch still needs no fetch, and the cleaner can free its frame at once.

use yonder_units::Nanos;

use crate::reclaim::standby::StandbyQueue;

/// When dirty pages are written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushLimits {
    /// One that has stood for so long is.
    pub age: Nanos,
    /// When so many stand, all of them are.
    pub pages: usize,
}

/// Why a page is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushCause {
    /// It has stood for long.
    Age,
    /// Many stand.
    Size,
}

/// Decides page by page, the oldest first. See [`StandbyQueue::to_look_at`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flusher {
    /// Pages that are left to look at of the batch by size.
    left: usize,
}

impl Flusher {
    /// Whether the next page is to be written back now, and why.
    pub fn due(&mut self, queue: &StandbyQueue, limits: FlushLimits, now: Nanos) -> Option<FlushCause> {
        // The cleaner may have taken some of the batch.
        self.left = self.left.min(queue.not_looked_at());
        let next = queue.to_look_at()?;
        if self.left == 0 && queue.dirty() >= limits.pages {
            self.left = queue.not_looked_at();
        }
        debug_assert!(self.left <= queue.not_looked_at(), "{} of {}", self.left, queue.not_looked_at());
        if self.left > 0 {
            Some(FlushCause::Size)
        } else {
            (now.saturating_sub(next.since) >= limits.age).then_some(FlushCause::Age)
        }
    }

    /// The flusher has looked at the next page.
    pub fn look_on(&mut self, queue: &mut StandbyQueue) {
        debug_assert!(queue.to_look_at().is_some(), "there is no next page");
        queue.look_on();
        self.left = self.left.saturating_sub(1);
    }

    /// When the next page will have stood for long; `None` if there is none.
    #[must_use]
    pub fn due_at(&self, queue: &StandbyQueue, limits: FlushLimits) -> Option<Nanos> {
        let since = queue.to_look_at()?.since;
        Some(if self.left > 0 || queue.dirty() >= limits.pages { 0 } else { since.saturating_add(limits.age) })
    }
}

#[cfg(test)]
mod tests {
    use yonder_units::{FrameIndex, PageIndex};

    use super::*;
    use crate::reclaim::standby::Standby;

    const LIMITS: FlushLimits = FlushLimits { age: 1_000, pages: 4 };

    fn push(queue: &mut StandbyQueue, since: Nanos, is_dirty: bool) {
        queue.push(Standby { region: 0, page: PageIndex(0), frame: FrameIndex(0), since, is_dirty });
    }

    /// Looks at all that is due; how many pages that were.
    fn flush(flusher: &mut Flusher, queue: &mut StandbyQueue, now: Nanos, cause: FlushCause) -> usize {
        let mut flushed = 0;
        while let Some(why) = flusher.due(queue, LIMITS, now) {
            assert_eq!(why, cause);
            flusher.look_on(queue);
            flushed += 1;
        }
        flushed
    }

    #[test]
    fn a_page_is_due_when_it_has_stood_for_the_age_and_not_before() {
        let (mut flusher, mut queue) = (Flusher::default(), StandbyQueue::default());
        [10, 20, 900].into_iter().for_each(|since| push(&mut queue, since, true));
        assert_eq!(flusher.due_at(&queue, LIMITS), Some(1_010));
        assert_eq!(flusher.due(&queue, LIMITS, 1_009), None);
        assert_eq!(flush(&mut flusher, &mut queue, 1_020, FlushCause::Age), 2);
        assert_eq!(flusher.due_at(&queue, LIMITS), Some(1_900));
        assert_eq!(flusher.due_at(&StandbyQueue::default(), LIMITS), None);
    }

    #[test]
    fn enough_dirty_pages_are_a_batch_and_clean_ones_are_not() {
        let (mut flusher, mut queue) = (Flusher::default(), StandbyQueue::default());
        (0..9).for_each(|_| push(&mut queue, 10, false));
        (0..3).for_each(|_| push(&mut queue, 10, true));
        assert_eq!(flusher.due(&queue, LIMITS, 11), None);
        push(&mut queue, 10, true);
        assert_eq!((flusher.due_at(&queue, LIMITS), queue.not_looked_at()), (Some(0), 13));
        assert_eq!(flush(&mut flusher, &mut queue, 11, FlushCause::Size), 13, "the whole batch, not down to the limit");
        push(&mut queue, 11, true);
        assert_eq!(flusher.due(&queue, LIMITS, 12), None, "what comes later is of the next batch");
    }

    #[test]
    fn a_batch_that_the_second_hand_has_taken_is_over() {
        let (mut flusher, mut queue) = (Flusher::default(), StandbyQueue::default());
        (0..8).for_each(|_| push(&mut queue, 10, true));
        assert_eq!(flusher.due(&queue, LIMITS, 11), Some(FlushCause::Size));
        while queue.pop().is_some() {}
        assert_eq!(flusher.due(&queue, LIMITS, 11), None);
        push(&mut queue, 11, true);
        assert_eq!(flusher.due(&queue, LIMITS, 12), None);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "there is no next page")]
    fn looking_on_at_the_end_is_our_bug() {
        Flusher::default().look_on(&mut StandbyQueue::default());
    }
}
