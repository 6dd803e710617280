//! [`Payoff`]: whether what is fetched ahead is used, and the pause of a prefetcher of which it is not.

/// Planned pages after which the counts are halved, so that what was long ago counts little.
const PERIOD_PAGES: u32 = 512;
/// Fewest planned pages for a judgement.
const JUDGED_PAGES_MIN: u32 = 64;
/// Misses that a pause lasts at first, and at most: each pause is twice as long as the one before.
const PAUSE_MIN: u32 = 1 << 10;
const PAUSE_MAX: u32 = 1 << 14;

/// Counts of pages.
#[derive(Debug)]
pub(crate) struct Payoff {
    planned: u32,
    unused: u32,
    /// Misses until planning begins again.
    pause: u32,
    next_pause: u32,
}

impl Payoff {
    pub(crate) fn new() -> Self {
        Self { planned: 0, unused: 0, pause: 0, next_pause: PAUSE_MIN }
    }

    pub(crate) fn missed(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Whether to fetch so many pages ahead.
    pub(crate) fn planned(&mut self, pages: u32) -> bool {
        if self.pause > 0 {
            return false;
        }
        self.planned += pages;
        if self.planned >= PERIOD_PAGES {
            (self.planned, self.unused) = (self.planned / 2, self.unused / 2);
            if 4 * self.unused < self.planned {
                self.next_pause = PAUSE_MIN;
            }
        }
        true
    }

    pub(crate) fn unused(&mut self, pages: u32) {
        self.unused += pages;
        if self.planned >= JUDGED_PAGES_MIN && 2 * self.unused > self.planned {
            (self.planned, self.unused) = (0, 0);
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(PAUSE_MAX);
        }
    }
}
