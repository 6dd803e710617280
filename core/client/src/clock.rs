//! [`NodeClock`]: what a client knows of the node's clock.
//!
//! A request says when it was first sent, on the node's clock and never later than it was (T4). The client has only the
//! times in answers: an answer made at `T` that arrived at `R` proves that the node's clock is at least
//! `T + (t - R) * (1 - 1/1024)` at any later `t`, if the clocks drift apart by less than one part in 1024.
//!
//! They may not: the clock of a node whose machine was paused stands still meanwhile, and a clock may have been
//! measured wrongly. An answer that was made at an earlier time than the request claims proves that the bound was too
//! high, and [`NodeClock::fall_back`] makes it the latest time that an answer has said. That time has passed for
//! certain.
//!
//! Invariants: the bound is never below the latest time heard; while clocks drift apart by less than the allowance it
//! is never above the node's clock. That a request is executed once depends on neither: all its attempts make one
//! claim.

use yonder_units::Nanos;

/// The part of the passed time that is not counted: one in 2^10.
const DRIFT_SHIFT: u32 = 10;
/// After this time without an answer the bound is looked after again, because the allowance for drift has made it lag
/// by 10 ms, and a node's memory of requests is not much longer.
pub(crate) const FRESH_NANOS_MAX: Nanos = 10_000_000_000;

/// A lower bound of the node's clock.
#[derive(Debug, Default)]
pub struct NodeClock {
    anchor: Option<Anchor>,
    /// The latest time that an answer has said.
    latest: u64,
    /// When the last answer arrived.
    heard: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    node: u64,
    local: Nanos,
}

impl NodeClock {
    /// Takes note of an answer that the node made at `time` and that has arrived.
    #[inline]
    pub fn hear(&mut self, time: u64, now: Nanos) {
        if self.bound(now).is_none_or(|bound| time > bound) {
            self.anchor = Some(Anchor { node: time, local: now });
        }
        self.latest = self.latest.max(time);
        self.heard = self.heard.max(now);
    }

    /// Takes note that the node's clock was behind the bound: what was added to the times in answers is not believed.
    pub fn fall_back(&mut self, now: Nanos) {
        self.anchor = Some(Anchor { node: self.latest, local: now });
    }

    /// A time that the node's clock has passed; `None` before the first answer.
    #[inline]
    #[must_use]
    pub fn bound(&self, now: Nanos) -> Option<u64> {
        let Anchor { node, local } = self.anchor?;
        let passed = now.saturating_sub(local);
        // Rounded up, so that the allowance is never too small.
        Some(node.saturating_add(passed - passed.div_ceil(1 << DRIFT_SHIFT)))
    }

    /// Whether the bound is close enough for requests that must not be executed twice.
    #[inline]
    pub(crate) fn is_fresh(&self, now: Nanos) -> bool {
        self.anchor.is_some() && now.saturating_sub(self.heard) <= FRESH_NANOS_MAX
    }

    /// Forgets everything: the node is another one.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_answer() {
        let mut clock = NodeClock::default();
        assert_eq!((clock.bound(5), clock.is_fresh(5)), (None, false));
        clock.hear(1000, 10);
        assert_eq!((clock.bound(10), clock.is_fresh(10)), (Some(1000), true));
        assert_eq!(clock.bound(10 + 1024), Some(1000 + 1023));
        clock.reset();
        assert_eq!(clock.bound(20), None);
    }

    #[test]
    fn a_delayed_answer_does_not_lower_the_bound_but_shows_that_the_node_is_there() {
        let mut clock = NodeClock::default();
        clock.hear(1_000_000, 0);
        clock.hear(900_000, 2000);
        assert!(clock.bound(2000).unwrap() > 1_000_000);
        assert!(clock.is_fresh(2000 + FRESH_NANOS_MAX));
        assert!(!clock.is_fresh(2001 + FRESH_NANOS_MAX));
    }

    #[test]
    fn a_bound_that_was_too_high_falls_back_to_what_was_heard() {
        let mut clock = NodeClock::default();
        clock.hear(1_000, 0);
        assert!(clock.bound(1 << 30).unwrap() > 1_000_000_000);
        clock.hear(2_000, 1 << 30);
        clock.hear(1_500, 1 << 30);
        clock.fall_back(1 << 30);
        assert_eq!(clock.bound(1 << 30), Some(2_000));
        assert_eq!(clock.bound((1 << 30) + 1024), Some(3_023));
    }

    proptest! {
        /// Answers delayed at will from a clock that drifts at will within the allowance.
        #[test]
        fn the_bound_is_never_above_the_nodes_clock(
            start in 0u64..1 << 40, slow in any::<bool>(), delays in prop::collection::vec((1u64..1 << 32, 0u64..1 << 30), 1..40),
        ) {
            let node = |local: u64| start + if slow { local - local / 1025 } else { local + local / 1025 };
            let (mut clock, mut now) = (NodeClock::default(), 0);
            for (pause, delay) in delays {
                now += pause;
                clock.hear(node(now), now + delay);
                now += delay;
                prop_assert!(clock.bound(now).unwrap() <= node(now));
                prop_assert!(clock.bound(now + pause).unwrap() <= node(now + pause));
            }
        }
    }
}
