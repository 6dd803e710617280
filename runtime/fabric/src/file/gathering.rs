//! [`Gathering`]: which poll hands what was begun to the kernel. Pure: the time and the state of the ring come from
//! outside.
//!
//! Invariant: whatever a ring has to be told or asked, a poll does it that comes [`ALONE_AGE_MAX`] later, or that comes
//! after [`Posting::AtOnce`] was asked for.

use yonder_units::Nanos;

use crate::{ALONE_AGE_MAX, GATHERED_MAX, Posting, TOGETHER_AGE_MAX};

/// What a poll finds of its ring.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Found {
    /// Transfers that were begun and not handed to the kernel.
    pub(super) begun: usize,
    /// Transfers that the kernel has.
    pub(super) under_way: usize,
    /// Whether the kernel has ends of transfers that it tells only who asks.
    pub(super) has_news: bool,
}

/// Reads that wait for others.
#[derive(Default, Debug)]
pub(super) struct Gathering {
    posting: Posting,
    /// Reads that were posted since the last were handed over, and when the first of them was.
    reads: usize,
    first_posted: Nanos,
    /// When it was found that the kernel has news.
    news_since: Option<Nanos>,
}

impl Gathering {
    pub(super) fn set_posting(&mut self, posting: Posting) {
        self.posting = posting;
    }

    /// A read was begun.
    pub(super) fn add(&mut self, now: Nanos) {
        if self.reads == 0 {
            self.first_posted = now;
        }
        self.reads += 1;
    }

    /// Whether the poll of this time makes a system call; it is made then.
    pub(super) fn is_due(&mut self, found: Found, now: Nanos) -> bool {
        let is_due = self.has_waited(found, now);
        if is_due {
            (self.reads, self.news_since) = (0, None);
        }
        is_due
    }

    fn has_waited(&mut self, Found { begun, under_way, has_news }: Found, now: Nanos) -> bool {
        if begun == 0 && !has_news {
            return false;
        }
        let (age_max, is_idle) = match self.posting {
            Posting::AtOnce => return true,
            Posting::Alone => (ALONE_AGE_MAX, false),
            Posting::Together => (TOGETHER_AGE_MAX, under_way == 0),
        };
        // Beside the reads there are writes, and reads of pages that were moved, which have waited once.
        let is_mixed = begun > self.reads;
        let is_old = self.reads > 0 && now.saturating_sub(self.first_posted) >= age_max;
        let is_heard = has_news && {
            let since = *self.news_since.get_or_insert(now);
            now.saturating_sub(since) >= TOGETHER_AGE_MAX
        };
        is_mixed || is_old || is_heard || begun >= GATHERED_MAX || is_idle && begun > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Found = Found { begun: 0, under_way: 1, has_news: false };

    fn gathering(posting: Posting, reads: usize) -> (Gathering, Found) {
        let mut gathering = Gathering::default();
        gathering.set_posting(posting);
        (0..reads as Nanos).for_each(|read| gathering.add(1000 + read));
        (gathering, Found { begun: reads, ..BUSY })
    }

    #[test]
    fn at_once_is_the_next_poll() {
        let (mut reads, found) = gathering(Posting::AtOnce, 1);
        assert!(reads.is_due(found, 0) && !reads.is_due(BUSY, 0));
        assert!(reads.is_due(Found { has_news: true, ..BUSY }, 0));
    }

    #[test]
    fn reads_wait_for_their_time_or_for_enough_others() {
        for (posting, age_max) in [(Posting::Alone, ALONE_AGE_MAX), (Posting::Together, TOGETHER_AGE_MAX)] {
            let (mut reads, found) = gathering(posting, 3);
            assert!(!reads.is_due(found, 1000 + age_max - 1), "{posting:?}");
            assert!(reads.is_due(found, 1000 + age_max), "{posting:?}");
            // The next one has its own time.
            reads.add(1000 + age_max);
            let found = Found { begun: 1, ..BUSY };
            assert!(!reads.is_due(found, 1000 + 2 * age_max - 1), "{posting:?}");
            assert!(reads.is_due(found, 1000 + 2 * age_max), "{posting:?}");
            let (mut few, found) = gathering(posting, GATHERED_MAX - 1);
            assert!(!few.is_due(found, 1001), "{posting:?}");
            let (mut many, found) = gathering(posting, GATHERED_MAX);
            assert!(many.is_due(found, 1001), "{posting:?}");
            // A clock that goes back is no time that has passed.
            let (mut early, found) = gathering(posting, 1);
            assert!(!early.is_due(found, 0), "{posting:?}");
        }
    }

    #[test]
    fn nothing_waits_for_a_caller_that_may_sleep() {
        let (mut reads, found) = gathering(Posting::Alone, 2);
        assert!(!reads.is_due(found, 1001));
        reads.set_posting(Posting::AtOnce);
        assert!(reads.is_due(found, 0));
    }

    #[test]
    fn a_disk_that_has_nothing_to_do_gets_the_first_of_many_at_once() {
        let idle = |found| Found { under_way: 0, ..found };
        let (mut many, found) = gathering(Posting::Together, 1);
        assert!(many.is_due(idle(found), 1001));
        let (mut few, found) = gathering(Posting::Alone, 1);
        assert!(!few.is_due(idle(found), 1001));
    }

    #[test]
    fn what_is_no_posted_read_goes_at_once() {
        for posting in [Posting::Alone, Posting::Together] {
            let (mut mixed, found) = gathering(posting, 2);
            assert!(mixed.is_due(Found { begun: found.begun + 1, ..found }, 1001));
            assert!(mixed.is_due(Found { begun: 1, ..BUSY }, 1001), "a write alone");
        }
    }

    #[test]
    fn the_kernel_is_asked_for_its_news_after_a_while() {
        for posting in [Posting::Alone, Posting::Together] {
            let (mut reads, _) = gathering(posting, 0);
            let found = Found { has_news: true, ..BUSY };
            assert!(!reads.is_due(found, 7) && !reads.is_due(found, 6 + TOGETHER_AGE_MAX));
            assert!(reads.is_due(found, 7 + TOGETHER_AGE_MAX));
            assert!(!reads.is_due(found, 8 + TOGETHER_AGE_MAX), "others are other news");
        }
    }
}
