//! [`LeaseClock`]: how far leases have run, which is not how far the node's clock has.
//!
//! A node that stood still (a debugger, SIGSTOP, a paused virtual machine) finds its clock far ahead when it goes on,
//! and the renewals of all its clients in its sockets, unread. So a step of the clock that is longer than any between
//! two looks of a node that runs was a pause of the node, or a leap of its clock, and no silence of the clients: leases
//! stand still for it. What is left is that a leap by less than that ends a lease by as much too early.
//!
//! A lease that lasts longer than it should takes nothing from its client, whose end of it is the earlier one.
//!
//! One owner, the slow path. Invariant: leases run no faster than the node's clock.

use crate::recent::NodeTime;

/// Longest time between two looks at a node's clock for which leases run. A node looks at least every half second.
pub const LEASE_STEP_MAX: NodeTime = 600_000_000;

/// The time of leases.
#[derive(Debug)]
pub(crate) struct LeaseClock {
    step_max: NodeTime,
    /// What the node's clock showed at the last look.
    seen: NodeTime,
    /// How far leases had run then.
    reached: NodeTime,
}

impl LeaseClock {
    /// A clock that stands still for longer steps than `step_max`.
    pub(crate) fn new(step_max: NodeTime) -> Self {
        Self { step_max, seen: 0, reached: 0 }
    }

    /// A look at the node's clock, which shows `now`: how far leases have run.
    pub(crate) fn look(&mut self, now: NodeTime) -> NodeTime {
        let step = now.saturating_sub(self.seen);
        if step <= self.step_max {
            self.reached = self.reached.saturating_add(step);
        }
        self.seen = self.seen.max(now);
        self.reached
    }

    /// What the node's clock shows when leases will have run to `end`, if it neither leaps nor stops.
    pub(crate) fn shows(&self, end: NodeTime) -> NodeTime {
        self.seen.saturating_add(end.saturating_sub(self.reached))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_run_with_the_clock_and_stand_still_when_it_leaps() {
        let mut clock = LeaseClock::new(100);
        let begin = clock.look(1_000_000);
        assert_eq!((clock.look(1_000_060), clock.look(1_000_120)), (begin + 60, begin + 120));
        assert_eq!(clock.shows(begin + 150), 1_000_150);
        assert_eq!(clock.look(9_000_000), begin + 120, "a leap is nobody's silence");
        assert_eq!(clock.look(8_000_000), begin + 120, "threads read the clock one after the other");
        assert_eq!((clock.look(9_000_100), clock.shows(begin + 240)), (begin + 220, 9_000_120));
    }
}
