//! [`Margin`]: how much is kept free for faults, learnt from how much of it they take.
//!
//! What is free holds nothing, so it should be as little as lets no fault wait: what faults take between the moment at
//! which reclaim should start and the moment at which it has caught up with them. How much that is depends on the
//! program, on the machine, and on who reclaims, and is seen: at each step of reclaim, how far below the lower
//! watermark memory is. Twice the deepest of late is kept, and somebody who has waited for room is as deep as can be.
//!
//! Time is counted in pages that were swept, so that a program that rests forgets nothing. What was deepest is measured
//! from the watermark as it was when a quarter of local memory began to be swept: one that rises with what it measures
//! would run away.

/// Fewest pages that are kept.
const LEAST_PAGES: u64 = 64;
/// The margin is looked at again whenever this part of local memory was swept.
const PERIODS_EACH: u64 = 4;

/// See the head of this file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Margin {
    pages: u64,
    /// What it was when this period began.
    at_first: u64,
    /// How far below that watermark memory was, in this period.
    deepest: u64,
    /// Pages swept in this period.
    swept: u64,
    /// Pages swept since the margin was raised because somebody has waited.
    since_raised: u64,
}

impl Margin {
    /// Pages that are kept free for faults.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.max(LEAST_PAGES)
    }

    /// One of so many pages.
    #[cfg(test)]
    pub(crate) fn of(pages: u64) -> Self {
        Self { pages, ..Self::default() }
    }

    /// A step of reclaim finds memory this many pages below the lower watermark. The margin is at most `most`.
    pub fn saw(&mut self, depth: u64, most: u64) {
        let risen = self.pages() - self.at_first.max(LEAST_PAGES).min(self.pages());
        self.deepest = self.deepest.max(depth.saturating_sub(risen)).min(most);
        self.pages = self.pages.max(2 * self.deepest).min(most);
    }

    /// Somebody has waited for room. As long as less was swept than is kept that may be the same wait still.
    pub fn was_too_small(&mut self, most: u64) {
        if self.since_raised >= self.pages() {
            self.deepest = self.pages().min(most);
            self.pages = (2 * self.pages()).min(most);
            self.since_raised = 0;
        }
    }

    /// `pages` of `limit` have been swept.
    pub fn swept(&mut self, pages: u64, limit: u64) {
        self.swept += pages;
        self.since_raised += pages;
        if self.swept >= limit / PERIODS_EACH {
            // What was needed once may be needed again: it is forgotten by halves.
            self.pages = self.pages.midpoint(self.pages.min(2 * self.deepest));
            (self.at_first, self.deepest, self.swept) = (self.pages, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 50_000;
    const MOST: u64 = 7_000;

    /// Faults that take `burst` pages before reclaim has caught up, again and again: what is kept, and how often they
    /// had to wait.
    fn kept(margin: &mut Margin, burst: u64) -> (u64, u64) {
        let mut waits = 0;
        for _ in 0..4 * LIMIT / burst {
            if burst > margin.pages() {
                waits += 1;
                margin.was_too_small(MOST);
            } else {
                margin.saw(burst, MOST);
            }
            margin.swept(burst, LIMIT);
        }
        (margin.pages(), waits)
    }

    proptest! {
        #[test]
        fn twice_what_faults_take_is_kept_and_hardly_anybody_waits(first in 1u64..3_500, then in 1u64..3_500) {
            let mut margin = Margin::default();
            for burst in [first, then] {
                let (pages, waits) = kept(&mut margin, burst);
                let wanted = (2 * burst).max(LEAST_PAGES);
                prop_assert!((wanted..=wanted + wanted / 8 + 1).contains(&pages), "{pages} are kept for {burst}");
                prop_assert!(waits <= 7, "{waits} waits for {burst}");
            }
        }

        /// The watermark rises with the margin, and what is free does not: that is no reason for it to rise further.
        #[test]
        fn what_is_free_is_compared_with_where_the_watermark_was(free in 0u64..1_000, waits in any::<bool>()) {
            let mut margin = Margin::default();
            kept(&mut margin, 500);
            let first = margin.pages();
            // Twice for what is seen, and twice for who waits.
            let most = if waits { 4 * first } else { 2 * first };
            for _ in 0..100 {
                margin.saw(margin.pages().saturating_sub(free), MOST);
                if waits {
                    margin.was_too_small(MOST);
                }
                prop_assert!(margin.pages() <= most, "{} after {first} with {free} free", margin.pages());
            }
        }

        #[test]
        fn never_more_than_the_most_nor_less_than_the_least(
            steps in prop::collection::vec((0u64..20_000, 0u32..100, 0u64..30_000), 1..100)
        ) {
            let mut margin = Margin::default();
            for (depth, waits, swept) in steps {
                margin.saw(depth, MOST);
                // Somebody may wait for as long as nothing can be swept.
                (0..waits).for_each(|_| margin.was_too_small(MOST));
                prop_assert!((LEAST_PAGES..=MOST).contains(&margin.pages()), "{margin:?}");
                margin.swept(swept, LIMIT);
                prop_assert!((LEAST_PAGES..=MOST).contains(&margin.pages()), "{margin:?}");
            }
        }
    }
}
