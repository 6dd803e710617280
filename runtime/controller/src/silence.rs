//! [`Silence`]: how long a node has heard nothing from its controller, by time in which it has looked.
//!
//! A node that stood still, or whose machine was busy, has not listened meanwhile: of the time between two looks only
//! [`Silence::step_max`] counts. What came before is heard before the next look then, and ends the silence.

use std::time::{Duration, Instant};

/// Looks at the clock in the longest silence.
const LOOKS: u32 = 8;
/// As many looks may be left out without a part of the silence being overlooked.
const LATE_LOOKS: u32 = 2;

/// Counts silence up to a limit.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    counted: Duration,
    looked: Instant,
}

impl Silence {
    pub(crate) fn new(limit: Duration, now: Instant) -> Self {
        Self { limit, counted: Duration::ZERO, looked: now }
    }

    /// Something has come.
    pub(crate) fn end(&mut self, now: Instant) {
        (self.counted, self.looked) = (Duration::ZERO, now);
    }

    /// Looks at the clock: whether it lasts for as long as the limit.
    pub(crate) fn is_too_long(&mut self, now: Instant) -> bool {
        self.counted += now.saturating_duration_since(self.looked).min(self.step_max());
        self.looked = now;
        self.counted >= self.limit
    }

    /// When to look next.
    pub(crate) fn look_at(&self) -> Instant {
        self.looked + self.limit / LOOKS
    }

    fn step_max(&self) -> Duration {
        self.limit / LOOKS * LATE_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);

    #[test]
    fn silence_is_too_long_after_its_limit_and_what_comes_ends_it() {
        let start = Instant::now();
        let mut silence = Silence::new(LIMIT, start);
        for _ in 1..LOOKS {
            let now = silence.look_at();
            assert!(!silence.is_too_long(now), "{:?}", now - start);
        }
        assert!(silence.is_too_long(silence.look_at()));
        silence.end(start + LIMIT);
        assert!(!silence.is_too_long(start + LIMIT) && !silence.is_too_long(start + LIMIT + LIMIT / LOOKS));
    }

    /// What came while the node stood still is heard after its first look.
    #[test]
    fn a_node_that_stood_still_does_not_take_its_controller_for_silent() {
        let start = Instant::now();
        let mut silence = Silence::new(LIMIT, start);
        assert!(!silence.is_too_long(start + 100 * LIMIT));
        assert!(!silence.is_too_long(start + 200 * LIMIT));
    }
}
