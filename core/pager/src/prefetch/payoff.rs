//! [`Payoff`]: whether what is fetched ahead is used, and the pause of a prefetcher of which it is not.

/// Planned pages after which the counts are halved, so that what was long ago counts little.
const PERIOD_PAGES: u32 = 512;
/// Fewest planned pages for a judgement.
const JUDGED_PAGES_MIN: u32 = 64;
/// Misses that a pause lasts at first, and at most: each pause is twice as long as the one before.
const PAUSE_MIN: u32 = 1 << 10;
const PAUSE_MAX: u32 = 1 << 14;
/// A pause ends when of so many misses in a row all but a few were in sequences: these are long, and what is planned
/// for them is used.
const LOOKED_AT: u32 = 64;
const STRAYS_MAX: u32 = 4;

/// Counts of pages.
#[derive(Debug)]
pub(crate) struct Payoff {
    planned: u32,
    unused: u32,
    /// Misses until planning begins again.
    pause: u32,
    next_pause: u32,
    /// Misses of this pause since the last look, and those of them that were in no sequence.
    looked_at: u32,
    strays: u32,
}

impl Payoff {
    pub(crate) fn new() -> Self {
        Self { planned: 0, unused: 0, pause: 0, next_pause: PAUSE_MIN, looked_at: 0, strays: 0 }
    }

    /// A page was missed, of a sequence that is known or of none.
    #[inline]
    pub(crate) fn missed(&mut self, is_in_sequence: bool) {
        if self.pause > 0 {
            self.missed_in_pause(is_in_sequence);
        }
    }

    fn missed_in_pause(&mut self, is_in_sequence: bool) {
        self.pause -= 1;
        (self.looked_at, self.strays) = (self.looked_at + 1, self.strays + u32::from(!is_in_sequence));
        if self.looked_at == LOOKED_AT {
            if self.strays <= STRAYS_MAX {
                self.pause = 0;
            }
            (self.looked_at, self.strays) = (0, 0);
        }
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
            (self.looked_at, self.strays) = (0, 0);
            self.next_pause = (2 * self.next_pause).min(PAUSE_MAX);
        }
    }
}
