//! [`History`]: the last steps from miss to miss, and the step that most of them are (Leap, section 4.2).
//!
//! The newest few steps are looked at first, then twice as many, and so on: a new trend is seen early, and one with
//! noise in it is seen at all. The majority of a window is found in one pass with one candidate, and checked in a
//! second.

use yonder_units::PageIndex;

/// Steps that are remembered.
const HISTORY_MAX: usize = 32;
/// Steps of the first window.
const WINDOW_MIN: usize = 4;

/// The last misses of one region after another.
#[derive(Debug)]
pub(crate) struct History {
    steps: [i32; HISTORY_MAX],
    /// How many there are, and where the next goes.
    known: usize,
    next: usize,
    last: Option<(u32, PageIndex)>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { steps: [0; HISTORY_MAX], known: 0, next: 0, last: None }
    }

    /// A miss that belongs to no stream: the stride of the new one that it begins, if there is a trend.
    pub(crate) fn missed(&mut self, region: u32, page: PageIndex) -> Option<i32> {
        let before = self.last.replace((region, page));
        let (_, last) = before.filter(|(known, _)| *known == region)?;
        let step = i64::from(page.0) - i64::from(last.0);
        self.steps[self.next] = i32::try_from(step).unwrap_or(0);
        self.next = (self.next + 1) % HISTORY_MAX;
        self.known = (self.known + 1).min(HISTORY_MAX);
        let mut window = WINDOW_MIN;
        while window <= self.known {
            if let Some(stride) = self.majority(window) {
                return Some(stride);
            }
            window *= 2;
        }
        None
    }

    pub(crate) fn forget(&mut self, region: u32) {
        if self.last.is_some_and(|(known, _)| known == region) {
            *self = Self::new();
        }
    }

    /// The step that more than half of the newest `window` steps are.
    fn majority(&self, window: usize) -> Option<i32> {
        let newest = || (1..=window).map(|back| self.steps[(self.next + HISTORY_MAX - back) % HISTORY_MAX]);
        let (mut candidate, mut lead) = (0, 0);
        for step in newest() {
            if lead == 0 {
                candidate = step;
            }
            lead += if step == candidate { 1 } else { -1 };
        }
        let count = newest().filter(|step| *step == candidate).count();
        (candidate != 0 && 2 * count > window).then_some(candidate)
    }
}
